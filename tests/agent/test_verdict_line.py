"""The agent says in the terminal of a training how it is doing: after 100 steps, and at the end."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from stepscope.agent.verdict_line import VerdictLine
from stepscope.analysis.diagnose import Diagnosis
from stepscope.analysis.verdict import Checks
from stepscope.schema.finding import Finding
from stepscope.schema.run import Process
from stepscope.store.mark_store import Feedback
from stepscope.store.open import open_marks

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
        return Process("r1", "resnet", "demo", "a", 0, role="rank", started_ns=1, **named)

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


def diagnosis(*findings: Finding, checks: Checks = HEALTHY) -> Diagnosis:
    return Diagnosis(findings, (), checks)


WAITS_LINE = (
    "stepscope: resnet: 38% of each step is spent waiting for data. Try: num_workers=8. "
    "Details: stepscope diagnose resnet"
)


def test_the_verdict_is_written_once_after_100_steps_and_again_at_the_end(terminal, tmp_path: Path) -> None:
    line, process = VerdictLine(tmp_path), terminal.process()
    few = Checks(passed=12, is_timed=True, steady=60, examined=99)
    line.report(process, diagnosis(WAITS, checks=few), has_ended=False)
    assert terminal.shown() == ""
    line.report(process, diagnosis(WAITS), has_ended=False)
    assert terminal.shown() == f"\x1b[K{WAITS_LINE}"
    line.report(process, diagnosis(), has_ended=False)
    assert terminal.shown() == ""
    line.report(process, diagnosis(), has_ended=True)
    assert "Healthy: 12 checks passed" in terminal.shown()


def test_a_failure_comes_first(terminal, tmp_path: Path) -> None:
    failed = terminal.process(status="failed", reason="ValueError: shapes differ")
    VerdictLine(tmp_path).report(failed, diagnosis(WAITS), has_ended=True)
    assert terminal.shown().startswith(
        "\x1b[Kstepscope: resnet: The run failed: ValueError: shapes differ. Before that: 38% of each step"
    )


def test_a_finding_that_was_muted_is_not_the_verdict(terminal, tmp_path: Path) -> None:
    marks = open_marks(tmp_path)
    marks.give_feedback(Feedback("demo", WAITS.id, "wrong", "r0", WAITS.headline, "", 1.0))
    marks.close()
    VerdictLine(tmp_path).report(terminal.process(), diagnosis(WAITS), has_ended=True)
    assert "Healthy" in terminal.shown()


@pytest.mark.parametrize(
    "fields",
    [{"facts": {"shows_verdict": False}}, {"host": "elsewhere"}, {"pid": 2**22 + 1}],
    ids=["switched off", "on another machine", "already gone"],
)
def test_nothing_is_written_where_it_is_not_wanted_or_not_possible(terminal, tmp_path: Path, fields) -> None:
    VerdictLine(tmp_path).report(terminal.process(**fields), diagnosis(WAITS), has_ended=True)
    assert terminal.shown() == ""


def test_a_run_too_short_to_judge_is_not_mentioned(terminal, tmp_path: Path) -> None:
    short = Checks(passed=3, is_timed=True, steady=5, examined=10)
    VerdictLine(tmp_path).report(terminal.process(), diagnosis(checks=short), has_ended=True)
    assert terminal.shown() == ""


def test_a_pipe_or_a_file_gets_nothing(tmp_path: Path) -> None:
    pipe = Terminal(is_terminal=False)
    VerdictLine(tmp_path).report(pipe.process(), diagnosis(WAITS), has_ended=True)
    assert pipe.shown() == ""
    pipe.close()
