"""Targets of a run: what is refused, and how they are recorded for the agent and the views."""

from __future__ import annotations

import pytest

from stepscope.config.load import load
from stepscope.config.sections import Energy, Targets, recorded_energy, recorded_targets
from stepscope.errors import ConfigError


@pytest.mark.parametrize(
    ("targets", "message"),
    [
        ({"steps_per_second": 0}, "targets.steps_per_second is 0; it must be a number above 0, or null."),
        ({"cost": -5}, "targets.cost is -5; it must be a number above 0, or null."),
        ({"cost": "5 USD"}, 'targets.cost is "5 USD"; it must be a number above 0, or null.'),
        ({"samples_per_second": float("nan")}, "targets.samples_per_second is NaN; it must be a number"),
        ({"steps_per_second": True}, "targets.steps_per_second is true; it must be a number above 0"),
        (
            {"gpu_utilization_percent": 120},
            "targets.gpu_utilization_percent is 120; it must be a number above 0, at most 100, or null.",
        ),
        ({"step_per_second": 3}, "did you mean 'targets.steps_per_second'?"),
        (
            [10],
            "targets is [10]; it must be a section with the settings steps_per_second, samples_per_second",
        ),
    ],
)
def test_a_target_that_cannot_be_meant_is_refused_with_what_is_allowed(targets: object, message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load({"targets": targets}, environment={})
    assert message in str(refused.value)


def test_a_target_can_be_given_by_the_environment() -> None:
    settings = load(environment={"STEPSCOPE_TARGETS__COST": "12.5"}).settings
    assert settings.targets == Targets(cost=12.5)


@pytest.mark.parametrize(
    "recorded", [None, [], {"cost": "much"}, {"cost": float("nan")}, {"cost": -1}, {"another": 3}]
)
def test_a_recorded_target_that_is_damaged_is_left_out(recorded: object) -> None:
    assert recorded_targets({"targets": recorded}) == Targets()


def test_recorded_prices_name_no_file() -> None:
    recorded = {
        "currency": "EUR",
        "prices_file": "/etc/passwd",
        "gpu_price_per_hour": {"H100": 2.5, "A100": "x"},
    }
    assert recorded_energy({"energy": recorded}) == Energy(currency="EUR", gpu_price_per_hour={"H100": 2.5})
