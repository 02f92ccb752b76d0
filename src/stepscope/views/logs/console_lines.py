"""The captured console output of a run, or its log files, line by line."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from stepscope.recorder.identity.notebook_kernel import is_notebook_command
from stepscope.views.json_values import as_list, clean
from stepscope.views.logs.log_files import ConsoleLine, log_lines
from stepscope.views.run_setup import first_process

if TYPE_CHECKING:
    from collections.abc import Iterable

    from stepscope.reading import Run
    from stepscope.schema.record import Event

MAX_LINES = 20_000
MAX_LINE = 4_000
OVERLAP = 3
"""This many equal lines in a row show where a capture continues the previous one."""

NOT_CAPTURED = (
    "The console was not captured. Start the training with stepscope run -- python train.py, or write log "
    "files by setting logging.directory."
)
PRINTED_NOTHING = "The command printed nothing."


@dataclass(frozen=True)
class HowTo:
    """An instruction with the command to type."""

    text: str
    code: str


@dataclass(frozen=True)
class Failure:
    """Why a run failed, as far as it is known."""

    reason: str
    """One line: the exception, the exit code, or what happened to the process."""
    exception: str | None
    """The exception's type; None if there was no exception."""
    message: str
    traceback: str | None
    hint: str | None
    """Why there is no traceback, and how to record it the next time; None if there is one."""


@dataclass(frozen=True)
class Console:
    """The last lines a run printed that were asked for, and how many there are in all."""

    lines: tuple[ConsoleLine, ...]
    total: int
    captured: bool
    why_not: str | None
    how: tuple[HowTo, ...]
    """How to record the output of the next run, if it was not captured."""
    file: str | None
    """The log file that was read; None for a captured console."""
    failure: Failure | None
    """Why the run failed; None if it did not."""


def console_of(run: Run, search: str = "", limit: int = 500, *, failure: Failure | None = None) -> Console:
    """Returns the newest lines that contain a text, oldest first; of the console, otherwise of log files.

    `failure` is shown with the lines; `failure_of` finds it.
    """
    lines = _captured(run)
    file = None
    if not lines:
        lines, file = log_lines(run)
    if not lines and was_launched(run):
        return Console((), 0, captured=True, why_not=PRINTED_NOTHING, how=(), file=None, failure=failure)
    if not lines:
        return Console(
            (), 0, captured=False, why_not=NOT_CAPTURED, how=_ways(run), file=None, failure=failure
        )
    search_text = search.casefold()
    matches = [
        (index, line) for index, line in enumerate(lines[-MAX_LINES:]) if search_text in line.text.casefold()
    ]
    shown = matches[-max(limit, 0) :] if limit else []
    steps = _steps_at(run, [line.time for _, line in shown])
    numbered = tuple(
        replace(line, number=index + 1, step=step if line.step is None else line.step)
        for (index, line), step in zip(shown, steps, strict=True)
    )
    return Console(numbered, len(matches), captured=True, why_not=None, how=(), file=file, failure=failure)


def was_launched(run: Run) -> bool:
    """Returns whether stepscope started the command, and so captured its output."""
    roles = {process.role for segment in run.segments for process in segment.processes}
    return "launcher" in roles or run.launcher_run is not None


def _ways(run: Run) -> tuple[HowTo, ...]:
    """Returns how to capture the output, with the run's own command if it is known."""
    process = first_process(run)
    words = [] if process is None else as_list(process.facts.get("command"))
    if is_notebook_command(words):
        monitor = 'TrainingMonitor({"logging": {"directory": "logs"}})'
        return (HowTo("Write log files, which contain the traceback of a failure:", monitor),)
    command = clean(shlex.join(map(str, words)), MAX_LINE) or "python train.py"
    return (
        HowTo("Capture the output of the training, with its traceback:", f"stepscope run -- {command}"),
        HowTo(
            "Or write log files, which contain the traceback of a failure:",
            f"STEPSCOPE_LOGGING__DIRECTORY=logs {command}",
        ),
    )


def _captured(run: Run) -> list[ConsoleLine]:
    """Returns the console output, joined from captures of its last lines."""
    events = run.own_events("console")
    if not events:
        launcher = run.launcher_run
        events = [] if launcher is None else launcher.own_events("console")
    lines: list[ConsoleLine] = []
    for segment in run.segments:
        lines += _joined(event for event in events if event.segment == segment.id)
    return lines


def _joined(events: Iterable[Event]) -> list[ConsoleLine]:
    lines: list[ConsoleLine] = []
    for event in events:
        texts = [clean(text, MAX_LINE) for text in str(event.fields.get("text", "")).split("\n")]
        if texts and not texts[-1]:
            texts.pop()
        known = _overlap([line.text for line in lines[-len(texts) - 1 :]], texts)
        fresh = texts if known is None else texts[known:]
        if known is None and lines:
            lines.append(_line("[…]", event))
        lines += [_line(text, event) for text in fresh]
    return lines


def _overlap(known: list[str], texts: list[str]) -> int | None:
    """Returns how many of the new lines are already known; None if they do not continue the known ones."""
    if not known:
        return None
    # The last known line may be a progress bar that has changed since.
    for dropped in range(min(2, len(known))):
        tail = known[-OVERLAP - dropped : len(known) - dropped]
        for end in range(len(texts), len(tail) - 1, -1):
            if tail and texts[end - len(tail) : end] == tail:
                return end
    return None


def _line(text: str, event: Event) -> ConsoleLine:
    return ConsoleLine(0, text, event.time, None, "console", "")


def _steps_at(run: Run, times: list[float | None]) -> list[int | None]:
    """Returns the step in progress at each time; None where no time is known, or no step was logged."""
    known = [time for time in times if time is not None]
    if not known or not run.step_clock.has_steps:
        return [None] * len(times)
    steps = iter(run.step_clock.steps_at((np.array(known) * 1e9).astype(np.int64)).tolist())
    return [None if time is None else next(steps) for time in times]
