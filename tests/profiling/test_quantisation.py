"""What smaller numbers do to models, on answers that are known."""

from __future__ import annotations

import copy
import json

import pytest

from stepscope.errors import ConfigError
from stepscope.profiling.model.outputs import are_identical, difference
from stepscope.profiling.model.quantisation import quantisation_impact, saved_bytes
from stepscope.profiling.model.timings import Repeats

torch = pytest.importorskip("torch")

FEW = Repeats(4, warm_up=1)


@pytest.fixture(autouse=True)
def same_weights() -> None:
    torch.manual_seed(0)


def classifier():
    return torch.nn.Sequential(torch.nn.Linear(128, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10))


def test_int8_is_about_a_quarter_and_half_floats_half_the_size() -> None:
    impact = quantisation_impact(classifier(), torch.randn(32, 128), repeats=FEW)
    by_name = {variant.name: variant for variant in impact.variants}
    assert [variant.reason for variant in impact.variants] == [None, None, None]
    assert 0.2 < by_name["dynamic_int8"].size_ratio < 0.35
    assert 0.45 < by_name["float16"].size_ratio < 0.6
    assert 0.45 < by_name["bfloat16"].size_ratio < 0.6
    assert impact.original.size_bytes > 4 * (128 * 256 + 256 * 10)
    assert (impact.samples, impact.device) == (32, "cpu")
    for variant in impact.variants:
        assert variant.latency.count == 4
        assert variant.speedup_ratio > 0
        assert variant.is_consistent
        assert variant.method


def test_answers_move_a_little_and_the_more_the_coarser_the_numbers() -> None:
    impact = quantisation_impact(classifier(), torch.randn(64, 128), repeats=FEW)
    by_name = {variant.name: variant.difference for variant in impact.variants}
    assert 0 < by_name["float16"].relative_l2_ratio < by_name["bfloat16"].relative_l2_ratio < 0.05
    assert 0 < by_name["dynamic_int8"].max_abs < 0.5
    for error in by_name.values():
        assert error.cosine_similarity > 0.99
        assert error.top1_agreement_ratio > 0.8
        assert (error.nonfinite, error.values) == (0, 640)


def test_the_model_itself_is_not_altered() -> None:
    model = classifier().train()
    before = copy.deepcopy(model.state_dict())
    quantisation_impact(model, torch.randn(4, 128), repeats=FEW)
    assert model.training
    assert type(model[0]) is torch.nn.Linear
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_a_recurrent_model_is_made_smaller_too() -> None:
    class Tagger(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm = torch.nn.LSTM(16, 32, batch_first=True)

        def forward(self, x):
            return self.lstm(x)

    (int8,) = quantisation_impact(Tagger(), torch.randn(4, 7, 16), ("dynamic_int8",), repeats=FEW).variants
    assert int8.reason is None
    assert int8.size_ratio < 0.5
    assert int8.difference.values == 4 * 7 * 32 + 2 * 4 * 32, "hidden states are compared too"


def test_what_cannot_be_run_is_reported_with_the_reason() -> None:
    class OnlyFloat32(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(3))

        def forward(self, x):
            if x.dtype != torch.float32:
                raise NotImplementedError(f"no kernel for {x.dtype}")
            return x * self.weight

    impact = quantisation_impact(OnlyFloat32(), torch.ones(2, 3), repeats=FEW)
    reasons = {variant.name: variant.reason for variant in impact.variants}
    assert reasons == {
        "dynamic_int8": "the model has no linear or recurrent layer",
        "float16": "no kernel for torch.float16",
        "bfloat16": "no kernel for torch.bfloat16",
    }
    assert impact.variants[0].latency is None
    json.dumps(impact.described())


def test_numbers_that_leave_the_range_of_half_floats_are_counted() -> None:
    class Large(torch.nn.Module):
        def forward(self, x):
            return x * 1000

    (half,) = quantisation_impact(Large(), torch.tensor([[1.0, 100.0]]), ("float16",), repeats=FEW).variants
    assert half.difference.nonfinite == 1
    assert half.difference.values == 1
    assert half.difference.max_abs == 0


def test_integer_inputs_stay_integers() -> None:
    model = torch.nn.Sequential(torch.nn.Embedding(50, 8), torch.nn.Linear(8, 4))
    impact = quantisation_impact(model, torch.randint(50, (3, 5)), ("bfloat16",), repeats=FEW)
    assert impact.variants[0].reason is None


def test_an_unknown_variant_is_refused_with_those_there_are() -> None:
    with pytest.raises(ConfigError, match="variants has 'int3'; there are dynamic_int8, float16, bfloat16"):
        quantisation_impact(classifier(), torch.ones(1, 128), ("int3",))


def test_the_saved_size_is_that_of_the_file_torch_writes(tmp_path) -> None:
    model = classifier()
    torch.save(model.state_dict(), tmp_path / "state.pt")
    # The name of the file is part of it.
    assert saved_bytes(torch, model) == pytest.approx((tmp_path / "state.pt").stat().st_size, abs=500)


def test_the_difference_of_two_answers_can_be_worked_out_by_hand() -> None:
    exact = torch.tensor([[3.0, 4.0], [0.0, 1.0]])
    got = torch.tensor([[3.0, 4.5], [2.0, 1.0]])
    error = difference(torch, exact, got)
    assert error is not None
    assert error.max_abs == 2.0
    assert error.relative_l2_ratio == pytest.approx((0.25 + 4) ** 0.5 / 26**0.5)
    assert error.cosine_similarity == pytest.approx((9 + 18 + 1) / (26**0.5 * (9 + 20.25 + 4 + 1) ** 0.5))
    assert error.top1_agreement_ratio == 0.5


def test_answers_of_another_shape_are_not_compared() -> None:
    assert difference(torch, torch.ones(3), torch.ones(4)) is None
    assert difference(torch, {"text": "a"}, {"text": "b"}) is None


def test_answers_are_identical_only_to_the_last_bit() -> None:
    nested = {"a": [torch.tensor([1.0, float("nan")])], "b": (torch.tensor(True),)}
    assert are_identical(torch, nested, copy.deepcopy(nested))
    other = copy.deepcopy(nested)
    other["a"][0][0] = torch.nextafter(other["a"][0][0], torch.tensor(2.0))
    assert not are_identical(torch, nested, other)
