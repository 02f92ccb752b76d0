"""A step is taken apart into phases that add up, whatever the loop looks like."""

from __future__ import annotations

import contextlib
import copy
import gc
import operator
import statistics
import time
from pathlib import Path

import pytest

import stepscope
from stepscope.schema.keys import PHASES, phase_key
from stepscope.steps import patches
from stepscope.steps.pass_purpose import MAX_BATCHES_WITHOUT_STEP
from stepscope.steps.phase_timer import BACKWARD, DATA, FORWARD, OTHER, PhaseTimer
from stepscope.views.steps.ranks import lateness, phase_medians

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.usefixtures("without_agent")

SPENT: dict[str, list[float]] = {}

EVERY_STEP = {"recorder": {"max_overhead": 1.0}}
"""Times the phases of every step, however slow this machine is at it."""


def work(seconds: float) -> None:
    """Keeps the processor busy."""
    began = time.perf_counter()
    while time.perf_counter() < began + seconds:
        pass


@contextlib.contextmanager
def taking(phase: str):
    """Notes how long something really took: this machine has other things to do."""
    began = time.perf_counter()
    yield
    SPENT.setdefault(phase, []).append(time.perf_counter() - began)


class Busy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        work(0.02)
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        work(0.04)
        return gradient


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 1)

    def forward(self, x):
        return Busy.apply(self.linear(x))


class Optimizer(torch.optim.SGD):
    def step(self, closure=None):
        work(0.01)
        return super().step(closure)


class Data(torch.utils.data.Dataset):
    def __init__(self, length: int = 12) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int):
        with taking("data"):
            work(0.03)
        return torch.randn(4)


def train(folder: Path, model, *, steps: int, accumulate: int, batches: bool):
    SPENT.clear()
    optimizer = Optimizer(model.parameters(), lr=0.01)
    with stepscope.TrainingMonitor(EVERY_STEP, run="taken apart", directory=folder) as monitor:
        monitor.watch(model, optimizer, gradients=False)
        loader = torch.utils.data.DataLoader(Data(steps * accumulate), batch_size=1)
        for number, x in enumerate(monitor.batches(loader) if batches else loader):
            with taking("forward"):
                output = model(x)
            loss = output.mean() / accumulate
            with taking("backward"):
                loss.backward()
            if (number + 1) % accumulate == 0:
                with taking("optimizer"):
                    optimizer.step()
                optimizer.zero_grad()
                if not batches:
                    monitor.log({"loss": 1.0})
    return stepscope.open_store(folder).run("taken apart")


def each_step(run, phase: str) -> list[float]:
    return run.series(phase_key(phase)).values.tolist()


def in_steps(took: list[float], steps: int) -> list[float]:
    """What several calls to a step took together."""
    calls = len(took) // steps
    return [sum(took[step * calls : (step + 1) * calls]) for step in range(steps)]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::Warning")
@pytest.mark.parametrize(
    ("taken", "accumulate", "compiled", "batches"),
    [(12, 1, False, True), (7, 4, False, True), (12, 1, True, True), (12, 1, False, False)],
    ids=["plain", "accumulated", "compiled", "a loader of its own"],
)
def test_each_phase_is_what_was_done_in_it_and_the_parts_add_up(
    taken: int, accumulate: int, compiled: bool, batches: bool, folder: Path
) -> None:
    model = torch.compile(Model(), backend="eager") if compiled else Model()
    if compiled:
        model(torch.randn(1, 4))  # compiled before it is timed
    run = train(folder, model, steps=taken, accumulate=accumulate, batches=batches)
    steps = run.series("step_seconds")
    assert steps.steps.tolist() == list(range(taken))
    whole = sum(run.series(phase_key(phase)).values for phase in PHASES)
    assert whole.tolist() == pytest.approx(steps.values.tolist(), rel=1e-9)
    for phase, took in SPENT.items():
        # Step by step, and the median: now and then the machine does something else between two clocks.
        really = in_steps(took, taken)
        off = statistics.median(map(operator.sub, each_step(run, phase), really))
        # Without `batches` a step ends in the optimizer's last hook, so what we do then is in what it took.
        ours = 0.001 * accumulate if batches else 0.002
        assert off == pytest.approx(0, abs=max(0.05 * statistics.median(really), ours)), phase
    for phase in ("eval", "checkpoint", "transfer"):
        assert set(each_step(run, phase)) == {0.0}
    if accumulate > 1:
        assert set(run.series("micro_steps").values) == {4.0}


