"""Code of a training that is compiled is compiled as often with a monitor as without."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stepscope import TrainingMonitor, open_store

torch = pytest.importorskip("torch")
nn = torch.nn

STEPS = 60
"""So many that phases are timed in some of them and not in others."""

Step = Callable[[Any, Any, Any], Any]


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 1)

    def forward(self, x):
        return self.layer(x)


def compiled(function: Any) -> Any:
    return torch.compile(function, backend="eager")


def model_in_a_function(model, optimizer) -> Any:
    loss_of = compiled(lambda x: model(x).square().mean())

    def step(x):
        optimizer.zero_grad()
        loss_of(x).backward()
        optimizer.step()

    return step


def optimizer_step(model, optimizer) -> Any:
    update = compiled(optimizer.step)

    def step(x):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        update()

    return step


def whole_step(model, optimizer) -> Any:
    def step(x):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    return compiled(step)


def train(make_step: Any, monitor: TrainingMonitor | None) -> int:
    """Trains with or without a monitor; how many graphs were compiled."""
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    if monitor is not None:
        monitor.watch(model, optimizer)
    step = make_step(model, optimizer)
    for _ in range(STEPS):
        step(torch.ones(2, 4))
    return torch._dynamo.utils.counters["stats"]["unique_graphs"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "make_step", [model_in_a_function, optimizer_step, whole_step], ids=lambda step: step.__name__
)
def test_nothing_is_compiled_again_and_steps_are_counted(make_step: Any, folder: Path) -> None:

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of PyTorch's own
        alone = train(make_step, None)
    with TrainingMonitor(run="a", directory=folder) as monitor, warnings.catch_warnings():
        warnings.simplefilter("error")
        assert train(make_step, monitor) == alone
    assert open_store(folder).run("a").series("step_seconds").steps.tolist() == list(range(STEPS))
