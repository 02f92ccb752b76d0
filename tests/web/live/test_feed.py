"""The live feed sends each client everything once, in order, after any interruption."""

from __future__ import annotations

import asyncio
import itertools
import json
import shutil
import time

import numpy as np
import pytest

from stepscope.errors import NotFound, StoreError
from stepscope.schema.record import Event
from stepscope.schema.series import Source
from stepscope.store.base import OpenAlert
from stepscope.web.api.run_head import cursor_of
from stepscope.web.live import feed, live_run
from stepscope.web.live.event_stream import EventStream
from stepscope.web.live.subscriber import Message
from tests.web.asking import API, BEGUN_NS, NS, RUN, append, ask, get, process, state_and_app, times

S2 = Source(RUN, "s2", 0, "node1")
KEYS = frozenset({"loss"})


def log(store, begin: int, count: int, key: str = "loss", of: Source = S2) -> None:
    values = np.arange(begin, begin + count, dtype=float)
    append(store, {key: values}, np.arange(begin, begin + count), times(count, 1000 + begin), of)


def cursor_now(state) -> str:
    """The cursor a chart is read with at this moment."""
    with state.readers.open() as opened:
        run = opened.run(RUN)
        return cursor_of(state, opened, run, opened.reader.counters(run.id))


def payloads(messages: list[Message], event: str) -> list[dict]:
    return [json.loads(message.text) for message in messages if message.event == event]


def values(messages: list[Message]) -> list[float]:
    return [
        value
        for points in payloads(messages, "points")
        for part in points["series"]
        for value in part["values"]
    ]


def test_a_client_gets_a_cursor_first_and_then_what_is_new(state, store) -> None:
    async def follow():
        client = await state.feed.join(RUN, KEYS, None)
        log(store, 2000, 3)
        log(store, 2000, 3, key="other")
        await state.feed.poll()
        return client.drain()

    messages = asyncio.run(follow())
    assert messages[0].event == "hello"
    assert set(json.loads(messages[0].text)) == {"now", "cursor", "heartbeat_s"}
    [points] = payloads(messages, "points")
    assert points["run"] == RUN
    [series] = points["series"]
    assert (series["key"], series["rank"], series["axis"], series["values"]) == (
        "loss",
        0,
        "step",
        [2000.0, 2001.0, 2002.0],
    )
    assert series["steps"] == [2000, 2001, 2002]
    assert series["times"][0] == (BEGUN_NS + 3000 * NS) / 1e9 + 0.01
    assert [json.loads(message.text)["id"] for message in messages if message.event == "run"] == [RUN]


@pytest.mark.parametrize("cuts", [[0, 10], [0, 3, 7, 10], list(range(11))])
def test_a_client_that_reconnects_with_a_cursor_gets_every_point_once_also_from_another_server(
    folder, store, cuts
) -> None:
    got: list[float] = []
    state, app = state_and_app(folder)
    since = get(app, f"/runs/{RUN}")["cursor"]
    for begin, end in itertools.pairwise(cuts):
        log(store, 3000 + begin, end - begin)

        async def visit(since=since):
            # A server of its own each time: the last one was stopped.
            fresh, _ = state_and_app(folder)
            client = await fresh.feed.join(RUN, KEYS, since)
            messages = client.drain()
            fresh.close()
            return messages

        messages = asyncio.run(visit())
        assert payloads(messages, "resync") == []
        got += values(messages)
        since = next(message.cursor for message in reversed(messages) if message.cursor)
    assert got == [3000.0 + number for number in range(10)]
    state.close()


def test_points_logged_between_loading_a_chart_and_following_it_arrive_exactly_once(folder, store) -> None:
    state, _ = state_and_app(folder)

    async def follow():
        before = await state.feed.join(RUN, KEYS, None)
        for number in range(20):
            log(store, 4000 + number, 1)
            if number % 3 == 0:
                await state.feed.poll()
            if number == 10:
                late = await state.feed.join(RUN, KEYS, cursor_now(state))
        await state.feed.poll()
        return before.drain(), late.drain()

    first, second = asyncio.run(follow())
    assert values(first) == [4000.0 + number for number in range(20)]
    assert values(second) == [4000.0 + number for number in range(11, 20)]
    state.close()


