"""Gradients that explode, vanish, are never reset or are always clipped, and those as they should be."""

from __future__ import annotations

import numpy as np
import pytest

from tests.detectors.simulated import SETUP, diagnose, going_well

STEPS = 600
NUMBER = np.arange(STEPS)
IDS = {"grad.explode", "grad.vanish", "grad.stale", "grad.clip"}
SAMPLED = [0, 1, 2, 40, 90, 170, 260, 330, 410, 520]
"""The steps at which gradients are read: the first few, then rarely."""


def at_samples(values, steps: int = STEPS) -> np.ndarray:
    """A column with values at the sampled steps only."""
    column = np.full(steps, np.nan)
    column[SAMPLED] = values
    return column


def run_with(shape: str = "usual", **columns) -> dict:
    """A run with these columns; NaN stands for nothing recorded in `gradient_norm`, too."""
    norms = np.ma.masked_invalid(columns["gradient_norm"])
    return {**going_well(1, STEPS, shape=shape), **columns, "gradient_norm": norms}


def kept(tensors: int = 8, kept: int = 8, changes: int = 1) -> tuple[str, dict]:
    """A setup that says whether gradients are still the same tensors after 10 steps."""
    fields = {"tensors": tensors, "kept": kept, "changes_per_step": changes}
    return SETUP[0], {**SETUP[1], "kept_gradients": fields}


def found_in(diagnosis) -> list:
    return [finding for finding in diagnosis.findings if finding.id in IDS]


def why_not(diagnosis, name: str) -> str:
    assert not [check for check in diagnosis.considered if check.why_not.startswith("The detector failed")]
    return next(check.why_not for check in diagnosis.considered if check.id == name)


def layers_of(ratio: float, depth: int = 8) -> dict:
    """Gradient norms that become smaller by a ratio from each layer to the one before it."""
    chance = np.random.default_rng(3)
    columns = {}
    for layer in range(depth):
        size = 0.5 * ratio ** (depth - 1 - layer)
        columns[f"gradient_norm/{layer}"] = at_samples(size * np.exp(chance.normal(0, 0.3, len(SAMPLED))))
        columns[f"weight_norm/{layer}"] = at_samples(8.0)
    columns["gradient_norm"] = at_samples(0.5)
    return columns


# Exploding


SLOWLY = 10 ** (NUMBER / 300)
HEALTHY_NORMS = {
    "usual": np.random.default_rng(0).lognormal(0, 0.5, STEPS),
    "heavy_tailed": np.random.default_rng(0).pareto(1.5, STEPS) + 0.5,
    "falls_by_many_orders": 5000 * 0.9**NUMBER + 1e-5,
    "rises_slowly": SLOWLY,
    "small_ones_that_jump": np.where(NUMBER < 30, 1.0, 1e-5) * np.where(NUMBER % 100 == 99, 1e3, 1),
    "one_large_one": np.where(NUMBER == 300, 500.0, 1.0),
    "just_below": np.where(NUMBER % 200 == 150, 95.0, 1.0),
    "rises_with_new_data": np.where(NUMBER < 300, 1.0, 60.0),
}


@pytest.mark.parametrize("name", HEALTHY_NORMS)
def test_norms_that_vary_do_not_explode(tmp_path, name):
    diagnosis = diagnose(tmp_path, run_with(gradient_norm=HEALTHY_NORMS[name]))
    assert diagnosis.findings == ()
    assert "gradient norms is" in why_not(diagnosis, "grad.explode")


@pytest.mark.parametrize("dose", [150, 1e3, 1e6])
@pytest.mark.parametrize("steps", [(300, 301), (200, 400, 500), (598,)])
def test_norms_far_above_earlier_ones_are_reported_with_the_step(tmp_path, dose, steps):
    norms = np.random.default_rng(0).lognormal(0, 0.1, STEPS)
    norms[list(steps)] *= dose
    [finding] = diagnose(tmp_path, run_with(gradient_norm=norms)).findings
    assert (finding.id, finding.severity) == ("grad.explode", "warning")
    assert finding.first_step in steps
    assert "the median of earlier norms" in finding.headline
    assert "clip_grad_norm_" in finding.remedies[0].code


@pytest.mark.parametrize(("first", "severity"), [(30.0, "notice"), (300.0, "warning"), (2e4, "warning")])
def test_a_first_gradient_after_which_the_loss_never_fell_is_reported(tmp_path, first, severity):
    norms = at_samples([first, 1.8, 2.0, 1.5, 1.6, 1.2, 1.9, 1.4, 1.5, 1.7])
    weights = at_samples(13.0)
    run = run_with("plateau", gradient_norm=norms, weight_norm=weights)
    [finding] = diagnose(tmp_path, run).findings
    assert (finding.id, finding.severity) == ("grad.explode", severity)
    assert "at step 0" in finding.headline
    assert any("initial weights" in remedy.text for remedy in finding.remedies)
    assert found_in(diagnose(tmp_path, run_with("usual", gradient_norm=norms))) == []  # the model learns
    run["weight_norm"] = at_samples(1.0 * first)
    assert found_in(diagnose(tmp_path, run)) == []


