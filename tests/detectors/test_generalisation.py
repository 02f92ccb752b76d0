"""Models that overfit, losses at chance, dead units and data that are not shuffled; and healthy runs."""

from __future__ import annotations

import numpy as np
import pytest

from tests.detectors.simulated import SETUP, SHAPES, diagnose, going_well

STEPS = 1000
NUMBER = np.arange(STEPS)
EVERY = 40
CHANCE = float(np.log(10))


def setup(**fields) -> tuple[str, dict]:
    return SETUP[0], {**SETUP[1], **fields}


def why_not(diagnosis, name: str) -> str:
    assert not [check for check in diagnosis.considered if check.why_not.startswith("The detector failed")]
    return next(check.why_not for check in diagnosis.considered if check.id == name)


def noisy(values: np.ndarray, size: float = 0.02, seed: int = 0) -> np.ndarray:
    return values * np.exp(np.random.default_rng(seed).normal(0, size, len(values)))


# Overfitting


def validated(validation: np.ndarray, training: np.ndarray | None = None, key: str = "val_loss") -> dict:
    """A run whose validation loss is logged every 40 steps."""
    run = going_well(1, len(validation))
    if training is not None:
        run["loss"] = training
    run[key] = np.where(np.arange(len(validation)) % EVERY == EVERY - 1, validation, np.nan)
    return run


FALLING = 2.3 * np.exp(-NUMBER / 200) + 0.01


def turned(rise: float, at: int = 300, noise: float = 0.01) -> np.ndarray:
    """A validation loss that falls up to a step and then rises by a share of its best value."""
    best = 2.3 * np.exp(-min(at, 300) / 400)
    after = best * (1 + rise * (NUMBER - at) / (STEPS - at))
    return noisy(np.where(at > NUMBER, 2.3 * np.exp(-NUMBER / 400), after), noise)


@pytest.mark.parametrize("rise", [0.2, 0.5, 2.0])
@pytest.mark.parametrize("key", ["val_loss", "val/loss", "eval_loss", "validation_loss"])
def test_a_validation_loss_that_rises_while_training_falls_is_reported_with_its_best_step(
    tmp_path, rise, key
):
    [finding] = diagnose(tmp_path, validated(turned(rise), noisy(FALLING), key)).findings
    assert (finding.id, finding.severity) == ("conv.overfit", "warning")
    assert 250 < finding.first_step < 420
    assert "Validation loss has risen by" in finding.headline
    assert finding.chart.keys == (key, "loss")
    assert "best.pt" in finding.remedies[0].code


def test_training_data_that_are_known_by_heart_are_reported_even_if_validation_falls_a_little(tmp_path):
    training = np.maximum(2.4 * np.exp(-NUMBER / 20), 1e-5)
    validation = np.where(NUMBER < 150, 2.9 + NUMBER / 300, 3.4 - 0.2 * NUMBER / STEPS)
    [finding] = diagnose(tmp_path, validated(validation, noisy(training))).findings
    assert finding.id == "conv.overfit"
    assert "training loss is" in finding.headline


def test_overfitting_that_began_before_the_newest_steps_is_found_from_the_course_of_the_run(tmp_path):
    number = np.arange(9000)
    validation = np.where(number < 2500, 2.3 * np.exp(-number / 4000), 1.23 + 1e-4 * (number - 2500))
    run = validated(noisy(validation, 0.01), noisy(2.3 * np.exp(-number / 2000) + 0.01))
    [finding] = diagnose(tmp_path, run).findings
    assert finding.id == "conv.overfit"
    assert 2200 < finding.first_step < 2900


HEALTHY_VALIDATION = {
    "falls": (FALLING * 1.2, FALLING),
    "stays_above_training": (0.5 + FALLING, FALLING),
    "noisy_and_flat": (noisy(0.8 + FALLING, 0.1), FALLING),
    "below_training": (0.7 * FALLING, FALLING),
    "rises_a_little": (turned(0.05), 0.3 + FALLING),
    "one_bad_validation": (np.where((NUMBER > 900) & (NUMBER < 930), 3.0, FALLING + 0.5), FALLING),
    "rises_and_comes_back": (FALLING + 0.5 + 0.5 * np.exp(-(((NUMBER - 600) / 60) ** 2)), FALLING),
    "restarts": (0.4 + FALLING + 0.2 * (1 + np.cos(np.pi * (NUMBER % 250) / 250)), FALLING),
    "rises_with_training": (turned(0.5), np.where(NUMBER < 300, FALLING, 0.6 + NUMBER / 1000)),
    "both_are_nearly_zero": (np.maximum(FALLING - 0.01, 5e-4), np.maximum(2.3 * np.exp(-NUMBER / 50), 1e-6)),
}


