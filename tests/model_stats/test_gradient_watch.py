"""Gradients are watched between backward and step: unclipped, unscaled, and told of when they are unwell."""

from __future__ import annotations

import itertools
import math
import random

import pytest

from tests.model_stats.recording_sink import RecordedMetrics
from tests.model_stats.small_models import loss_of, norm_of, small_model, watched

torch = pytest.importorskip("torch")
nn = torch.nn


@pytest.fixture
def taken() -> RecordedMetrics:
    return RecordedMetrics()


def test_the_norm_of_every_sampled_step_is_recorded(taken: RecordedMetrics) -> None:
    model = small_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    gradients = watched(taken, model, optimizer)
    expected = []
    for _ in range(5):
        optimizer.zero_grad()
        loss_of(model).backward()
        expected.append(norm_of(model.parameters()))
        optimizer.step()
        assert gradients.after_step(0)["gradient_sampled_ratio"] == 1.0
    assert taken.of("gradient_norm") == pytest.approx(expected, rel=1e-6)
    assert len(taken.of("gradient_norm/0")) == len(taken.of("gradient_norm/2")) == 5
    gradients.close()


def test_layers_are_recorded_more_seldom_than_the_whole(taken: RecordedMetrics) -> None:
    model = small_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    gradients = watched(taken, model, optimizer, draw=random.Random(0).random)
    for _ in range(200):
        loss_of(model).backward()
        optimizer.step()
    gradients.close()
    assert len(taken.of("gradient_norm")) == 200
    assert 5 < len(taken.of("gradient_norm/0")) < 45


def test_the_first_ten_samples_are_recorded_layer_by_layer(taken: RecordedMetrics) -> None:
    model = small_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    gradients = watched(taken, model, optimizer, draw=lambda: 0.9)
    for _ in range(15):
        loss_of(model).backward()
        optimizer.step()
    gradients.close()
    assert len(taken.of("gradient_norm/0")) == 10


@pytest.mark.parametrize("is_sampled", [True, False])
def test_the_limit_of_clipping_is_recorded_with_the_norm(taken: RecordedMetrics, is_sampled: bool) -> None:
    model = small_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    draws = itertools.chain([1.0, 1.0, 0.0], itertools.repeat(1.0))  # nothing but the norm that is there
    options = {} if is_sampled else {"draw": lambda: next(draws)}
    gradients = watched(taken, model, optimizer, **options)
    loss_of(model).backward()
    nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    optimizer.step()
    row = gradients.after_step(0)
    gradients.close()
    assert row["gradient_clip_limit"] == 0.5
    assert len(taken.of("gradient_norm")) == 1


def test_clipping_of_a_part_of_the_model_has_no_limit_for_the_whole(taken: RecordedMetrics) -> None:
    model = small_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    gradients = watched(taken, model, optimizer)
    loss_of(model).backward()
    nn.utils.clip_grad_norm_(model[0].parameters(), 0.5)
    optimizer.step()
    assert "gradient_clip_limit" not in gradients.after_step(0)
    gradients.close()


def test_without_layers_only_the_whole_is_recorded(taken: RecordedMetrics) -> None:
    model = small_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    gradients = watched(taken, model, optimizer, layers=False)
    loss_of(model).backward()
    optimizer.step()
    gradients.close()
    assert {key for row in taken.rows for key in row} == {
        "gradient_norm",
        "gradient_nonfinite_parameters",
        "update_ratio",
        "weight_norm",
        "weight_denormal_ratio",
    }


def test_clipping_does_not_hide_the_norm(taken: RecordedMetrics) -> None:
    from torch.nn.utils import clip_grad_norm_  # by this name, before anything is watched

    model = small_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    gradients = watched(taken, model, optimizer)
    (1e3 * loss_of(model)).backward()
    expected = norm_of(model.parameters())
    clip_grad_norm_(model.parameters(), 0.5)
    optimizer.step()
    assert norm_of(model.parameters()) < 0.51
    assert taken.of("gradient_norm") == [pytest.approx(expected, rel=1e-6)]
    assert math.hypot(*taken.of("gradient_norm/0"), *taken.of("gradient_norm/2")) == pytest.approx(expected)
    gradients.close()


