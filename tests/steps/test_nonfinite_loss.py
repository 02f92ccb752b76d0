"""The operation, the batch or the weights that a loss owes its NaN to are found in its graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch.nn import Conv2d, Embedding, Flatten, LayerNorm, Linear, Module, ReLU, Sequential
from torch.nn.functional import cross_entropy, mse_loss
from torch.utils.checkpoint import checkpoint

import stepscope
from stepscope.steps.evidence.nonfinite_loss import MAX_SEARCHES, Origin, origin_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

INPUTS = torch.linspace(-1.0, 1.0, 20).reshape(5, 4)
TARGETS = torch.zeros(5, dtype=torch.long)


class Logarithm(Module):
    """Takes logarithms of zero."""

    def forward(self, values: Any) -> Any:
        return torch.log(torch.relu(values))


class Attention(Module):
    """Attention whose scores overflow."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.norm, self.out = Linear(4, 4), Linear(4, 4), LayerNorm(4), Linear(4, 1)

    def forward(self, values: Any) -> Any:
        scores = (self.query(values) * 1e30) @ (self.key(values) * 1e30).T
        return self.out(self.norm(scores.softmax(-1) @ values))


def origin(model: Module, loss: Any) -> Origin | None:
    assert not loss.isfinite()
    layers = {id(parameter): name.rpartition(".")[0] for name, parameter in model.named_parameters()}
    return origin_of(loss, layers)


def with_logarithm() -> Sequential:
    return Sequential(Linear(4, 4), ReLU(), Linear(4, 3), Logarithm(), Linear(3, 2))


def test_an_operation_between_layers_is_named_with_the_layers_around_it() -> None:
    model = with_logarithm()
    result = origin(model, cross_entropy(model(INPUTS), TARGETS))
    assert result == Origin("operation", "log", after="2", before="4")


def test_an_operation_of_the_loss_is_named_with_the_layer_before_it() -> None:
    model = Linear(4, 1)
    losses: dict[str, Callable[[], Any]] = {
        "log": lambda: torch.log(torch.relu(model(INPUTS) - 100)).mean(),
        "sqrt": lambda: torch.sqrt(model(INPUTS) - 100).mean(),
        "div": lambda: (model(INPUTS) * 0).mean() / (model(INPUTS) * 0).mean(),
    }
    for operation, loss in losses.items():
        result = origin(Sequential(model), loss())
        assert result == Origin("operation", operation, after="0")


def test_attention_whose_scores_overflow_is_named() -> None:
    model = Attention()
    result = origin(model, model(INPUTS).mean())
    assert result is not None
    assert (result.cause, result.operation, result.before) == ("operation", "softmax", "norm")


def test_a_batch_with_nan_is_named_as_the_cause() -> None:
    inputs = INPUTS.clone()
    inputs[2, 1] = float("nan")
    model = Sequential(Linear(4, 4), ReLU(), Linear(4, 2))
    assert origin(model, cross_entropy(model(inputs), TARGETS)) == Origin("batch", before="0")
    pictures = torch.zeros(5, 1, 6, 6)
    pictures[0, 0, 3, 3] = float("inf")
    convolution = Sequential(Conv2d(1, 2, 3), ReLU(), Flatten(), Linear(32, 2))
    result = origin(convolution, cross_entropy(convolution(pictures), TARGETS))
    assert result == Origin("batch", before="0")


def test_targets_with_nan_are_a_bad_batch() -> None:
    model = Sequential(Linear(4, 4), ReLU(), Linear(4, 1))
    targets = torch.full((5, 1), float("nan"))
    for loss in (mse_loss(model(INPUTS), targets), (model(INPUTS) * targets).mean()):
        assert origin(model, loss) == Origin("batch", before="2")


def test_an_operation_with_a_bad_number_is_named_and_not_the_one_before_it() -> None:
    model = Sequential(Linear(4, 1))
    result = origin(model, model(INPUTS).square().mean() * float("nan"))
    assert result == Origin("operation", "mul", after="0")
    weights = torch.tensor([1.0, float("nan")])
    classes = Sequential(Linear(4, 2))
    result = origin(classes, cross_entropy(classes(INPUTS), TARGETS + 1, weight=weights))
    assert result is not None
    assert result.cause == "operation"


