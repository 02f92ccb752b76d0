"""The models of a training are found from the tensors it differentiates or updates."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from stepscope.attach.find_models import find_models, leaves_of, name_of, parameters_of  # noqa: E402


class Wrapper(torch.nn.Module):
    def __init__(self, inner: torch.nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x)


def test_the_outermost_module_of_a_loss_is_found() -> None:
    model = Wrapper(torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU()))
    beside = Wrapper(torch.nn.Linear(2, 2))
    loss = model(torch.randn(3, 2)).sum()
    assert [id(found) for found in find_models(torch, leaves_of([loss])).models] == [id(model)]
    assert beside is not None


@pytest.mark.slow
def test_an_optimizer_over_two_models_finds_both() -> None:
    encoder, decoder = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD([*encoder.parameters(), *decoder.parameters()], lr=0.1)
    search = find_models(torch, parameters_of(optimizer), optimizer)
    assert {id(model) for model in search.models} == {id(encoder), id(decoder)}
    assert any(other is optimizer for other in search.optimizers)


@pytest.mark.slow
def test_parameters_that_a_loss_does_not_show_are_found_through_the_optimizer() -> None:
    shown, hidden = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD([*shown.parameters(), *hidden.parameters()], lr=0.1)
    search = find_models(torch, leaves_of([shown(torch.randn(3, 2)).sum()]))
    assert {id(model) for model in search.models} == {id(shown), id(hidden)}
    assert optimizer is not None


def test_tensors_outside_of_modules_get_a_stand_in_with_the_same_tensors() -> None:
    weight = torch.randn(2, 2, requires_grad=True)
    search = find_models(torch, leaves_of([(torch.randn(3, 2) @ weight).sum()]))
    assert not search.has_modules
    assert [tensor is weight for tensor in search.models[0].parameters()] == [True]


def test_modules_that_hold_each_other_end_the_search() -> None:
    first, second = Wrapper(torch.nn.Linear(2, 2)), Wrapper(torch.nn.Linear(2, 2))
    first.other, second._modules["other"] = second, first
    search = find_models(torch, leaves_of([first.inner(torch.randn(3, 2)).sum()]))
    assert not search.has_modules


@pytest.mark.slow
def test_a_name_is_that_of_the_model_inside_the_wrappers() -> None:
    assert name_of(torch.compile(Wrapper(torch.nn.Linear(2, 2)), backend="eager")) == "Wrapper"
    assert name_of(torch.nn.DataParallel(Wrapper(torch.nn.Linear(2, 2)))) == "Wrapper"
    assert name_of(torch.nn.Sequential()) == "Sequential"
