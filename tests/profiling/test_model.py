"""The profile of models whose figures can be worked out by hand."""

from __future__ import annotations

import copy
import json
import sys

import pytest

from stepscope.errors import ConfigError, MissingExtra
from stepscope.profiling.model.model import ModelProfiler, peak_of
from stepscope.profiling.model.timings import Repeats
from stepscope.profiling.window.events import Allocation, Timeline

torch = pytest.importorskip("torch")

FEW = Repeats(5, warm_up=1)


def network():
    return torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10))


class Noisy(torch.nn.Module):
    """Answers differently each time."""

    def forward(self, x):
        return x + torch.rand_like(x)


def test_parameters_bytes_and_operations_are_those_one_can_count() -> None:
    model = network()
    model[2].bias.requires_grad_(False)
    model.register_buffer("scale", torch.ones(3, dtype=torch.float64))
    profile = ModelProfiler(model, input_shape=(256,), repeats=FEW).profile(batch_sizes=(1, 4))
    parameters = 256 * 512 + 512 + 512 * 10 + 10
    assert profile.footprint.parameters == parameters
    assert profile.footprint.trainable_parameters == parameters - 10
    assert (profile.footprint.parameter_bytes, profile.footprint.buffer_bytes) == (4 * parameters, 24)
    assert profile.footprint.bytes_by_type == {"float32": 4 * parameters, "float64": 24}
    assert profile.flops.per_sample == 2 * 256 * 512 + 2 * 512 * 10
    assert profile.flops.by_operator == {"aten.addmm": profile.flops.per_sample}
    assert "multiplication with its addition as two" in profile.flops.method


def test_peak_memory_is_what_the_largest_moment_of_a_pass_takes() -> None:
    profiler = ModelProfiler(network(), input_shape=(256,), repeats=FEW)
    # The hidden layer and its rectified copy are there at once.
    assert profiler.at(1).peak_tensor_bytes == 2 * 512 * 4
    assert profiler.at(64).peak_tensor_bytes == 64 * 2 * 512 * 4


def test_latency_and_throughput_follow_the_clock() -> None:
    now = [0.0]

    class Slow(torch.nn.Module):
        def forward(self, x):
            now[0] += 0.001 * len(x)
            return x

    profile = ModelProfiler(Slow(), torch.ones(2, 3), repeats=Repeats(20, 2), clock=lambda: now[0]).profile(
        batch_sizes=(1, 10)
    )
    single, ten = profile.batches
    assert (single.latency.count, single.latency.p99_seconds) == (20, pytest.approx(0.001))
    assert ten.latency.mean_seconds == pytest.approx(0.010)
    assert (single.samples_per_second, ten.samples_per_second) == pytest.approx((1000, 1000))
    assert profile.consistency.latency_variation_ratio == pytest.approx(0, abs=1e-9)


def test_the_model_is_left_as_it_was() -> None:
    model = network()
    model.train()
    model[1].eval()
    model[0].weight.requires_grad_(False)
    before = copy.deepcopy(model.state_dict())
    flags = [parameter.requires_grad for parameter in model.parameters()]
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    ModelProfiler(model, input_shape=(256,), repeats=FEW).profile(batch_sizes=(2,))
    assert torch.equal(torch.rand(3), expected), "the user's random numbers go on as if nothing had been"
    assert [part.training for part in model] == [True, False, True]
    assert model.training
    assert [parameter.requires_grad for parameter in model.parameters()] == flags
    assert all(parameter.grad is None for parameter in model.parameters())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in model.modules())
    assert torch.is_grad_enabled()


def test_the_mode_is_restored_even_if_the_model_fails() -> None:
    model = network()
    with pytest.raises(RuntimeError, match="mat1 and mat2"):
        ModelProfiler(model, torch.ones(2, 3), repeats=FEW).profile()
    assert model.training


def test_a_consistent_model_is_distinguished_from_an_inconsistent_one() -> None:
    steady = ModelProfiler(network(), input_shape=(256,), repeats=FEW).consistency(repeats=4)
    assert (steady.repeats, steady.identical, steady.max_difference) == (4, True, 0.0)
    noisy = ModelProfiler(Noisy(), torch.zeros(2, 50), repeats=FEW).consistency()
    assert not noisy.identical
    assert noisy.max_difference is not None
    assert 0.5 < noisy.max_difference < 1


