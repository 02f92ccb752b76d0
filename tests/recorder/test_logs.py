"""What is logged during a run: where it goes, what a line holds, and that training never notices."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stepscope.config.sections import Logging
from stepscope.recorder.identity.facts import facts
from stepscope.recorder.logs.log_entry import MAX_TEXT
from stepscope.recorder.logs.log_writer import Rotation
from stepscope.recorder.logs.logs import StructuredLogs
from stepscope.schema.identity import Identity
from stepscope.schema.privacy import Privacy, hash_name
from stepscope.schema.redact import redact_mapping
from tests.schema.corpus import secrets

ME = Identity(name="mnist", project="demo", segment="6918a2f9c0ffee", rank=3, world_size=8, host="node1")
MINE = logging.getLogger("myproject.data")

Make = Callable[..., StructuredLogs]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    """Starts log files in a folder of the test."""
    made: list[StructuredLogs] = []

    def make_logs(
        identity: Identity = ME, level: str = "info", *, jsonl: bool = True, **options: Any
    ) -> StructuredLogs:
        settings = Logging(level=level, directory=str(tmp_path / "logs"), jsonl=jsonl)
        logs = StructuredLogs(identity, settings, environment=options.pop("environment", {}), **options)
        logs.start()
        made.append(logs)
        return logs

    yield make_logs
    for logs in made:
        logs.stop()


@pytest.fixture
def lines(tmp_path: Path) -> Callable[[str], list[dict[str, Any]]]:
    """Reads the lines of a category back."""

    def read(category: str = "*") -> list[dict[str, Any]]:
        paths = sorted((tmp_path / "logs").glob(f"{category}/*.jsonl"))
        return [json.loads(line) for path in paths for line in path.read_bytes().splitlines()]

    return read


Lines = Callable[..., list[dict[str, Any]]]


def test_a_line_has_message_time_and_origin(make: Make, lines: Lines) -> None:
    logs = make(step=lambda: 41)
    logs.logger("training").info("epoch %d done", 3, extra={"epoch": 3, "loss": 0.25})
    logs.stop()
    [line] = lines("training")
    assert list(line) == [
        *("time", "level", "category", "message", "correlation_id", "run", "segment", "rank", "host", "pid"),
        *("trace_id", "span_id", "logger", "step", "fields"),
    ]
    assert line["message"] == "epoch 3 done"
    assert line["correlation_id"] == logs.correlation.id == f"{ME.run_id}/6918a2f9c0ffee/3"
    assert (line["run"], line["segment"], line["rank"], line["host"]) == (ME.run_id, ME.segment, 3, "node1")
    assert (line["trace_id"], line["span_id"]) == (logs.correlation.trace_id, logs.correlation.span_id)
    assert (line["level"], line["category"], line["logger"]) == ("info", "training", "stepscope.training")
    assert (line["step"], line["fields"]) == (41, {"epoch": 3, "loss": 0.25})


def test_a_time_is_in_utc_with_microseconds(make: Make, lines: Lines) -> None:
    logs = make()
    record = logging.makeLogRecord({"name": "stepscope.system", "levelno": 20, "created": 1_700_000_000.25})
    logging.getLogger("stepscope.system").handle(record)
    logs.stop()
    assert [line["time"] for line in lines()] == ["2023-11-14T22:13:20.250000Z"]


def test_what_ray_adds_to_every_record_is_no_field(make: Make, lines: Lines) -> None:
    logs = make()
    record = logging.makeLogRecord({"name": "stepscope.training", "levelno": logging.INFO, "msg": "a"})
    # By attribute: `extra` refuses a name that Ray, once imported, gives to every record.
    record._ray_timestamp_ns = 1794930712946779628
    logging.getLogger("stepscope.training").handle(record)
    logs.stop()
    [line] = lines()
    assert line["message"] == "a"
    assert "fields" not in line


def test_a_step_given_with_the_call_wins(make: Make, lines: Lines) -> None:
    logs = make(step=lambda: 41)
    logs.logger("training").info("a", extra={"step": 7})
    logs.logger("training").info("b", extra={"step": "seven"})
    logs.stop()
    first, second = lines()
    assert (first["step"], "fields" in first) == (7, False)
    assert (second["step"], second["fields"]) == (41, {"step": "seven"})


def test_each_category_has_its_folder_and_each_process_its_file(make: Make, tmp_path: Path) -> None:
    first, other = make(), make(replace(ME, rank=4, host="node/2"))
    first.logger("performance").info("slow")
    first.stop()
    other.logger("performance").info("fast")
    other.stop()
    names = sorted(str(path.relative_to(tmp_path / "logs")) for path in tmp_path.glob("logs/*/*"))
    begin = f"performance/{ME.run_id}-6918a2f9c0ffee"
    assert [name.rpartition("-")[0] for name in names] == [f"{begin}-r3-node1", f"{begin}-r4-node-2"]


@pytest.mark.parametrize(
    ("logger", "level", "categories"),
    [
        ("stepscope.training", "INFO", {"training"}),
        ("stepscope.performance", "WARNING", {"performance"}),
        ("stepscope.training", "ERROR", {"training", "errors"}),
        ("stepscope.system", "CRITICAL", {"system", "errors"}),
        ("stepscope.errors", "INFO", {"errors"}),
        ("stepscope", "WARNING", {"system"}),
        ("stepscope.agent", "WARNING", {"system"}),
        ("myproject.data", "INFO", {"training"}),
        ("myproject.data", "ERROR", {"errors"}),
        ("stepscopes", "WARNING", {"training"}),
    ],
)
def test_a_record_goes_to_its_category_and_an_error_to_the_errors_too(
    make: Make, lines: Lines, logger: str, level: str, categories: set[str]
) -> None:
    logs = make()
    logs.attach(logging.getLogger("myproject"))
    logs.attach(logging.getLogger("stepscopes"))
    logging.getLogger("myproject").setLevel("INFO")
    logging.getLogger(logger).log(logging.getLevelName(level), "x")
    logs.stop()
    assert {line["category"] for line in lines()} == categories
    copies = [line for line in lines("errors") if "copy_of" in line]
    assert len(copies) == len(categories) - 1
    assert all(line["copy_of"] in categories - {"errors"} for line in copies)


def test_a_user_may_name_the_category(make: Make, lines: Lines) -> None:
    logs = make()
    logs.attach(MINE)
    MINE.warning("slow batch", extra={"category": "performance"})
    MINE.warning("odd", extra={"category": "gossip"})
    logs.stop()
    assert [line["message"] for line in lines("performance")] == ["slow batch"]
    assert [(line["message"], line["fields"]) for line in lines("training")] == [
        ("odd", {"category": "gossip"})
    ]


def test_there_are_four_categories_and_no_other(make: Make) -> None:
    with pytest.raises(
        ValueError, match="no category 'gossip'; there are training, performance, errors, system"
    ):
        make().logger("gossip")


def test_the_level_of_the_settings_holds(make: Make, lines: Lines) -> None:
    logs = make(level="warning")
    logs.logger("training").info("quiet")
    logs.logger("training").warning("loud")
    logs.stop()
    assert [line["message"] for line in lines()] == ["loud"]


def test_the_root_logger_is_left_alone_unless_asked_for(make: Make, lines: Lines) -> None:
    logs = make()
    logging.getLogger("other").warning("not ours")
    assert not [handler for handler in logging.getLogger().handlers if handler in logs._attached[0].handlers]
    logs.attach(logging.getLogger())
    logging.getLogger("other").warning("asked for")
    logs.logger("training").info("once")
    logs.detach(logging.getLogger())
    logging.getLogger("other").warning("no longer")
    logs.logger("training").info("again")
    logs.stop()
    assert [line["message"] for line in lines()] == ["asked for", "once", "again"]


def test_a_logger_below_an_attached_one_is_written_once(make: Make, lines: Lines) -> None:
    logs = make()
    logs.attach(MINE)
    logs.attach(logging.getLogger("myproject"))
    logs.attach(MINE)
    MINE.warning("once")
    logs.stop()
    assert len(lines()) == 1


def test_after_the_stop_loggers_are_as_they_were(make: Make) -> None:
    ours = logging.getLogger("stepscope")
    before = (ours.level, list(ours.handlers), list(MINE.handlers))
    logs = make(level="debug")
    logs.attach(MINE)
    assert ours.level == logging.DEBUG
    logs.stop()
    logs.stop()
    assert (ours.level, list(ours.handlers), list(MINE.handlers)) == before


def test_a_further_segment_has_its_own_files(make: Make, lines: Lines) -> None:
    logs = make()
    logs.attach(MINE)
    MINE.warning("first")
    logs.stop()
    logs.start(replace(ME, segment="another"))
    MINE.warning("second")
    logs.stop()
    assert [
        (line["segment"], line["message"]) for line in sorted(lines(), key=lambda line: line["time"])
    ] == [
        ("6918a2f9c0ffee", "first"),
        ("another", "second"),
    ]


def test_without_a_directory_nothing_is_touched(tmp_path: Path) -> None:
    logs = StructuredLogs(ME, Logging(), environment={})
    logs.attach(MINE)
    logs.start()
    logs.logger("training").warning("nowhere")
    assert not MINE.handlers
    assert logs.flush()
    logs.stop()
    assert list(tmp_path.iterdir()) == []


def test_a_trace_from_outside_is_on_every_line(make: Make, lines: Lines) -> None:
    trace, span = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
    logs = make(environment={"TRACEPARENT": f"00-{trace}-{span}-01"})
    logs.logger("training").info("x")
    logs.stop()
    [line] = lines()
    assert (line["trace_id"], line["parent_span_id"]) == (trace, span)
    assert line["span_id"] != span


def fail(depth: int, password: str) -> None:
    if depth:
        fail(depth - 1, password)
    raise ValueError(f"cannot log in with password={password}")


def test_an_exception_is_logged_with_its_frames_and_without_its_variables(make: Make, lines: Lines) -> None:
    logs = make()
    try:
        try:
            fail(2, "hunter2")
        except ValueError as error:
            raise RuntimeError("step failed") from error
    except RuntimeError:
        logs.logger("training").exception("trouble")
    logs.stop()
    [exception] = [line["exception"] for line in lines("training")]
    assert (exception["type"], exception["message"]) == ("RuntimeError", "step failed")
    assert (
        exception["frames"][-1]["function"]
        == "test_an_exception_is_logged_with_its_frames_and_without_its_variables"
    )
    cause = exception["cause"]
    assert (cause["type"], cause["message"]) == ("ValueError", "cannot log in with password=[redacted:name]")
    assert [frame["function"] for frame in cause["frames"][1:]] == ["fail"] * 3
    assert {type(frame["line"]) for frame in cause["frames"]} == {int}
    assert set(cause["frames"][0]) == {"file", "line", "function"}


def test_a_failure_of_training_is_written_but_not_shown_twice(
    make: Make, lines: Lines, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    logs = make(step=lambda: 12)
    try:
        fail(0, "hunter2")
    except ValueError as error:
        logs.failed(error)
    logs.stop()
    logs.failed(RuntimeError("after the end"))
    [line] = lines()
    assert (line["category"], line["message"], line["step"]) == ("errors", "Training failed.", 12)
    assert line["exception"]["frames"][-1]["function"] == "fail"
    assert not caplog.records
    assert capsys.readouterr() == ("", "")


def test_of_a_deep_traceback_both_ends_are_kept(make: Make, lines: Lines) -> None:
    logs = make()
    try:
        fail(500, "x")
    except ValueError:
        logs.logger("training").exception("deep")
    logs.stop()
    [exception] = [line["exception"] for line in lines("training")]
    assert len(exception["frames"]) == 64
    assert exception["frames_left_out"] == 502 - 64


class Mute:
    def __str__(self) -> str:
        raise OSError("no text")


class OnDevice:
    shape = (2, 3)
    device = "cuda:0"

    def item(self) -> float:
        raise AssertionError("this would wait for the device")

    tolist = __str__ = item


def test_any_value_may_be_logged(make: Make, lines: Lines, monkeypatch: pytest.MonkeyPatch) -> None:
    logs = make()
    monkeypatch.setattr(
        logging.getLogger("stepscope"), "propagate", False
    )  # pytest's own handler is not so lenient
    loop: dict[str, Any] = {}
    loop["self"] = loop
    odd = {
        "nan": float("nan"),
        "inf": -float("inf"),
        "huge": 10**5000,
        "mute": Mute(),
        "loop": loop,
        "many": list(range(100_000)),
        "device": OnDevice(),
        "bytes": b"\xff",
        "path": Path("a/b"),
        "surrogate": "\ud800",
        "error": KeyError("k"),
        "keys": {1: 2, None: 3},
    }
    logs.logger("training").info("%s %s", Mute(), "\ud800\x1b[31m\u2028\n", extra=odd)
    logs.logger("training").info("%d apples", "no number")
    logs.logger("training").info("x" * 10 * MAX_TEXT)
    logs.stop()
    first, second, third = lines("training")
    assert first["message"] == "%s %s [arguments left out: OSError]"
    fields = first["fields"]
    assert (fields["nan"], fields["inf"], fields["huge"]) == ("NaN", "-Infinity", "Infinity")
    assert fields["mute"] == "<Mute that cannot be shown: OSError>"
    assert fields["device"] == "<OnDevice of shape [2, 3] on cuda:0>"
    assert fields["many"][-1] == "[... 99800 more]"
    assert fields["error"]["type"] == "KeyError"
    assert fields["keys"] == {"1": 2, "None": 3}
    assert second["message"] == "%d apples [arguments left out: TypeError]"
    assert len(third["message"]) < 2 * MAX_TEXT


def test_arrays_of_the_host_are_read_if_they_are_small(make: Make, lines: Lines) -> None:
    import numpy as np

    logs = make()
    logs.logger("training").info(
        "x", extra={"one": np.float32(0.5), "few": np.arange(3), "many": np.zeros((9, 9))}
    )
    logs.stop()
    assert lines()[0]["fields"] == {"one": 0.5, "few": [0, 1, 2], "many": "<ndarray of shape [9, 9] on cpu>"}


def test_what_is_logged_later_is_not_what_was_logged(make: Make, lines: Lines) -> None:
    logs = make()
    config = {"lr": [0.1]}
    for number in range(50):
        logs.logger("training").info("%s", config, extra={"config": config})
        config["lr"][0] = float(number)
    logs.stop()
    assert lines()[0]["fields"] == {"config": {"lr": [0.1]}}
    assert lines()[0]["message"] == "{'lr': [0.1]}"


def test_no_byte_of_a_line_can_break_it_or_steer_a_terminal(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Tests that run side by side cannot hand each other the surrogate that pytest would capture.
    monkeypatch.setattr(logging.getLogger("stepscope"), "propagate", False)
    for jsonl in (True, False):
        logs = make(jsonl=jsonl)
        logs.logger("training").info("a\r\nb\x1b]0;t\x07\x9b31m\u2028\ud800 µ", extra={"x": "\x1b[2J"})
        logs.stop()
    for path in tmp_path.glob("logs/training/*"):
        written = path.read_bytes().decode("utf-8").replace("\n", "").replace("µ", "")
        assert written.isprintable()


def test_as_text_the_same_is_readable_for_people(make: Make, tmp_path: Path) -> None:
    logs = make(jsonl=False, step=lambda: 9)
    try:
        fail(1, "hunter2")
    except ValueError:
        logs.logger("training").exception("first\n2026-11-15 forged", extra={"lr": 0.1})
    logs.logger("training").info("second")
    logs.stop()
    [path] = tmp_path.glob("logs/training/*.log")
    first, *more, last = path.read_text().splitlines()
    assert f" ERROR training {ME.run_id}/6918a2f9c0ffee/3 step 9 stepscope.training: first" in first
    assert more[0] == "    2026-11-15 forged lr=0.1"
    assert more[1] == "    ValueError: cannot log in with password=[redacted:name]"
    assert all(line.startswith("    ") for line in more)
    assert last.endswith("stepscope.training: second")


def test_files_are_rotated_by_size_and_no_line_is_torn(make: Make, tmp_path: Path, lines: Lines) -> None:
    logs = make(rotation=Rotation(max_bytes=20_000, files=3))
    for number in range(400):
        logs.logger("training").info("line %d", number, extra={"filling": "x" * 100})
        if number % 20 == 0:
            logs.flush()
    logs.stop()
    paths = sorted(tmp_path.glob("logs/training/*.jsonl"), key=lambda path: path.stat().st_mtime_ns)
    assert len(paths) == 3
    assert {path.suffixes[0] for path in paths} == {".1", ".2", ".jsonl"}
    assert all(path.stat().st_size <= 20_000 for path in paths)
    kept = [
        int(line["message"].split()[1])
        for path in paths
        for line in map(json.loads, path.read_text().splitlines())
    ]
    assert kept == list(range(kept[0], 400))


def test_a_file_that_was_deleted_is_begun_again(make: Make, tmp_path: Path, lines: Lines) -> None:
    logs = make()
    logs.logger("training").info("first")
    logs.flush()
    for path in tmp_path.glob("logs/training/*"):
        path.unlink()
    logs.logger("training").info("second")
    logs.stop()
    assert [line["message"] for line in lines()] == ["second"]


@pytest.mark.slow
def test_lines_wait_while_the_folder_cannot_be_written(
    make: Make, tmp_path: Path, lines: Lines, capsys: pytest.CaptureFixture[str], until: Callable[..., None]
) -> None:
    (tmp_path / "logs").write_text("a file stands in the way")
    logs = make()
    logs.logger("training").info("first")
    assert not logs._handler.writer.flush(0.2)
    (tmp_path / "logs").unlink()
    logs.logger("training").info("second")
    assert logs.flush()
    assert [line["message"] for line in lines("training")] == ["first", "second"]
    assert ["cannot be written" in line["message"] for line in lines("system")] == [True]


@pytest.mark.slow
def test_a_full_disk_costs_lines_but_never_an_error_or_half_a_line(
    run_script: Any, tmp_path: Path, lines: Lines
) -> None:
    result = run_script(
        """
        import logging, resource, sys, time
        from stepscope.config.sections import Logging
        from stepscope.recorder.logs.logs import StructuredLogs
        from stepscope.schema.identity import Identity
        logs = StructuredLogs(Identity("a", "p", "s", 0, 1, "h"), Logging(directory=sys.argv[1], jsonl=True))
        logs.start()
        log = logs.logger("training")
        log.info("before")
        logs.flush()
        resource.setrlimit(resource.RLIMIT_FSIZE, (5_000, resource.RLIM_INFINITY))
        for number in range(30_000):
            log.info("number %d", number)
        assert not logs._handler.writer.flush(0.1)
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        assert logs.flush()
        log.info("after")
        logs.stop()
        print(logs.dropped)
        """,
        tmp_path / "logs",
    )
    assert result.returncode == 0, result.stderr
    assert "cannot be written" in result.stderr
    read = lines()
    counts = [line["fields"]["dropped"] for line in read if "were dropped" in line["message"]]
    numbers = [int(line["message"].split()[1]) for line in read if line["message"].startswith("number")]
    assert numbers == sorted(set(numbers))
    assert numbers[:10_000] == list(range(10_000))
    assert len(numbers) + sum(counts) in {
        30_000,
        30_001,
    }  # what is said about the disk may have been dropped too
    assert int(result.stdout) == sum(counts)
    messages = [line["message"] for line in read]
    assert {"before", "after"} <= set(messages)


PRELUDE = """
    import logging, os, sys
    from stepscope.config.sections import Logging
    from stepscope.recorder.logs.logs import StructuredLogs
    from stepscope.schema.identity import Identity
    logs = StructuredLogs(Identity("a", "p", "s", 0, 1, "h"), Logging(directory=sys.argv[1], jsonl=True))
    logs.start()
    log = logs.logger("training")
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ending", "code"),
    [
        ("pass", 0),
        ("sys.exit(3)", 3),
        ("raise ValueError('x')", 1),
        ("import atexit; atexit.register(log.info, 'last')", 0),
    ],
    ids=["end", "exit", "exception", "at exit"],
)
def test_everything_is_written_however_the_script_ends(
    run_script: Any, tmp_path: Path, lines: Lines, ending: str, code: int
) -> None:
    script = f"{PRELUDE}\n    for number in range(3000): log.info('line %d', number)\n    {ending}\n"
    result = run_script(script, tmp_path / "logs")
    assert result.returncode == code
    messages = [line["message"] for line in lines()]
    assert messages[:3000] == [f"line {number}" for number in range(3000)]


