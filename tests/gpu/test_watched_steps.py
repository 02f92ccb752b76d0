"""Steps on a real GPU are taken apart on both clocks, without a single synchronisation of ours."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

import stepscope
from stepscope.steps import device_clock
from stepscope.views.steps.ranks import lateness, phase_medians

torch = pytest.importorskip("torch")

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings("ignore:Synchronization debug mode"),
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


class Work(torch.nn.Module):
    """Some milliseconds of matrix products, each way."""

    def __init__(self, products: int, *, waits: bool = False) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(4096, 4096, device="cuda") / 64)
        self.products, self.waits = products, waits

    def forward(self, x):
        for _ in range(self.products):
            x = x @ self.weight
        if self.waits:
            x.sum().item()
        return x


def train(folder: Path, model, steps: int = 60, wait_s: float = 0.0, *, checked: bool = False):
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-9)
    batches = [torch.randn(1024, 4096).pin_memory() for _ in range(4)]

    def data():
        for step in range(steps):
            time.sleep(wait_s)
            yield batches[step % 4]

    losses = []
    with stepscope.TrainingMonitor(run="gpu", directory=folder) as monitor:
        monitor.watch(model, optimizer)
        if checked:
            torch.cuda.set_sync_debug_mode("error")
        for x in monitor.batches(data()):
            loss = model(x.to("cuda", non_blocking=True)).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            monitor.log_training_step(loss=loss, learning_rate=0.1)
            losses.append(loss.detach())
        torch.cuda.set_sync_debug_mode("default")
        stats = monitor.get_training_stats
    return stepscope.open_store(folder).run("gpu"), [loss.item() for loss in losses], stats()


def median(run, key: str) -> float:
    values = sorted(run.series(key).values[5:])
    return float(values[len(values) // 2])


def test_nothing_synchronises_and_late_losses_are_those_of_item_bit_for_bit(tmp_path: Path) -> None:
    run, losses, stats = train(tmp_path / "s", Work(4), checked=True)
    loss = run.series("loss")
    assert loss.values.tolist() == losses
    assert loss.steps.tolist() == list(range(60))
    assert stats["current_loss"] == losses[-1]
    assert stats["total_steps"] == 60


@pytest.fixture
def every_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many steps as possible are timed on the device, whatever it costs."""
    monkeypatch.setenv("STEPSCOPE_RECORDER__MAX_OVERHEAD", "1")
    monkeypatch.setattr(device_clock, "SHARE", 1.0)


@pytest.mark.usefixtures("every_step")
def test_the_parts_of_a_step_on_the_device_add_up_to_the_whole(tmp_path: Path) -> None:
    run, _, _ = train(tmp_path / "s", Work(8))
    whole = run.series("device/step_seconds")
    assert len(whole) > 5
    total = sum(
        run.series(f"device/{phase}_seconds").values
        for phase in ("data", "transfer", "forward", "backward", "optimizer", "other")
    )
    assert abs(total - whole.values).max() < 1e-5
    assert median(run, "device/backward_seconds") > 1.5 * median(run, "device/forward_seconds")
    assert 0 < run.series("device/sampled_ratio").values.min() <= 1


@pytest.mark.usefixtures("every_step")
def test_a_wait_inside_the_model_shows_as_a_lag_that_collapses_there(tmp_path: Path) -> None:
    free, _, _ = train(tmp_path / "free", Work(16))
    waiting, _, _ = train(tmp_path / "waiting", Work(16, waits=True))
    assert median(free, "lag/forward_seconds") > 2e-3
    assert median(waiting, "lag/forward_seconds") < 3e-4
    assert median(waiting, "lag/backward_seconds") > 2e-3


@pytest.mark.usefixtures("every_step")
def test_a_slow_loader_starves_a_small_model_and_not_a_large_one(tmp_path: Path) -> None:
    small, _, _ = train(tmp_path / "small", Work(1), wait_s=0.02)
    large, _, _ = train(tmp_path / "large", Work(64), wait_s=0.02)
    for run in (small, large):
        assert median(run, "phase/data_seconds") > 0.019
    assert median(small, "device/data_seconds") > 0.015
    assert median(large, "device/data_seconds") < 0.002