def test_a_layer_whose_weights_are_bad_is_named() -> None:
    model = Sequential(Linear(4, 4), ReLU(), Linear(4, 2))
    with torch.no_grad():
        model[2].weight[0, 0] = float("inf")
    result = origin(model, cross_entropy(model(INPUTS), TARGETS))
    assert result is not None
    assert (result.cause, result.layer) == ("weights", "2")
    table = Sequential(Embedding(5, 4), Linear(4, 1))
    with torch.no_grad():
        table[0].weight[0] = float("nan")
    result = origin(table, table(TARGETS).mean())
    assert result is not None
    assert (result.cause, result.layer) == ("weights", "0")


def test_a_loss_that_is_bad_although_all_kept_values_are_finite_is_said_to_be_so() -> None:
    model = Sequential(Linear(4, 1))
    assert origin(model, model(INPUTS).mean() + float("nan")) == Origin("loss", after="0")


def test_values_behind_hooks_of_others_are_not_touched() -> None:
    model = with_logarithm()
    loss = checkpoint(model, INPUTS, use_reentrant=False).mean()
    assert origin(model, loss) is not None
    loss.backward()  # raises if a checkpointed value was unpacked before


def train(tmp_path: Path, bad_from: int, steps: int = 12) -> tuple[list[Any], list[float]]:
    """Trains a model whose logarithm gets zeros from a step on; returns events and losses."""
    torch.manual_seed(1)
    model = Sequential(Linear(4, 4), Linear(4, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    losses = []
    with stepscope.TrainingMonitor({"directory": str(tmp_path)}, run="nan") as monitor:
        monitor.watch(model, optimizer)
        for step, (inputs, _) in enumerate(monitor.batches([(INPUTS, TARGETS)] * steps)):
            loss = torch.log(model(inputs).square().mean() * (step < bad_from))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            monitor.log_training_step(loss=loss)
    run = stepscope.open_store(tmp_path).run("nan")
    return [event for event in run.events() if event.kind == "loss_not_finite"], losses


def test_a_training_records_the_step_and_the_batch_of_its_first_bad_loss(tmp_path: Path) -> None:
    events, losses = train(tmp_path, bad_from=7)
    assert losses.index(float("-inf")) == 7
    [event] = events
    assert event.step == 7
    assert (event.fields["cause"], event.fields["operation"]) == ("operation", "log")
    assert event.fields["batch"] == "5×4 float32, 5 int64"


def test_a_training_with_finite_losses_records_no_such_event(tmp_path: Path) -> None:
    assert train(tmp_path, bad_from=100)[0] == []


def test_a_training_that_stays_bad_is_looked_into_a_few_times_only(tmp_path: Path) -> None:
    events, _ = train(tmp_path, bad_from=0, steps=300)
    assert 0 < len(events) <= MAX_SEARCHES  # not every step of less than a millisecond is read


def test_backward_is_restored_when_the_training_ends(tmp_path: Path) -> None:
    before = torch.autograd.backward
    train(tmp_path, bad_from=100)
    assert torch.autograd.backward is before


@pytest.mark.slow
@pytest.mark.parametrize("loss", [None, "text", torch.ones(3), torch.tensor(float("nan"))])
def test_what_is_no_loss_of_a_graph_raises_what_it_always_raised(loss: Any, tmp_path: Path) -> None:
    with pytest.raises(Exception) as without:  # noqa: PT011 - whatever PyTorch raises
        torch.autograd.backward(loss)
    with stepscope.TrainingMonitor({"directory": str(tmp_path)}, run="odd") as monitor:
        model = Linear(4, 1)
        monitor.watch(model, torch.optim.SGD(model.parameters(), lr=0.01))
        with pytest.raises(without.type, match="^") as watched:
            torch.autograd.backward(loss)
    assert str(watched.value) == str(without.value)
    assert stepscope.open_store(tmp_path).run("odd").status == "finished"