@pytest.mark.slow
def test_lines_that_cannot_be_written_at_the_end_are_reported_and_do_not_hang(
    run_script: Any, tmp_path: Path
) -> None:
    (tmp_path / "logs").write_text("a file stands in the way")
    result = run_script(f"{PRELUDE}\n    log.info('one')\n", tmp_path / "logs")
    assert result.returncode == 0
    assert "cannot be written" in result.stderr


def test_a_killed_process_has_written_what_it_logged_a_moment_before(
    start: Any, tmp_path: Path, lines: Lines, until: Callable[..., None]
) -> None:
    script = f"{PRELUDE}\n    log.info('one')\n    log.error('two')\n    import time; time.sleep(60)\n"
    process = start(script, tmp_path / "logs")
    until(lambda: len(lines("training")) == 2)
    process.kill()
    assert [line["message"] for line in lines("errors")] == ["two"]


def test_a_forked_child_writes_its_own_files_and_nothing_of_its_parents(
    run_script: Any, tmp_path: Path, lines: Lines
) -> None:
    result = run_script(
        f"""{PRELUDE}
    import multiprocessing, threading
    def child(number):
        log.info("from child %d", number)
    stop = threading.Event()
    def parent():
        count = 0
        while not stop.is_set():
            log.info("from parent %d", count)
            count += 1
            stop.wait(0.0002)
    thread = threading.Thread(target=parent)
    thread.start()
    context = multiprocessing.get_context("fork")
    for number in range(20):
        process = context.Process(target=child, args=(number,))
        process.start()
        process.join(20)
        assert process.exitcode == 0
    for number in range(20, 40):
        pid = os.fork()
        if pid == 0:
            log.info("from child %d", number)
            sys.exit(0) if number % 2 else (logs.flush(), os._exit(0))
        assert os.waitpid(pid, 0)[1] == 0
    stop.set()
    thread.join()
    print(os.getpid())
    """,
        tmp_path / "logs",
    )
    assert result.returncode == 0, result.stderr
    parent = int(result.stdout)
    theirs = [line for line in lines("training") if line["pid"] != parent]
    assert sorted(line["message"] for line in theirs) == sorted(
        f"from child {number}" for number in range(40)
    )
    mine = [line["message"] for line in lines("training") if line["pid"] == parent]
    assert mine == [f"from parent {number}" for number in range(len(mine))]
    assert len({line["span_id"] for line in lines()}) == 41
    assert len({line["trace_id"] for line in lines()}) == 1


