"""Recommendations from lists of figures: by the same detectors as a diagnosis, and honest about gaps."""

from __future__ import annotations

import json

import numpy as np
import pytest

from stepscope import (
    MetricsDatabase,
    TrainingMonitor,
    generate_performance_recommendations,
    save_recommendations_report,
)
from stepscope.cli.main import main
from stepscope.errors import ConfigError
from tests.detectors.simulated import going_well


def rows(columns: dict, **labels) -> list[dict]:
    """Figures of a run as a list with a mapping for each step."""
    count = len(columns["loss"])
    ends = np.cumsum(columns["step_seconds"]) if "step_seconds" in columns else np.arange(count)
    return [
        {
            "timestamp": 1e9 + ends[step],
            "step": step,
            **labels,
            **{key: columns[key][step] for key in columns},
        }
        for step in range(count)
    ]


def waiting(steps: int = 400) -> dict:
    """A run whose steps wait for data half of the time."""
    run = going_well(1, steps)
    run["step_seconds"] = run["step_seconds"] - run["phase/data_seconds"]
    run["phase/data_seconds"] = run["step_seconds"].copy()
    run["step_seconds"] = 2 * run["step_seconds"]
    return run


def test_steps_that_wait_for_data_lead_to_advice_with_its_gain_and_code():
    (advice,) = generate_performance_recommendations(rows(waiting()))
    assert (advice.id, advice.category, advice.priority) == ("input.exposed_wait", "training", "warning")
    assert advice.problem.startswith("50% of each step is spent waiting for data")
    assert advice.gain.low <= advice.gain.likely <= advice.gain.high <= 0.51
    assert advice.steps[0].text


def test_what_ruins_a_run_comes_before_the_largest_gain():
    run = waiting()
    run["loss"][300:] = np.nan
    first, second = generate_performance_recommendations(rows(run))
    assert (first.id, first.category, first.priority) == ("num.nonfinite", "convergence", "critical")
    assert second.id == "input.exposed_wait"


def test_a_run_without_a_problem_has_no_advice_and_says_what_could_not_be_checked():
    advice = generate_performance_recommendations(rows(going_well(2, 400)))
    assert advice == []
    assert "No problem found by" in advice.verdict
    assert "could not run" in advice.verdict


def test_figures_of_the_machine_and_the_setup_are_judged_too():
    quota = {"cpu/cgroup_throttled_periods_ratio": 0.4, "cpu/cgroup_limit_cores": 2.0}
    advice = generate_performance_recommendations(
        rows(going_well(3, 400)), [quota] * 20, {"detect_anomaly": True}
    )
    assert {(recommendation.id, recommendation.category) for recommendation in advice} == {
        ("host.cpu_quota", "system"),
        ("cfg.debug_left_on", "training"),
    }


@pytest.mark.parametrize("name", ["step_time", "training_time_per_step", "step_duration_seconds"])
def test_lists_by_name_and_names_of_older_documents_are_understood(name):
    run = waiting()
    columns = {
        "loss": run["loss"].tolist(),
        name: run["step_seconds"],
        "data_time": tuple(run["phase/data_seconds"]),
    }
    (advice,) = generate_performance_recommendations(columns)
    assert advice.id == "input.exposed_wait"


def test_only_the_newest_segment_is_judged_and_each_rank_by_itself():
    before = rows(waiting(), segment="a", rank=0)
    after = [
        {**row, "timestamp": row["timestamp"] + 1e4}
        for rank in (0, 1)
        for row in rows(going_well(4 + rank, 400), segment="b", rank=rank)
    ]
    assert generate_performance_recommendations(before + after) == []


@pytest.mark.parametrize("nothing", [None, [], {}, {"loss": []}])
def test_without_figures_there_is_no_advice(nothing):
    advice = generate_performance_recommendations(nothing, nothing)
    assert advice == []
    assert "could run" in advice.verdict or "could not run" in advice.verdict or "Too early" in advice.verdict


def test_values_of_any_kind_are_left_out_unless_they_are_numbers():
    odd = [
        {"step": step, "loss": 1.0 / (step + 1), "note": "text", 5: object(), "list": [1], "none": None}
        for step in range(60)
    ]
    assert generate_performance_recommendations(odd, [{"cpu_percent": "high"}]) == []


@pytest.mark.parametrize("wrong", [5, "loss", [1, 2], [{"loss": 1.0}, "x"]])
def test_values_that_are_not_a_list_of_figures_are_refused_with_the_value(wrong):
    with pytest.raises(ConfigError, match="training_metrics is .*must be a list of mappings"):
        generate_performance_recommendations(wrong)
    with pytest.raises(ConfigError, match="model_metrics is"):
        generate_performance_recommendations([], [], 5)
    with pytest.raises(ConfigError, match="step is inf"):
        generate_performance_recommendations([{"step": float("inf"), "loss": 1.0}])


def test_the_report_has_each_recommendation_under_its_category(tmp_path):
    run = waiting()
    run["loss"][300:] = np.nan
    advice = generate_performance_recommendations(rows(run))
    path = save_recommendations_report(advice, tmp_path / "new" / "optimization_report.md")
    text = path.read_text()
    assert text.startswith(f"# Performance recommendations\n\n{advice.verdict}\n")
    assert text.index("## Convergence") < text.index("## Training")
    for recommendation in advice:
        assert f"### {recommendation.title} ({recommendation.priority})" in text
        assert recommendation.problem in text
        assert all(f"{number}. {step.text}" in text for number, step in enumerate(recommendation.steps, 1))
    assert "Estimated gain: " in text


def test_a_report_without_recommendations_says_so_and_replaces_the_last_one(tmp_path):
    path = tmp_path / "report.md"
    path.write_text("old")
    save_recommendations_report(generate_performance_recommendations(rows(going_well(2, 400))), str(path))
    assert "There is nothing to recommend." in path.read_text()
    with pytest.raises(ConfigError, match="recommendations has 'x'"):
        save_recommendations_report(["x"], path)
    assert "There is nothing to recommend." in path.read_text()


def test_a_recorded_run_is_judged_as_its_diagnosis_judges_it(folder, without_agent, monkeypatch, capsys):
    with TrainingMonitor(run="spiked", directory=folder) as monitor:
        for step in range(300):
            monitor.log_training_step(loss=200.0 if step == 200 else 2.0 + 0.1 * np.sin(step))
    with MetricsDatabase(folder) as database:
        advice = generate_performance_recommendations(
            database.get_training_metrics("spiked"), database.get_system_metrics("spiked")
        )
    capsys.readouterr()
    monkeypatch.setenv("STEPSCOPE_DIR", str(folder))
    assert main(["diagnose", "spiked", "--json"]) == 0
    diagnosis = json.loads(capsys.readouterr().out)
    assert (
        [recommendation.id for recommendation in advice]
        == [finding["id"] for finding in diagnosis["findings"]]
        == ["conv.spike"]
    )
    assert advice.verdict.startswith(advice[0].problem.removesuffix("."))
