"""Stack samples are taken when a cheap sign asks for them, within the budget, and never otherwise."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from stepscope.schema.keys import PHASES
from stepscope.steps.evidence.stack_sampler import (
    CHECK_S,
    MAX_BLOCKED,
    MAX_BLOCKED_SAMPLES,
    MAX_SAMPLES,
    MAX_TIMES,
    REST_S,
    SHARE,
    WAKE_NS,
    PhaseTotals,
    StackSampler,
)
from stepscope.steps.overhead import Overhead

S = 1_000_000_000
HEALTHY = {"data": 0.02, "forward": 0.3, "backward": 0.5, "optimizer": 0.1, "other": 0.08}
BUSY_LOOP = {"forward": 0.2, "backward": 0.3, "other": 0.5}


@pytest.fixture
def thread() -> Iterator[threading.Thread]:
    """A training thread that waits."""
    leave = threading.Event()
    waiting = threading.Thread(target=leave.wait)
    waiting.start()
    yield waiting
    leave.set()
    waiting.join()


class Clock:
    """A training whose time passes when the sampler waits; taking a sample has a cost."""

    def __init__(self, thread: threading.Thread | None, max_ratio: float = 0.005, **options: Any) -> None:
        self.now = self.busy = 0
        self.cost_ns = 100_000
        self.ident = -1 if thread is None else thread.ident
        self.asked = 0
        self.timer = SimpleNamespace(step=0, began_ns=0, in_batches=True, held=None)
        self.shares, self.step_s = HEALTHY, 0.1
        self.spent_ns, self.steps = [0] * len(PHASES), 0
        self.events: list[dict[str, Any]] = []
        self.overhead = Overhead(max_ratio, now_ns=lambda: self.now, call_ns=500.0)
        self.sampler = StackSampler(
            self, self.record, self.overhead, now_ns=lambda: self.now, busy_ns=self.busy_ns, **options
        )

    def record(self, kind: str, /, **fields: Any) -> None:
        assert kind == "stack_samples"
        self.events.append(fields)

    def busy_ns(self) -> int:
        self.busy += self.cost_ns // 2
        return self.busy

    def thread(self) -> int:
        self.asked += 1
        assert self.ident is not None
        return self.ident

    def totals(self) -> PhaseTotals:
        return PhaseTotals(self.steps, tuple(self.spent_ns))

    def phase(self) -> str:
        return "other"

    def run(self, seconds: float, *, blocked: bool = False) -> None:
        """Lets the training and the sampler go on; a blocked step does not end."""
        end = self.now + round(seconds * S)
        while self.now < end:
            self.now += max(round(self.sampler.tick() * S), 1)
            while not blocked and self.timer.began_ns + self.step_s * S <= self.now:
                self.timer.began_ns += round(self.step_s * S)
                self.timer.step += 1
                self.steps += 1
                for place, name in enumerate(PHASES):
                    self.spent_ns[place] += round(self.shares.get(name, 0.0) * self.step_s * S)


def test_a_healthy_training_is_never_sampled(thread: threading.Thread) -> None:
    training = Clock(thread)
    training.run(3600)
    training.sampler.close()
    assert (training.asked, training.events) == (0, [])


def test_time_in_no_phase_is_sampled_once_and_recorded(thread: threading.Thread) -> None:
    training = Clock(thread)
    training.shares = BUSY_LOOP
    training.run(3600)
    [event] = training.events
    assert (event["sign"], event["samples"]) == ("other", MAX_SAMPLES)
    assert event["phases"] == {"other": MAX_SAMPLES}
    [line] = event["lines"]
    assert line["call"] == "threading.wait"
    assert event["seconds"] <= 20.1


def test_a_wait_for_data_is_a_sign(thread: threading.Thread) -> None:
    training = Clock(thread)
    training.shares = {"data": 0.5, "forward": 0.5}
    training.run(60)
    assert [event["sign"] for event in training.events] == ["data"]


@pytest.mark.parametrize("has_gpu", [False, True])
def test_a_long_forward_pass_is_a_sign_only_with_a_gpu(thread: threading.Thread, has_gpu: bool) -> None:
    training = Clock(thread, has_gpu=has_gpu)
    training.shares = {"forward": 0.6, "backward": 0.4}
    training.run(60)
    assert [event["sign"] for event in training.events] == (["forward"] if has_gpu else [])


def test_it_is_sampled_again_when_the_picture_changes_and_only_a_few_times(thread: threading.Thread) -> None:
    training = Clock(thread)
    training.shares = BUSY_LOOP
    training.run(2 * REST_S)
    training.step_s = 0.2
    training.run(300)
    assert len(training.events) == 2
    for step_s in itertools.islice(itertools.cycle((0.05, 0.5)), 20):
        training.step_s = step_s
        training.run(600)
    assert len(training.events) == MAX_TIMES


@pytest.mark.parametrize("cost_ns", [10_000, 100_000, 3_000_000])
@pytest.mark.parametrize("max_ratio", [0.0005, 0.005, 0.05])
def test_sampling_keeps_to_its_share_of_the_budget(
    thread: threading.Thread, cost_ns: int, max_ratio: float
) -> None:
    training = Clock(thread, max_ratio)
    training.shares, training.cost_ns = BUSY_LOOP, cost_ns
    training.run(2)
    began, spent = training.now, 0.0
    before = training.overhead._elsewhere_ns
    training.run(15)
    spent = training.overhead._elsewhere_ns - before
    at_once = cost_ns + WAKE_NS  # the look that was due at the beginning
    assert spent - at_once <= SHARE * max_ratio * (training.now - began) + (cost_ns + WAKE_NS) * 15 / CHECK_S
    if cost_ns > 10_000 and spent > 2 * at_once:
        assert spent - 2 * at_once <= SHARE * max_ratio * (training.now - began)


def test_what_sampling_costs_is_part_of_the_reported_overhead(thread: threading.Thread) -> None:
    training = Clock(thread)
    training.shares = BUSY_LOOP
    training.run(10)
    ratio = training.overhead.report(training.now)
    assert ratio is not None
    assert 0 < ratio < 0.005
    assert training.overhead.report(training.now + 10 * S) == 0.0


def test_a_step_that_blocks_is_sampled_while_it_does(thread: threading.Thread) -> None:
    training = Clock(thread)
    training.run(10)
    step = training.timer.step
    training.run(8, blocked=True)
    [event] = training.events
    assert (event["sign"], event["step"]) == ("blocked", step)
    assert event["samples"] == MAX_BLOCKED_SAMPLES
    assert 2 <= event["taken_seconds"] <= 8
    assert event["usual_seconds"] == pytest.approx(0.1)
    assert event["is_in_loop"] is True


def test_a_step_that_blocks_soon_after_the_start_is_sampled_too(thread: threading.Thread) -> None:
    training = Clock(thread)
    training.steps, training.spent_ns[0] = 3, 3_000_000
    training.run(8, blocked=True)
    assert [event["sign"] for event in training.events] == ["blocked"]


def test_a_step_that_blocks_for_hours_is_sampled_a_few_times(thread: threading.Thread) -> None:
    training = Clock(thread)
    training.run(10)
    training.run(7200, blocked=True)
    assert training.events[0]["taken_seconds"] < 10
    assert 3 <= len(training.events) <= MAX_BLOCKED


def test_a_step_of_which_few_samples_exist_when_it_ends_is_recorded_at_its_next_check(
    thread: threading.Thread,
) -> None:
    training = Clock(thread)
    training.run(10)
    training.run(3, blocked=True)
    training.run(2)
    assert [event["sign"] for event in training.events] == ["blocked"]


@pytest.mark.parametrize("step_s", [1.0, 5.0])
def test_long_steps_are_not_blocked(thread: threading.Thread, step_s: float) -> None:
    training = Clock(thread)
    training.step_s = step_s
    training.run(600)
    assert training.events == []


def test_a_training_thread_that_has_ended_is_not_sampled() -> None:
    training = Clock(None)
    training.shares = BUSY_LOOP
    training.run(60)
    training.sampler.close()
    assert training.asked
    assert training.events == []


def test_what_was_sampled_is_recorded_at_the_end_and_nothing_after_it(thread: threading.Thread) -> None:
    training = Clock(thread)
    training.shares = BUSY_LOOP
    training.run(4)
    training.sampler.close()
    assert len(training.events) == 1
    asked = training.asked
    assert training.sampler.tick() == CHECK_S
    assert training.asked == asked
