"""The agent says in the terminal of a training how it is doing: after 100 steps, and at the end."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from stepscope.agent.verdict_line import VerdictLine
from stepscope.analysis.diagnose import Diagnosis
from stepscope.analysis.verdict import Checks
from stepscope.schema.finding import Finding
from stepscope.schema.run import Process
from stepscope.store.mark_store import Feedback
from stepscope.store.open import open_marks
from stepscope.views.overview.run_verdict import verdict_for
from stepscope.views.run_figures import figures_of
from tests.views.made import BEGUN_NS, Made, at

WAITS = Finding(
    "input.exposed_wait", "Steps wait for data", "38% of each step is spent waiting for data.", "",
    "warning", 0.9, 0.0, 1.0, share=0.38, tries=("num_workers=8",),
)  # fmt: skip
HEALTHY = Checks(passed=12, is_timed=True, steady=200, examined=220, pace="20.0 ms a step")


class Terminal:
    """A training process whose standard error is a terminal, or a pipe."""

    def __init__(self, *, is_terminal: bool = True) -> None:
        self._ours, theirs = pty.openpty() if is_terminal else os.pipe()
        code = "import sys; sys.stdin.read()"
        self.training = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stderr=theirs)
        os.close(theirs)
        os.set_blocking(self._ours, False)

    def process(self, **fields: object) -> Process:
        """The process as the agent knows it."""
        named = {"host": os.uname().nodename, "pid": self.training.pid, **fields}
        times = {"started_ns": BEGUN_NS, "last_ns": at(200), "ended_ns": at(200)}
        return Process("r1", "resnet", "demo", "a", 0, role="rank", **{**times, **named})

    def shown(self) -> str:
        """What has been written to it since the last call, without colours and line breaks."""
        try:
            text = os.read(self._ours, 10_000).decode()
        except BlockingIOError:
            return ""
        for code in ("\x1b[33m", "\x1b[0m", "\x1b[1;31m"):
            text = text.replace(code, "")
        return " ".join(text.replace("\r\n", " ").split())

    def close(self) -> None:
        """Ends the training."""
        self.training.communicate()
        os.close(self._ours)


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    opened = Terminal()
    yield opened
    opened.close()


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Made]:
    writer = Made(tmp_path)
    yield writer
    writer.close()


@pytest.fixture
def report(made: Made) -> Callable[..., None]:
    """Reports on a run of 200 steps of a second."""
    line = VerdictLine(made.folder, made.store)

    def reported(process: Process, *arguments: Diagnosis, logs: dict | None = None, **options: bool) -> None:
        with made.store.transaction():
            made.store.put_process(process)
        if not made.store.summaries(process.run_id):
            made.log({"step_seconds": 1.0, "loss": 1.0, **(logs or {})}, range(200), run="r1", segment="a")
        line.report(process, *arguments, **options)

    return reported


def diagnosis(*findings: Finding, checks: Checks = HEALTHY) -> Diagnosis:
    return Diagnosis(findings, (), checks)


WAITS_LINE = (
    "stepscope: resnet: 38% of each step is spent waiting for data. Try: num_workers=8. "
    "Details: stepscope diagnose resnet"
)


def test_the_verdict_is_written_once_after_100_steps_and_again_at_the_end(terminal, report) -> None:
    process = terminal.process()
    few = Checks(passed=12, is_timed=True, steady=60, examined=99)
    report(process, diagnosis(WAITS, checks=few), has_ended=False)
    assert terminal.shown() == ""
    report(process, diagnosis(WAITS), has_ended=False)
    assert terminal.shown() == f"\x1b[K{WAITS_LINE}"
    report(process, diagnosis(), has_ended=False)
    assert terminal.shown() == ""
    report(process, diagnosis(), has_ended=True)
    assert "Healthy: 12 checks passed" in terminal.shown()


def test_a_failure_comes_first(terminal, report) -> None:
    failed = terminal.process(status="failed", reason="ValueError: shapes differ")
    report(failed, diagnosis(WAITS), has_ended=True)
    assert terminal.shown().startswith(
        "\x1b[Kstepscope: resnet: The run failed: ValueError: shapes differ. Before that: 38% of each step"
    )


def test_a_finding_that_was_muted_is_not_the_verdict(terminal, report, tmp_path: Path) -> None:
    marks = open_marks(tmp_path)
    marks.give_feedback(Feedback("demo", WAITS.id, "wrong", "r0", WAITS.headline, "", 1.0))
    marks.close()
    report(terminal.process(), diagnosis(WAITS), has_ended=True)
    assert "Healthy" in terminal.shown()


def test_it_is_the_verdict_of_the_page_also_where_time_is_unexplained(terminal, report, made) -> None:
    logs = {"step_seconds": 0.5, "gap/eval_seconds": 0.4}
    report(terminal.process(status="finished"), diagnosis(), has_ended=True, logs=logs)
    run = made.runs().run("r1")
    verdict = verdict_for(run, (), figures_of(run), diagnosis())
    assert "of wall time is evaluation" in verdict.headline
    assert verdict.headline in terminal.shown()


def test_losses_that_are_not_finite_are_mentioned_without_a_finding(terminal, report) -> None:
    report(terminal.process(status="finished"), diagnosis(), has_ended=True, logs={"loss": float("nan")})
    assert "200 losses are not finite" in terminal.shown()


@pytest.mark.parametrize(
    "fields",
    [{"facts": {"shows_verdict": False}}, {"host": "elsewhere"}, {"pid": 2**22 + 1}],
    ids=["switched off", "on another machine", "already gone"],
)
def test_nothing_is_written_where_it_is_not_wanted_or_not_possible(terminal, report, fields) -> None:
    report(terminal.process(**fields), diagnosis(WAITS), has_ended=True)
    assert terminal.shown() == ""


def test_a_run_too_short_to_judge_is_not_mentioned(terminal, report) -> None:
    short = Checks(passed=3, is_timed=True, steady=5, examined=10)
    report(terminal.process(), diagnosis(checks=short), has_ended=True)
    assert terminal.shown() == ""


def test_a_pipe_or_a_file_gets_nothing(report) -> None:
    pipe = Terminal(is_terminal=False)
    report(pipe.process(), diagnosis(WAITS), has_ended=True)
    assert pipe.shown() == ""
    pipe.close()