def test_watching_leaves_the_model_the_optimizer_and_torch_as_they_were(folder: Path) -> None:
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def state() -> list[object]:
        loader = torch.utils.data.dataloader._BaseDataLoaderIter
        return [
            dict(model._forward_hooks),
            dict(model._forward_pre_hooks),
            dict(optimizer._optimizer_step_pre_hooks),
            dict(optimizer._optimizer_step_post_hooks),
            torch.autograd.backward,
            torch.save,
            loader.__next__,
            torch.Tensor.to,
        ]

    before = copy.copy(state())
    with stepscope.TrainingMonitor(run="a", directory=folder) as monitor:
        monitor.watch(model, optimizer)
        assert state() != before
        monitor.unwatch()
        assert state() == before
        monitor.watch(model)
    assert state() == before


def test_an_evaluation_is_kept_by_itself_and_counts_no_step(folder: Path) -> None:
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    data = [torch.randn(2, 4)] * 3
    with stepscope.TrainingMonitor(run="evaluated", directory=folder) as monitor:
        monitor.watch(model, optimizer)
        for _ in range(2):
            model.train()
            for x in monitor.batches(data):
                model(x).mean().backward()
                optimizer.step()
            model.eval()
            for x in monitor.batches(data):
                with torch.no_grad():
                    model(x)
    run = stepscope.open_store(folder).run("evaluated")
    assert run.series("step_seconds").steps.tolist() == list(range(6))
    evaluated = run.series(phase_key("eval")).values
    assert (evaluated > 0).sum() == 2, "each by itself"
    assert run.series(phase_key("forward")).values.min() > 0


def test_a_checkpoint_is_a_phase_of_its_own(folder: Path, tmp_path: Path) -> None:
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with stepscope.TrainingMonitor(run="saved", directory=folder) as monitor:
        monitor.watch(model, optimizer)
        for x in monitor.batches([torch.randn(2, 4)] * 2):
            model(x).mean().backward()
            optimizer.step()
            torch.save(model.state_dict(), tmp_path / "model.pt")
    saved = stepscope.open_store(folder).run("saved").series(phase_key("checkpoint"))
    assert saved.values.min() > 0


@pytest.mark.slow
def test_batches_without_any_optimizer_are_steps_after_a_while(folder: Path) -> None:
    model = torch.nn.Linear(4, 1)
    with stepscope.TrainingMonitor(run="bare", directory=folder) as monitor:
        monitor.watch(model)
        for x in monitor.batches([torch.randn(2, 4)] * 200):
            model(x).mean().backward()
    steps = stepscope.open_store(folder).run("bare").series("step_seconds").steps
    assert steps.tolist() == list(range(1 + 200 - MAX_BATCHES_WITHOUT_STEP))


@pytest.mark.slow
def test_the_compiler_makes_as_many_graphs_with_a_watch_as_without(folder: Path) -> None:
    counts = []

    def backend(graph, _):
        counts.append(graph)
        return graph.forward

    def graphs(watched: bool) -> int:
        torch._dynamo.reset()
        counts.clear()
        model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1))
        with stepscope.TrainingMonitor(run=f"compiled {watched}", directory=folder) as monitor:
            if watched:
                monitor.watch(model)
            torch.compile(model, backend=backend, fullgraph=True)(torch.randn(2, 4)).mean().backward()
        return len(counts)

    assert graphs(watched=True) == graphs(watched=False) == 1


@pytest.mark.slow
def test_what_fails_in_an_observer_never_reaches_the_loop(folder: Path, caplog) -> None:
    class Broken:
        due = 1

        def after_step(self, step: int):
            raise RuntimeError("out of order")

        def close(self) -> None:
            """Nothing to undo."""

    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with stepscope.TrainingMonitor(run="broken", directory=folder) as monitor:
        monitor.watch(model, optimizer)
        monitor._watched.step_phases.observe(Broken())
        for x in monitor.batches([torch.randn(2, 4)] * 3):
            model(x).mean().backward()
            optimizer.step()
    assert len(stepscope.open_store(folder).run("broken").series("step_seconds")) == 3
    assert "Broken is switched off" in caplog.text


@pytest.mark.slow
def test_watching_something_that_is_not_a_model_logs_a_warning(folder: Path, caplog) -> None:
    with stepscope.TrainingMonitor(run="odd", directory=folder) as monitor:
        monitor.watch(object())
        monitor.log({"loss": 1.0})
    assert "It is not watched" in caplog.text


