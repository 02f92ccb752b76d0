"""The loss of a step is what a person would print, also with accumulation, scalers and closures."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from stepscope.attach.step_losses import StepLosses  # noqa: E402


def loss_of(value: float) -> torch.Tensor:
    return torch.tensor(value, requires_grad=True) * torch.ones(())


def step(losses: StepLosses, *tensors: torch.Tensor) -> float:
    for tensor in tensors:
        losses.add(tensor, None, in_optimizer=False)
    return float(losses.take())


def test_one_loss_is_itself() -> None:
    losses = StepLosses(torch)
    assert [step(losses, loss_of(value)) for value in (3.0, 2.0)] == [3.0, 2.0]
    assert losses.take() is None


def test_a_loss_that_is_divided_by_a_number_without_accumulation_stays_divided() -> None:
    losses = StepLosses(torch)
    assert [step(losses, loss_of(8.0) / 4) for _ in range(3)] == [2.0] * 3


@pytest.mark.parametrize(
    "divide", [lambda loss: loss / 4, lambda loss: loss * 0.25, lambda loss: loss / 2 / 2]
)
def test_accumulated_losses_that_are_divided_by_their_number_are_undone(divide) -> None:
    losses = StepLosses(torch)
    parts = [1.0, 2.0, 3.0, 6.0]
    assert step(losses, *[divide(loss_of(part)) for part in parts]) == 3.0
    assert step(losses, *[divide(loss_of(part)) for part in parts[:2]]) == 1.5  # the last step of an epoch
    assert step(losses, divide(loss_of(5.0))) == 5.0


def test_accumulated_losses_that_are_not_divided_are_averaged() -> None:
    assert step(StepLosses(torch), loss_of(1.0), loss_of(3.0)) == 2.0


def test_a_scaled_loss_is_undone() -> None:
    losses, loss = StepLosses(torch), loss_of(3.0)
    scaled = loss * 1024
    losses.note_scaled(scaled, loss)
    assert step(losses, scaled) == 3.0


def test_the_first_result_of_a_closure_is_the_loss() -> None:
    losses = StepLosses(torch)
    losses.begin_optimizer_step()
    for value in (5.0, 4.0, 3.0):
        losses.add(loss_of(value), None, in_optimizer=True)
    assert float(losses.take()) == 5.0


def test_what_is_no_loss_is_left_out() -> None:
    losses = StepLosses(torch)
    losses.add(torch.ones(3, requires_grad=True) * 2, torch.ones(3), in_optimizer=False)
    losses.add([loss_of(1.0), loss_of(2.0)], None, in_optimizer=False)
    losses.add(torch.ones((), dtype=torch.complex64, requires_grad=True) * 2, None, in_optimizer=False)
    assert losses.take() is None


def test_a_program_that_never_updates_keeps_few_losses() -> None:
    losses = StepLosses(torch)
    for _ in range(3000):
        losses.add(loss_of(1.0), None, in_optimizer=False)
    assert len(losses._losses) < 2000


def test_a_loss_that_the_program_changes_in_place_is_recorded_as_it_was() -> None:
    losses, loss = StepLosses(torch), loss_of(3.0)
    losses.add(loss, None, in_optimizer=False)
    with torch.no_grad():
        loss.mul_(8)  # as reducing it over ranks does
    assert float(losses.take()) == 3.0
