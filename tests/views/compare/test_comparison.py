"""The comparison of runs."""

from __future__ import annotations

import re

import numpy as np
import pytest

from stepscope.errors import NotFound, StepscopeError
from stepscope.views.compare.compared_figures import FINAL_LOSS, change_text
from stepscope.views.compare.comparison import Comparison, compare
from tests.views.made import Made, as_json, at

NOW = at(500)


def record_run(
    made: Made, name: str, step_s: float, noise: float = 0.1, count: int = 500, **config: object
) -> None:
    """Writes a run with the given step time and noise."""
    made.process(name)
    rng = np.random.default_rng(len(name))
    seconds = step_s * (1 + noise * rng.normal(size=count).clip(-3, 3))
    made.log(
        {"step_seconds": seconds, "phase/data_seconds": seconds / 4, "phase/forward_seconds": seconds * 0.75,
         "loss": np.linspace(2, 1, count) * step_s}, run=name
    )  # fmt: skip
    if config:
        made.event("config", run=name, **config)


def compared(made: Made, *names: str, **how: object) -> Comparison:
    return compare([made.run(name) for name in names], now_ns=NOW, **how)


def cell(comparison: Comparison, figure: str, index: int) -> object:
    (row,) = [row for row in comparison.figures if row.name == figure]
    return row.cells[index]


def test_the_json_has_the_fields_that_the_page_reads(made: Made) -> None:
    record_run(made, "a-1", 0.1, lr=1)
    record_run(made, "bb-1", 0.2, lr=2)
    comparison_json = as_json(compared(made, "a-1", "bb-1"))
    assert " ".join(comparison_json) == (
        "runs baseline keys warm_up_steps figures groups group_figures config verdicts segments axes"
    )
    assert " ".join(comparison_json["figures"][0]) == "name unit better cells"
    assert " ".join(comparison_json["figures"][0]["cells"][0]) == "run value text delta_ratio delta_text sure"
    assert " ".join(comparison_json["config"][0]) == "key values same types_differ"
    assert (len(comparison_json["runs"]), len(comparison_json["verdicts"])) == (2, 2)


def test_a_slower_run_is_shown_with_sign_arrow_and_word(made: Made) -> None:
    record_run(made, "a-1", 0.1)
    record_run(made, "bb-1", 0.15)
    comparison = compared(made, "a-1", "bb-1")
    assert comparison.baseline == "a-1"
    assert comparison.keys == ("loss", "phase/data_seconds", "phase/forward_seconds", "step_seconds")
    slower = cell(comparison, "Step time, p50", 1)
    assert slower.delta_ratio == pytest.approx(0.5, rel=0.05)
    assert slower.delta_text.startswith("▲ +")
    assert slower.delta_text.endswith("% worse")
    assert slower.sure is True
    assert cell(comparison, "Steps per second", 1).delta_text.endswith("% worse")
    assert cell(comparison, "Phase forward, mean", 1).delta_ratio == pytest.approx(0.5, rel=0.05)
    first = cell(comparison, "Step time, p50", 0)
    assert (first.delta_ratio, first.delta_text, first.sure) == (None, "", None)


def test_a_large_difference_is_shown_as_a_factor(made: Made) -> None:
    record_run(made, "a-1", 0.001, noise=0.0)
    record_run(made, "bb-1", 1.187, noise=0.0)
    comparison = compared(made, "a-1", "bb-1")
    for figure in ("Step time, p50", "Steps per second"):
        delta_text = cell(comparison, figure, 1).delta_text
        assert delta_text[1:].lstrip() == "1,187 times slower", delta_text
    other = compared(made, "a-1", "bb-1", baseline="bb-1")
    assert cell(other, "Step time, p50", 0).delta_text == "▼ 1,187 times faster"


def test_a_run_that_ended_with_nan_has_nan_and_not_its_last_finite_loss(made: Made) -> None:
    for name, last in (("a-1", 0.5), ("bb-1", np.nan)):
        made.process(name, facts={"config": {"lr": 1 if name == "a-1" else 2}})
        made.log({"loss": [*np.linspace(2, 1, 98), 0.9, last]}, run=name)
    comparison = compared(made, "a-1", "bb-1", group_by="lr")
    bad = cell(comparison, FINAL_LOSS, 1)
    assert (bad.value, bad.text, bad.delta_text) == (None, "NaN", "")
    (grouped,) = [row for row in comparison.group_figures if row.name == FINAL_LOSS]
    assert [group_cell.text == "NaN" for group_cell in grouped.cells] == [False, True]


