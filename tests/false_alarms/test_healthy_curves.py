"""Losses of healthy trainings, of a dozen kinds: no detector warns, and no default rule fires."""

import numpy as np
import pytest

from tests.cases import few
from tests.false_alarms.curves import HEALTHY, Curve, curriculum, healthy, norms_for
from tests.false_alarms.judging import alerts_of, findings_at

LOOKS = (0.25, 0.4, 0.55, 0.7, 0.85, 1.0)
"""At these shares of a run it is diagnosed: an agent does not wait for the end."""


def alarms_of(kind, seed):
    curve = healthy(kind, seed)
    ends = sorted({int(share * len(curve.loss)) for share in LOOKS})
    return findings_at(curve, ends) | alerts_of(curve)


@pytest.mark.slow
@pytest.mark.parametrize("kind", few(HEALTHY, 4))
def test_a_healthy_loss_raises_no_alarm(kind):
    assert {seed: alarms for seed in range(8) if (alarms := alarms_of(kind, seed))} == {}


@pytest.mark.slow
@pytest.mark.parametrize("kind", HEALTHY)
def test_none_of_300_healthy_losses_of_a_kind_raises_an_alarm(kind):
    assert {seed: alarms for seed in range(300) if (alarms := alarms_of(kind, seed))} == {}


def test_a_stage_of_a_curriculum_that_begins_above_the_first_loss_raises_no_alarm_while_it_falls():
    for seed in range(6):
        chance = np.random.default_rng(seed)
        easy, hard = curriculum(chance), 400 * np.exp(-np.arange(300) / 150) + 40
        loss = np.concatenate([easy / easy[0] * 200, hard * np.exp(chance.normal(0, 0.05, 300))])
        curve = Curve(np.arange(len(loss)), loss, norms_for(chance, loss))
        ends = range(len(easy) + 20, len(loss) + 1, 40)
        assert findings_at(curve, ends) | alerts_of(curve) == set()


def test_gradients_of_a_linear_model_that_converges_at_once_do_not_explode():
    norms = 5000 * 0.45 ** np.arange(400) + 1e-5
    assert alerts_of(Curve(np.arange(400), norms**2, norms)) == set()
