"""Why a run failed or was killed: exception, traceback, and how to record what is missing."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from stepscope.schema.run import FAILED
from stepscope.views.json_values import as_mapping, clean
from stepscope.views.logs.console_lines import Failure, console_of
from stepscope.views.logs.log_files import trace_lines
from stepscope.views.logs.traceback_text import raised_in, traceback_in

if TYPE_CHECKING:
    from stepscope.reading import Run


MAX_SEARCHED = 1_000
"""Maximum number of lines in which a traceback is searched."""

MAX_REASON = 4_000
NO_REASON = "No reason was recorded."
NO_TRACEBACK = "The captured output has no traceback."
HAVE_TRACEBACK = (
    "The traceback was not recorded. To record it next time, start the training with stepscope run, or "
    "write log files."
)
KILLED = (
    "A killed process leaves no traceback. To capture its last output, start the training with stepscope run."
)

_EXCEPTION = re.compile(r"([A-Za-z_][\w.]*): (.*)|([A-Za-z_][\w.]*(?:Error|Exception))", re.DOTALL)
"""A type and its message, or a type alone. Other reasons are sentences, such as `exit code 1`."""


_RANK = re.compile(r"rank (\d+): ")
"""The prefix of a reason that is of one of several ranks."""


def failure_of(run: Run) -> Failure | None:
    """Returns why a run failed, with the traceback from its output; None if it did not fail."""
    if run.status not in FAILED:
        return None
    reason = clean(run.reason, MAX_REASON) or NO_REASON
    texts = [line.text for line in console_of(run, limit=MAX_SEARCHED).lines]
    rank = _RANK.match(reason)
    exception, message = _split_exception(reason if rank is None else reason[rank.end() :])
    trace = traceback_in(texts, exception) if exception else None
    trace = trace or _recorded_traceback(run, None if rank is None else int(rank[1])) or traceback_in(texts)
    if exception is None and trace:
        # A launcher knows only the exit code; the last output of its command says why.
        exception, message = _split_exception(raised_in(trace))
    return Failure(
        reason=reason,
        exception=exception,
        message=message if exception else reason,
        traceback=trace,
        hint=None if trace else _hint(run, is_captured=bool(texts)),
    )


def _recorded_traceback(run: Run, rank: int | None) -> str | None:
    """Returns the traceback that a monitor recorded, without source lines: of a rank, or the last one."""
    events = [event for event in run.events("failure") if not event.by_user and rank in (None, event.rank)]
    return "\n".join(trace_lines(as_mapping(events[-1].fields))) if events else None


def _split_exception(line: str) -> tuple[str | None, str]:
    """Returns type and message of an exception; the type is None if a line is not an exception."""
    match = _EXCEPTION.fullmatch(line)
    return (match[1] or match[3], match[2] or "") if match else (None, line)


def _hint(run: Run, *, is_captured: bool) -> str:
    if is_captured:
        return NO_TRACEBACK
    return KILLED if run.status == "crashed" else HAVE_TRACEBACK