@pytest.mark.parametrize("name", HEALTHY_VALIDATION)
def test_a_validation_loss_as_it_should_be_is_no_finding(tmp_path, name):
    validation, training = HEALTHY_VALIDATION[name]
    diagnosis = diagnose(tmp_path, validated(noisy(validation, 0.01, 1), noisy(training, 0.05)))
    assert "conv.overfit" not in {finding.id for finding in diagnosis.findings}
    assert why_not(diagnosis, "conv.overfit").startswith("Validation loss is")


def test_a_validation_loss_that_rises_while_its_accuracy_improves_is_no_finding(tmp_path):
    run = validated(turned(0.5), noisy(FALLING))
    run["val_accuracy"] = np.where(np.isnan(run["val_loss"]), np.nan, 0.5 + 0.4 * NUMBER / STEPS)
    diagnosis = diagnose(tmp_path, run)
    assert diagnosis.findings == ()
    assert "accuracy still improves" in why_not(diagnosis, "conv.overfit")


def test_a_few_validations_are_not_enough(tmp_path):
    run = validated(turned(1.0), noisy(FALLING))
    run["val_loss"][EVERY * 5 :] = np.nan
    assert "conv.overfit" in diagnose(tmp_path, run).checks.not_run


# Plateaus


def flat(level: float = CHANCE, size: float = 0.02, steps: int = STEPS, **columns) -> dict:
    updates = np.where(np.arange(steps) % 100 == 50, 3e-3, np.nan)
    run = {**going_well(1, steps), "update_ratio": updates, **columns}
    run["loss"] = level + np.random.default_rng(2).normal(0, size, steps)
    return run


CLASSIFIER = setup(output_features=10)


@pytest.mark.parametrize("level", [CHANCE, 1.002 * CHANCE, 1.03 * CHANCE])
@pytest.mark.parametrize("steps", [300, 1000, 5000])
def test_a_loss_that_stays_at_the_value_of_guessing_is_reported(tmp_path, level, steps):
    rates = {"learning_rate": np.full(steps, 1e-3)}
    [finding] = diagnose(tmp_path, flat(level, steps=steps, **rates), events=(CLASSIFIER,)).findings
    assert (finding.id, finding.severity) == ("conv.plateau", "warning")
    assert "the value of guessing among 10 classes" in finding.headline
    assert any("labels" in remedy.text for remedy in finding.remedies)


NOT_AT_CHANCE = {
    "other_level": (flat(1.0), CLASSIFIER),
    "learns_very_slowly": ({**flat(), "loss": noisy(CHANCE - 0.02 * NUMBER / STEPS, 0.015)}, CLASSIFIER),
    "just_below_chance": (flat(0.993 * CHANCE, 0.05), CLASSIFIER),
    "too_noisy_to_tell": (flat(0.997 * CHANCE, 0.4), CLASSIFIER),
    "falls_slowly": ({**flat(), "loss": CHANCE - 0.08 * NUMBER / STEPS}, CLASSIFIER),
    "falls_late": ({**flat(), "loss": np.where(NUMBER < 700, CHANCE, CHANCE - 0.001 * NUMBER)}, CLASSIFIER),
    "unknown_number_of_classes": (flat(), setup()),
    "discriminator": (flat(np.log(2)), setup(output_features=2)),
    "one_output": (flat(0.0), setup(output_features=1)),
    "many_classes_and_few_steps": (flat(np.log(1000)), setup(output_features=1000)),
    "weights_hardly_moved": (flat(update_ratio=np.where(NUMBER % 100 == 50, 4e-5, np.nan)), CLASSIFIER),
    "few_steps": (flat(steps=200), CLASSIFIER),
    "warm_up": (flat(learning_rate=1e-3 * NUMBER / STEPS), CLASSIFIER),
}


@pytest.mark.parametrize("name", NOT_AT_CHANCE)
def test_a_flat_loss_is_no_finding_where_nothing_says_that_it_should_fall(tmp_path, name):
    run, event = NOT_AT_CHANCE[name]
    diagnosis = diagnose(tmp_path, run, events=(event,))
    assert "conv.plateau" not in {finding.id for finding in diagnosis.findings}
    assert "conv.plateau" not in diagnosis.checks.not_run


