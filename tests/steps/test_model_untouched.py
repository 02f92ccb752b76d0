"""A watched model can be copied, saved, averaged, scripted, traced, compiled and sent to another process."""

from __future__ import annotations

import copy
import io
import pickle
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import stepscope
from stepscope.schema.keys import phase_key

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.usefixtures("without_agent")
nn = torch.nn


class Net(nn.Module):
    """A model of somebody's own, with parts of several kinds."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 8)
        self.rest = nn.Sequential(nn.ReLU(), nn.Linear(8, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.rest(self.first(x))


def saved_and_loaded(model: Any) -> Any:
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


def averaged(model: Any) -> Any:
    average = torch.optim.swa_utils.AveragedModel(model)
    average.update_parameters(model)
    return average.module


COPIES: dict[str, Callable[[Any], Any]] = {
    "deepcopy": copy.deepcopy,
    "copy": copy.copy,
    "pickle": lambda model: pickle.loads(pickle.dumps(model)),
    "torch.save": saved_and_loaded,
    "AveragedModel": averaged,
    "EMA": lambda model: averaged(copy.deepcopy(model)),
}

TRANSFORMED: dict[str, Callable[[Any], Any]] = {
    "jit.script": torch.jit.script,
    "jit.trace": lambda model: torch.jit.trace(model, torch.ones(2, 4)),
    "fx": torch.fx.symbolic_trace,
    "export": lambda model: torch.export.export(model, (torch.ones(2, 4),)).module(),
    "compile": lambda model: torch.compile(model, backend="eager"),
}


@pytest.fixture
def watched(folder: Path) -> Iterator[tuple[Any, Any, Any]]:
    """A model in the middle of its training, in a step that is timed phase by phase."""
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    with stepscope.TrainingMonitor(run="untouched", directory=folder) as monitor:
        monitor.watch(model, optimizer)
        for _ in monitor.batches(range(3)):
            model(torch.ones(2, 4)).mean().backward()
            optimizer.step()
        yield model, optimizer, monitor


def forward_calls(folder: Path) -> int:
    return int((stepscope.open_store(folder).run("untouched").series(phase_key("forward")).values > 0).sum())


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")
@pytest.mark.parametrize("how", [*COPIES, *TRANSFORMED])
def test_a_watched_model_survives(how: str, watched: tuple[Any, Any, Any]) -> None:
    model, _, _ = watched
    copied = {**COPIES, **TRANSFORMED}[how](model)
    x = torch.ones(2, 4)
    assert torch.equal(copied(x), model(x))


@pytest.mark.slow
@pytest.mark.parametrize("how", COPIES)
def test_a_copy_is_not_watched(how: str, watched: tuple[Any, Any, Any], folder: Path) -> None:
    model, optimizer, monitor = watched
    duplicate = COPIES[how](model)
    for _ in monitor.batches(range(2)):
        duplicate(torch.ones(2, 4))
        loss = sum(parameter.sum() for parameter in model.parameters())
        loss.backward()
        optimizer.step()
    monitor.stop_monitoring()
    # Three steps called the model; the two after them called the copy alone.
    assert forward_calls(folder) == 3


@pytest.mark.slow
def test_a_copied_optimizer_is_not_watched(watched: tuple[Any, Any, Any], folder: Path) -> None:
    _, optimizer, monitor = watched
    monitor.unwatch()
    fresh = Net()
    own = torch.optim.AdamW(fresh.parameters())
    monitor.watch(fresh, own)
    for duplicate in (copy.deepcopy(own), pickle.loads(pickle.dumps(own))):
        duplicate.step()
    optimizer.step()
    monitor.stop_monitoring()
    assert len(stepscope.open_store(folder).run("untouched").series("step_seconds")) == 3


def test_nothing_of_ours_is_in_a_watched_model_or_its_state(watched: tuple[Any, Any, Any]) -> None:
    model, _, _ = watched
    hooks = [
        hook
        for part in model.modules()
        for kind in ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_state_dict_hooks")
        for hook in getattr(part, kind).values()
    ]
    assert hooks == []
    assert b"stepscope" not in pickle.dumps(model)
    assert type(model) is Net


def train(folder: Path, *, is_watched: bool) -> list[bytes]:
    torch.manual_seed(7)
    model = nn.Sequential(nn.Linear(16, 32), nn.Dropout(0.3), nn.Linear(32, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    losses = []
    monitor = stepscope.TrainingMonitor(run="same", directory=folder) if is_watched else None
    data = torch.utils.data.DataLoader(torch.randn(320, 16), batch_size=8, shuffle=True)
    if monitor is not None:
        monitor.watch(model, optimizer, histograms=5, activations=5)
    for _ in range(3):
        for x in data if monitor is None else monitor.batches(data):
            optimizer.zero_grad()
            loss = model(x).square().mean() + torch.rand(())
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            losses.append(loss.detach().numpy().tobytes())
            if monitor is not None:
                monitor.log_training_step(loss=loss, optimizer=optimizer, model=model)
    if monitor is not None:
        monitor.stop_monitoring()
    return losses


@pytest.mark.slow
def test_losses_are_the_same_to_the_last_bit_with_and_without_a_monitor(folder: Path) -> None:
    assert train(folder, is_watched=True) == train(folder, is_watched=False)


SPAWNED = """
import sys, torch, stepscope
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(4, 1)
    def forward(self, x):
        return self.inner(x)
