"""Activations are summed up in bursts; between them, and afterwards, a model is as it was."""

from __future__ import annotations

import copy
import io
import logging
import math
import pickle

import pytest

from stepscope.model_stats import activations as module
from stepscope.model_stats.activations import Activations
from stepscope.model_stats.sampled_hooks import WARM_UP
from tests.model_stats.recording_sink import RecordedMetrics, always, end_step, never

torch = pytest.importorskip("torch")
nn = torch.nn


def hooks_of(model) -> list[dict]:
    return [
        {
            **module._forward_hooks,
            **module._forward_pre_hooks,
            **module._forward_hooks_with_kwargs,
            **module._backward_hooks,
        }
        for module in model.modules()
    ]


def burst(watch: Activations, model, x, steps: int = WARM_UP + 1) -> None:
    for step in range(steps):
        model(x)
        end_step(watch, step)


def test_figures_are_those_of_the_output() -> None:
    model = nn.Sequential(nn.Linear(4, 6), nn.Tanh())
    x = torch.randn(32, 4)
    figures = Activations(model).measure(lambda: model(x))
    y = model[0](x)
    assert figures["activation_mean/0"] == pytest.approx(y.mean().item(), rel=1e-5)
    assert figures["activation_std/0"] == pytest.approx(y.std(correction=0).item(), rel=1e-5)
    assert figures["activation_max/0"] == pytest.approx(y.abs().max().item())
    assert figures["activation_zeros_ratio/0"] == 0
    assert "activation_saturated_ratio/0" not in figures


def test_a_dead_relu_gives_nothing_but_zeros() -> None:
    model = nn.Sequential(nn.Linear(4, 6), nn.ReLU())
    nn.init.constant_(model[0].bias, -1e3)
    figures = Activations(model).measure(lambda: model(torch.randn(8, 4)))
    assert figures["activation_zeros_ratio/1"] == 1.0
    assert figures["activation_saturated_ratio/1"] == 1.0
    assert figures["activation_dead_ratio/1"] == 1.0


def test_units_are_dead_that_are_zero_throughout() -> None:
    relu = nn.ReLU()
    x = torch.tensor([[1.0, -1.0, -1.0, -2.0], [-1.0, -1.0, 3.0, -1.0]])
    figures = Activations(relu).measure(lambda: relu(x))
    assert (figures["activation_zeros_ratio/ReLU"], figures["activation_dead_ratio/ReLU"]) == (0.75, 0.5)
    images = torch.ones(2, 3, 4, 4)
    images[:, 1] = -1
    figures = Activations(relu).measure(lambda: relu(images))
    assert figures["activation_dead_ratio/ReLU"] == pytest.approx(1 / 3)


@pytest.mark.parametrize(
    ("layer", "values", "share"),
    [
        (nn.Sigmoid(), [-10.0, 0.0, 10.0, 1.0], 0.5),
        (nn.Tanh(), [-10.0, 0.0, 10.0, 1.0], 0.5),
        (nn.Hardtanh(), [-1.0, 0.5, 7.0, 0.0], 0.5),
        (nn.ReLU6(), [-1.0, 0.5, 7.0, 0.1], 0.5),
        (nn.Hardsigmoid(), [-4.0, 0.0, 4.0, 1.0], 0.5),
    ],
    ids=lambda one: type(one).__name__,
)
def test_saturation_is_known_where_a_function_has_ends(layer, values, share) -> None:
    figures = Activations(layer).measure(lambda: layer(torch.tensor([values])))
    assert figures[f"activation_saturated_ratio/{type(layer).__name__}"] == share


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64, torch.complex64])
def test_outputs_of_any_type_have_figures(dtype) -> None:
    identity = nn.Sequential(nn.Module())
    identity[0].forward = lambda x: x
    figures = Activations(identity).measure(lambda: identity(torch.ones(4, 4, dtype=dtype)))
    assert figures["activation_max/0"] == 1


def test_what_gives_no_tensor_of_numbers_is_passed_over() -> None:
    class Odd(nn.Module):
        def forward(self, x):
            return {"count": 3, "ids": torch.tensor([1]), "empty": torch.zeros(0), "states": (None, x)}

    odd, nothing = Odd(), nn.Module()
    nothing.forward = lambda: "text"
    assert Activations(odd).measure(lambda: odd(torch.full((2, 2), 5.0)))["activation_mean/Odd"] == 5
    assert Activations(nothing).measure(nothing) == {}


def test_the_first_call_in_a_burst_counts() -> None:
    relu = nn.ReLU()
    figures = Activations(relu).measure(lambda: [relu(torch.full((2, 2), value)) for value in (1.0, 5.0)])
    assert figures["activation_mean/ReLU"] == 1


def test_a_large_output_is_thinned_and_its_greatest_still_found() -> None:
    layer = nn.Sequential(nn.ReLU())
    x = torch.rand(64, 3, 200, 200)
    x[63, 2, 199, 199] = 99.0
    figures = Activations(layer).measure(lambda: layer(x))
    assert module.thinned(x, 1).numel() <= module.MAX_ELEMENTS
    assert figures["activation_max/0"] == 99
    assert figures["activation_mean/0"] == pytest.approx(0.5, abs=0.01)


