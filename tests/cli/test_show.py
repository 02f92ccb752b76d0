"""`stepscope show`: one run on a page."""

import json
import math
import os
import re
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepscope import TrainingMonitor
from stepscope.cli.main import main
from stepscope.cli.output.table import Column, cell_width, table
from stepscope.cli.output.text import safe, sparkline, to_json
from stepscope.schema.record import Event
from stepscope.store.sqlite import SqliteStore
from tests.views.made import Made

UNSAFE = {
    *map(chr, range(0x20)),
    *map(chr, range(0x7F, 0xA0)),
    *"\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2028\u2029\u2066\u2067\u2068\u2069",
}


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    folder = tmp_path_factory.mktemp("show") / "store"
    with TrainingMonitor(run="baseline", directory=folder) as monitor:
        for step in range(300):
            monitor.log({"loss": 3.0 - step / 100, "val/loss": math.nan if step > 200 else 1.0})
        for number in range(25):
            monitor.event("checkpoint", path=f"/data/{number}.pt")
        monitor.own_event("console", text="epoch 1\n\x1b[32mgreen\x1b[0m\nthe end")
    with TrainingMonitor(run="newest", directory=folder) as monitor:
        monitor.log({f"key {number:03d}": number for number in range(100)})
        monitor.event("evil\x1b]0;title\x07", note="a\u202eb\nc")
    return folder


@pytest.fixture(autouse=True)
def _in_the_store(store, monkeypatch):
    monkeypatch.setenv("STEPSCOPE_DIR", str(store))
    monkeypatch.setenv("COLUMNS", "120")


def shown(capsys, *arguments):
    assert main(["show", *arguments]) == 0
    return capsys.readouterr().out


def shown_as_json(capsys, *arguments):
    return json.loads(shown(capsys, "--json", *arguments), parse_constant=pytest.fail)


def test_a_page_has_status_segments_facts_metrics_events_and_console(capsys):
    lines = [line.split() for line in shown(capsys, "baseline").splitlines()]
    assert lines[0] == ["baseline", "finished"]
    for section in ("segments", "facts", "metrics", "events", "console"):
        assert any(line[-1:] == [section] for line in lines)
    (loss,) = [line for line in lines if line[:2] == ["loss", "300"]]
    assert loss[2:5] == ["0.01", "0.01", "3"]
    assert loss[-1][0] == "█"
    assert loss[-1][-1] == "▁"
    (val,) = [line for line in lines if line[:1] == ["val/loss"]]
    assert val[1:6] == ["300", "NaN", "1", "1", "99"]
    assert val[-1].endswith("×")
    assert lines[-3:] == [["epoch", "1"], ["green"], ["the", "end"]]


@pytest.fixture
def made(tmp_path):
    store = Made(tmp_path / "made")
    store.process()
    yield store
    store.close()


def test_huge_finite_values_are_drawn_as_bars_and_not_as_crosses(capsys, made):
    made.log({"extremes": [1e308, -1e308] * 250, "nothing": [math.nan] * 500})
    lines = {
        line.split()[0]: line for line in shown(capsys, "--store", str(made.folder)).splitlines() if line
    }
    assert "×" not in lines["extremes"]
    assert lines["extremes"].endswith("▁")
    assert lines["nothing"].endswith("×")


def test_events_have_a_dash_for_no_rank_and_no_python_lists(capsys, made):
    frames = [{"file": "train.py", "line": 101, "function": "train"}]
    made.event("failure", 1, step=7, rank=0, type="RuntimeError", message="first try", frames=frames)
    made.event("notice", 2, text="no GPU")
    page = shown(capsys, "--store", str(made.folder))
    (failure,) = [line for line in page.splitlines() if " failure " in line]
    assert failure.endswith("type=RuntimeError message=first try frames=(1 entry)")
    (notice,) = [line.split() for line in page.splitlines() if " notice " in line]
    assert notice[2:5] == ["-", "-", "notice"]


def test_targets_are_shown_with_their_figures(capsys, made):
    made.process(end=100, facts={"targets": {"steps_per_second": 3.0, "gpu_utilization_percent": 50.0}})
    made.log({"step_seconds": 0.5}, range(200), every=0.5)
    lines = shown(capsys, "--store", str(made.folder)).splitlines()
    first = lines.index("targets") + 2
    assert re.split(r"\s{2,}", lines[first].strip()) == [
        "Steps per second", "3 steps/s", "2 steps/s", "1 steps/s below the target", "whole run",
    ]  # fmt: skip
    assert re.split(r"\s{2,}", lines[first + 1].strip()) == [
        "GPU utilization", "50%", "–", "not known", "no GPU was read",
    ]  # fmt: skip
    steps, gpu = shown_as_json(capsys, "--store", str(made.folder))["targets"]
    assert (steps["id"], steps["target"], steps["value"], steps["is_met"]) == (
        "steps_per_second",
        3,
        2,
        False,
    )
    assert (gpu["value"], gpu["is_met"]) == (None, None)


def test_a_run_without_targets_has_no_section_for_them(capsys, made):
    made.log({"step_seconds": 0.5}, range(200), every=0.5)
    assert "targets" not in shown(capsys, "--store", str(made.folder)).splitlines()
    assert shown_as_json(capsys, "--store", str(made.folder))["targets"] == []