@pytest.mark.parametrize("shape", SHAPES)
def test_a_healthy_loss_of_a_classifier_is_no_plateau(tmp_path, shape):
    diagnosis = diagnose(tmp_path, going_well(3, 600, shape=shape), events=(CLASSIFIER,))
    if shape != "plateau":  # this one is flat at 2.3, as random labels are
        assert diagnosis.findings == ()


@pytest.mark.parametrize(("ratio", "is_found"), [(1e-8, True), (5e-7, True), (1e-5, False), (1e-3, False)])
def test_updates_too_small_to_change_the_weights_are_the_reason_for_a_flat_loss(tmp_path, ratio, is_found):
    ratios = np.where(NUMBER % 150 == 70, ratio, np.nan)
    diagnosis = diagnose(tmp_path, flat(1.0, update_ratio=ratios))
    assert [finding.id for finding in diagnosis.findings] == ["conv.plateau"] * is_found
    if is_found:
        assert "have changed the weights by less than" in diagnosis.findings[0].headline
        assert '"lr"' in diagnosis.findings[0].remedies[0].code


def test_a_learning_rate_of_zero_is_reported_once(tmp_path):
    run = flat(learning_rate=np.where(NUMBER < 30, 1e-3, 0.0))
    [finding] = diagnose(tmp_path, run, events=(CLASSIFIER,)).findings
    assert finding.id == "lr.schedule"


# Dead units


def activations(share: float, samples: int = 6) -> np.ndarray:
    return np.where((NUMBER % 100 == 20) & (100 * samples > NUMBER), share, np.nan)


@pytest.mark.parametrize(
    ("share", "is_found"), [(0.0, False), (0.5, False), (0.85, False), (0.95, True), (1.0, True)]
)
def test_a_layer_with_dead_units_is_reported_by_its_name(tmp_path, share, is_found):
    columns = {"activation_dead_ratio/1": activations(0.1), "activation_dead_ratio/3": activations(share)}
    diagnosis = diagnose(tmp_path, flat(**columns), events=(CLASSIFIER,))
    [finding] = diagnosis.findings  # at chance, for which dead units are the reason
    assert finding.id == ("act.dead" if is_found else "conv.plateau")
    if is_found:
        assert "`3`" in finding.headline
        assert "bias" in finding.remedies[0].text
        learning = diagnose(tmp_path, {**going_well(1, STEPS), **columns}).findings
        assert [(each.id, each.severity) for each in learning] == [("act.dead", "notice")]


def test_two_samples_of_dead_units_are_not_enough(tmp_path):
    run = {**going_well(1, STEPS), "activation_dead_ratio/3": activations(1.0, samples=2)}
    assert diagnose(tmp_path, run).findings == ()


def zero_layers(norms: list[float]) -> dict:
    sampled = np.isin(NUMBER, (0, 1, 2, 150, 480, 800))
    return {f"gradient_norm/{2 * n}": np.where(sampled, norm, np.nan) for n, norm in enumerate(norms)}


def test_layers_with_a_gradient_of_exactly_zero_are_reported_if_the_loss_does_not_fall(tmp_path):
    [finding] = diagnose(tmp_path, flat(**zero_layers([0.0, 0.0, 0.1])), events=(CLASSIFIER,)).findings
    assert (finding.id, finding.severity) == ("act.dead", "warning")
    assert finding.headline.startswith("2 of 3 layers have a gradient of exactly zero, up to `2`")


def test_a_first_layer_with_a_gradient_of_exactly_zero_is_reported_although_it_is_one_of_many(tmp_path):
    run = flat(**zero_layers([0.0, 0.3, 0.2, 0.1]))
    [finding] = diagnose(tmp_path, run, events=(CLASSIFIER,)).findings
    assert (finding.id, finding.severity) == ("act.dead", "warning")
    assert finding.headline.startswith("1 of 4 layers has a gradient of exactly zero, up to `0`")


@pytest.mark.parametrize(
    ("norms", "learns"),
    [
        ([0.0, 0.0, 0.1], True),  # such as a head with a weight of zero
        ([0.3, 0.0, 0.2, 0.1], False),  # a branch that is not used
        ([0.0, 0.0, 0.0], False),
        ([0.0, 0.0, 1e-9, 0.1], False),  # rounded: it vanishes bit by bit
        ([0.2, 0.1, 0.1], False),
    ],
)
def test_other_gradients_are_no_sign_of_dead_units(tmp_path, norms, learns):
    run = {**(going_well(1, STEPS) if learns else flat(1.0)), **zero_layers(norms)}
    diagnosis = diagnose(tmp_path, run)
    assert "act.dead" not in {finding.id for finding in diagnosis.findings}
    assert "act.dead" not in diagnosis.checks.not_run


