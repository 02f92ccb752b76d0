"""What watching adds stays below its share of the time, and how much it is can be read."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stepscope
from stepscope.errors import ConfigError
from stepscope.schema.keys import OVERHEAD_RATIO, SAMPLED_RATIO, phase_key
from stepscope.steps.overhead import MIN_SHARE, Overhead
from stepscope.steps.phase_sampling import FIRST_STEPS, PhaseSampling
from stepscope.views.metrics.series_summaries import SeriesSummaries
from stepscope.views.steps.phase_breakdown import phases_of
from stepscope.views.steps.step_explorer import steps_of

torch = pytest.importorskip("torch")

US, MS = 1_000, 1_000_000


def sampled(
    step_ns: int, cost_ns: float, *, max_ratio: float = 0.005, steps: int = 20_000
) -> tuple[float, int]:
    """What a training with steps of this length spends on its phases, and how many steps show them."""
    now = 0
    overhead = Overhead(max_ratio, now_ns=lambda: now, call_ns=500.0)
    draw = iter(np.random.default_rng(1).random(steps + 1).tolist()).__next__
    sampling = PhaseSampling(overhead, now, draw)
    is_timed, timed, spent = True, 0, 0.0
    for _ in range(steps):
        now += step_ns
        spent += overhead.plain_step_ns
        overhead.spend(overhead.plain_step_ns)
        if is_timed:
            timed += 1
            spent += cost_ns
            sampling.spent(cost_ns)
        sampling.left -= 1
        if sampling.left <= 0:
            is_timed = sampling.choose(now)
    return spent / now, timed


@pytest.mark.parametrize("step_ns", [MS, 2 * MS, 5 * MS, 20 * MS, 100 * MS, 1000 * MS])
@pytest.mark.parametrize("cost_ns", [20 * US, 75 * US, 1000 * US])
def test_the_share_is_kept_whatever_a_step_and_its_phases_take(step_ns: int, cost_ns: int) -> None:
    ratio, timed = sampled(step_ns, cost_ns)
    # Some steps are timed whatever it costs: the first ones, and a few afterwards.
    in_any_case = FIRST_STEPS / 20_000 * cost_ns / step_ns + MIN_SHARE * 0.005
    assert ratio <= 0.005 + in_any_case
    assert timed >= FIRST_STEPS


def test_every_step_is_timed_where_that_is_affordable() -> None:
    _, timed = sampled(100 * MS, 75 * US)
    assert timed == 20_000


def test_a_smaller_share_times_fewer_steps() -> None:
    assert sampled(5 * MS, 75 * US, max_ratio=0.001)[1] < sampled(5 * MS, 75 * US)[1] < 20_000


def test_a_pause_that_is_left_out_never_sets_the_clock_back() -> None:
    now = 100 * MS
    overhead = Overhead(0.005, now_ns=lambda: now, call_ns=500.0)
    now = 150 * MS
    chosen = overhead.now_ns()
    now = 250 * MS
    overhead.exclude(0)  # since the process began, long before anybody asked
    assert overhead.now_ns() == chosen
    now = 260 * MS
    assert overhead.now_ns() == chosen + 10 * MS


class Forwards:
    """A training whose step calls its model many times."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.model = torch.nn.Linear(4, 4)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)
        self.monitor = stepscope.TrainingMonitor(settings, run="forwards", directory=folder)
        self.monitor.watch(self.model, self.optimizer, gradients=False)

    def steps(self, count: int, forwards: int) -> Iterator[int]:
        x = torch.ones(2, 4)
        for number in self.monitor.batches(range(count)):
            sum(self.model(x).sum() for _ in range(forwards)).backward()
            self.optimizer.step()
            self.optimizer.zero_grad()
            yield number