def test_noise_is_not_taken_for_a_difference(made: Made) -> None:
    record_run(made, "a-1", 0.1, noise=0.3)
    record_run(made, "bbb-1", 0.1002, noise=0.3)
    difference = cell(compared(made, "a-1", "bbb-1"), "Step time, p50", 1)
    assert difference.sure is False
    assert difference.delta_text.endswith("(within noise)")


def test_a_diverged_loss_is_significant_and_shown_as_a_factor(made: Made) -> None:
    growth = np.r_[np.zeros(300), np.arange(300)]
    for name, losses in (("a-1", np.full(600, 0.0115)), ("bb-1", 0.0115 * 1.2**growth)):
        made.process(name)
        made.log({"loss": losses * np.random.default_rng(0).normal(1, 0.01, 600)}, run=name)
    difference = cell(compared(made, "a-1", "bb-1"), FINAL_LOSS, 1)
    assert difference.sure is True
    assert re.fullmatch(r"▲ \d(\.\d+)?e\d+ times higher \(worse\)", difference.delta_text)
    assert change_text(7.0e21, "less", sure=False) == "7e21 times higher (within noise)"


def test_the_warm_up_does_not_count(made: Made) -> None:
    for name in ("a-1", "bb-1"):
        made.process(name)
        seconds = np.full(200, 0.1)
        seconds[:10] = 50.0 if name == "bb-1" else 0.1
        made.log({"step_seconds": seconds}, run=name)
    assert cell(compared(made, "a-1", "bb-1"), "Step time, p95", 1).delta_text == "no change"


def test_with_too_few_steps_the_significance_is_unknown(made: Made) -> None:
    record_run(made, "a-1", 0.1, count=12)
    record_run(made, "bb-1", 0.2, count=12)
    difference = cell(compared(made, "a-1", "bb-1"), "Step time, p50", 1)
    assert difference.sure is None
    assert difference.delta_ratio == pytest.approx(1.0, rel=0.2)


def test_any_run_can_be_the_baseline(made: Made) -> None:
    record_run(made, "a-1", 0.1)
    record_run(made, "bb-1", 0.2)
    comparison = compared(made, "a-1", "bb-1", baseline="bb-1")
    assert cell(comparison, "Step time, p50", 0).delta_ratio == pytest.approx(-0.5, rel=0.05)


def test_a_preset_shows_speed_or_quality_alone(made: Made) -> None:
    record_run(made, "a-1", 0.1)
    speed = {row.name for row in compared(made, "a-1", preset="performance").figures}
    quality = {row.name for row in compared(made, "a-1", preset="quality").figures}
    assert "Step time, p50" in speed
    assert quality == {FINAL_LOSS, "Loss, best", "Loss, last"}
    assert speed.isdisjoint(quality)


def test_evaluations_are_compared_by_what_is_better_for_them(made: Made) -> None:
    for name, accuracy in (("a-1", 0.5), ("b-1", 0.6)):
        made.process(name)
        made.log({"loss": [1.0, 1.0], "val/accuracy": [0.1, accuracy], "val/loss": [2.0, accuracy]}, run=name)
    comparison = compared(made, "a-1", "b-1")
    assert cell(comparison, "val/accuracy, best", 1).delta_text == "▲ +20% better"
    assert cell(comparison, "val/loss, best", 1).delta_text == "▲ +20% worse"


def test_configurations_are_compared_entry_by_entry_the_differences_first(made: Made) -> None:
    record_run(made, "a-1", 0.1, optimizer={"lr": 0.1, "name": "sgd"}, seed=1, only_here=True)
    record_run(made, "bb-1", 0.1, optimizer={"lr": 0.2, "name": "sgd"}, seed="1")
    lines = compared(made, "a-1", "bb-1").config
    assert [(line.key, line.values, line.same, line.types_differ) for line in lines] == [
        ("only_here", ("true", None), False, False),
        ("optimizer.lr", ("0.1", "0.2"), False, False),
        ("seed", ("1", '"1"'), False, True),
        ("optimizer.name", ("sgd", "sgd"), True, False),
    ]


def test_runs_with_nothing_in_common_can_be_compared(made: Made) -> None:
    made.process("empty-1")
    made.process("odd-1")
    made.log({"loss": [np.nan], "reward": [-np.inf]}, run="odd-1")
    made.process("machine-1", role="machine")
    comparison_json = as_json(compared(made, "empty-1", "odd-1", "machine-1"))
    assert comparison_json["keys"] == []
    assert [verdict["severity"] for verdict in comparison_json["verdicts"]] == [
        "unknown",
        "critical",
        "unknown",
    ]