def test_the_newest_events_are_shown_and_with_events_all(capsys):
    page = shown(capsys, "baseline")
    assert "newest 10 of 25 events" in page
    assert page.count("checkpoint") == 10
    assert "/data/24.pt" in page
    every = shown(capsys, "baseline", "--events")
    assert every.count("checkpoint") == 25
    assert "metrics" not in every


def test_without_a_name_the_newest_run_is_shown(capsys):
    assert shown(capsys).startswith("newest  finished")


def test_a_run_is_found_by_its_id(capsys):
    output = shown_as_json(capsys, "baseline")
    assert shown_as_json(capsys, output["id"]) == output


def test_an_unknown_name_fails_with_names_like_it(capsys):
    assert main(["show", "basline"]) == 1
    assert "did you mean 'baseline'?" in capsys.readouterr().err
    assert main(["show", "zzz"]) == 1
    assert "newest, baseline" in capsys.readouterr().err


def test_many_keys_are_cut_and_the_page_says_so(capsys):
    page = shown(capsys, "newest")
    assert "60 more keys" in page
    assert "key 099" not in page
    assert "key 099" in shown(capsys, "newest", "--limit", "100")


def test_keys_are_chosen_by_a_part_of_their_name_or_a_pattern(capsys):
    chosen = shown_as_json(capsys, "newest", "--keys", "09")["keys"]
    assert [point["key"] for point in chosen] == ["key 009", *(f"key {n:03d}" for n in range(90, 100))]
    chosen = shown_as_json(capsys, "newest", "--keys", "*00?")["keys"]
    assert len(chosen) == 10
    assert main(["show", "baseline", "--keys", "lss"]) == 1
    assert "did you mean 'loss'" in capsys.readouterr().err


def test_json_is_strict_and_has_everything(capsys):
    output = shown_as_json(capsys, "baseline")
    keys = {key["key"]: key for key in output["keys"]}
    assert keys["val/loss"] == {
        "key": "val/loss", "points": 300, "ranks": [0], "last": "NaN", "min": 1.0, "max": 1.0,
        "nonfinite": 99,
    }  # fmt: skip
    (segment,) = output["segments"]
    (process,) = segment["processes"]
    assert process["status"] == "finished"
    assert process["facts"]["python"]
    assert len([event for event in output["events"] if event["kind"] != "checks"]) == 26
    assert output["events"][0]["fields"] == {"path": "/data/0.pt"}


def test_the_page_has_no_character_a_terminal_obeys(capsys):
    page = shown(capsys, "newest")
    assert "evil" in page
    assert not set(page) & (UNSAFE - {"\n"})


def test_colour_is_for_terminals_without_no_color(monkeypatch, capsys):
    from stepscope.cli.output.text import paint

    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert paint("x", "failed") == "\x1b[31mx\x1b[0m"
    monkeypatch.setenv("NO_COLOR", "1")
    assert paint("x", "failed") == "x"


def test_a_limit_is_a_whole_number(capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["show", "--limit", "-1"])
    assert "give 0 or more" in capsys.readouterr().err


def test_a_terminal_without_bars_gets_letters(store):
    done = subprocess.run(
        [sys.executable, "-m", "stepscope", "show", "baseline", "--store", str(store)],
        capture_output=True,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        check=True,
    )
    assert done.stdout.isascii()
    assert b"?" not in done.stdout


texts = st.text() | st.text(st.sampled_from([*sorted(UNSAFE), *"a語\u0301[1m]"]))


@given(st.lists(st.tuples(texts, texts, st.floats()), max_size=5), st.integers(20, 100))
def test_a_table_never_has_control_characters_and_fits(rows, width):
    columns = [Column("A", elastic=True), Column("B", elastic=True), Column("C", right=True)]
    lines = table(columns, [[one, other, f"{number:.3g}"] for one, other, number in rows], width)
    assert len(lines) == len(rows) + 1
    assert not set("".join(lines)) & UNSAFE
    assert max(map(cell_width, lines)) <= max(width, 8 + 8 + 10 + 4)


@given(texts)
def test_safe_text_is_printable_and_stays_so(text):
    cleaned = safe(text)
    assert not set(cleaned) & UNSAFE
    assert safe(cleaned) == cleaned
    cleaned.encode()


@given(st.lists(st.none() | st.floats(), max_size=30))
def test_a_sparkline_has_a_character_for_each_value(heights):
    assert len(sparkline(heights)) == len(heights)


@pytest.mark.slow
@given(st.recursive(st.floats() | st.integers() | st.text(), st.lists))
def test_json_is_always_strict(value):
    assert json.loads(to_json(value), parse_constant=pytest.fail) is not None


def test_values_equal_but_for_rounding_are_drawn_level():
    assert len(set(sparkline([0.42088, 0.42088 * (1 + 1e-15), 0.42088]))) == 1


def test_an_event_of_no_rank_has_a_dash_for_it(tmp_path, capsys):
    with TrainingMonitor(run="r", directory=tmp_path / "s") as monitor:
        monitor.event("checkpoint")
    opened = SqliteStore(tmp_path / "s" / "store.sqlite")
    (run,) = opened.runs()
    with opened.transaction():
        opened.put_event(run.id, Event("notice", 5, None, None, run.segments[0].id, {"text": "x"}))
    opened.close()
    page = shown(capsys, "r", "--events", "--store", str(tmp_path / "s"))
    (notice,) = [line.split() for line in page.splitlines() if "text=x" in line]
    assert "None" not in notice
    assert notice[-3:] == ["-", "notice", "text=x"]
