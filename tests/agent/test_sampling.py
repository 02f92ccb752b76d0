"""Samplers are polled each in its own thread; one that hangs, fails or costs too much harms no other."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence

import pytest

from stepscope.agent import sampling
from stepscope.agent.sampling import SamplerPool, SamplerReadings
from stepscope.samplers.base import Sampler
from stepscope.schema.sample import Metric, Notice, Reading, Sample, Watched

WATCHED = (Watched("run", "seg", 0, 1, "rank"),)


class Counting(Sampler):
    metrics = (Metric("polls_total", "How often it was polled."),)

    def __init__(self) -> None:
        self.polls = 0
        self.closed = threading.Event()

    def sample(self, watched: Sequence[Watched]) -> Iterable[Reading]:
        self.polls += 1
        yield Sample({"polls_total": float(self.polls)})

    def close(self) -> None:
        self.closed.set()


class Hanging(Counting):
    def __init__(self) -> None:
        super().__init__()
        self.asked, self.driver_answers = threading.Event(), threading.Event()

    def sample(self, watched: Sequence[Watched]) -> Iterable[Reading]:
        self.asked.set()
        self.driver_answers.wait(30)
        return super().sample(watched)


class Failing(Counting):
    def sample(self, watched: Sequence[Watched]) -> Iterable[Reading]:
        self.polls += 1
        if self.polls == 1:
            raise RuntimeError("the bus is on fire")
        yield Sample({"polls_total": float(self.polls)})


class Costly(Counting):
    def sample(self, watched: Sequence[Watched]) -> Iterable[Reading]:
        spent = time.thread_time() + 0.02
        while time.thread_time() < spent:
            pass
        return super().sample(watched)


@pytest.fixture
def poll() -> Iterator[Callable[..., SamplerPool]]:
    """Polls samplers until the test is over."""
    started: list[SamplerPool] = []

    def start(interval_s: float = 0.01, **samplers: Sampler) -> SamplerPool:
        made = SamplerPool(list(samplers), lambda name, _: samplers[name])
        started.append(made)
        for name in samplers:
            made.usual_interval(name, {})
        made.configure(dict.fromkeys(samplers, interval_s), WATCHED)
        return made

    yield start
    for made in started:
        made.close()


def gather(all_of: SamplerPool, taken: list[SamplerReadings]) -> list[SamplerReadings]:
    taken += all_of.collect()
    return taken


def notices(taken: list[SamplerReadings]) -> list[str]:
    return [reading.text for each in taken for reading in each.readings if isinstance(reading, Notice)]


def test_every_sampler_is_polled_and_what_it_reads_has_its_time(poll, until) -> None:
    before = time.time_ns()
    all_of = poll(first=Counting(), second=Counting())
    taken: list[SamplerReadings] = []
    until(lambda: {poll.sampler for poll in gather(all_of, taken)} == {"first", "second"} and len(taken) > 6)
    times = [poll.time_ns for poll in taken if poll.sampler == "first"]
    assert before < times[0] < times[-1] < time.time_ns()
    assert times == sorted(times)


def test_a_driver_call_that_hangs_is_reported_and_blocks_no_other(
    poll, until, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sampling, "HANGING_AFTER_S", 0.2)
    stuck, sound = Hanging(), Counting()
    all_of = poll(stuck=stuck, sound=sound)
    taken: list[SamplerReadings] = []
    until(lambda: any("has not come back" in text for text in notices(gather(all_of, taken))))
    so_far = sound.polls
    until(lambda: sound.polls > so_far + 5)
    stuck.driver_answers.set()
    until(lambda: "The sampler stuck has come back." in notices(gather(all_of, taken)))
    assert len([text for text in notices(taken) if "has not come back" in text]) == 1


def test_a_sampler_that_fails_is_reported_and_polled_again(poll, until) -> None:
    all_of = poll(odd=Failing())
    taken: list[SamplerReadings] = []
    until(lambda: len(gather(all_of, taken)) > 2)
    assert notices(taken) == ["The sampler odd failed: RuntimeError('the bus is on fire')"]
    assert any(isinstance(reading, Sample) for each in taken for reading in each.readings)


def test_a_sampler_that_costs_too_much_is_polled_less_often_and_reported(poll, until) -> None:
    all_of = poll(heavy=Costly())
    taken: list[SamplerReadings] = []
    until(lambda: notices(gather(all_of, taken)))
    (said, *_) = notices(taken)
    assert "ms of processor time a poll, more than 5% of a core at one every 0.01 s" in said
    cost = all_of.costs()["heavy"]
    assert cost.cpu_seconds >= cost.polls * 0.02


def test_samplers_are_paused_while_no_run_needs_them_and_resume_with_the_next(poll, until) -> None:
    sampler = Counting()
    all_of = poll(only=sampler)
    until(lambda: sampler.polls > 2)
    all_of.configure({}, ())

    def is_resting() -> bool:
        polls = sampler.polls
        time.sleep(0.1)
        return sampler.polls == polls

    until(is_resting)
    resting = sampler.polls
    time.sleep(0.1)
    assert sampler.polls == resting
    all_of.configure({"only": 0.01}, WATCHED)
    until(lambda: sampler.polls > resting)


def test_a_new_interval_holds_at_once_even_in_the_middle_of_a_long_wait(poll, until) -> None:
    sampler = Counting()
    all_of = poll(600.0, only=sampler)
    until(lambda: sampler.polls == 1)
    all_of.configure({"only": 0.01}, WATCHED)
    until(lambda: sampler.polls > 5)
    assert all_of.costs()["only"].polls >= 5  # the last may not be added up yet


def test_closing_ends_the_threads_but_for_one_that_hangs(poll, until) -> None:
    sound, stuck = Counting(), Hanging()
    all_of = poll(sound=sound, stuck=stuck)
    until(lambda: sound.polls > 0 and stuck.asked.is_set())
    all_of.close()
    assert sound.closed.is_set()
    assert not stuck.closed.is_set()
    stuck.driver_answers.set()
    until(stuck.closed.is_set)


def test_readings_nobody_collects_do_not_pile_up(poll, until, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "MAX_UNCOLLECTED", 3)
    sampler = Counting()
    all_of = poll(0.001, only=sampler)
    until(lambda: sampler.polls > 10)
    all_of.close()
    assert len(list(all_of.collect())) == 3
