"""Gradient norms are what torch says they are, whatever the gradients are made of."""

from __future__ import annotations

import math

import pytest

from stepscope.model_stats.gradient_monitor import GradientMonitor
from stepscope.model_stats.layers import REST, Layers

torch = pytest.importorskip("torch")
nn = torch.nn


def small_model(dtype=None):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)).to(dtype or torch.float64)


def backward(model, scale: float = 1.0) -> None:
    parameter = next(model.parameters())
    x = torch.randn(4, parameter.shape[1], dtype=parameter.dtype)
    (scale * model(x).square().mean()).backward()


def norm_of(*tensors) -> float:
    return torch.cat([tensor.detach().reshape(-1) for tensor in tensors]).norm().item()


def test_norms_are_torchs_own() -> None:
    model = small_model()
    backward(model)
    figures = GradientMonitor(model).measure()
    assert figures["gradient_norm"] == pytest.approx(
        norm_of(*(p.grad for p in model.parameters())), rel=1e-12
    )
    assert figures["gradient_norm/0"] == pytest.approx(norm_of(model[0].weight.grad, model[0].bias.grad))
    assert figures["gradient_norm/2"] == pytest.approx(norm_of(model[2].weight.grad, model[2].bias.grad))
    assert figures["weight_norm"] == pytest.approx(norm_of(*model.parameters()), rel=1e-12)
    assert figures["gradient_nonfinite_parameters"] == figures["gradient_nonfinite_elements"] == 0


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_a_norm_beyond_what_half_precision_holds_is_still_a_number(dtype) -> None:
    model = nn.Linear(64, 64).to(dtype)
    for parameter in model.parameters():
        parameter.grad = torch.full_like(parameter, 30_000)
    expected = 30_000 * math.sqrt(64 * 64 + 64)
    assert GradientMonitor(model).measure()["gradient_norm"] == pytest.approx(expected, rel=0.01)


def test_norms_too_small_or_large_to_be_squared_in_float32_survive_being_added_up() -> None:
    model = nn.Sequential(nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False))
    model[0].weight.grad, model[1].weight.grad = torch.tensor([[3e-19]]), torch.tensor([[4e-19]])
    assert GradientMonitor(model).measure()["gradient_norm"] == pytest.approx(5e-19)
    model[0].weight.grad, model[1].weight.grad = torch.tensor([[3e18]]), torch.tensor([[1.8e19]])
    assert GradientMonitor(model).measure()["gradient_norm"] == pytest.approx(math.hypot(3e18, 1.8e19))


def test_frozen_parameters_and_those_without_a_gradient_are_left_out() -> None:
    model = small_model()
    model[0].requires_grad_(False)
    backward(model)
    figures = GradientMonitor(model).measure()
    assert "gradient_norm/0" not in figures
    assert figures["gradient_norm"] == pytest.approx(figures["gradient_norm/2"])


def test_without_gradients_there_are_no_values() -> None:
    assert GradientMonitor(small_model()).measure() == {}


def test_a_tied_weight_counts_once() -> None:
    embedding, head = nn.Embedding(10, 4), nn.Linear(4, 10, bias=False)
    head.weight = embedding.weight
    model = nn.Sequential(embedding, head)
    model(torch.tensor([1, 2, 3])).square().mean().backward()
    figures = GradientMonitor(model).measure()
    assert figures["gradient_norm"] == pytest.approx(norm_of(embedding.weight.grad))
    assert [key for key in figures if key.startswith("gradient_norm/")] == ["gradient_norm/0"]


def test_a_sparse_gradient_counts_rows_that_come_twice_as_one() -> None:
    model = nn.Embedding(10, 4, sparse=True)
    model(torch.tensor([1, 1, 7, 3, 1])).square().sum().backward()
    assert not model.weight.grad.is_coalesced()
    assert GradientMonitor(model).measure()["gradient_norm"] == pytest.approx(
        norm_of(model.weight.grad.to_dense())
    )


@pytest.mark.filterwarnings("ignore:Sparse invariant")
def test_rows_of_a_sparse_gradient_are_identified_by_all_its_dimensions() -> None:
    parameter = nn.Parameter(torch.zeros(3, 4))
    indices = torch.tensor([[0, 1, 0, 0], [1, 0, 1, 2]])
    parameter.grad = torch.sparse_coo_tensor(indices, torch.tensor([1.0, 2.0, 3.0, 4.0]), (3, 4))
    model = nn.Module()
    model.scale = parameter
    assert GradientMonitor(model).measure()["gradient_norm/scale"] == pytest.approx(math.hypot(4, 2, 4))