def test_a_burst_is_one_step_and_leaves_no_hook_behind() -> None:
    taken = RecordedMetrics()
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    watch = Activations(model, outlets=taken.sink, _draw=always)
    before = hooks_of(model)
    for step in range(WARM_UP):
        assert hooks_of(model) == before
        model(torch.randn(2, 4))
        end_step(watch, step)
    assert hooks_of(model) != before
    model(torch.randn(2, 4))
    end_step(watch, WARM_UP)
    assert hooks_of(model) == before
    (row,) = taken.rows
    assert set(row) >= {"activation_mean/0", "activation_dead_ratio/1"}


def test_closing_within_a_burst_leaves_no_hook_behind() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    watch = Activations(model, outlets=RecordedMetrics().sink, _draw=always)
    before = hooks_of(model)
    for step in range(WARM_UP):
        end_step(watch, step)
    assert watch.is_open
    watch.close()
    assert hooks_of(model) == before


def test_steps_that_are_not_chosen_have_no_hooks() -> None:
    model = nn.Linear(4, 4)
    watch = Activations(model, outlets=RecordedMetrics().sink, _draw=never)
    for step in range(100):
        end_step(watch, step)
        assert not watch.is_open


def test_evaluation_in_a_burst_is_not_recorded() -> None:
    taken = RecordedMetrics()
    model = nn.Sequential(nn.Linear(4, 4)).eval()
    burst(Activations(model, outlets=taken.sink, _draw=always), model, torch.randn(2, 4))
    assert taken.rows == []


def test_a_model_with_many_layers_is_gone_through_burst_by_burst() -> None:
    taken = RecordedMetrics()
    model = nn.Sequential(*(nn.Linear(2, 2) for _ in range(100)))
    burst(Activations(model, outlets=taken.sink, _draw=always), model, torch.randn(2, 2), WARM_UP + 4)
    first, second = ({key.rsplit("/")[-1] for key in row} for row in taken.rows[:2])
    assert len(first) == len(second) == 64
    assert len(first | second) == 100


def test_a_failure_of_ours_never_reaches_the_loop(caplog: pytest.LogCaptureFixture) -> None:
    class Hostile(nn.Module):
        def forward(self, x):
            return x.as_subclass(Sly)

    class Sly(torch.Tensor):
        @property
        def layout(self):
            raise ValueError("no layout")

    taken = RecordedMetrics()
    model = nn.Sequential(Hostile())
    watch = Activations(model, outlets=taken.sink, _draw=always)
    before = hooks_of(model)
    with caplog.at_level(logging.WARNING, logger="stepscope"):
        burst(watch, model, torch.ones(1), WARM_UP + 6)
    assert len([record for record in caplog.records if record.name == "stepscope"]) == 1
    assert hooks_of(model) == before


def test_a_model_saved_or_copied_in_a_burst_does_not_take_us_along() -> None:
    taken = RecordedMetrics()
    model = nn.Sequential(nn.Linear(4, 4))
    watch = Activations(model, outlets=taken.sink, _draw=always)
    for step in range(WARM_UP):
        end_step(watch, step)
    assert watch.is_open
    saved = pickle.dumps(model)
    assert b"stepscope" not in saved
    file = io.BytesIO()
    torch.save(model, file)
    x = torch.ones(1, 4)
    for other in (pickle.loads(saved), copy.deepcopy(model)):
        assert torch.equal(other(x), model[0](x))
    watch.close()


def test_gradients_flow_as_without() -> None:
    results = []
    for draw in (always, never):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True), nn.Dropout(0.5), nn.Linear(4, 1))
        watch = Activations(model, outlets=RecordedMetrics().sink, _draw=draw)
        for step in range(WARM_UP + 2):
            model(torch.randn(2, 4)).sum().backward()
            end_step(watch, step)
        watch.close()
        results.append(model[0].weight.grad)
    assert torch.equal(*results)


def test_recomputed_layers_count_once() -> None:
    from torch.utils.checkpoint import checkpoint

    taken = RecordedMetrics()
    layer = nn.Sequential(nn.Linear(4, 4))
    watch = Activations(layer, outlets=taken.sink, _draw=always)
    for step in range(WARM_UP + 1):
        checkpoint(layer, torch.randn(2, 4, requires_grad=True), use_reentrant=False).sum().backward()
        end_step(watch, step)
    assert len(taken.rows) == 1
    assert math.isfinite(taken.rows[0]["activation_mean/0"])


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(4, 4), nn.ReLU())

    def forward(self, x):
        return self.inner(x)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:`torch.jit")
@pytest.mark.parametrize("hides", [False, True])
@pytest.mark.parametrize(
    "make", [Net, lambda: nn.Sequential(nn.Linear(4, 4), nn.ReLU())], ids=["own", "torch"]
)
def test_a_compiled_model_has_as_many_graphs_as_without(make, hides: bool) -> None:
    from torch._dynamo.testing import CompileCounter

    torch._dynamo.reset()
    counter = CompileCounter()
    model = make()
    compiled = torch.compile(model, backend=counter)
    taken = RecordedMetrics()
    # Whether the monitor is shown the compiled model or the one inside, which does not tell.
    watch = Activations(model if hides else compiled, outlets=taken.sink, _draw=always)
    for step in range(2 * WARM_UP):
        compiled(torch.ones(2, 4)).sum().backward()
        end_step(watch, step)
    watch.close()
    assert counter.frame_count == 1


@pytest.mark.filterwarnings("ignore:`torch.jit")
def test_the_parts_of_a_model_that_are_not_compiled_are_watched() -> None:
    torch._dynamo.reset()
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    model[0].compile(backend="eager")
    figures = Activations(model).measure(lambda: model(torch.ones(1, 4)))
    assert {key.rsplit("/")[-1] for key in figures} == {"1"}
