"""The targets of a run on its overview: the current figure of each, and whether it is met."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from stepscope.config.sections import Energy
from stepscope.views.overview.overview import overview_of
from stepscope.views.overview.target_figures import TargetFigure
from stepscope.views.runs.marks import NoMarks
from tests.views.made import Made, as_json, at

NOW = at(100)


def targets(made: Made, energy: Energy | None = None, now: int = NOW) -> dict[str, TargetFigure]:
    overview = overview_of(made.run(), NoMarks(), now, energy=energy)
    return {figure.id: figure for figure in overview.targets}


def trained(made: Made, *, end: float | None = None, energy: Any = None, **goals: float) -> None:
    """A run with targets that made two steps a second for 100 s, of 8 samples on each of two ranks."""
    facts = {"targets": goals, "energy": energy or {}, "total_steps": 800}
    for rank in (0, 1):
        made.process(rank=rank, end=end, facts=facts)
        columns = {"step_seconds": 0.5, "batch_size": 8.0, "loss": np.linspace(2, 1, 200)}
        made.log(columns, np.arange(200), rank=rank, every=0.5)


def test_a_run_without_targets_shows_none(made: Made) -> None:
    trained(made)
    assert targets(made) == {}


def test_speed_is_that_of_the_tile_and_counts_the_samples_of_all_ranks(made: Made) -> None:
    trained(made, steps_per_second=1.5, samples_per_second=40.0)
    overview = overview_of(made.run(), NoMarks(), NOW)
    steps, samples = overview.targets
    assert (steps.is_met, steps.state_text, steps.detail) == (True, "met", "last 30 s")
    assert (samples.is_met, samples.state_text) == (False, "8 samples/s below the target")
    assert (samples.value, samples.value_text) == (pytest.approx(32), "32 samples/s")
    assert overview.tiles[0].value == samples.value_text
    assert as_json(overview)["targets"][0]["target"] == 1.5


def test_an_ended_run_is_judged_as_a_whole(made: Made) -> None:
    trained(made, end=100, steps_per_second=3.0)
    assert targets(made)["steps_per_second"].detail == "whole run"
    assert targets(made)["steps_per_second"].is_met is False


def test_nothing_is_judged_during_the_warm_up(made: Made) -> None:
    made.process(end=None, facts={"targets": {"steps_per_second": 100.0}})
    made.log({"step_seconds": np.r_[np.full(8, 5.0), np.full(12, 0.01)]})
    figure = targets(made)["steps_per_second"]
    assert (figure.is_met, figure.state) == (None, "unknown")
    assert figure.state_text == "not judged during the warm-up"


def test_utilization_is_that_of_the_last_seconds_while_the_run_is_live(made: Made) -> None:
    trained(made, gpu_utilization_percent=80.0, cpu_utilization_percent=30.0)
    gpu = made.gpu(0)
    made.read({"gpu/utilization_ratio": np.r_[np.full(60, 0.1), np.full(40, 0.9)]}, device=gpu)
    figures = targets(made)
    assert figures["gpu_utilization_percent"].value == pytest.approx(90)
    assert figures["gpu_utilization_percent"].is_met is True
    assert figures["cpu_utilization_percent"].is_met is None
    assert figures["cpu_utilization_percent"].state_text == "not known"
    assert figures["cpu_utilization_percent"].detail == "the CPU was not read"


class TestCost:
    def used(self, made: Made) -> None:
        gpu = made.gpu(0)
        made.read({"gpu/energy_joules_total": np.arange(101) * 3600.0}, 101, device=gpu)
        made.read({"gpu/process_memory_bytes": 1.0}, 101, device=gpu, rank=0)

    def test_a_live_run_shows_its_cost_until_now_and_at_its_end(self, made: Made) -> None:
        trained(made, cost=2.0)
        self.used(made)
        cost = targets(made, Energy(gpu_price_per_hour={"NVIDIA H200": 36.0}))["cost"]
        assert (cost.value, cost.is_met) == (pytest.approx(1.0, rel=0.02), True)
        assert cost.expected == pytest.approx(4.0, rel=0.02)
        assert cost.state_text == "met so far; 4.00 USD expected at the end"

    def test_the_prices_of_the_run_count_where_the_reader_has_none(self, made: Made) -> None:
        energy = {"currency": "EUR", "electricity_price_per_kwh": 5.0}
        trained(made, end=100, cost=0.2, energy=energy)
        self.used(made)
        cost = targets(made)["cost"]
        assert (cost.value_text, cost.target_text, cost.detail) == ("0.5 EUR", "0.2 EUR", "electricity")
        assert (cost.is_met, cost.state_text) == (False, "0.3 EUR above the target")

    def test_money_of_another_currency_is_not_compared(self, made: Made) -> None:
        trained(made, end=100, cost=2.0, energy={"currency": "EUR"})
        self.used(made)
        cost = targets(made)["cost"]
        assert (cost.value, cost.is_met) == (None, None)
        assert cost.detail == "it is known in USD only; set energy.gpu_price_per_hour"

    def test_a_cost_that_is_not_known_says_why(self, made: Made) -> None:
        trained(made, end=100, cost=2.0)
        assert targets(made)["cost"].detail.startswith("no GPU is attributed to the run")
