"""Histograms count every element, say what they left out, and can be drawn from the array alone."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepscope.errors import RecorderError
from stepscope.model_stats import histograms
from stepscope.model_stats.histograms import (
    BUCKETS,
    LENGTH,
    Histogram,
    Histograms,
    counted_by_sorting,
    histogram,
)
from tests.model_stats.recording_sink import RecordedMetrics, always, never

torch = pytest.importorskip("torch")
nn = torch.nn


def of(*tensors) -> Histogram:
    return Histogram.read(histogram(torch, tensors).tolist())


def test_counts_are_numpys() -> None:
    np = pytest.importorskip("numpy")
    x = torch.randn(10_000, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    histogram = of(x)
    counts, limits = np.histogram(x.numpy(), bins=BUCKETS)
    assert histogram.counts == tuple(counts)
    assert histogram.limits == pytest.approx(limits.tolist())
    assert (histogram.mean, histogram.std) == (
        pytest.approx(x.mean().item()),
        pytest.approx(x.std(correction=0).item()),
    )


@given(
    st.lists(st.floats(width=32), min_size=1, max_size=200),
    st.sampled_from([torch.float16, torch.bfloat16, torch.float32, torch.float64]),
)
def test_each_element_is_in_a_bucket_or_counted_as_not_finite(numbers, dtype) -> None:
    x = torch.tensor(numbers, dtype=torch.float64).to(dtype)
    histogram = of(x)
    assert sum(histogram.counts) == histogram.finite == x.isfinite().sum()
    assert histogram.elements == len(numbers)
    if histogram.finite:
        assert histogram.minimum == x[x.isfinite()].min().item()
        assert histogram.maximum == x[x.isfinite()].max().item()
        assert len(histogram.limits) == BUCKETS + 1


@given(
    st.lists(
        st.floats(width=32, min_value=0, max_value=1) | st.just(math.nan) | st.just(-math.inf), min_size=1
    )
)
def test_sorting_counts_the_same(numbers) -> None:
    x = torch.tensor(numbers, dtype=torch.float32)
    assert torch.equal(counted_by_sorting(torch, x), torch.histc(x, BUCKETS, min=0, max=1).long())


def test_several_tensors_make_one_histogram() -> None:
    x, y = torch.randn(100), 5 + torch.randn(7)
    parts, whole = of(x, y), of(torch.cat([x, y]))
    assert parts.counts == whole.counts
    # Sums that are added up in another order differ in their last bits.
    assert (parts.mean, parts.std) == pytest.approx((whole.mean, whole.std), rel=1e-12)
    assert (parts.minimum, parts.maximum, parts.elements) == (whole.minimum, whole.maximum, whole.elements)


def test_a_tensor_too_large_for_one_go_is_counted_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(1000, dtype=torch.float64)
    whole = of(x)
    monkeypatch.setattr(histograms, "PIECE", 128)
    pieces = of(x)
    assert pieces.counts == whole.counts
    assert pieces.std == pytest.approx(whole.std)


def test_equal_elements_are_in_the_first_bucket() -> None:
    histogram = of(torch.full((10,), 3.0))
    assert histogram.counts[0] == 10
    assert (histogram.minimum, histogram.maximum, histogram.std) == (3, 3, 0)


def test_zeros_and_what_is_not_finite_are_counted() -> None:
    histogram = of(torch.tensor([0.0, 0.0, 1.0, math.nan, -math.inf]))
    assert (histogram.zeros_ratio, histogram.nonfinite, histogram.elements) == (0.4, 2, 5)
    assert (histogram.minimum, histogram.maximum, histogram.mean) == (0, 1, pytest.approx(1 / 3))


def test_without_a_finite_element_there_are_no_limits() -> None:
    histogram = of(torch.full((3,), math.nan))
    assert sum(histogram.counts) == 0
    assert histogram.limits == ()


def test_nothing_at_all_has_no_histogram() -> None:
    assert histogram(torch, [torch.zeros(0)]) is None


def test_what_viewers_need_can_be_had_from_the_array() -> None:
    x = torch.randn(500, dtype=torch.float64)
    histogram = of(x)
    assert histogram.total == pytest.approx(x.sum().item())
    assert histogram.total_of_squares == pytest.approx(x.square().sum().item())


def test_an_array_of_another_length_is_refused() -> None:
    with pytest.raises(RecorderError, match="A histogram has 71 numbers; this array has 3"):
        Histogram.read([1.0, 2.0, 3.0])


def trained(draw, taken: RecordedMetrics, **options):
    model = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 2))
    model[0].bias.requires_grad_(False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    watch = Histograms(model, optimizer, outlets=taken.sink, _draw=draw, **options)
    for _ in range(3):
        model(torch.randn(4, 4)).sum().backward()
        optimizer.step()
    watch.close()
    return model, optimizer


def test_each_layer_has_one_of_its_parameters_and_one_of_their_gradients() -> None:
    taken = RecordedMetrics()
    _, optimizer = trained(always, taken)
    assert {key for key, _ in taken.arrays} == {
        f"histogram/{kind}/{layer}" for kind in ("parameter", "gradient") for layer in "01"
    }
    assert len(taken.arrays) == 12
    first = dict(taken.arrays[:4])
    assert all(len(array) == LENGTH for array in first.values())
    assert Histogram.read(first["histogram/parameter/0"]).elements == 4 * 8 + 8
    assert Histogram.read(first["histogram/gradient/0"]).elements == 4 * 8
    assert not optimizer._optimizer_step_pre_hooks


def test_a_step_that_is_not_chosen_costs_a_draw_alone() -> None:
    taken = RecordedMetrics()
    trained(never, taken)
    assert taken.arrays == []


def test_scaled_gradients_are_recorded_unscaled() -> None:
    taken = RecordedMetrics()
    model = nn.Linear(2, 1, bias=False)
    optimizer = torch.optim.Adam(model.parameters(), fused=True)
    watch = Histograms(model, optimizer, outlets=taken.sink, _draw=always)
    scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
    scaler.scale(model(torch.tensor([[1.0, 3.0]])).sum()).backward()
    scaler.step(optimizer)
    watch.close()
    histogram = Histogram.read(dict(taken.arrays)["histogram/gradient/weight"])
    assert (histogram.minimum, histogram.maximum, histogram.mean, histogram.std) == (1, 3, 2, 1)


def test_it_can_be_asked_for_at_any_moment() -> None:
    figures = Histograms(nn.Linear(3, 3)).measure()
    assert figures["histogram/parameter/weight"].elements == 9
    assert figures["histogram/parameter/bias"].elements == 3