RANKS = """
import os, sys, time, torch, stepscope
from torch.nn.parallel import DistributedDataParallel
rank = int(os.environ["RANK"])
torch.distributed.init_process_group("gloo", init_method=f"file://{sys.argv[1]}", rank=rank, world_size=2)

class Late(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()
    @staticmethod
    def backward(ctx, gradient):
        time.sleep(0.06 if rank == 1 else 0.01)
        return gradient

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)
    def forward(self, x):
        return self.second(Late.apply(self.first(x)))

model = DistributedDataParallel(Model())
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
with stepscope.TrainingMonitor(run="ranks") as monitor:
    monitor.watch(model, optimizer)
    for x in monitor.batches([torch.randn(2, 4)] * 15):
        time.sleep(0.005)
        model(x).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
torch.distributed.destroy_process_group()
"""


@pytest.mark.slow
def test_the_rank_that_is_late_is_named_and_what_it_is_late_with(start, folder: Path, tmp_path: Path) -> None:
    launch = {"MASTER_ADDR": "here", "MASTER_PORT": "1", "WORLD_SIZE": "2", "OMP_NUM_THREADS": "1"}
    ranks = [
        start(RANKS, tmp_path / "meeting", environment={**launch, "RANK": str(rank)}) for rank in range(2)
    ]
    for process in ranks:
        _, said = process.communicate(timeout=120)
        assert process.returncode == 0, said
    late = lateness(phase_medians(stepscope.open_store(folder).run("ranks")))
    assert late is not None
    assert (late.rank, late.phase) == (1, "backward")
    assert 0.03 < late.seconds < 0.08
    assert 0.03 < late.phase_seconds < 0.08


class HandClock:
    now = 0

    def __call__(self) -> int:
        self.now += 10
        return self.now


def test_a_chain_is_cut_without_a_gap_and_phases_come_back_to_what_was_before() -> None:
    phase_timer = PhaseTimer(HandClock())
    assert phase_timer.enter(DATA) == OTHER
    assert phase_timer.enter(FORWARD) == DATA
    assert phase_timer.enter(BACKWARD) == FORWARD
    row = phase_timer.end_step().row()
    assert {key: round(value * 1e9) for key, value in row.items() if value} == {
        "phase/other_seconds": 10,
        "phase/data_seconds": 10,
        "phase/forward_seconds": 10,
        "phase/backward_seconds": 10,
        "step_seconds": 40,
    }
    assert sum(phase_timer.end_step().row().values()) == pytest.approx(2 * 10e-9)


def test_what_stepscope_itself_took_is_no_part_of_a_step() -> None:
    phase_timer = PhaseTimer(HandClock())
    phase_timer.enter(FORWARD)
    phase_timer.enter(OTHER)
    phase_timer.own_ns = 7
    first, second = phase_timer.end_step(), phase_timer.end_step()
    assert (first.took, first.spent[FORWARD], first.spent[OTHER]) == (23, 10, 13)
    assert (second.took, second.spent[OTHER]) == (10, 10)


@pytest.mark.parametrize(
    ("arguments", "options", "is_transfer"),
    [
        (("cuda",), {}, True),
        (("cuda:1", torch.float16), {"non_blocking": True}, True),
        ((torch.device("cuda"),), {}, True),
        ((0,), {}, True),
        ((), {"device": "cuda"}, True),
        (("cpu",), {}, False),
        ((torch.float32,), {}, False),
        ((torch.zeros(1),), {}, False),
        ((), {"dtype": torch.float64}, False),
    ],
)
def test_only_a_move_to_a_gpu_is_a_transfer(arguments: tuple, options: dict, is_transfer: bool) -> None:
    assert patches._is_cuda(torch.device, *arguments, **options) is is_transfer


@pytest.mark.slow
def test_every_garbage_collection_pause_is_recorded_if_every_step_is_read(
    folder: Path,
) -> None:
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    kept = [[number] for number in range(50_000)]  # so that a collection takes long enough to be told at once
    with stepscope.TrainingMonitor(run="collected", directory=folder) as monitor:
        monitor.watch(model, optimizer)
        for x in monitor.batches([torch.randn(2, 4)] * 12):
            model(x).mean().backward()
            optimizer.step()
            gc.collect()
            time.sleep(0.03)
    assert len(kept) == 50_000
    full = stepscope.open_store(folder).run("collected").series("gc/full_collections").values
    assert full.sum() >= 11, "The first look has nothing to compare with."
