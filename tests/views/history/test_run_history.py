"""A run is compared with similar earlier runs of its project, and advice that helped is found again."""

from __future__ import annotations

import contextlib
import dataclasses
import sqlite3
from typing import Any

import numpy as np
import pytest

from stepscope.schema.series import Source
from stepscope.store.sqlite import SqliteStore
from stepscope.views.history.run_history import MAX_RUNS
from stepscope.views.overview.run_findings import findings_page_of
from stepscope.views.runs.marks import NoMarks
from stepscope.views.runs.run_rows import FigureCache
from tests.views.history.project import HOUR, LATER_NS, WAIT, Project
from tests.views.made import BEGUN_NS, NS, Made, as_json


@pytest.fixture
def project(made: Made) -> Project:
    return Project(made)


def test_a_slower_run_is_compared_with_similar_runs_and_what_differs_is_named(project: Project) -> None:
    for step_s in (0.03, 0.031, 0.0305, 0.033, 0.032):
        project.train(step_s, workers=4, seed=project.count)
    answer = project.answer(project.train(0.041, workers=0, seed=9))
    assert answer.result == "slower"
    assert answer.sentence.startswith(
        "Median step 41.2 ms; 5 similar runs took 29.9 to 33.1 ms (newest: resnet-5): 33% slower (+"
    )
    assert answer.sentence.endswith("Settings that differ: loader.num_workers 4 -> 0.")
    assert 0.05 < answer.low_ratio < answer.change_ratio < answer.high_ratio
    assert [run.name for run in answer.runs] == [f"resnet-{number}" for number in (5, 4, 3, 2, 1)]
    assert answer.samples_per_second == pytest.approx(64 / 0.041, rel=0.05)


def test_a_faster_run_is_called_faster(project: Project) -> None:
    for _ in range(4):
        project.train(0.03)
    answer = project.answer(project.train(0.02))
    assert (answer.result, answer.differences) == ("faster", ())
    assert "faster (-3" in answer.sentence


def test_a_slower_run_without_a_recorded_difference_says_so(project: Project) -> None:
    for _ in range(3):
        project.train(0.03)
    assert project.answer(project.train(0.06)).sentence.endswith("No recorded setting differs.")


def test_versions_of_code_and_libraries_are_settings(project: Project) -> None:
    for _ in range(3):
        project.train(0.03, facts={"libraries": {"torch": "2.12"}, "commit": "a" * 40})
    answer = project.answer(project.train(0.06, facts={"libraries": {"torch": "2.13"}, "commit": "b" * 40}))
    assert [str(change) for change in answer.differences] == [
        "commit aaaaaaaaaaaa -> bbbbbbbbbbbb",
        "libraries.torch 2.12 -> 2.13",
    ]


@pytest.mark.parametrize("runs", [0, 1, 2])
def test_fewer_than_three_similar_runs_are_not_compared(project: Project, runs: int) -> None:
    for _ in range(runs):
        project.train(0.03)
    answer = project.answer(project.train(0.09))
    assert (answer.result, answer.change_ratio, len(answer.runs)) == ("unknown", None, runs)
    plural = "" if runs == 1 else "s"
    assert answer.sentence == (
        f"{runs} similar earlier run{plural} in this project; 3 are needed to compare."
    )


def test_few_steps_are_not_compared(project: Project) -> None:
    for _ in range(4):
        project.train(0.03)
    answer = project.answer(project.train(0.09, steps=20))
    assert (answer.result, answer.sentence) == (
        "unknown",
        "20 timed steps after the warm-up; 40 are needed to compare.",
    )
    project.train(0.03, steps=20)
    assert len(project.answer(project.train(0.03)).runs) == 4