@pytest.mark.parametrize(("ratio", "is_found"), [(5.0, False), (50.0, True), (1000.0, True)])
def test_gradients_far_above_the_weights_are_reported_if_the_loss_never_fell(tmp_path, ratio, is_found):
    columns = {"gradient_norm": at_samples(ratio * 12.0), "weight_norm": at_samples(12.0)}
    findings = found_in(diagnose(tmp_path, run_with("plateau", **columns)))
    assert [finding.id for finding in findings] == ["grad.explode"] * is_found
    assert found_in(diagnose(tmp_path, run_with("usual", **columns))) == []


def test_gradients_that_are_clipped_do_not_explode(tmp_path):
    norms = np.where(NUMBER % 100 == 99, 500.0, 1.0)
    diagnosis = diagnose(tmp_path, run_with(gradient_norm=norms, gradient_clip_limit=np.full(STEPS, 1.0)))
    assert diagnosis.findings == ()
    assert why_not(diagnosis, "grad.explode").startswith("Gradients are clipped to a norm of 1")


# Vanishing


@pytest.mark.parametrize("ratio", [0.2, 0.05])
@pytest.mark.parametrize("shape", ["usual", "plateau"])
def test_gradients_that_vanish_from_layer_to_layer_are_reported_with_the_worst_layer(tmp_path, shape, ratio):
    [finding] = diagnose(tmp_path, run_with(shape, **layers_of(ratio**2))).findings
    assert finding.id == "grad.vanish"
    assert finding.severity == ("warning" if shape == "plateau" else "notice")
    assert "that of `0` is" in finding.headline
    assert finding.chart.keys[0] == "gradient_norm/0"
    assert "kaiming" in finding.remedies[0].code


def all_small() -> dict:
    return {key: values * 1e-9 if "gradient" in key else values for key, values in layers_of(0.9).items()}


def small_at_first() -> dict:
    columns = layers_of(0.9)
    for layer in range(7):
        columns[f"gradient_norm/{layer}"][:3] = 0.0
    return columns


HEALTHY_LAYERS = {
    "alike": lambda: layers_of(1.0),
    "smaller_towards_the_first": lambda: layers_of(0.2),
    "near_the_threshold": lambda: layers_of(0.13),
    "converged": all_small,
    "initialised_with_zero": small_at_first,
    "one_small_layer": lambda: {**layers_of(0.9), "gradient_norm/3": at_samples(1e-9)},
    "exactly_zero": lambda: {**layers_of(0.9), **{f"gradient_norm/{n}": at_samples(0.0) for n in range(3)}},
}


@pytest.mark.parametrize("name", HEALTHY_LAYERS)
def test_gradients_of_layers_that_differ_do_not_vanish(tmp_path, name):
    diagnosis = diagnose(tmp_path, run_with(**HEALTHY_LAYERS[name]()))
    assert diagnosis.findings == ()
    assert why_not(diagnosis, "grad.vanish").startswith("Every layer gets a gradient")


def test_gradients_of_the_first_steps_alone_do_not_vanish(tmp_path):
    columns = {
        key: np.where(NUMBER < 3, values, np.nan) if key.startswith("gradient") else values
        for key, values in layers_of(0.0025).items()
    }
    diagnosis = diagnose(tmp_path, run_with(**columns))
    assert diagnosis.findings == ()
    assert "sampled in the first steps only" in why_not(diagnosis, "grad.vanish")
    [finding] = diagnose(tmp_path, run_with("plateau", **columns)).findings  # the loss has never fallen
    assert finding.id == "grad.vanish"


def test_a_run_without_norms_of_layers_is_not_checked_for_vanishing_gradients(tmp_path):
    diagnosis = diagnose(tmp_path, run_with(gradient_norm=at_samples(1.0)))
    assert why_not(diagnosis, "grad.vanish").startswith("Applies only to runs that record gradient_norm/*")


# Never reset


def accumulated(power: float, chance_of: int = 0) -> np.ndarray:
    noise = np.exp(np.random.default_rng(chance_of).normal(0, 0.05, len(SAMPLED)))
    return at_samples(2.0 * (np.array(SAMPLED) + 1.0) ** power * noise)


