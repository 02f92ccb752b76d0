"""Notices arrive once, in order, however often a channel fails; one dead channel delays no other."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from stepscope.alerts.delivery.delivery import SUPERSEDED, Delivery
from stepscope.channels.base import Channel, DeliveryError
from stepscope.schema.alert import AlertDetail, Notice
from stepscope.store.sqlite import SqliteStore

S = 10**9


class Mailbox(Channel):
    """Keeps what arrives, after failing once for each of the given errors."""

    target = "a mailbox"

    def __init__(self, *failures: DeliveryError) -> None:
        self.failures = list(failures)
        self.arrived: list[str] = []
        self.opened = threading.Event()
        self.opened.set()

    def send(self, notice: Notice) -> None:
        self.opened.wait(30)
        if self.failures:
            raise self.failures.pop(0)
        self.arrived.append(notice.id)


class Clock:
    def __init__(self) -> None:
        self.ns = 1_000 * S

    def __call__(self) -> int:
        return self.ns


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    store = SqliteStore(tmp_path / "runs.sqlite")
    yield store
    store.close()


def post(
    store: SqliteStore, notice_id: str, *channels: str, at_ns: int = 1_000 * S, rules: tuple[str, ...] = ()
) -> None:
    """Posts a notice of some rules; without any, of one that no other notice is about."""
    details = tuple(
        AlertDetail(rule, "warning", "It is hot.", at_ns, recent=(1.0, float("nan")))
        for rule in rules or (f"rule of {notice_id}",)
    )
    with store.transaction():
        for channel in channels:
            store.alert_book.post(channel, Notice(notice_id, "firing", "r", "r-1", "p", "h", at_ns, details))


def work(delivery: Delivery, done: Callable[[], bool]) -> None:
    """Ticks until something is so; the clock of the delivery stands still."""
    deadline = time.monotonic() + 20
    while not done():
        delivery.tick()
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.002)
    delivery.tick()


def test_a_notice_arrives_at_each_of_its_channels_once(store: SqliteStore, clock: Clock) -> None:
    first, other = Mailbox(), Mailbox()
    delivery = Delivery(store, lambda _: {"one": first, "other": other}, clock)
    post(store, "a", "one", "other")
    post(store, "b", "one")
    work(delivery, lambda: not delivery.is_waiting)
    delivery.tick()
    assert (first.arrived, other.arrived) == (["a", "b"], ["a"])
    assert [note["sent_ns"] is not None for note in store.notices()] == [True] * 3


def test_the_same_notice_posted_twice_is_sent_once(store: SqliteStore, clock: Clock) -> None:
    box = Mailbox()
    delivery = Delivery(store, lambda _: {"one": box}, clock)
    post(store, "a", "one")
    post(store, "a", "one")
    work(delivery, lambda: not delivery.is_waiting)
    assert box.arrived == ["a"]


def test_a_failed_delivery_is_retried_with_growing_pauses(store: SqliteStore, clock: Clock) -> None:
    box = Mailbox(*[DeliveryError("down")] * 3)
    delivery = Delivery(store, lambda _: {"one": box}, clock, chance=lambda: 0.5)
    post(store, "a", "one")
    waits = []
    for attempt in (1, 2, 3):
        work(delivery, lambda count=attempt: store.notices()[0]["attempts"] == count)
        [waiting] = store.alert_book.undelivered()
        waits.append((waiting.due_ns - clock.ns) / S)
        clock.ns = waiting.due_ns - 1
        delivery.tick()
        assert box.arrived == []
        clock.ns = waiting.due_ns
    assert waits == [2, 4, 8]
    work(delivery, lambda: box.arrived == ["a"])


def test_a_final_failure_is_given_up_and_the_next_notice_sent(store: SqliteStore, clock: Clock) -> None:
    box = Mailbox(DeliveryError("no such address", is_final=True))
    delivery = Delivery(store, lambda _: {"one": box}, clock)
    post(store, "a", "one")
    post(store, "b", "one")
    work(delivery, lambda: box.arrived == ["b"])
    first, second = store.notices()
    assert (first["given_up_ns"], first["trouble"]) == (clock.ns, "no such address")
    assert second["sent_ns"] == clock.ns


def test_a_channel_that_hangs_delays_no_other(store: SqliteStore, clock: Clock) -> None:
    hanging, quick = Mailbox(), Mailbox()
    hanging.opened.clear()
    delivery = Delivery(store, lambda _: {"hanging": hanging, "quick": quick}, clock)
    post(store, "a", "hanging", "quick")
    work(delivery, lambda: quick.arrived == ["a"])
    post(store, "b", "hanging", "quick")
    delivery.has_news = True
    work(delivery, lambda: quick.arrived == ["a", "b"])
    assert hanging.arrived == []
    hanging.opened.set()
    work(delivery, lambda: hanging.arrived == ["a", "b"])


def test_the_next_agent_sends_what_the_last_one_could_not(store: SqliteStore, clock: Clock) -> None:
    post(store, "a", "one")
    Delivery(store, lambda _: {"one": Mailbox(DeliveryError("down"))}, clock)  # ends before it sent anything
    box = Mailbox()
    heir = Delivery(store, lambda _: {"one": box}, clock)
    work(heir, lambda: not heir.is_waiting)
    assert box.arrived == ["a"]


def test_notices_of_a_channel_that_is_gone_are_given_up_after_an_hour(
    store: SqliteStore, clock: Clock
) -> None:
    delivery = Delivery(store, lambda _: {}, clock)
    post(store, "a", "gone")
    delivery.tick()
    assert store.notices()[0]["given_up_ns"] is None
    assert not delivery.is_waiting
    clock.ns += 3601 * S
    delivery.tick()
    assert store.notices()[0]["trouble"] == "there is no such channel"


def test_a_library_that_raises_anything_is_a_failure_without_its_text(
    store: SqliteStore, clock: Clock
) -> None:
    class Odd(Mailbox):
        def send(self, notice: Notice) -> None:
            raise LookupError("https://secret@example.org")

    odd = Odd()
    delivery = Delivery(store, lambda _: {"one": odd}, clock)
    post(store, "a", "one")
    work(delivery, lambda: store.notices()[0]["attempts"] == 1)
    assert store.notices()[0]["trouble"] == "LookupError"


def test_delayed_notices_about_a_rule_are_replaced_by_the_newest(store: SqliteStore, clock: Clock) -> None:
    mailbox = Mailbox(*[DeliveryError("it is down")] * 3)
    delivery = Delivery(store, lambda _: {"one": mailbox}, clock)
    for number, name in enumerate(["fires", "is over", "fires again", "is over again"]):
        post(store, name, "one", at_ns=clock.ns, rules=("hot",))
        delivery.has_news = True
        work(delivery, lambda left=2 - number: len(mailbox.failures) == max(left, 0))
        clock.ns += S
    clock.ns += 600 * S
    work(delivery, lambda: not delivery.is_waiting)
    assert mailbox.arrived == ["is over again"]
    assert [notice["trouble"] for notice in store.notices()][:2] == [SUPERSEDED] * 2


def test_a_notice_waits_for_an_older_one_of_the_same_rule_and_for_no_other(
    store: SqliteStore, clock: Clock
) -> None:
    mailbox = Mailbox(DeliveryError("it is down"))
    delivery = Delivery(store, lambda _: {"one": mailbox}, clock)
    post(store, "both fire", "one", rules=("hot", "full"))
    work(delivery, lambda: not mailbox.failures)
    post(store, "hot is over", "one", rules=("hot",))
    post(store, "another fires", "one", rules=("slow",))
    delivery.has_news = True
    work(delivery, lambda: mailbox.arrived == ["another fires"])
    clock.ns += 600 * S
    work(delivery, lambda: not delivery.is_waiting)
    assert mailbox.arrived == ["another fires", "both fire", "hot is over"]