def test_mistakes_are_explained(made: Made) -> None:
    made.process("a-1")
    with pytest.raises(NotFound, match="'other' is not one of"):
        compared(made, "a-1", baseline="other")
    with pytest.raises(StepscopeError, match="preset is 'speed'; it must be one of all, performance"):
        compared(made, "a-1", preset="speed")
    with pytest.raises(StepscopeError, match="Cannot compare 0 runs"):
        compare([])


def test_runs_with_the_same_value_of_an_entry_are_one_group(made: Made) -> None:
    for number, (rate, step_s) in enumerate([(0.1, 0.1), (0.01, 0.2), (0.1, 0.3), (None, 0.1)]):
        record_run(
            made, f"r{number}-1", step_s, noise=0, **({} if rate is None else {"optimizer": {"lr": rate}})
        )
    comparison = compared(made, "r0-1", "r1-1", "r2-1", "r3-1", group_by="optimizer.lr")
    assert [(group.value, group.runs) for group in comparison.groups] == [
        ("0.01", ("r1-1",)),
        ("0.1", ("r0-1", "r2-1")),
        (None, ("r3-1",)),
    ]
    (row,) = [row for row in comparison.group_figures if row.name == "Step time, p50"]
    low, both, unset = row.cells
    assert (both.runs, both.value, both.low, both.high) == pytest.approx((2, 0.2, 0.1, 0.3))
    assert both.delta_ratio is None
    assert low.delta_ratio == pytest.approx(0, abs=1e-9)
    assert unset.delta_text == "▼ -50% better"
    assert unset.sure is None
    assert len(comparison.figures[0].cells) == 4


def test_a_number_and_the_same_as_text_are_two_groups(made: Made) -> None:
    record_run(made, "a-1", 0.1, seed=1)
    record_run(made, "b-1", 0.1, seed="1")
    record_run(made, "c-1", 0.1, seed=1.0)
    comparison = compared(made, "a-1", "b-1", "c-1", group_by="seed")
    assert [(group.value, len(group.runs)) for group in comparison.groups] == [("1", 2), ('"1"', 1)]


def test_groups_are_compared_with_the_noise_between_their_runs(made: Made) -> None:
    names = []
    for number in range(12):
        names.append(f"r{number}-1")
        kind, step_s = (("a", 0.1), ("b", 0.11), ("c", 0.2))[number % 3]
        record_run(made, names[-1], step_s * (1 + number * 0.02), noise=0, mode=kind)
    comparison = compared(made, *names, group_by="mode")
    cells = next(row for row in comparison.group_figures if row.name == "Step time, p50").cells
    assert [group_cell.sure for group_cell in cells] == [None, False, True]


def test_an_entry_that_no_run_has_cannot_be_grouped_by(made: Made) -> None:
    record_run(made, "a-1", 0.1, lr=1)
    with pytest.raises(NotFound, match="'rate'"):
        compared(made, "a-1", group_by="rate")


def test_phases_and_waits_leave_out_the_warm_up_unless_it_is_requested(made: Made) -> None:
    made.process("a-1")
    seconds = np.full(400, 0.1)
    waits = np.full(400, 0.02)
    seconds[:25] = 5.0
    waits[:25] = 4.9
    for rank in (0, 1):
        made.log({"step_seconds": seconds, "phase/data_seconds": waits}, run="a-1", rank=rank)
    without, whole = compared(made, "a-1"), compared(made, "a-1", with_warm_up=True)
    assert (without.warm_up_steps, whole.warm_up_steps) == ((25,), (0,))
    assert cell(without, "Waiting for data", 0).value == pytest.approx(0.2)
    assert cell(without, "Phase data, mean", 0).value == pytest.approx(0.02)
    assert cell(without, "Step time, p95", 0).value == pytest.approx(0.1)
    assert cell(whole, "Waiting for data", 0).value == pytest.approx(
        (25 * 4.9 + 375 * 0.02) / (25 * 5 + 37.5)
    )
    assert cell(whole, "Step time, p95", 0).value == pytest.approx(5.0)


def test_a_speed_up_half_way_is_not_a_warm_up(made: Made) -> None:
    made.process("a-1")
    made.log({"step_seconds": np.repeat([0.5, 0.1], 500)}, run="a-1")
    assert compared(made, "a-1").warm_up_steps == (0,)