def test_the_norm_computed_by_clipping_is_recorded_between_samples(taken: RecordedMetrics) -> None:
    model = small_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    draws = iter([1.0, 1.0, 0.0])  # no look, no comparison, but the norm that is there already
    gradients = watched(taken, model, optimizer, draw=lambda: next(draws))
    loss_of(model).backward()
    expected = nn.utils.clip_grad_norm_(model.parameters(), 0.5).item()
    optimizer.step()
    gradients.close()
    assert taken.rows == [{"gradient_norm": expected}]


def test_parameters_clipped_separately_are_sampled_once_each(taken: RecordedMetrics) -> None:
    model = small_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    gradients = watched(taken, model, optimizer)
    loss_of(model).backward()
    expected = norm_of(model.parameters())
    nn.utils.clip_grad_norm_(model[0].parameters(), 1e-3)
    optimizer.step()
    gradients.close()
    assert taken.of("gradient_norm") == [pytest.approx(expected, rel=1e-6)]


def test_a_planted_nan_is_reported_with_its_layer_and_step_even_if_clipping_spreads_it(
    taken: RecordedMetrics,
) -> None:
    model = small_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    gradients = watched(taken, model, optimizer)
    taken.step = 41
    loss_of(model).backward()
    model[2].weight.grad[0, 0] = math.nan
    nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    optimizer.step()
    (event,) = taken.events
    assert (event["kind"], event["layer"], event["step"]) == ("gradient_not_finite", "2", 41)
    assert taken.of("gradient_nonfinite_parameters") == [1]
    gradients.close()


def test_a_lasting_problem_is_reported_once(taken: RecordedMetrics) -> None:
    model = small_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    gradients = watched(taken, model, optimizer)
    for _ in range(20):
        optimizer.zero_grad()
        (loss_of(model) * math.nan).backward()
        optimizer.step()
    gradients.close()
    assert [event["kind"] for event in taken.events] == ["gradient_not_finite"]


def test_an_optimizer_that_unscales_by_itself_is_read_unscaled(taken: RecordedMetrics) -> None:
    model = small_model()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    scaler = torch.amp.GradScaler("cpu", init_scale=4096.0)
    gradients = watched(taken, model, optimizer)
    x = torch.randn(4, 8)
    loss_of(model, x).backward()
    expected = norm_of(model.parameters())
    optimizer.zero_grad()
    scaler.scale(loss_of(model, x)).backward()
    scaler.step(optimizer)
    gradients.close()
    assert taken.of("gradient_norm") == [pytest.approx(expected, rel=1e-5)]
    assert taken.of("gradient_step_skipped") == [0]


def test_a_step_that_the_loss_scaler_skips_is_not_a_problem(taken: RecordedMetrics) -> None:
    model = small_model()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    scaler = torch.amp.GradScaler("cpu")
    gradients = watched(taken, model, optimizer)
    scaler.scale(loss_of(model) * math.inf).backward()
    scaler.step(optimizer)
    gradients.close()
    assert taken.of("gradient_step_skipped") == [1]
    assert taken.events == []


def test_gradients_of_a_step_that_never_came_are_not_taken_for_those_of_the_next(
    taken: RecordedMetrics,
) -> None:
    model = small_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    gradients = watched(taken, model, optimizer)
    expected = []
    for factor in (math.inf, 1.0):
        optimizer.zero_grad()
        scaler.scale(loss_of(model) * factor).backward()
        scaler.unscale_(optimizer)
        expected.append(nn.utils.clip_grad_norm_(model.parameters(), 1.0).item())
        scaler.step(optimizer)
        scaler.update()
    gradients.close()
    assert taken.of("gradient_norm") == [pytest.approx(expected[1])]
    assert taken.events == []


def test_micro_batches_are_one_sample(taken: RecordedMetrics) -> None:
    model = small_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    gradients = watched(taken, model, optimizer)
    for _ in range(4):
        (loss_of(model) / 4).backward()
    expected = norm_of(model.parameters())
    optimizer.step()
    gradients.close()
    assert taken.of("gradient_norm") == [pytest.approx(expected, rel=1e-6)]


