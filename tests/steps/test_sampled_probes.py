"""Looks keep to their share of the time, and news come with their own step."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import nn

from stepscope.guard import Guard
from stepscope.steps.evidence.sampled_probes import SHARE, SampledProbes, training_probes
from stepscope.steps.memory.out_of_memory import WatchedObjects

MS = 1_000_000


class Clock:
    def __init__(self) -> None:
        self.ns = MS
        self.hurried = False

    def __call__(self) -> int:
        return self.ns

    def on_change(self) -> None:
        self.hurried = True


class Costly:
    """A looker that takes time on a clock."""

    def __init__(self, clock: Clock, cost_ns: int, key: str = "seen") -> None:
        self.clock, self.cost_ns, self.key = clock, cost_ns, key
        self.steps: list[int] = []
        self.closed = False

    def read(self, steps: int) -> Mapping[str, float]:
        self.clock.ns += self.cost_ns
        self.steps.append(steps)
        return {self.key: 1.0}

    def close(self) -> None:
        self.closed = True


class Broken:
    def __init__(self) -> None:
        self.is_closed = False

    def read(self, steps: int) -> Mapping[str, float]:
        raise RuntimeError("no figures today")

    def close(self) -> None:
        self.is_closed = True
        raise RuntimeError("nor an end")


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def evidence(clock: Clock) -> SampledProbes:
    return SampledProbes(Guard(strict=False), clock, clock.on_change)


def train(evidence: SampledProbes, clock: Clock, steps: int, step_ns: int) -> list[Mapping[str, float]]:
    """Asks it as the anatomy of steps does: when it is due, or when something in it has news."""
    rows: list[Mapping[str, float]] = []
    for step in range(steps):
        clock.ns += step_ns
        evidence.due -= 1
        if evidence.due <= 0:
            rows.append(evidence.after_step(step))
        else:
            rows.append(evidence.read_changed() if clock.hurried else {})
        clock.hurried = False
    return rows


@pytest.mark.parametrize("step_ns", [100_000, MS, 5 * MS])
@pytest.mark.parametrize("cost_ns", [2_000, 50_000, 400_000])
def test_looking_takes_its_share_of_the_time_and_no_more(
    evidence: SampledProbes, clock: Clock, step_ns: int, cost_ns: int
) -> None:
    costly = Costly(clock, cost_ns)
    evidence.add(costly)
    train(evidence, clock, 100_000, step_ns)
    began, looks = clock.ns, len(costly.steps)
    train(evidence, clock, 200_000, step_ns)
    share = (len(costly.steps) - looks) * cost_ns / (clock.ns - began)
    assert share <= 1.1 * SHARE
    assert len(costly.steps) > looks


def test_all_long_steps_are_read(evidence: SampledProbes, clock: Clock) -> None:
    evidence.add(Costly(clock, 20_000))
    assert all(train(evidence, clock, 50, 2000 * MS))


def test_the_first_two_steps_are_read_because_one_has_nothing_to_compare_with(
    evidence: SampledProbes, clock: Clock
) -> None:
    evidence.add(Costly(clock, 50_000))
    assert [bool(row) for row in train(evidence, clock, 4, MS)] == [True, True, False, False]


def test_a_reading_gets_the_number_of_steps_it_covers(evidence: SampledProbes, clock: Clock) -> None:
    costly = Costly(clock, 50_000)
    evidence.add(costly)
    rows = train(evidence, clock, 5000, MS)
    last = max(place for place, row in enumerate(rows) if row)
    assert sum(costly.steps) == last + 1


def test_pauses_are_not_even(evidence: SampledProbes, clock: Clock) -> None:
    costly = Costly(clock, 50_000)
    evidence.add(costly)
    train(evidence, clock, 20_000, MS)
    assert len(set(costly.steps[3:])) > 10


def test_a_single_slow_reading_does_not_stop_further_readings(evidence: SampledProbes, clock: Clock) -> None:
    costly = Costly(clock, 50_000)
    evidence.add(costly)
    train(evidence, clock, 2000, MS)
    costly.cost_ns = 500 * MS  # the machine was busy with something else
    while costly.steps[-1:] and not train(evidence, clock, 1, MS)[0]:
        pass
    costly.cost_ns = 50_000
    before = len(costly.steps)
    train(evidence, clock, 20_000, MS)
    assert len(costly.steps) - before >= 10


def test_the_training_draws_the_same_random_numbers_as_without_it(
    evidence: SampledProbes, clock: Clock
) -> None:
    random.seed(7)
    expected = random.random()
    random.seed(7)
    evidence.add(Costly(clock, 10))
    train(evidence, clock, 100, MS)
    assert random.random() == expected


def test_a_changed_probe_is_read_with_the_step_of_the_change(evidence: SampledProbes, clock: Clock) -> None:
    quiet, noisy = Costly(clock, 50_000, "quiet"), Costly(clock, 50_000, "noisy")
    evidence.add(quiet)
    evidence.add(noisy)
    train(evidence, clock, 10, MS)
    evidence.mark_changed(noisy)
    evidence.mark_changed(noisy)
    assert train(evidence, clock, 2, MS) == [{"noisy": 1.0}, {}]


def test_a_failing_probe_is_switched_off_and_the_others_continue(
    evidence: SampledProbes, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    evidence.add(Broken())
    evidence.add(Costly(clock, 10))
    assert train(evidence, clock, 2, MS) == [{"seen": 1.0}, {"seen": 1.0}]
    assert [record.message for record in caplog.records] == [
        "Broken is switched off: RuntimeError('no figures today')"
    ]


def test_a_probe_that_is_switched_off_is_closed_and_not_read_again(
    evidence: SampledProbes, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    broken = Broken()
    evidence.add(broken)
    train(evidence, clock, 1, MS)
    assert broken.is_closed
    evidence.mark_changed(broken)
    assert evidence.read_changed() == {}
    assert len(caplog.records) == 1


def test_closing_closes_all(evidence: SampledProbes, clock: Clock) -> None:
    costly = Costly(clock, 10)
    evidence.add(costly)
    evidence.close()
    assert costly.closed
    assert evidence.after_step(0) == {}


def test_a_real_training_has_its_figures_and_events() -> None:
    events: list[tuple[str, dict[str, Any]]] = []
    model = nn.Linear(8, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    watched_objects = WatchedObjects()
    watched_objects.add_model(model, [optimizer])
    probes = training_probes(
        torch, watched_objects, lambda kind, **fields: events.append((kind, fields)), Guard(strict=True)
    )
    rows = []
    for step in range(3):
        if probes.training_setup.needs_forward:
            probes.training_setup.read_autocast()
        model(torch.ones(4, 8)).sum().backward()
        optimizer.step()
        rows.append(probes.probes.after_step(step))
    probes.probes.close()
    assert rows[1].keys() >= {"host/cpu_ratio", "gc/pause_seconds", "gc/collections", "gc/full_collections"}
    [(kind, fields)] = events
    assert (kind, fields["autocast"], fields["parameters"]) == ("census", "off", 18)