def test_complex_gradients_have_the_norm_of_both_parts() -> None:
    model = nn.Linear(3, 2, dtype=torch.complex64)
    model(torch.randn(5, 3, dtype=torch.complex64)).abs().sum().backward()
    expected = norm_of(*(torch.view_as_real(parameter.grad) for parameter in model.parameters()))
    assert GradientMonitor(model).measure()["gradient_norm"] == pytest.approx(expected)


def test_gradients_of_several_types_add_up() -> None:
    model = nn.Sequential(nn.Linear(4, 4).to(torch.float64), nn.Linear(4, 4).to(torch.bfloat16))
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    assert GradientMonitor(model).measure()["gradient_norm"] == pytest.approx(math.sqrt(40))


def test_what_is_not_finite_is_counted_and_its_layer_named() -> None:
    model = small_model()
    backward(model)
    model[2].bias.grad[1:3] = math.nan
    gradients = GradientMonitor(model)
    figures = gradients.measure()
    assert math.isnan(figures["gradient_norm"])
    assert math.isfinite(figures["gradient_norm/0"])
    assert (figures["gradient_nonfinite_parameters"], figures["gradient_nonfinite_elements"]) == (1, 2)
    (finding,) = gradients.findings
    assert (finding.kind, finding.layer) == ("not_finite", "2")


def test_a_layer_with_tiny_gradients_is_vanishing() -> None:
    model = small_model()
    backward(model)
    for parameter in model[0].parameters():
        parameter.grad = torch.full_like(parameter, 1e-9)
    gradients = GradientMonitor(model)
    gradients.measure()
    (finding,) = gradients.findings
    assert (finding.kind, finding.layer, finding.layers) == ("vanishing", "0", ("0",))


def test_an_explosion_is_found_against_what_was_usual() -> None:
    model = small_model()
    gradients = GradientMonitor(model)
    for _ in range(12):
        model.zero_grad()
        backward(model)
        gradients.measure()
        assert gradients.findings == []
    model.zero_grad()
    backward(model, scale=1e3)
    gradients.measure()
    (finding,) = gradients.findings
    assert finding.kind == "exploding"
    assert finding.layers == ("0", "2")


@pytest.mark.parametrize("divides", [False, True])
def test_scaled_gradients_are_divided_unless_the_scaler_has_done_so(divides: bool) -> None:
    model = small_model(torch.float32)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    torch.manual_seed(1)
    scaler.scale(model(torch.randn(4, 8)).square().mean()).backward()
    if divides:
        scaler.unscale_(optimizer)
    norm = GradientMonitor(model, optimizer, scaler=scaler).measure()["gradient_norm"]
    if not divides:
        scaler.unscale_(optimizer)
    assert norm == pytest.approx(norm_of(*(parameter.grad for parameter in model.parameters())))


def test_layers_of_a_deep_model_are_grouped_by_block() -> None:
    block = lambda: nn.ModuleDict({"attention": nn.Linear(2, 2), "mlp": nn.Linear(2, 2)})
    model = nn.ModuleDict({"embed": nn.Linear(2, 2), "blocks": nn.ModuleList(block() for _ in range(5))})
    assert len(Layers.of(model).names) == 11
    assert Layers.of(model, max_layers=6).names == ("embed", *(f"blocks.{at}" for at in range(5)))
    assert Layers.of(model, max_layers=2).names == ("embed", "blocks")


def test_layers_beyond_the_maximum_are_combined() -> None:
    model = nn.Sequential(*(nn.Linear(1, 1) for _ in range(9)))
    layers = Layers.of(model, max_layers=4)
    assert layers.names == ("0", "1", "2", REST)
    assert layers.layer_of.count(3) == 12


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:`torch.jit")
def test_wrappers_leave_the_names_as_they_were() -> None:
    model = small_model()
    assert Layers.of(nn.DataParallel(model)).names == ("0", "2")
    assert Layers.of(torch.compile(model)).names == ("0", "2")


def test_a_parametrization_belongs_to_the_layer_it_shapes() -> None:
    model = nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(3, 3)), nn.Linear(3, 3))
    assert Layers.of(model).names == ("0", "1")


def test_a_parameter_of_the_model_itself_is_a_layer() -> None:
    model = nn.Module()
    model.scale, model.inner = nn.Parameter(torch.ones(1)), nn.Linear(1, 1)
    assert Layers.of(model).names == ("scale", "inner")