@pytest.mark.parametrize(
    "other",
    [
        {"batch": 128.0},
        {"project": "another"},
        {"setup": {"parameters": 2000}},
        {"setup": {"autocast": "cuda bfloat16"}},
        {"setup": {"devices": [{"name": "NVIDIA H200"}]}},
        {"facts": {"world_size": 2}},
        {"facts": {"cpus": 64}},
    ],
)
def test_runs_that_do_other_work_or_have_other_hardware_are_not_similar(
    project: Project, other: dict[str, Any]
) -> None:
    for _ in range(4):
        project.train(0.03, **other)
    assert project.answer(project.train(0.09)).runs == ()


def test_the_processor_is_compared_where_both_runs_recorded_it(project: Project, made: Made) -> None:
    for model in ("Xeon", "Xeon", "EPYC", "EPYC", None):
        run = project.train(0.03)
        if model is not None:
            made.event("device", run=run, host="node1", device="cpu", model=model, threads=8)
    current = project.train(0.03)
    made.event("device", run=current, host="node1", device="cpu", model="EPYC", threads=8)
    assert [run.name for run in project.answer(current).runs] == ["resnet-5", "resnet-4", "resnet-3"]


def test_a_run_is_compared_with_those_before_it_only(project: Project) -> None:
    first = project.train(0.03)
    for _ in range(4):
        project.train(0.01)
    assert project.answer(first).earlier_runs == 0


def test_only_the_newest_runs_are_read(project: Project) -> None:
    for _ in range(MAX_RUNS + 3):
        project.train(0.03, steps=50)
    answer = project.answer(project.train(0.03))
    assert (answer.earlier_runs, answer.runs[-1].name) == (MAX_RUNS, "resnet-4")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(40))
def test_equal_runs_on_a_machine_with_noise_are_never_called_slower_or_faster(
    project: Project, seed: int
) -> None:
    chance = np.random.default_rng(seed)
    project.count = 1000 * seed
    runs = int(chance.integers(3, 9))
    machine = np.exp(chance.normal(0, 0.03, runs + 1))
    *_, current = [project.train(0.03 * factor, steps=60, noise=0.1) for factor in machine]
    assert project.answer(current).result == "no clear difference"


def test_noise_between_the_runs_hides_a_difference_and_the_fastest_settings_are_named(
    project: Project,
) -> None:
    for step_s, workers in ((0.055, 0), (0.033, 4), (0.056, 0), (0.054, 0)):
        project.train(step_s, workers=workers)
    answer = project.answer(project.train(0.055, workers=0))
    assert answer.result == "no clear difference"
    assert answer.sentence.endswith(
        "resnet-2 was faster: 32.9 ms. Settings that differ: loader.num_workers 4 -> 0."
    )


def test_a_run_slower_than_all_dissimilar_runs_is_not_called_unchanged(project: Project) -> None:
    for step_s in (0.03, 0.05, 0.03):
        project.train(step_s)
    answer = project.answer(project.train(0.07))
    assert answer.result == "no clear difference"
    assert "29.9 to 49.9 ms (newest: resnet-3): they differ too much among themselves" in answer.sentence


def test_losses_are_compared_at_the_same_step(project: Project) -> None:
    falling = np.exp(-np.arange(600) / 100)
    for _ in range(3):
        project.train(steps=600, losses=falling)
    loss = project.answer(project.train(steps=200, losses=falling[:200])).loss
    assert (loss.step, loss.runs, loss.result) == (199, 3, "no clear difference")
    assert loss.value == pytest.approx(falling[180:200].mean(), rel=0.05)
    higher = project.answer(project.train(steps=200, losses=3 * falling[:200])).loss
    assert higher.result == "higher"
    assert higher.sentence.startswith("loss at step 199: 0.4")


