"""Real trainings with layers that are cut off, kept losses, unused compilations, and healthy ones."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import stepscope
from stepscope.steps.evidence.kept_losses import KeptLosses

torch = pytest.importorskip("torch")
nn = torch.nn

pytestmark = pytest.mark.usefixtures("without_agent")

STEPS = 45
IDS = {"grad.missing", "mem.retention", "compile.unused", "num.denormals"}


@pytest.fixture
def findings(folder: Path) -> Callable[..., dict[str, Any]]:
    """Trains under a monitor; returns the findings by id."""

    def diagnosed(loop: Callable[[Any], None]) -> dict[str, Any]:
        settings = {"recorder": {"max_overhead": 0.5}}  # these steps are short
        with stepscope.TrainingMonitor(settings, run="loop", directory=folder, strict=True) as monitor:
            loop(monitor)
        diagnosis = stepscope.open_store(folder).run("loop").diagnose()
        return {finding.id: finding for finding in diagnosis.findings if finding.id in IDS}

    return diagnosed


def network() -> Any:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2))


def training(
    loss_of: Callable[[Any, Any], Any], model: Any | None = None, steps: int = STEPS
) -> Callable[[Any], None]:
    """A loop that minimises this loss of a model and a batch."""

    def loop(monitor: Any) -> None:
        trained = network() if model is None else model
        optimizer = torch.optim.SGD(trained.parameters(), lr=1e-3)
        monitor.watch(trained, optimizer)
        for number in range(steps):
            optimizer.zero_grad()
            loss_of(trained, torch.ones(6, 4) + number / steps).backward()
            optimizer.step()

    return loop


def test_layers_before_a_detached_output_are_named(findings) -> None:
    reported = findings(training(lambda model, x: model[2:](model[:2](x).detach()).square().mean()))
    assert reported.keys() == {"grad.missing"}
    assert reported["grad.missing"].headline == (
        "1 layer with 31% of the trainable parameters gets no gradient: `0`."
    )
    assert "detach" in reported["grad.missing"].remedies[0].text


@pytest.mark.parametrize(
    "loss_of",
    [
        lambda model, x: model(x).square().mean(),
        lambda model, x: model[2:](torch.ones(6, 8)).square().mean(),  # the first layer is not used
    ],
)
def test_layers_with_gradients_or_without_a_part_in_the_step_are_fine(findings, loss_of) -> None:
    assert findings(training(loss_of)) == {}


def test_layers_whose_optimizer_steps_later_are_fine(findings) -> None:
    def loop(monitor: Any) -> None:
        model = network()
        first = torch.optim.SGD(model[:2].parameters(), lr=1e-3)
        second = torch.optim.SGD(model[2:].parameters(), lr=1e-3)
        monitor.watch(model, [first, second])
        for number in range(2 * STEPS):
            x = torch.ones(6, 4)
            if number < STEPS:
                second.zero_grad()
                model[2:](model[:2](x).detach()).square().mean().backward()
                second.step()
            else:
                first.zero_grad()
                model(x).square().mean().backward()
                first.step()

    assert findings(loop) == {}


def test_a_model_can_be_copied_and_pickled_while_its_layers_are_followed(findings) -> None:
    def loss_of(model: Any, x: Any) -> Any:
        copy.deepcopy(model)
        pickle.loads(pickle.dumps(model))
        return model[2:](model[:2](x).detach()).square().mean()

    model = network()
    assert findings(training(loss_of, model)).keys() == {"grad.missing"}
    assert not any(module._forward_hooks for module in model.modules())


@pytest.mark.parametrize(("most", "share"), [(None, 1.0), (5, 0.0)])
def test_losses_that_are_kept_with_their_graphs_are_counted(most, share) -> None:
    timer = SimpleNamespace(steps_made=0)
    phase_timer = SimpleNamespace(timer=timer)
    probe = KeptLosses(phase_timer)
    weight, kept = torch.ones(3, requires_grad=True), []
    for timer.steps_made in range(200):
        loss = (weight * timer.steps_made).sum()
        kept.append(loss * loss)
        phase_timer.on_backward([loss])
        loss.backward()
        del loss, kept[: 0 if most is None else -most]
        early = probe.read(1) if timer.steps_made < 20 else {}
        assert early == {}
    assert probe.read(1) == {"losses/kept_ratio": share}
    probe.close()
    assert probe.read(1) == {}


def test_a_compiled_model_that_is_never_called_is_reported(findings) -> None:
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    model = network()
    compiled = torch.compile(model, backend="eager")
    reported = findings(training(lambda trained, x: trained(x).square().mean(), model))
    assert reported["compile.unused"].headline.startswith("`Sequential` was compiled, but")
    del compiled
    torch._dynamo.reset()


def test_weights_that_are_denormal_are_reported_with_their_share(findings) -> None:
    model = network()
    for parameter in model.parameters():
        parameter.data.mul_(1e-40)
    reported = findings(training(lambda trained, x: trained(x).sum() * 0, model, steps=2000))  # sampled
    assert reported.keys() == {"num.denormals"}
    assert "set_flush_denormal" in reported["num.denormals"].remedies[0].code
