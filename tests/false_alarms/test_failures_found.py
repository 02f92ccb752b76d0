"""Losses and gradients that fail, in doses: what is silent about healthy runs still finds these."""

import pytest

from tests.cases import few
from tests.false_alarms.curves import USUAL, blown_up, collapsed, diverging, exploded, stayed_up
from tests.false_alarms.judging import alerts_of, findings_at

SEEDS = 12


def share_found(curves):
    return sum("conv.diverging" in findings_at(curve, [len(curve.loss)]) for curve in curves) / len(curves)


def share_alerted(curves, rule):
    return sum(rule in alerts_of(curve) for curve in curves) / len(curves)


@pytest.mark.parametrize("kind", few(USUAL, 1))
@pytest.mark.parametrize(
    ("growth", "lasting", "found", "alerted"),
    few([(1.5, 40, 1.0, 1.0), (1.1, 50, 0.8, 0.6), (1.1, 120, 1.0, 1.0)], 1),
)
def test_a_loss_that_grows_with_every_step_is_found(kind, growth, lasting, found, alerted):
    curves = [diverging(kind, seed, growth, lasting) for seed in range(SEEDS)]
    assert share_found(curves) >= found
    assert share_alerted(curves, "loss_divergence") >= alerted


@pytest.mark.parametrize("kind", few(["usual", "noisy", "heavy_tailed"], 1))
@pytest.mark.parametrize(
    ("times_first", "lasting", "found"),
    few([(20.0, 40, 1.0), (1.0, 120, 0.8), (2.0, 120, 0.9), (4.0, 60, 0.95)], 1),
)
def test_a_loss_that_jumps_to_where_it_began_or_above_and_stays_there_is_found(
    kind, times_first, lasting, found
):
    curves = [collapsed(kind, seed, times_first, lasting) for seed in range(SEEDS)]
    assert share_found(curves) >= found
    assert share_alerted(curves, "loss_divergence") >= found


@pytest.mark.parametrize("kind", few(["usual", "noisy", "heavy_tailed"], 1))
@pytest.mark.parametrize("times_first", few([4.0, 1.0, 1000.0], 1))
@pytest.mark.parametrize("lasting", [2500, 9000])
def test_a_loss_that_has_not_come_back_for_longer_than_a_window_is_found(kind, times_first, lasting):
    curves = [stayed_up(kind, seed, times_first, lasting) for seed in range(SEEDS)]
    assert share_found(curves) >= 0.8


@pytest.mark.parametrize(
    ("times_first", "found", "alerted"), few([(1e3, 1.0, 0.7), (100, 0.8, 0.7), (1e6, 1.0, 0.7)], 1)
)
def test_a_loss_that_blows_up_in_its_first_steps_is_found(times_first, found, alerted):
    curves = [blown_up(seed, times_first) for seed in range(SEEDS)]
    assert share_found(curves) >= found
    assert share_alerted(curves, "loss_divergence") >= alerted


@pytest.mark.parametrize("kind", few(USUAL, 1))
@pytest.mark.parametrize(
    ("factor", "lasting", "alerted"), few([(300, 20, 1.0), (100, 20, 0.7), (1000, 5, 1.0), (1e4, 3, 1.0)], 1)
)
def test_gradients_that_explode_are_found(kind, factor, lasting, alerted):
    curves = [exploded(kind, seed, factor, lasting) for seed in range(SEEDS)]
    assert share_alerted(curves, "gradient_explosion") >= alerted