def test_a_fix_that_helped_is_listed_and_suggested_when_the_problem_returns(
    project: Project, made: Made
) -> None:
    project.checked(project.train(0.05, workers=0, waits=True), WAIT)
    fixed = project.checked(project.train(0.031, workers=4, lr=0.2))
    (advice,) = project.answer(fixed).helped
    assert (advice.finding, advice.before_name, advice.after_name) == (WAIT, "resnet-1", "resnet-2")
    assert advice.sentence.startswith("input.exposed_wait after loader.num_workers 0 -> 4: step time -38% (")
    assert -0.5 < advice.low_ratio < advice.change_ratio < advice.high_ratio < -0.05
    back = project.train(0.05, workers=0, waits=True)
    runs = made.runs()
    page = findings_page_of(runs.run(back), runs.runs(), NoMarks(), LATER_NS)
    (finding,) = [finding for finding in page.findings if finding.id == WAIT]
    assert (
        "In run resnet-2 of this project this was fixed by loader.num_workers 0 -> 4, which saved 38% ("
        in (finding.detail)
    )
    as_json(page.history)


def test_a_fix_that_the_run_already_has_is_not_suggested(project: Project) -> None:
    project.checked(project.train(0.05, workers=0, waits=True), WAIT)
    project.checked(project.train(0.031, workers=4))
    history = project.history(project.train(0.05, workers=4, waits=True))
    assert history.answer.helped
    assert history.saved_before(WAIT) == ""


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"workers": 0}, {"step_s": 0.049}),
        ({"workers": 0}, {"step_s": 0.01}),
        ({"workers": 4}, {}),
        ({"workers": 0}, {"batch": 128.0}),
        ({"workers": 4, "seed": 1}, {"seed": 2}),
    ],
    ids=["within noise", "more than it explains", "no setting differs", "other work", "only the seed"],
)
def test_a_problem_that_ended_for_another_reason_is_not_listed_as_helped(
    project: Project, before: dict[str, Any], after: dict[str, Any]
) -> None:
    project.checked(project.train(0.05, waits=True, **before), WAIT)
    fixed = project.checked(project.train(**{"step_s": 0.031, **after}))
    assert project.answer(fixed).helped == ()


def test_a_problem_that_was_not_looked_for_is_not_fixed(project: Project) -> None:
    project.checked(project.train(0.05, workers=0, waits=True), WAIT)
    project.train(0.031, workers=4)
    assert project.answer(project.train(0.031, workers=4, steps=15)).helped == ()


def test_what_was_read_of_an_ended_run_is_kept(project: Project) -> None:
    for _ in range(3):
        project.train(0.03)
    run, cache = project.train(0.03), FigureCache()
    first, second = (project.history(run, cache) for _ in range(2))
    assert [earlier is other for earlier, other in zip(first.earlier, second.earlier, strict=True)] == [
        True
    ] * 3
    assert dataclasses.asdict(first.answer) == dataclasses.asdict(second.answer)


def test_a_run_without_steps_has_no_history(project: Project, made: Made) -> None:
    for _ in range(3):
        project.train(0.03)
    made.process("empty-0badcafe", started_ns=BEGUN_NS + 99 * HOUR * NS)
    answer = project.answer("empty-0badcafe")
    assert (answer.result, answer.step_s, answer.loss) == ("unknown", None, None)


def test_a_damaged_earlier_run_does_not_hide_the_others(project: Project, made: Made) -> None:
    damaged, *_, current = [project.train(0.03) for _ in range(5)]
    with made.store.transaction():
        made.store.seal(Source(damaged, "a1", 0, "node1"))
    made.close()
    with contextlib.closing(sqlite3.connect(made.folder / "store.sqlite")) as connection, connection:
        assert connection.execute("UPDATE chunk SET data = x'63'").rowcount
    made.store = SqliteStore(made.folder / "store.sqlite")
    answer = project.answer(current)
    assert (answer.result, len(answer.runs)) == ("no clear difference", 3)
    assert answer.loss is not None


@pytest.mark.parametrize("loss", [1e300, -1e308, np.nan, np.inf])
def test_losses_that_cannot_be_compared_are_left_out(project: Project, loss: float) -> None:
    *_, current = [project.train(losses=loss) for _ in range(4)]
    answer = project.answer(current)
    assert (answer.result, answer.loss) == ("no clear difference", None)