def test_several_optimizers_make_one_sample(taken: RecordedMetrics) -> None:
    model = small_model()
    optimizers = [
        torch.optim.SGD(model[0].parameters(), lr=0.1),
        torch.optim.SGD(model[2].parameters(), lr=0.1),
    ]
    gradients = watched(taken, model, optimizers)
    loss_of(model).backward()
    first = norm_of(model[0].parameters())
    optimizers[0].step()
    optimizers[0].zero_grad()
    second = norm_of(model[2].parameters())
    optimizers[1].step()
    gradients.close()
    assert taken.of("gradient_norm") == [pytest.approx(math.hypot(first, second), rel=1e-6)]
    assert taken.of("update_ratio/0")[0] > 0
    assert taken.of("update_ratio/2")[0] > 0


def test_without_an_optimizer_whichever_steps_these_parameters_is_followed(taken: RecordedMetrics) -> None:
    model, other = small_model(), small_model()
    gradients = watched(taken, model)
    for stepped in (other, model):
        loss_of(stepped).backward()
        torch.optim.SGD(stepped.parameters(), lr=0.1).step()
    gradients.close()
    assert len(taken.of("gradient_norm")) == 1


def test_the_update_ratio_is_that_of_the_step(taken: RecordedMetrics) -> None:
    model = small_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    gradients = watched(taken, model, optimizer)
    before = torch.cat([parameter.detach().reshape(-1).clone() for parameter in model.parameters()])
    loss_of(model).backward()
    optimizer.step()
    after = torch.cat([parameter.detach().reshape(-1) for parameter in model.parameters()])
    gradients.close()
    expected = ((after - before).norm() / torch.maximum(before.norm(), after.norm())).item()
    assert taken.of("update_ratio") == [pytest.approx(expected, rel=1e-4)]
    assert taken.of("weight_norm") == [pytest.approx(after.norm().item(), rel=1e-5)]


def test_the_share_of_denormal_weights_is_counted_without_zeros(taken: RecordedMetrics) -> None:
    model = nn.Linear(8, 1, bias=False)
    model.weight.data = torch.tensor([[1e-40, 0.0, 1.0, -1e-40] * 2])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    gradients = watched(taken, model, optimizer)
    loss_of(model).backward()
    optimizer.step()
    gradients.close()
    assert taken.of("weight_denormal_ratio") == [0.5]


def test_a_large_layer_is_sampled_and_its_ratio_near_the_truth(taken: RecordedMetrics) -> None:
    torch.manual_seed(0)
    model = nn.Conv2d(64, 64, 5, bias=False).to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    gradients = watched(taken, model, optimizer)
    model.weight.grad = torch.randn_like(model.weight) * 1e-3
    expected = (model.weight.grad.norm() / model.weight.norm()).item()
    norm = model.weight.norm().item()
    optimizer.step()
    gradients.close()
    assert taken.of("update_ratio") == [pytest.approx(expected, rel=0.05)]
    assert taken.of("weight_norm") == [pytest.approx(norm, rel=0.05)]


def test_a_change_in_every_other_column_is_not_missed(taken: RecordedMetrics) -> None:
    model = nn.Linear(1024, 64, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    gradients = watched(taken, model, optimizer)
    model.weight.grad = torch.zeros_like(model.weight)
    model.weight.grad[:, 1::2] = 1e-3
    expected = (model.weight.grad.norm() / model.weight.norm()).item()
    optimizer.step()
    gradients.close()
    assert taken.of("update_ratio") == [pytest.approx(expected, rel=0.1)]


def test_a_layer_that_starts_at_zero_has_a_ratio_that_is_a_number(taken: RecordedMetrics) -> None:
    model = nn.Linear(4, 4)
    nn.init.zeros_(model.weight)
    nn.init.zeros_(model.bias)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    gradients = watched(taken, model, optimizer)
    optimizer.step()
    model(torch.ones(2, 4)).sub(1).square().mean().backward()
    optimizer.step()
    gradients.close()
    assert taken.of("update_ratio") == [0, pytest.approx(1)]