def test_a_child_that_logs_nothing_leaves_nothing(run_script: Any, tmp_path: Path) -> None:
    code = "pid = os.fork()\n    if pid: os.waitpid(pid, 0)\n    else: sys.exit(0)\n    log.info('parent')"
    result = run_script(f"{PRELUDE}\n    {code}\n", tmp_path / "logs")
    assert result.returncode == 0, result.stderr
    assert len(list(tmp_path.glob("logs/*/*"))) == 1


def test_a_warning_still_reaches_a_console_that_has_no_other_handler(run_script: Any, tmp_path: Path) -> None:
    quiet = (
        "log.info('hush')\n    log.warning('seen')\n    logging.getLogger('stepscope').warning('seen too')"
    )
    result = run_script(f"{PRELUDE}\n    {quiet}\n", tmp_path / "logs")
    assert result.stderr.splitlines() == ["seen", "seen too"]
    shown = "logging.basicConfig(format='%(message)s')\n    log.warning('seen once')"
    assert run_script(f"{PRELUDE}\n    {shown}\n", tmp_path / "logs").stderr.splitlines() == ["seen once"]


@pytest.mark.slow
def test_many_threads_lose_nothing(make: Make, lines: Lines) -> None:
    logs = make()
    log = logs.logger("training")

    def work(which: int) -> None:
        for number in range(500):
            log.info("%d %d", which, number)

    threads = [threading.Thread(target=work, args=(which,)) for which in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    logs.stop()
    read = [tuple(map(int, line["message"].split())) for line in lines()]
    assert sorted(read) == [(which, number) for which in range(8) for number in range(500)]
    assert logs.dropped == 0


def test_names_and_homes_are_hidden_when_asked_for(make: Make, lines: Lines, tmp_path: Path) -> None:
    logs = make(privacy=Privacy(salt="pepper", names=("ada",), home="/srv/ada"))
    logs.logger("training").info(
        "ada runs /srv/ada/train.py on node1", extra={"data": ["/srv/ada/data", {"node1": 1}]}
    )
    logs.stop()
    [line] = lines()
    host, user = hash_name("node1", "pepper"), hash_name("ada", "pepper")
    assert line["message"] == f"{user} runs ~/train.py on {host}"
    assert line["fields"] == {"data": ["~/data", {host: 1}]}
    assert line["host"] == host
    everything = b"".join(path.name.encode() + path.read_bytes() for path in tmp_path.glob("logs/*/*"))
    assert b"node1" not in everything
    assert b"ada" not in everything


@pytest.mark.slow
def test_no_secret_reaches_a_file_by_any_way(make: Make, tmp_path: Path) -> None:
    corpus = secrets()
    for jsonl in (True, False):
        logs = make(jsonl=jsonl, level="debug")
        logs.attach(MINE)
        MINE.setLevel("DEBUG")
        for text, secret in corpus.values():
            MINE.debug(text)
            MINE.info("message %s", text, extra={"note": text, "deep": {"list": [text]}, "api_key": secret})
            MINE.warning("config", extra={"config": redact_mapping({"a": text, "password": secret})})
            MINE.info("config", extra={"config": {"a": text, "b": {"password": secret}}})
            MINE.info("environment", extra={"environment": {"SERVICE_TOKEN": secret, "NOTE": text}})
            MINE.info(
                "facts",
                extra=facts(1, Privacy(), ["train", "--password", secret, f"--api-key={secret}", text], {}),
            )
            MINE.info("stack", stack_info=True)
            error = ConnectionError(text)
            error.__cause__ = KeyError(text)
            MINE.error("failed for %s", text, exc_info=error)
        logs.stop()
    everything = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert everything.count(b"[redacted:") > 10 * len(corpus)
    leaked = [kind for kind, (_, secret) in corpus.items() if needle(secret) in everything]
    assert leaked == []


def needle(secret: str) -> bytes:
    """A piece of a secret that stands in a file as it is, whatever the file escapes."""
    return secret.partition("\n")[0].encode()[:30]


def test_a_secret_at_the_place_where_a_long_text_is_cut_is_not_cut(make: Make, tmp_path: Path) -> None:
    key = "s" + "k-" + "canary7" * 5
    for start in range(MAX_TEXT - 45, MAX_TEXT + 2, 5):
        logs = make()
        logs.logger("training").info(
            "%s %s", "x " * (start // 2), key, extra={"note": "y " * (start // 2) + key}
        )
        logs.stop()
    everything = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert b"canary" not in everything


def test_a_log_call_does_not_wait_for_a_disk_that_hangs(make: Make, tmp_path: Path) -> None:
    logs = make()
    log = logs.logger("training")
    folder = tmp_path / "logs" / "training"
    folder.mkdir(parents=True)
    # A pipe nobody reads is such a disk: opening it waits for ever.
    pipe = folder / f"{ME.run_id}-6918a2f9c0ffee-r3-node1-{os.getpid()}.jsonl"
    os.mkfifo(pipe)
    began = time.monotonic()
    for number in range(12_000):
        log.info("number %d", number)
    assert time.monotonic() - began < 60
    assert 0 < logs.dropped <= 2_000
    reader = subprocess.Popen(["cat", pipe], stdout=subprocess.PIPE)
    threading.Thread(target=logs.stop).start()
    read, _ = reader.communicate(timeout=120)
    assert read.count(b"\n") == 12_000 - logs.dropped


def test_the_lines_of_a_run_on_many_nodes_can_be_put_in_order_with_jq(make: Make, tmp_path: Path) -> None:
    for rank, host in enumerate(("node1", "node2")):
        logs = make(replace(ME, rank=rank, host=host))
        logs.logger("training").info("hello from %d", rank)
        logs.logger("training").error("trouble on %d", rank)
        logs.stop()
    other = make(replace(ME, name="other"))
    other.logger("training").info("another run")
    other.stop()
    command = (
        f"cat logs/*/{ME.run_id}-*.jsonl | jq -s -r 'map(select(.copy_of|not)) | sort_by(.time)[] | .message'"
    )
    try:
        out = subprocess.run(
            ["sh", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=True
        ).stdout
    except subprocess.CalledProcessError as error:
        pytest.skip(f"jq is not here: {error.stderr}")
    assert out.splitlines() == ["hello from 0", "trouble on 0", "hello from 1", "trouble on 1"]


def test_the_logging_module_is_not_imported_before_the_first_use() -> None:
    modules = "stepscope.recorder.identity.facts, stepscope.schema.redact"
    code = f"import sys, {modules}; print('logging' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "False\n"