def work(model, queue):
    queue.put(float(model(torch.ones(1, 4)).detach()))
if __name__ == "__main__":
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    monitor = stepscope.TrainingMonitor(run="spawned")
    monitor.watch(model, optimizer)
    for _ in monitor.batches(range(2)):
        model(torch.ones(1, 4)).mean().backward()
        optimizer.step()
    context = torch.multiprocessing.get_context("spawn")
    queue = context.Queue()
    child = context.Process(target=work, args=(model, queue))
    child.start()
    print(queue.get(timeout=100) == float(model(torch.ones(1, 4)).detach()))
    child.join()
    monitor.stop_monitoring()
"""


@pytest.mark.slow
def test_a_watched_model_can_be_sent_to_a_spawned_process(run_script, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SPAWNED)
    done = run_script(f"import runpy; runpy.run_path({str(script)!r}, run_name='__main__')")
    assert "True" in done.stdout, done.stderr
    assert done.returncode == 0, done.stderr


def test_a_call_that_raises_leaves_the_phase_it_began(watched: tuple[Any, Any, Any], folder: Path) -> None:
    model, optimizer, monitor = watched
    for number in monitor.batches(range(2)):
        if number == 0:
            with pytest.raises(RuntimeError):
                model(torch.ones(2, 5))
        model(torch.ones(2, 4)).mean().backward()
        optimizer.step()
    monitor.stop_monitoring()
    assert forward_calls(folder) == 5


def test_a_model_that_is_called_in_another_thread_moves_no_phase(
    watched: tuple[Any, Any, Any], folder: Path
) -> None:
    model, optimizer, monitor = watched
    for _ in monitor.batches(range(2)):
        other = threading.Thread(target=model, args=(torch.ones(2, 4),))
        other.start()
        other.join()
        sum(parameter.sum() for parameter in model.parameters()).backward()
        optimizer.step()
    monitor.stop_monitoring()
    assert forward_calls(folder) == 3


def test_two_models_of_one_class_are_distinguished_and_their_class_is_restored(folder: Path) -> None:
    first, second, unwatched = nn.Linear(4, 1), nn.Linear(4, 1), nn.Linear(4, 1)
    assert "__call__" not in vars(nn.Linear)
    monitors = [stepscope.TrainingMonitor(run=name, directory=folder) for name in ("one", "two")]
    for monitor, model in zip(monitors, (first, second), strict=True):
        monitor.watch(model)
    assert torch.equal(unwatched(torch.ones(1, 4)), unwatched.forward(torch.ones(1, 4)))
    monitors[0].stop_monitoring()
    assert torch.equal(second(torch.ones(1, 4)), second.forward(torch.ones(1, 4)))
    monitors[1].stop_monitoring()
    assert "__call__" not in vars(nn.Linear)


def test_a_class_with_a_call_of_its_own_gets_it_back(folder: Path) -> None:
    class Doubled(nn.Linear):
        def __call__(self, x: Any) -> Any:
            return 2 * super().__call__(x)

    own = vars(Doubled)["__call__"]
    model = Doubled(4, 1)
    with stepscope.TrainingMonitor(run="own", directory=folder) as monitor:
        monitor.watch(model)
        assert torch.equal(model(torch.ones(1, 4)), 2 * model.forward(torch.ones(1, 4)))
    assert vars(Doubled)["__call__"] is own
