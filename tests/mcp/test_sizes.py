"""Answers that are too long have as much as fits, and say what is left out and how to get it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("mcp")

from stepscope.mcp.answers import Answer, NextCall, content_of, size_of
from stepscope.schema.record import Event
from stepscope.store.sqlite import SqliteStore
from tests.golden.fixed_store import BEGUN_NS, NS, _append, _process, fill
from tests.mcp.asking import answer_of, error_of

RUNS = 320


@pytest.fixture(scope="module")
def many(tmp_path_factory) -> Path:
    """A store with many runs, each with a few steps."""
    folder = tmp_path_factory.mktemp("many") / "store"
    folder.mkdir()
    store = SqliteStore(folder / "store.sqlite")
    with store.transaction():
        for number in range(RUNS):
            run_id = f"run{number}-0badcafe"
            begun_ns = BEGUN_NS + number * NS
            store.put_process(_process(run_id, "finished", begun_ns, begun_ns + NS))
            _append(store, run_id, {"loss": np.arange(1.0, 4.0) + number}, begun_ns)
    store.close()
    return folder


@pytest.fixture(scope="module")
def fixed(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("fixed") / "store"
    fill(folder)
    return folder


def test_a_short_list_of_runs_says_that_there_are_more(many: Path) -> None:
    answer = answer_of(many, "list_runs")
    assert len(answer["runs"]) + answer["runs_left_out"] == answer["matching"] == RUNS
    assert answer["next_offset"] == len(answer["runs"])
    assert "limit" in answer["shortened"]


def test_a_list_of_runs_is_filled_to_the_limit_and_continues_at_an_offset(many: Path) -> None:
    names, offset = [], 0
    while offset is not None:
        answer = answer_of(many, "list_runs", limit=1000, offset=offset)
        assert size_of(answer) <= 40_000
        names += [row["run"] for row in answer["runs"]]
        assert answer.get("runs_left_out", 0) == RUNS - len(names)
        offset = answer.get("next_offset")
        assert offset is None or size_of(answer) > 38_000
    assert names == [f"run{number}" for number in reversed(range(RUNS))]
    assert "320" in error_of(many, "list_runs", offset=RUNS)


@pytest.mark.slow
@pytest.mark.parametrize(("detail", "fewest", "most_bytes"), [("short", 2, 2_000), ("full", 20, 40_000)])
def test_a_comparison_of_many_runs_has_figures_of_those_that_fit(
    detail: str, fewest: int, most_bytes: int, many: Path
) -> None:
    names = [f"run{number}" for number in range(50)]
    answer = answer_of(many, "compare_runs", runs=names, baseline="run7", detail=detail)
    shown = list(answer["verdicts"])
    assert size_of(answer) <= most_bytes
    assert shown[0] == answer["baseline"] == "run7"
    assert len(shown) >= fewest
    assert len(shown) + answer.get("runs_left_out", 0) == 50
    assert all(set(shown) & set(figure) for figure in answer["figures"])
    assert detail == "full" or "detail='full'" in answer["shortened"]


def test_the_hint_names_an_argument_that_the_tool_has(fixed: Path) -> None:
    answer = answer_of(fixed, "list_metrics")
    assert answer["metrics_left_out"] > 0
    assert len(answer["metrics"]) + answer["metrics_left_out"] == answer["matching"]
    assert answer["shortened"] == "Give limit=1000 for more of it."
    assert "metrics_left_out" not in answer_of(fixed, "list_metrics", limit=1000)


def test_a_list_is_cut_where_the_answer_is_full_and_not_at_a_round_number() -> None:
    body = {"lines": [f"line {number} {'x' * 80}" for number in range(1500)]}
    content = content_of(Answer(body, NextCall("list_runs"), "full"))
    assert 39_500 < size_of(content) <= 40_000
    assert len(content["lines"]) + content["lines_left_out"] == 1500


def test_entries_that_do_not_fit_at_all_are_named() -> None:
    body = {"first": "x", "wide": {f"name {number}": "text" for number in range(500)}}
    content = content_of(Answer(body, NextCall("list_runs")))
    assert content["first"] == "x"
    assert content["left_out"] == ["wide"]


def test_a_rank_that_a_metric_does_not_have_is_an_error(fixed: Path) -> None:
    assert error_of(fixed, "read_series", keys=["loss"], rank=99).endswith("has no rank 99; it has: 0.")
    message = error_of(fixed, "read_series", keys=["gpu/power_watts"], rank=0)
    assert "Omit `rank`" in message


def test_steps_that_are_the_wrong_way_round_are_an_error(fixed: Path) -> None:
    message = error_of(fixed, "read_series", keys=["loss"], from_step=50, to_step=3)
    assert "from_step is 50" in message


def test_steps_without_points_are_said_to_have_none(fixed: Path) -> None:
    (series,) = answer_of(fixed, "read_series", keys=["loss"], from_step=10_000)["series"]
    assert series["nothing_to_show"]
    (series,) = answer_of(fixed, "read_series", keys=["loss"], from_step=10)["series"]
    assert "nothing_to_show" not in series


def test_a_search_in_the_lines_says_how_many_match(folder: Path) -> None:
    fill(folder)
    store = SqliteStore(folder / "store.sqlite")
    with store.transaction():
        text = "one line\nanother line\n"
        store.put_event("trained-5a1ad000", Event("console", BEGUN_NS, 0, 0, "a1", {"text": text}))
    store.close()
    answer = answer_of(folder, "read_logs", search="no such text")
    assert (answer["matching_lines"], answer["nothing_to_show"]) == (0, "No line contains 'no such text'.")
    answer = answer_of(folder, "read_logs", search="another")
    assert (answer["matching_lines"], len(answer["lines"])) == (1, 1)
