"""Steps on a real GPU are taken apart on both clocks, without a single synchronisation of ours."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

import stepscope

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
    values = sorted(run.series(key).values[10:])
    return float(values[len(values) // 2])


def test_nothing_synchronises_and_late_losses_are_those_of_item_bit_for_bit(tmp_path: Path) -> None:
    run, losses, stats = train(tmp_path / "s", Work(4), checked=True)
    loss = run.series("loss")
    assert loss.values.tolist() == losses
    assert loss.steps.tolist() == list(range(60))
    assert stats["current_loss"] == losses[-1]
    assert stats["total_steps"] == 60


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


def test_a_wait_inside_the_model_shows_as_a_lag_that_collapses_there(tmp_path: Path) -> None:
    free, _, _ = train(tmp_path / "free", Work(16))
    waiting, _, _ = train(tmp_path / "waiting", Work(16, waits=True))
    assert median(free, "lag/forward_seconds") > 2e-3
    assert median(waiting, "lag/forward_seconds") < 3e-4
    assert median(waiting, "lag/backward_seconds") > 2e-3


def test_a_slow_loader_starves_a_small_model_and_not_a_large_one(tmp_path: Path) -> None:
    small, _, _ = train(tmp_path / "small", Work(1), wait_s=0.02)
    large, _, _ = train(tmp_path / "large", Work(64), wait_s=0.02)
    for run in (small, large):
        assert median(run, "phase/data_seconds") > 0.019
    assert median(small, "device/data_seconds") > 0.015
    assert median(large, "device/data_seconds") < 0.002


def test_steps_inside_a_captured_graph_are_left_alone(tmp_path: Path) -> None:
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
            model(x)
        graph.replay()
        torch.cuda.synchronize()
    assert stepscope.open_store(tmp_path / "s").run("graphed").status == "finished"
