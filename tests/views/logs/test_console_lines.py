"""What a run printed and logged, line by line."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import numpy as np
import pytest

import stepscope
from stepscope.views.logs.console_lines import console_of
from tests.views.made import BEGUN_S, RUN, Made, as_json


def texts(made: Made, **options: object) -> list[str]:
    return [line.text for line in console_of(made.run(), **options).lines]


def test_a_console_that_was_not_captured_says_what_to_do(made: Made) -> None:
    made.process()
    console_json = as_json(console_of(made.run()))
    assert " ".join(console_json) == "lines total captured why_not how file failure"
    assert (console_json["lines"], console_json["captured"]) == ([], False)
    assert "stepscope run -- python train.py" in console_json["why_not"]


def test_a_command_that_printed_nothing_gets_no_hint_to_capture_it(made: Made) -> None:
    made.process(role="launcher", pid=1)
    made.process(pid=2)
    console = console_of(made.run())
    assert (console.captured, console.how) == (True, ())
    assert console.why_not == "The command printed nothing."


@pytest.mark.parametrize(
    ("command", "ways"),
    [
        (["python", "a b.py"], ["stepscope run -- python 'a b.py'", "STEPSCOPE_LOGGING__DIRECTORY=logs "]),
        (["/w/study 1.ipynb"], ["TrainingMonitor("]),
        (["notebook"], ["TrainingMonitor("]),
    ],
)
def test_how_to_keep_the_output_is_said_for_scripts_and_for_notebooks(
    made: Made, command: list[str], ways: list[str]
) -> None:
    made.process(facts={"command": command})
    commands = [way.code for way in console_of(made.run()).how]
    assert [text.startswith(way) for text, way in zip(commands, ways, strict=True)] == [True] * len(ways)


def test_lines_have_number_time_and_step(made: Made) -> None:
    made.process()
    made.log({"loss": np.ones(100)})
    made.event("console", 50.5, text="one\ntwo\n")
    lines = as_json(console_of(made.run()))["lines"]
    assert lines[1] == {
        "number": 2, "text": "two", "time": BEGUN_S + 50.5, "step": 50, "stream": "console", "level": "",
    }  # fmt: skip


def test_overlapping_captures_are_joined(made: Made) -> None:
    made.process()
    made.event("console", 10, text="\n".join("abcde"))
    made.event("console", 20, text="\n".join("cdefg"))
    made.event("console", 30, text="\n".join("efghi"))
    assert "".join(texts(made)) == "abcdefghi"


def test_a_gap_between_captures_is_shown(made: Made) -> None:
    made.process()
    made.event("console", 10, text="a\nb\nc")
    made.event("console", 20, text="x\ny\nz")
    assert texts(made) == ["a", "b", "c", "[…]", "x", "y", "z"]


def test_a_changed_progress_bar_does_not_break_the_overlap(made: Made) -> None:
    made.process()
    made.event("console", 10, text="a\nb\nc\n10 %")
    made.event("console", 20, text="a\nb\nc\n90 %\nd")
    assert texts(made) == ["a", "b", "c", "10 %", "90 %", "d"]


def test_the_search_ignores_case_and_shows_the_newest_lines(made: Made) -> None:
    made.process()
    made.event("console", 10, text="\n".join(f"{'Epoch' if n % 2 else 'step'} {n}" for n in range(20)))
    console = console_of(made.run(), "EPOCH", 3)
    assert [(line.number, line.text) for line in console.lines] == [
        (16, "Epoch 15"),
        (18, "Epoch 17"),
        (20, "Epoch 19"),
    ]
    assert console.total == 10


def test_segments_are_in_order(made: Made) -> None:
    made.process(end=10)
    made.process(segment="b2", started_ns=2 * 10**18)
    made.event("console", 30, text="second", segment="b2")
    made.event("console", 20, text="first")
    assert texts(made) == ["first", "second"]


def recorded(tmp_path: Path, folder: Path, *, jsonl: bool) -> tuple[str, Path]:
    """Records a run with log files; returns its id and their folder."""
    logs = tmp_path / "logs"
    settings = {"agent": {"mode": "none"}, "logging": {"directory": str(logs), "jsonl": jsonl}}
    with stepscope.TrainingMonitor(settings, run="logged", directory=folder) as monitor:
        monitor.log_training_step(loss=1.0)
        logger = monitor.logs.logger("training")
        logger.info("it begins")
        logger.error("it breaks")
        run_id = monitor.run_id
        logging.getLogger("stepscope").handlers[0].flush()
    return run_id, logs


def with_logs(made: Made, run_id: str, logs: object) -> list:
    made.process(run_id, facts={"log_directory": str(logs)})
    return list(console_of(made.run(run_id)).lines)


def test_log_files_are_read_from_the_recorded_folder(tmp_path: Path, folder: Path, made: Made) -> None:
    for jsonl in (True, False):
        run_id, logs = recorded(tmp_path / str(jsonl), folder / str(jsonl), jsonl=jsonl)
        lines = with_logs(made, run_id, logs)
        assert [line.level for line in lines] == ["info", "error"], "an error is shown once"
        assert "it begins" in lines[0].text
        assert (lines[0].stream, lines[0].step) == ("training", 0)
        assert lines[0].time <= lines[1].time


def test_only_files_of_the_run_are_read_and_no_links(tmp_path: Path, made: Made) -> None:
    folder = tmp_path / "logs" / "training"
    folder.mkdir(parents=True)
    secret = tmp_path / "secret"
    secret.write_text("secret\n")
    (folder / f"{RUN}-a1-r0.log").symlink_to(secret)
    (folder / "other-a1-r0.log").write_text("of another run\n")
    (folder / f"{RUN}-a1-r1.txt").write_text("of another kind\n")
    (folder / f"{RUN}-a1-r2.log").mkdir()
    assert with_logs(made, RUN, folder.parent) == []
    (folder / f"{RUN}-a1-r3.log").write_text("own\n")
    assert [line.text for line in with_logs(made, RUN, folder.parent)] == ["own"]
    made.process("relative-1", facts={"log_directory": "logs"})
    assert not console_of(made.run("relative-1")).captured


def test_damaged_log_lines_are_shown_as_they_are(tmp_path: Path, made: Made) -> None:
    folder = tmp_path / "logs" / "system"
    folder.mkdir(parents=True)
    odd = [
        b"{not json",
        b'{"time": "never", "step": "x"}',
        b"\xff\xfe",
        json.dumps({"message": "\ud800"}).encode(),
    ]
    (folder / f"{RUN}-x.jsonl").write_bytes(b"\n".join(odd) + b"\n" + b"[" * 5000)
    made.process(facts={"log_directory": str(tmp_path / "logs")})
    console_json = as_json(console_of(made.run()))
    assert len(console_json["lines"]) == 5
    assert console_json["file"].endswith("-x.jsonl")