@pytest.mark.parametrize("power", [0.5, 0.8, 1.0])
@pytest.mark.parametrize("shape", ["usual", "plateau"])
def test_gradients_that_are_never_reset_are_reported(tmp_path, shape, power):
    run = run_with(shape, gradient_norm=accumulated(power))
    [finding] = diagnose(tmp_path, run, events=(kept(),)).findings
    assert (finding.id, finding.severity) == ("grad.stale", "critical" if shape == "plateau" else "warning")
    assert "zero_grad" in finding.remedies[0].code
    assert finding.evidence[2].value == "8 of 8"


def test_three_norms_of_the_first_steps_are_enough_where_gradients_are_kept(tmp_path):
    norms = np.where(NUMBER < 3, 2.0 + 1.2 * NUMBER, np.nan)
    [finding] = diagnose(tmp_path, run_with("plateau", gradient_norm=norms), events=(kept(),)).findings
    assert finding.id == "grad.stale"


def test_a_loss_that_diverges_because_gradients_are_never_reset_is_not_reported_beside_it(tmp_path):
    run = run_with(gradient_norm=accumulated(1.0))
    run["loss"][-150:] = 1e4 * 1.2 ** np.arange(150)
    assert [finding.id for finding in diagnose(tmp_path, run).findings] == ["conv.diverging"]
    [finding] = diagnose(tmp_path, run, events=(kept(),)).findings
    assert (finding.id, finding.severity) == ("grad.stale", "critical")


@pytest.mark.parametrize(
    ("norms", "setup"),
    [
        (accumulated(1.0), kept(kept=0)),  # new gradients at each step
        (accumulated(1.0), kept(kept=4)),
        (accumulated(0.5), kept(changes=2)),  # set to zero and added to
        (at_samples(2.0), kept()),  # set to zero in a way that is not counted
        (accumulated(0.1), kept()),
        (at_samples(np.random.default_rng(0).lognormal(0, 0.5, len(SAMPLED))), kept()),
        (accumulated(3.0), kept()),
        (-np.sort(-accumulated(1.0)), kept()),
    ],
)
def test_gradients_that_are_reset_are_no_finding_whatever_their_norm(tmp_path, norms, setup):
    diagnosis = diagnose(tmp_path, run_with(gradient_norm=norms), events=(setup,))
    assert "grad.stale" not in {finding.id for finding in diagnosis.findings}
    assert "grad.stale" not in diagnosis.checks.not_run


def test_growing_norms_of_a_model_that_is_not_watched_are_not_called_checked(tmp_path):
    diagnosis = diagnose(tmp_path, run_with(gradient_norm=accumulated(1.0)))
    assert "grad.stale" in diagnosis.checks.not_run


# Clipping


@pytest.mark.parametrize(("usual", "is_found"), [(0.5, False), (3.0, False), (8.0, False), (30.0, True)])
def test_clipping_is_reported_if_nearly_all_gradients_are_far_above_the_limit(tmp_path, usual, is_found):
    norms = usual * np.random.default_rng(0).lognormal(0, 0.3, STEPS)
    sampled = np.where(NUMBER % 7 == 0, norms, np.nan)
    limits = np.where(NUMBER % 7 == 0, 1.0, np.nan)
    diagnosis = diagnose(tmp_path, run_with(gradient_norm=sampled, gradient_clip_limit=limits))
    assert [(finding.id, finding.severity) for finding in diagnosis.findings] == (
        [("grad.clip", "notice")] * is_found
    )
    if is_found:
        assert "100% of the gradients are clipped to a norm of 1" in diagnosis.findings[0].headline
        assert "max_norm=" in diagnosis.findings[0].remedies[0].code


def test_clipping_that_leaves_the_weights_as_they_were_is_the_reason_for_a_flat_loss(tmp_path):
    columns = {"gradient_norm": at_samples(0.7), "gradient_clip_limit": at_samples(1e-4)}
    run = run_with("plateau", **columns, update_ratio=at_samples(1e-7))
    [finding] = diagnose(tmp_path, run).findings
    assert (finding.id, finding.severity) == ("grad.clip", "warning")
    run["update_ratio"] = at_samples(1e-2)  # an adaptive optimizer makes up for it
    assert [each.severity for each in found_in(diagnose(tmp_path, run))] == ["notice"]


def test_clipping_of_single_large_gradients_is_as_it_should_be(tmp_path):
    norms = np.where(NUMBER % 10 == 0, 100.0, 0.5)
    diagnosis = diagnose(tmp_path, run_with(gradient_norm=norms, gradient_clip_limit=np.full(STEPS, 1.0)))
    assert diagnosis.findings == ()
    assert "10% of the gradients are clipped" in why_not(diagnosis, "grad.clip")


def test_a_run_without_clipping_is_not_checked_for_it(tmp_path):
    diagnosis = diagnose(tmp_path, going_well(1, STEPS))
    assert why_not(diagnosis, "grad.clip").startswith("Applies only to runs that record")