def test_points_that_are_not_finite_are_named(state, store) -> None:
    async def follow():
        client = await state.feed.join(RUN, KEYS, None)
        append(store, {"loss": [np.nan, np.inf, -np.inf, 1.0]}, [1, 2, 3, 4], times(4, 2000), S2)
        await state.feed.poll()
        return client.drain()

    assert values(asyncio.run(follow())) == ["NaN", "Infinity", "-Infinity", 1.0]


def test_machine_points_come_with_the_step_that_was_in_progress(state, store) -> None:
    gpu = Source(RUN, "s2", None, "node1", "gpu0", "seconds")

    async def follow():
        client = await state.feed.join(RUN, frozenset({"gpu/power_watts"}), None)
        for second in (5000, 5001):
            append(store, {"loss": [1.0]}, [second], [BEGUN_NS + second * NS], S2)
            append(store, {"gpu/power_watts": [300.0]}, [0], [BEGUN_NS + second * NS - NS // 2], gpu)
            await state.feed.poll()
        return client.drain()

    parts = [part for points in payloads(asyncio.run(follow()), "points") for part in points["series"]]
    assert [(part["axis"], part["device"], part["steps"]) for part in parts] == [
        ("seconds", "gpu0", [5000]),
        ("seconds", "gpu0", [5001]),
    ]


def test_alerts_findings_events_and_notes_are_sent_when_they_change(state, store) -> None:
    finding = {
        "id": "a.b",
        "key": "a.b",
        "severity": "warning",
        "open": True,
        "first_time": 1.0,
        "last_time": 2.0,
    }

    async def follow():
        client = await state.feed.join(RUN, KEYS, None)
        with store.transaction():
            number = store.alert_book.fire(OpenAlert(RUN, "gpu_hot", "warning", "Hot.", BEGUN_NS, {}))
            store.put_event(RUN, Event("checkpoint", BEGUN_NS + NS, 7, 0, "s2", {"path": "a.pt"}))
            store.put_event(RUN, Event("console", BEGUN_NS + NS, 7, 0, "s2", {"text": "no moment"}))
            store.put_finding(RUN, finding, BEGUN_NS)
        await state.feed.poll()
        first = client.drain()
        await state.feed.poll()
        quiet = client.drain()
        with store.transaction():
            store.alert_book.resolve(number, BEGUN_NS + 9 * NS)
        await state.feed.poll()
        return first, quiet, client.drain()

    first, quiet, last = asyncio.run(follow())
    assert [alert["rule"] for alert in payloads(first, "alert")] == ["gpu_hot"]
    assert [finding["id"] for finding in payloads(first, "finding")] == ["a.b"]
    assert [(mark["kind"], mark["step"]) for mark in payloads(first, "mark")] == [("checkpoint", 7)]
    assert {message.event for message in quiet} <= {"run"}
    assert [alert["resolved"] for alert in payloads(last, "alert")] == [(BEGUN_NS + 9 * NS) / 1e9]


def test_a_client_that_reconnects_gets_what_changed_meanwhile(folder, store) -> None:
    state, app = state_and_app(
        folder,
    )
    state.now_ns = lambda: BEGUN_NS + 100 * NS
    since = get(app, f"/runs/{RUN}")["cursor"]
    with store.transaction():
        store.alert_book.fire(OpenAlert(RUN, "gpu_hot", "warning", "Hot.", BEGUN_NS + 101 * NS, {}))
        store.put_event(RUN, Event("checkpoint", BEGUN_NS + 101 * NS, 7, 0, "s2", {}))
    messages = asyncio.run(state.feed.join(RUN, KEYS, since)).drain()
    assert [alert["rule"] for alert in payloads(messages, "alert")] == ["gpu_hot"]
    assert [mark["kind"] for mark in payloads(messages, "mark")] == ["checkpoint"]
    state.close()


def test_a_client_cut_off_before_it_caught_up_reconnects_with_its_old_cursor(folder, store) -> None:
    state, app = state_and_app(folder)
    since = get(app, f"/runs/{RUN}")["cursor"]
    log(store, 3000, 5)
    hello, points = asyncio.run(state.feed.join(RUN, KEYS, since)).drain()
    assert (hello.cursor, json.loads(hello.text)["cursor"]) == (since, since)
    assert points.cursor != since
    again = asyncio.run(state.feed.join(RUN, KEYS, hello.cursor)).drain()
    assert values(again) == values([points])
    state.close()


def test_a_polling_client_gets_an_alert_once(folder, store) -> None:
    _, app = state_and_app(folder)
    since = get(app, f"/runs/{RUN}")["cursor"]
    with store.transaction():
        store.alert_book.fire(OpenAlert(RUN, "gpu_hot", "warning", "Hot.", time.time_ns(), {}))
    kinds = []
    for _ in range(3):
        polled = get(app, f"/delta?run={RUN}&keys=loss&wait=0&since={since}")
        since = polled["cursor"]
        kinds.append([event["event"] for event in polled["events"]])
    assert kinds == [["alert"], [], []]


@pytest.mark.parametrize("since", ["nonsense", "AAAA", "t12", "💥"])
def test_an_unknown_cursor_causes_a_resync(state, store, since: str) -> None:
    messages = asyncio.run(state.feed.join(RUN, KEYS, since)).drain()
    assert [message.event for message in messages] == ["hello", "resync"]


def test_a_client_is_informed_once_that_its_run_was_deleted(state, store, folder) -> None:
    async def follow():
        client = await state.feed.join(RUN, KEYS, None)
        client.drain()
        store.close()
        shutil.rmtree(folder)
        await state.feed.poll()
        await state.feed.poll()
        return client.drain()

    assert payloads(asyncio.run(follow()), "resync") == [{"why": "The run is no longer in the store."}]


def test_too_many_points_cause_a_resync_but_not_too_often(folder, store, monkeypatch) -> None:
    monkeypatch.setattr(live_run, "MAX_POINTS", 10)
    state, _ = state_and_app(folder)
    clock = [BEGUN_NS]
    state.now_ns = lambda: clock[0]

    async def follow():
        client = await state.feed.join(RUN, KEYS, None)
        client.drain()
        kinds = []
        for number in range(8):
            log(store, 6000 + 20 * number, 20)
            clock[0] += NS
            await state.feed.poll()
            kinds.append([message.event for message in client.drain() if message.event != "run"])
        log(store, 9000, 2)
        clock[0] += NS
        await state.feed.poll()
        kinds.append([message.event for message in client.drain() if message.event != "run"])
        log(store, 9002, 2)
        await state.feed.poll()
        kinds.append([message.event for message in client.drain() if message.event != "run"])
        return kinds

    kinds = asyncio.run(follow())
    assert kinds[:8] == [["resync"], [], [], [], [], ["resync"], [], []]
    # One more when it is over: what came in between is to be read, too.
    assert kinds[8:] == [["resync"], ["points"]]
    missed = asyncio.run(state.feed.join(RUN, KEYS, "")).drain()
    # The row was sent to the other client, and is not sent again before it changes.
    assert [message.event for message in missed] == ["hello", "run"]
    state.close()


def test_a_row_that_changes_again_within_a_second_is_sent_when_it_is_over(state, store, monkeypatch) -> None:
    monkeypatch.setattr(feed, "AGENT_WAIT_S", 0.0)
    clock = [BEGUN_NS + 112 * NS]  # the run has just ended: figures of older ones are not read again
    state.now_ns = lambda: clock[0]

    async def follow() -> list[list[int]]:
        client = await state.feed.join(RUN, KEYS, None)
        sent = []
        for step in (7000, 7001):
            log(store, step, 1)
            await state.feed._poll_if_changed()
            sent.append([row["step"] for row in payloads(client.drain(), "run")])
        clock[0] += 2 * NS
        await state.feed._poll_if_changed()  # nothing was written since
        sent.append([row["step"] for row in payloads(client.drain(), "run")])
        return sent

    assert asyncio.run(follow()) == [[7000], [], [7001]]


def test_a_client_that_missed_too_many_points_gets_a_resync(folder, store, monkeypatch) -> None:
    state, app = state_and_app(folder)
    since = get(app, f"/runs/{RUN}")["cursor"]
    monkeypatch.setattr(live_run, "MAX_POINTS", 10)
    log(store, 6000, 20)
    messages = asyncio.run(state.feed.join(RUN, KEYS, since)).drain()
    assert [message.event for message in messages] == ["hello", "resync"]
    state.close()


def test_the_row_of_a_run_is_sent_at_most_once_a_second(folder, store) -> None:
    state, _ = state_and_app(folder)
    clock = [BEGUN_NS + 10**12]
    state.now_ns = lambda: clock[0]
    with store.transaction():
        store.put_process(process("s3", started_ns=BEGUN_NS + 200 * NS))

    async def follow():
        client = await state.feed.join(RUN, KEYS, None)
        client.drain()
        counts = []
        for number in range(6):
            log(store, 7000 + number, 1)
            clock[0] += NS // 4
            await state.feed.poll()
            counts.append(len(payloads(client.drain(), "run")))
        return counts

    assert sum(asyncio.run(follow())) == 2
    state.close()


def test_clients_of_the_list_get_changed_rows_and_the_number_of_runs(state, store) -> None:
    async def follow():
        client = await state.feed.join(None, frozenset(), None)
        first = client.drain()
        await state.feed.poll()
        quiet = client.drain()
        with store.transaction():
            store.put_process(process(run_id="new-1", name="new"))
        await state.feed.poll()
        return first, quiet, client.drain()

    first, quiet, last = asyncio.run(follow())
    assert [message.event for message in first] == ["hello", "runs"]
    assert payloads(first, "runs") == [{"changed": [], "total": 1}]
    assert quiet == []
    [news] = payloads(last, "runs")
    assert ([row["id"] for row in news["changed"]], news["total"]) == (["new-1"], 2)


def test_clients_of_the_list_get_changes_from_shortly_before_another_client_joined(state, store) -> None:
    async def follow():
        client = await state.feed.join(None, frozenset(), None)
        client.drain()
        with store.transaction():
            store.put_process(process(run_id="new-1", name="new"))
        await state.feed.join(None, frozenset(), None)
        await state.feed.poll()
        return client.drain()

    [news] = payloads(asyncio.run(follow()), "runs")
    assert [row["id"] for row in news["changed"]] == ["new-1"]


def test_one_poll_serves_all_clients_and_those_of_the_same_keys_share_the_text(
    state, store, monkeypatch
) -> None:
    reads = []
    read = live_run.read_points
    monkeypatch.setattr(
        "stepscope.web.live.live_run.read_points", lambda *given: reads.append(1) or read(*given)
    )

    async def follow():
        clients = [await state.feed.join(RUN, KEYS, None) for _ in range(30)]
        other = await state.feed.join(RUN, frozenset({"step_seconds"}), None)
        for client in [*clients, other]:
            client.drain()
        log(store, 8000, 5)
        await state.feed.poll()
        return [client.drain() for client in clients], other.drain()

    every, other = asyncio.run(follow())
    assert len(reads) == 1
    texts = {id(message.text) for messages in every for message in messages if message.event == "points"}
    assert len(texts) == 1
    assert payloads(other, "points") == []


def test_a_run_that_is_not_there_cannot_be_followed(state) -> None:
    with pytest.raises(NotFound):
        asyncio.run(state.feed.join("nope", KEYS, None))
    assert state.feed.client_count == 0


def test_a_client_that_has_left_costs_nothing(state) -> None:
    async def follow():
        client = await state.feed.join(RUN, KEYS, None)
        state.feed.leave(client)
        return state.feed._followed, state.feed.client_count

    assert asyncio.run(follow()) == ({}, 0)


@pytest.mark.parametrize(
    ("took_s", "clients", "wanted_s"),
    [(0.01, 1, 0.5), (1.0, 20, 0.5), (0.01, 50, 0.5), (0.2, 50, 0.8), (5.0, 50, 2.0)],
)
def test_polls_are_two_a_second_and_fewer_only_where_many_clients_make_them_expensive(
    took_s, clients, wanted_s
) -> None:
    assert feed.interval_s(took_s, clients) == wanted_s


def test_a_stream_is_neither_cached_nor_buffered(state, store) -> None:
    sent: list[dict] = []

    async def follow():
        client = await state.feed.join(RUN, KEYS, None)
        gone = asyncio.Event()

        async def receive():
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(message):
            sent.append(message)
            if message.get("body") == b": heartbeat\n\n":
                gone.set()

        await EventStream(state.feed, client, heartbeat_s=0.01)({"type": "http"}, receive, send)

    asyncio.run(follow())
    headers = dict(sent[0]["headers"])
    assert headers[b"content-type"].startswith(b"text/event-stream")
    assert headers[b"cache-control"] == b"no-store, no-transform"
    assert headers[b"x-accel-buffering"] == b"no"
    hello = sent[1]["body"].decode()
    assert hello.startswith("event: hello\nid: ")
    assert hello.endswith("\n\n")
    assert sent[2]["body"] == b": heartbeat\n\n"
    assert state.feed.client_count == 0


def test_a_client_that_reads_nothing_is_disconnected(state, store, monkeypatch) -> None:
    monkeypatch.setattr("stepscope.web.live.event_stream.SEND_TIMEOUT_S", 0.01)

    async def follow():
        client = await state.feed.join(RUN, KEYS, None)

        async def never(*_):
            await asyncio.sleep(3600)

        async def send(message):
            if message["type"] == "http.response.body":
                await never()

        await EventStream(state.feed, client)({"type": "http"}, never, send)

    asyncio.run(follow())
    assert state.feed.client_count == 0


def test_a_server_that_ends_ends_its_streams(state, store) -> None:
    sent: list[dict] = []

    async def follow():
        client = await state.feed.join(RUN, KEYS, None)

        async def receive():
            await asyncio.sleep(3600)

        async def send(message):
            sent.append(message)
            state.feed.close()

        await EventStream(state.feed, client)({"type": "http"}, receive, send)

    asyncio.run(follow())
    assert sent[-1] == {"type": "http.response.body", "body": b"", "more_body": False}


def test_delta_answers_at_once_if_there_is_something_new_and_repeats_nothing(folder, store) -> None:
    state, app = state_and_app(folder)
    first = get(app, f"/delta?run={RUN}&keys=loss")
    assert [event["event"] for event in first["events"]] == ["hello"]
    log(store, 8000, 2)
    second = get(app, f"/delta?run={RUN}&keys=loss&since={first['cursor']}")
    assert [event["event"] for event in second["events"]] == ["points"]
    third = get(app, f"/delta?run={RUN}&keys=loss&since={second['cursor']}&wait=0")
    assert third["events"] == []
    assert ask(app, f"{API}/delta?run={RUN}&wait=21").status_code == 400
    state.close()


def test_delta_waits_for_what_comes(folder, store) -> None:
    state, app = state_and_app(folder)

    async def wait():
        import httpx

        from tests.web.asking import BEARER, PLACE

        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url=PLACE, headers=BEARER) as client:
            since = (await client.get(f"{API}/runs/{RUN}")).json()["cursor"]
            asking = asyncio.ensure_future(client.get(f"{API}/delta?run={RUN}&keys=loss&since={since}"))
            while not state.feed.client_count:
                await asyncio.sleep(0)
            log(store, 8000, 2)
            await state.feed.poll()
            return (await asking).json()

    answer = asyncio.run(wait())
    assert answer["events"][0]["data"]["series"][0]["values"] == [8000.0, 8001.0]
    assert state.feed.client_count == 0
    state.close()


def test_the_feed_continues_after_a_failure_and_logs_a_damaged_store_once(
    folder, store, monkeypatch, caplog
) -> None:
    monkeypatch.setattr(feed, "MIN_INTERVAL_S", 0.001)
    monkeypatch.setattr(feed, "MAX_INTERVAL_S", 0.001)
    state, _ = state_and_app(folder)
    failures = [ZeroDivisionError("odd"), StoreError("it is damaged"), StoreError("it is damaged")]
    has_changed = state.feed._has_changed

    def fail_first() -> bool:
        if failures:
            raise failures.pop(0)
        return has_changed()

    state.feed._has_changed = fail_first

    async def follow():
        client = await state.feed.join(RUN, KEYS, None)
        client.drain()
        looking = asyncio.ensure_future(state.feed.run())
        log(store, 8000, 2)
        while (message := await client.get(30)) is not None and message.event != "points":
            pass
        looking.cancel()
        return message

    assert values([asyncio.run(follow())]) == [8000.0, 8001.0]
    assert caplog.text.count("it is damaged") == 1
    assert "The live feed failed; it continues." in caplog.text
    state.close()


def test_the_feed_polls_while_a_client_is_connected(folder, store, monkeypatch) -> None:
    monkeypatch.setattr(feed, "MIN_INTERVAL_S", 0.001)
    state, _ = state_and_app(folder)

    async def follow():
        looking = asyncio.ensure_future(state.feed.run())
        client = await state.feed.join(RUN, KEYS, None)
        client.drain()
        log(store, 8000, 2)
        while (message := await client.get(30)) is not None and message.event != "points":
            pass
        looking.cancel()
        return message

    assert values([asyncio.run(follow())]) == [8000.0, 8001.0]
    state.close()