# Order of the data


def in_epochs(length: int, *, is_same: bool, size: float = 0.3, wave: float = 0.0) -> dict:
    """Losses with the difficulty of each batch, in the same or another order in each epoch."""
    chance = np.random.default_rng(4)
    run = going_well(1, STEPS)
    difficulty = chance.normal(0, size, length)
    order = [np.arange(length) if is_same else chance.permutation(length) for _ in range(STEPS // length + 1)]
    batches = difficulty[np.concatenate(order)[:STEPS]]
    period = wave * np.sin(2 * np.pi * NUMBER / length)
    run["loss"] = FALLING + 0.5 + np.abs(0.5 + batches) + period + chance.normal(0, 0.05, STEPS)
    run["gap/epoch_seconds"] = np.where((NUMBER % length == 0) & (NUMBER > 0), 0.001, np.nan)
    return run


LOADER = ("loader", {"num_workers": 2, "dataset": "d", "sampler": "SequentialSampler", "batch_size": 32})


@pytest.mark.parametrize("length", [25, 60, 125])
@pytest.mark.parametrize("size", [0.1, 0.3])
def test_the_same_order_in_each_epoch_is_reported(tmp_path, length, size):
    [finding] = diagnose(tmp_path, in_epochs(length, is_same=True, size=size), events=(LOADER,)).findings
    assert (finding.id, finding.severity) == ("data.order", "notice")
    assert f"of {length} steps correlate" in finding.headline
    assert finding.remedies[0].code == "loader = DataLoader(dataset, batch_size=32, shuffle=True)"


def test_a_distributed_sampler_needs_the_number_of_the_epoch(tmp_path):
    loader = ("loader", {**LOADER[1], "sampler": "DistributedSampler"})
    [finding] = diagnose(tmp_path, in_epochs(50, is_same=True), events=(loader,)).findings
    assert "set_epoch" in finding.remedies[0].code


@pytest.mark.parametrize(
    "run",
    [
        in_epochs(50, is_same=False),
        in_epochs(50, is_same=False, wave=1.0),
        in_epochs(50, is_same=True, size=0.01),
        {**in_epochs(50, is_same=False), "loss": FALLING + 1 + (NUMBER % 2)},
        {**in_epochs(50, is_same=False), "loss": FALLING + 1 + np.sin(2 * np.pi * NUMBER / 5)},
    ],
)
def test_losses_with_a_period_and_shuffled_data_are_no_finding(tmp_path, run):
    diagnosis = diagnose(tmp_path, run, events=(LOADER,))
    assert "data.order" not in {finding.id for finding in diagnosis.findings}
    assert "data.order" not in diagnosis.checks.not_run


def test_two_epochs_are_not_enough_to_know_the_order(tmp_path):
    assert diagnose(tmp_path, in_epochs(400, is_same=True), events=(LOADER,)).findings == ()


@pytest.mark.parametrize("seed", range(12))
def test_unusual_numbers_do_not_make_these_detectors_fail(tmp_path, seed):
    chance = np.random.default_rng(seed)
    odd = np.array([0.0, -1.0, 1e-320, 1e308, np.inf, -np.inf, np.nan, 3.5])
    steps = int(chance.choice([1, 2, 30, 260, 700]))
    run = going_well(seed, steps)
    keys = [
        "val_loss",
        "val_accuracy",
        "weight_norm",
        "update_ratio",
        "gradient_clip_limit",
    ]
    layers = [
        f"{kind}/{n}" for kind in ("gradient_norm", "weight_norm", "activation_dead_ratio") for n in "ab"
    ]
    for key in (*keys, *layers, "gradient_norm", "loss"):
        if chance.random() < 0.8:
            run[key] = np.where(
                chance.random(steps) < 0.3, chance.choice(odd, steps), chance.lognormal(0, 3, steps)
            )
    run["gap/epoch_seconds"] = np.where(np.arange(steps) % 25 == 24, 1e-3, np.nan)
    fields = {"kept_gradients": {"tensors": 4, "kept": 4, "changes_per_step": 1}, "output_features": 10}
    diagnosis = diagnose(tmp_path, run, events=(setup(**fields),))
    assert not [check for check in diagnosis.considered if check.why_not.startswith("The detector failed")]