class TwoInputs(torch.nn.Module):
    """Takes arguments by place or by name, one of them without rows."""

    def forward(self, left, right, scale=None):
        assert left.shape[0] == right.shape[0]
        return {"sum": (left + right) * (1 if scale is None else scale), "nothing": None}


@pytest.mark.parametrize(
    "example",
    [
        (torch.ones(2, 3), torch.ones(2, 3)),
        [torch.ones(2, 3), torch.ones(2, 3)],
        {"left": torch.ones(2, 3), "right": torch.ones(2, 3), "scale": torch.tensor(2.0)},
    ],
    ids=["tuple", "list", "mapping"],
)
def test_examples_are_arguments_by_place_or_by_name(example: object) -> None:
    profile = ModelProfiler(TwoInputs(), example, repeats=FEW).profile(batch_sizes=(1, 5))
    assert [batch.batch_size for batch in profile.batches] == [1, 5]
    assert profile.flops.per_sample == 0


def test_rows_of_the_example_are_repeated_to_make_a_batch() -> None:
    shapes: list[list[int]] = []

    class Watching(torch.nn.Module):
        def forward(self, x):
            shapes.append(x[:, 0].tolist())
            return x

    ModelProfiler(Watching(), torch.tensor([[1], [2], [3]]), repeats=FEW).at(7)
    assert shapes[0] == [1, 2, 3, 1, 2, 3, 1]


def test_a_batch_that_does_not_fit_is_reported_with_the_reason_and_others_are_measured() -> None:
    class Hungry(torch.nn.Module):
        def forward(self, x):
            if len(x) > 8:
                raise RuntimeError("CUDA out of memory. Tried to allocate 80 GiB\nmore words")
            return x

    profile = ModelProfiler(Hungry(), torch.ones(1, 3), repeats=FEW).profile(batch_sizes=(8, 16))
    assert [batch.batch_size for batch in profile.batches] == [8]
    assert profile.failed == {16: "CUDA out of memory. Tried to allocate 80 GiB"}


def test_with_another_profiler_in_use_only_the_peak_is_unknown() -> None:
    with torch.profiler.profile():
        batch = ModelProfiler(network(), input_shape=(256,), repeats=FEW).at(2)
    assert batch.peak_tensor_bytes is None
    assert batch.latency.count == 5


def test_the_peak_follows_what_is_taken_and_given_back_on_one_side() -> None:
    timeline = Timeline(
        allocations=[
            Allocation(1, 30, -100, on_device=True),
            Allocation(1, 10, 100, on_device=True),
            Allocation(2, 20, 50, on_device=True),
            Allocation(1, 15, 9999, on_device=False),
            Allocation(1, 40, 80, on_device=True),
        ]
    )
    assert peak_of(timeline, on_device=True) == 150
    assert peak_of(timeline, on_device=False) == 9999
    assert peak_of(Timeline(), on_device=True) == 0


def test_a_profile_is_plain_data() -> None:
    profile = ModelProfiler(network(), input_shape=(256,), repeats=FEW).profile(batch_sizes=(1,))
    fields = json.loads(json.dumps(profile.described()))
    assert fields["device"] == "cpu"
    assert fields["batches"][0]["latency"]["count"] == 5
    assert "up to 5 timed passes" in fields["method"]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({}, "Pass either an example batch or input_shape"),
        ({"example": torch.ones(1, 2), "input_shape": (2,)}, "Pass either"),
        ({"example": torch.ones(0, 2)}, "The example batch is empty"),
        ({"example": ["text"]}, "has no tensor"),
    ],
)
def test_a_wrong_example_is_explained(given: dict[str, object], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        ModelProfiler(network(), **given)


def test_a_batch_size_of_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match="batch_sizes is \\(0,\\)"):
        ModelProfiler(network(), input_shape=(256,)).profile(batch_sizes=(0,))


def test_without_torch_the_error_has_the_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtra, match="pip install 'stepscope\\[torch\\]'"):
        ModelProfiler(object(), input_shape=(1,))
