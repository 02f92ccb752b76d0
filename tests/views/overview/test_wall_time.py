"""The wall time of a run: steps, and the time before, between and after them."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stepscope
from stepscope import TrainingMonitor
from stepscope.cli.main import main
from stepscope.schema.run import Process
from stepscope.schema.series import Source
from stepscope.store.place import database
from stepscope.store.sqlite import SqliteStore
from stepscope.views.metrics.series_summaries import SeriesSummaries
from stepscope.views.overview.run_verdict import verdict_for
from stepscope.views.overview.wall_time import wall_time_of
from stepscope.views.run_figures import figures_of
from stepscope.views.steps.phase_breakdown import phases_of
from stepscope.views.steps.step_rate import run_seconds

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.usefixtures("without_agent")

EPOCHS = 3


class SlowFile(io.BytesIO):
    """A slow disk."""

    def write(self, content: Any) -> int:
        time.sleep(0.02)
        return super().write(content)


class Training:
    """A training that evaluates and saves between epochs, and measures each part."""

    def __init__(self, folder: Path) -> None:
        self.model = torch.nn.Linear(4, 1)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)
        self.monitor = TrainingMonitor(run="parts", directory=folder)
        self.folder = folder
        self.took: dict[str, float] = {}

    def part(self, name: str, work: Callable[[], Any]) -> None:
        began = time.perf_counter()
        work()
        self.took[name] = self.took.get(name, 0.0) + time.perf_counter() - began

    def step(self, x: Any) -> None:
        time.sleep(0.02)
        self.model(x).square().mean().backward()
        self.optimizer.step()
        self.optimizer.zero_grad()

    def evaluate(self) -> None:
        self.model.eval()
        with torch.no_grad():
            time.sleep(0.1)
            self.model(torch.ones(1, 4))
        self.model.train()

    def save(self) -> None:
        torch.save(self.model.state_dict(), SlowFile())

    def spent(self) -> dict[str, float]:
        run = stepscope.open_store(self.folder).run("parts")
        wall_time = wall_time_of(run, SeriesSummaries(run.summaries()), time.time_ns())
        assert sum(part.share for part in wall_time.parts) == pytest.approx(1.0)
        assert sum(part.seconds for part in wall_time.parts) == pytest.approx(wall_time.seconds)
        return {part.name: part.seconds for part in wall_time.parts}


class Loader:
    """A loader whose workers take a while to start in every epoch."""

    def __iter__(self):
        time.sleep(0.1)
        return iter([torch.ones(1, 4)] * 5)


@pytest.fixture
def training(folder: Path) -> Training:
    return Training(folder)


def close(expected: float) -> Any:
    # A busy machine may take the processor away between two looks at the clock.
    return pytest.approx(expected, rel=0.1, abs=0.1)


@pytest.mark.slow
def test_evaluations_checkpoints_and_gaps_between_epochs_are_separate(training: Training) -> None:
    with training.monitor as monitor:
        training.part("startup", lambda: time.sleep(0.1))
        monitor.watch(training.model, training.optimizer)
        for _ in range(EPOCHS):
            for x in monitor.batches(Loader()):
                training.part("steps", lambda x=x: training.step(x))
            training.part("evaluation", training.evaluate)
            training.part("checkpoints", training.save)
    spent = training.spent()
    assert spent["startup"] > training.took["startup"]
    assert spent["steps"] == close(training.took["steps"])
    assert spent["evaluation"] == close(training.took["evaluation"])
    assert spent["checkpoints"] == close(training.took["checkpoints"])
    assert spent["epoch_gaps"] >= 0.1 * (EPOCHS - 1)


@pytest.mark.slow
def test_time_between_the_steps_of_a_plain_loop_is_not_training(training: Training) -> None:
    with training.monitor as monitor:
        monitor.watch(training.model, training.optimizer)
        for _ in range(EPOCHS):
            for x in [torch.ones(1, 4)] * 5:
                training.part("steps", lambda x=x: training.step(x))
            training.part("evaluation", training.evaluate)
            training.part("checkpoints", training.save)
    spent = training.spent()
    assert spent["steps"] == close(training.took["steps"])
    assert spent["evaluation"] == close(training.took["evaluation"])
    assert spent["checkpoints"] == close(training.took["checkpoints"])
    run = stepscope.open_store(training.folder).run("parts")
    assert run.series("step_seconds").steps.tolist() == list(range(5 * EPOCHS))
    assert "eval" not in {phase.phase for phase in phases_of(run, SeriesSummaries(run.summaries()))}


def test_a_model_that_trains_in_evaluation_mode_does_not_evaluate(training: Training) -> None:
    with training.monitor as monitor:
        monitor.watch(training.model, training.optimizer)
        training.model.eval()
        for _ in range(10):
            training.part("steps", lambda: training.step(torch.ones(1, 4)))
        training.model.train()
    spent = training.spent()
    assert spent.get("evaluation", 0.0) < 0.1 * training.took["steps"], "the first step alone"
    assert spent["steps"] == close(training.took["steps"])


def test_the_class_of_a_model_is_unchanged_after_the_run(training: Training) -> None:
    class Model(torch.nn.Linear):
        pass

    with training.monitor as monitor:
        monitor.watch(Model(4, 1), training.optimizer)
        assert "train" in vars(Model)
    assert "train" not in vars(Model)


@pytest.mark.slow
def test_passes_of_a_model_that_is_not_watched_leave_gaps_between_epochs(training: Training) -> None:
    with training.monitor as monitor:
        for _ in range(EPOCHS):
            for x in monitor.batches(Loader()):
                training.part("steps", lambda x=x: training.step(x))
            training.part("rest", training.evaluate)
    spent = training.spent()
    assert spent["steps"] == close(training.took["steps"])
    assert spent["epoch_gaps"] + spent["ending"] >= training.took["rest"] + 0.1 * (EPOCHS - 1)


def test_time_after_the_last_checkpoint_counts_as_after_the_last_step(training: Training) -> None:
    with training.monitor as monitor:
        monitor.watch(training.model, training.optimizer)
        for _ in range(3):
            training.part("steps", lambda: training.step(torch.ones(1, 4)))
        torch.save({}, training.folder / "last.pt")
        training.part("rest", lambda: time.sleep(0.5))
    spent = training.spent()
    assert spent["ending"] >= training.took["rest"]
    assert spent.get("unaccounted", 0.0) < 0.1


def test_time_before_the_start_is_not_part_of_the_first_step(folder: Path) -> None:
    monitor = TrainingMonitor(run="parts", directory=folder)
    time.sleep(0.5)
    with monitor:
        monitor.log_training_step(loss=1.0)
    assert stepscope.open_store(folder).run("parts").series("step_seconds").values[0] < 0.5


@pytest.mark.slow
def test_the_parts_never_exceed_the_duration_of_the_run(training: Training) -> None:
    time.sleep(0.5)  # the first log call begins the run, and ends a step that began before it
    for _ in range(5):
        training.monitor.log_training_step(loss=1.0)
    training.monitor.stop_monitoring()
    run = stepscope.open_store(training.folder).run("parts")
    assert sum(training.spent().values()) == pytest.approx(run_seconds(run, time.time_ns()))


class OddModel(torch.nn.Linear):
    """A model that raises when it is compared, once that is switched on."""

    is_odd = False

    def __eq__(self, other: object) -> bool:
        if self.is_odd:
            raise ValueError("never compare me")
        return self is other

    __hash__ = torch.nn.Linear.__hash__


def test_a_model_that_raises_when_it_is_compared_still_changes_its_mode(folder: Path) -> None:
    model, other = OddModel(4, 1), OddModel(4, 1)
    with TrainingMonitor(run="parts", directory=folder) as monitor:
        monitor.watch(model, torch.optim.SGD(model.parameters(), lr=0.1))
        OddModel.is_odd = True
        try:
            assert not model.eval().training
            assert other.train().training
        finally:
            OddModel.is_odd = False


@pytest.mark.slow
@pytest.mark.parametrize("is_watched", [True, False])
def test_a_run_begins_when_its_monitor_was_created(folder: Path, is_watched) -> None:
    monitor = TrainingMonitor(run="parts", directory=folder)
    began = time.monotonic()
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    if is_watched:
        monitor.watch(model, optimizer)
    for step in range(5):
        time.sleep(0.5 if step == 0 else 0.01)
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
        monitor.log_training_step(loss=1.0)
    took = time.monotonic() - began
    monitor.stop_monitoring()
    run = stepscope.open_store(folder).run("parts")
    spent = wall_time_of(run, SeriesSummaries(run.summaries()), time.time_ns())
    assert spent.seconds > took - 0.01
    steps = float(run.series("step_seconds").values.sum())
    startup = {part.name: part.seconds for part in spent.parts}.get("startup", 0.0)
    assert steps + startup < spent.seconds + 0.01


@pytest.mark.slow
@pytest.mark.parametrize("has_loader", [True, False])
def test_an_evaluation_is_detected_if_modules_are_set_to_train_by_hand(folder: Path, has_loader) -> None:
    """As Lightning does: it resets `training` of every module."""
    model = torch.nn.Sequential(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = torch.utils.data.DataLoader(torch.ones(40, 4), batch_size=2)
    evaluated_s = 0.0
    with TrainingMonitor(run="parts", directory=folder) as monitor:
        monitor.watch(model, optimizer)
        for _ in range(3):
            for x in data if has_loader else [torch.ones(2, 4)] * 20:
                time.sleep(0.005)
                model(x).sum().backward()
                optimizer.step()
            began = time.monotonic()
            model.eval()
            time.sleep(0.4)
            for module in model.modules():
                module.training = True
            evaluated_s += time.monotonic() - began
        model(x).sum().backward()
        optimizer.step()
    run = stepscope.open_store(folder).run("parts")
    assert sum(run.series("gap/eval_seconds").values) == pytest.approx(evaluated_s, abs=0.1)
    assert len(run.series("gap/eval_seconds")) == 3
    assert run.series("step_seconds").values.max() < 0.3


def test_time_before_the_monitor_is_start_up(folder: Path) -> None:
    store = SqliteStore(database(folder))
    begun = Process("run", "run", "default", "s", 0, "host", 1, "launcher", 10**18)
    rank = Process("run", "run", "default", "s", 0, "host", 2, "rank", 10**18 + 3 * 10**9)
    for process in (begun, rank):
        process.status, process.ended_ns = "finished", 10**18 + 5 * 10**9
    times = rank.started_ns + (np.arange(20) + 1) * 10**8
    with store.transaction():
        store.put_process(begun)
        store.put_process(rank)
        source = Source("run", "s", 0, "host")
        store.append(source, ["step_seconds"], np.arange(20), times, np.full((20, 1), 0.1))
    store.close()
    run = stepscope.open_store(folder).run("run")
    spent = wall_time_of(run, SeriesSummaries(run.summaries()), 10**18 + 5 * 10**9)
    parts = {part.name: part.seconds for part in spent.parts}
    assert parts == pytest.approx({"startup": 3.0, "steps": 2.0})


def test_the_wall_time_is_shown(training: Training, capsys: pytest.CaptureFixture[str]) -> None:
    with training.monitor as monitor:
        monitor.watch(training.model, training.optimizer)
        for x in monitor.batches(Loader()):
            training.step(x)
        training.evaluate()
    assert main(["show", "parts", "--store", str(training.folder)]) == 0
    shown = capsys.readouterr().out
    assert "wall time of" in shown
    assert "evaluation" in shown
    assert main(["show", "parts", "--store", str(training.folder), "--json"]) == 0
    wall_time = json.loads(capsys.readouterr().out)["wall_time"]
    assert {part["name"]: part["seconds"] for part in wall_time["parts"]} == training.spent()


def test_a_run_that_mostly_evaluates_is_not_called_healthy(folder: Path) -> None:
    clock_ns = time.time_ns() - 200 * 10**9
    store = SqliteStore(database(folder))
    source = Source("run", "s", 0, "host")
    process = Process("run", "run", "default", "s", 0, "host", 1, "rank", clock_ns)
    process.status, process.ended_ns = "finished", clock_ns + 100 * 10**9
    process.last_ns = process.ended_ns
    steps = np.arange(500)
    times = clock_ns + (steps + 1) * 10**8
    with store.transaction():
        store.put_process(process)
        store.append(source, ["step_seconds"], steps, times, np.full((500, 1), 0.1))
        store.append(source, ["loss"], steps, times, np.full((500, 1), 1.0))
        ended = np.array([clock_ns + 99 * 10**9])
        store.append(source, ["gap/eval_seconds"], np.array([500]), ended, np.array([[47.0]]))
    store.close()
    run = stepscope.open_store(folder).run("run")
    verdict = verdict_for(run, (), figures_of(run), run.diagnose())
    assert "47% of wall time is evaluation" in verdict.headline
    assert verdict.severity == "unknown"