def test_numbers_of_any_type_and_of_any_stream_are_those_of_the_moment_they_were_logged(
    tmp_path: Path,
) -> None:
    side = torch.cuda.Stream()
    types = (torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64)
    work = torch.randn(4096, 4096, device="cuda")
    with stepscope.TrainingMonitor(run="types", directory=tmp_path / "s") as monitor:
        for step in range(50):
            with torch.cuda.stream(side if step % 3 else torch.cuda.default_stream()):
                work @ work  # the GPU is behind, so that what is changed too early would show
                number = torch.full((), step, dtype=types[step % 5], device="cuda")
                monitor.log({"one": number, "other": 0.5})
                monitor.log_training_step(
                    loss=number, custom_metrics={"mixed": number.double() / 2}, step=step
                )
                number.add_(1000)
    run = stepscope.open_store(tmp_path / "s").run("types")
    assert run.series("one").values.tolist() == list(range(50))
    assert run.series("loss").values.tolist() == list(range(50))
    assert run.series("mixed").values.tolist() == [step / 2 for step in range(50)]


def test_a_compiled_model_that_moves_tensors_keeps_its_number_of_graphs(tmp_path: Path) -> None:
    class Moving(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(8, 8, device="cuda")

        def forward(self, x):
            return self.linear(x.to("cuda")).to(torch.float64).sum()

    graphs = []

    def backend(graph, _inputs):
        graphs.append(graph)
        return graph.forward

    model = Moving()
    with stepscope.TrainingMonitor(run="compiled", directory=tmp_path / "s") as monitor:
        monitor.watch(model)
        compiled = torch.compile(model, backend=backend, fullgraph=True)
        for x in monitor.batches([torch.randn(4, 8)] * 3):
            compiled(x).backward()
    assert len(graphs) == 1


def test_values_logged_inside_a_captured_graph_are_not_recorded(tmp_path: Path) -> None:
    model = Work(2)
    x = torch.randn(1024, 4096, device="cuda")
    with stepscope.TrainingMonitor(run="graphed", directory=tmp_path / "s") as monitor:
        monitor.watch(model)
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side), torch.no_grad():
            model(x)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.no_grad(), torch.cuda.graph(graph):
            monitor.log_training_step(loss=model(x).mean())
        graph.replay()
        torch.cuda.synchronize()
        monitor.log({"after": model(x).mean()})
    run = stepscope.open_store(tmp_path / "s").run("graphed")
    assert run.status == "finished"
    assert {info.key for info in run.keys()} >= {"after"}
    assert "loss" not in {info.key for info in run.keys()}


RANKS = """
import os, sys, torch, stepscope
from stepscope.steps import device_clock
from stepscope.views.steps.ranks import lateness, phase_medians
from torch.nn.parallel import DistributedDataParallel
device_clock.SHARE = 1.0
os.environ["STEPSCOPE_RECORDER__MAX_OVERHEAD"] = "1"
rank = int(os.environ["RANK"])
torch.distributed.init_process_group("gloo", init_method=f"file://{sys.argv[1]}", rank=rank, world_size=2)
work = torch.randn(4096, 4096, device="cuda")

class Late(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()
    @staticmethod
    def backward(ctx, gradient):
        for _ in range(20 if rank == 1 else 1):
            work @ work
        return gradient

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)
    def forward(self, x):
        return self.second(Late.apply(self.first(x)))

model = DistributedDataParallel(Model().cuda())
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
with stepscope.TrainingMonitor(run="ranks", directory=sys.argv[2]) as monitor:
    monitor.watch(model, optimizer)
    for x in monitor.batches([torch.randn(2, 4)] * 40):
        model(x.cuda()).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
torch.distributed.destroy_process_group()
"""


def test_the_rank_whose_gpu_is_late_in_backward_is_named_by_the_clock_of_the_gpu(tmp_path: Path) -> None:
    launch = {**os.environ, "MASTER_ADDR": "here", "MASTER_PORT": "1", "WORLD_SIZE": "2"}
    command = [sys.executable, "-c", RANKS, str(tmp_path / "meeting"), str(tmp_path / "s")]
    ranks = [subprocess.Popen(command, env={**launch, "RANK": str(rank)}) for rank in range(2)]
    assert [process.wait(timeout=240) for process in ranks] == [0, 0]
    late = lateness(phase_medians(stepscope.open_store(tmp_path / "s").run("ranks")))
    assert late is not None
    assert (late.rank, late.phase) == (1, "backward")
    assert late.seconds > 0.01