def calls_of_ours(training: Forwards, steps: int, forwards: int) -> list[int]:
    """How many functions of stepscope are called in each step."""
    counts = [0]
    root = str(Path(stepscope.__file__).parent)

    def count(frame: Any, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(root):
            counts[-1] += 1

    sys.setprofile(count)
    try:
        for _ in training.steps(steps, forwards):
            counts.append(0)
    finally:
        sys.setprofile(None)
    return counts[1:]


@pytest.mark.slow
def test_a_step_costs_the_same_however_often_it_calls_the_model(folder: Path) -> None:
    training = Forwards(folder, recorder={"max_overhead": 0.0001})
    counts = calls_of_ours(training, 200, forwards=100)
    training.monitor.stop_monitoring()
    # The first steps are timed phase by phase, and one now and then; of all others only the whole is known.
    assert np.median(counts) <= 40
    assert max(counts) > 200


def test_passes_over_data_leave_the_model_alone_once_they_are_known_to_train(folder: Path) -> None:
    training = Forwards(folder, recorder={"max_overhead": 0.0001})
    for _ in range(30):
        for _ in training.steps(10, forwards=1):
            pass
    assert "__call__" not in vars(torch.nn.Linear)
    assert not training.optimizer._optimizer_step_pre_hooks
    training.monitor.stop_monitoring()


def test_step_times_are_complete_and_phases_of_some_steps_stand_for_all(folder: Path) -> None:
    training = Forwards(folder, recorder={"max_overhead": 0.0005})
    for _ in training.steps(300, forwards=1):
        time.sleep(0.001)
    training.monitor.stop_monitoring()
    run = stepscope.open_store(folder).run("forwards")
    assert run.series("step_seconds").steps.tolist() == list(range(300))
    assert len(run.series(phase_key("data"))) == 300
    forward = run.series(phase_key("forward"))
    assert FIRST_STEPS <= len(forward) < 150
    rates = run.series(SAMPLED_RATIO).values
    assert ((rates > 0) & (rates <= 1)).all()
    for bar in steps_of(run).bars:
        assert sum(bar.phases.values()) == pytest.approx(bar.seconds, rel=0.01), "each step is drawn whole"
    shares = phases_of(run, SeriesSummaries(run.summaries()))
    assert sum(part.share for part in shares) == pytest.approx(1, abs=0.01)


@pytest.mark.slow
def test_what_recording_takes_is_recorded(folder: Path) -> None:
    training = Forwards(folder)
    for _ in training.steps(130, forwards=1):
        time.sleep(0.01)
    training.monitor.stop_monitoring()
    ratios = stepscope.open_store(folder).run("forwards").series(OVERHEAD_RATIO).values
    assert len(ratios) >= 1
    assert ((ratios > 0) & (ratios < 1)).all()


def test_the_setting_is_checked(folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"max_overhead.* 2"):
        stepscope.TrainingMonitor({"recorder": {"max_overhead": 2}}, directory=folder)


def test_an_evaluation_in_steps_that_are_not_timed_by_phase_counts_no_step(folder: Path) -> None:
    training = Forwards(folder, recorder={"max_overhead": 0.0001})
    for _ in training.steps(60, forwards=1):
        pass
    for has_mode in (True, False):
        training.model.train(not has_mode)
        for _ in training.monitor.batches(range(5)):
            with torch.no_grad():
                training.model(torch.ones(2, 4))
        training.model.train()
        for _ in training.steps(20, forwards=1):
            pass
    training.monitor.stop_monitoring()
    run = stepscope.open_store(folder).run("forwards")
    assert run.series("step_seconds").steps.tolist() == list(range(100))
    assert (run.series(phase_key("eval")).values > 0).sum() >= 2


def test_accumulated_batches_make_one_step_where_phases_are_not_timed(folder: Path) -> None:
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    monitor = stepscope.TrainingMonitor(
        {"recorder": {"max_overhead": 0.0001}}, run="accumulated", directory=folder
    )
    monitor.watch(model, optimizer)
    for number in monitor.batches(range(400)):
        model(torch.ones(2, 4)).mean().backward()
        if number % 4 == 3:
            optimizer.step()
    monitor.stop_monitoring()
    run = stepscope.open_store(folder).run("accumulated")
    assert run.series("step_seconds").steps.tolist() == list(range(100))
    assert set(run.series("micro_steps").values.tolist()) == {4.0}


def test_a_checkpoint_in_a_step_that_is_not_timed_by_phase_is_kept(folder: Path, tmp_path: Path) -> None:
    training = Forwards(folder, recorder={"max_overhead": 0.0001})
    for number in training.steps(90, forwards=1):
        if number in (40, 60, 80):
            torch.save(training.model.state_dict(), tmp_path / "model.pt")
    training.monitor.stop_monitoring()
    saved = stepscope.open_store(folder).run("forwards").series(phase_key("checkpoint"))
    assert saved.steps[saved.values > 0].tolist() == [40, 60, 80]


def test_an_optimizer_derived_from_another_ends_each_step_once(folder: Path) -> None:
    class Derived(torch.optim.SGD):
        def step(self, closure: Any = None) -> Any:
            return super().step(closure)

    model = torch.nn.Linear(4, 1)
    optimizer = Derived(model.parameters(), lr=0.01)
    monitor = stepscope.TrainingMonitor(
        {"recorder": {"max_overhead": 0.0001}}, run="derived", directory=folder
    )
    monitor.watch(model, optimizer)
    for _ in range(100):
        model(torch.ones(2, 4)).mean().backward()
        optimizer.step()
        monitor.log({"loss": 1.0})
    monitor.stop_monitoring()
    assert len(stepscope.open_store(folder).run("derived").series("step_seconds")) == 100
