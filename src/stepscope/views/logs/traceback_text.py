"""Finds the traceback of an exception in what a run printed or logged."""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

HEADING = "Traceback (most recent call last):"
CONTEXT = "During handling of the above exception, another exception occurred:"
CAUSE = "The above exception was the direct cause of the following exception:"
LOGGED_MESSAGE = "Training failed."
"""The message in the recorder's log files when training fails; the exception follows, indented."""

GROUP, GROUP_FRAME = "Exception Group ", " |+"
"""The prefix of the heading of an exception group, and the characters that frame its lines."""

_EXCEPTION_LINE = re.compile(r"[A-Za-z_][\w.]*(?:: |(?:Error|Exception|Exit|Interrupt|Iteration|Warning)$)")

MAX_TRACE_LINES = 200
MAX_MESSAGE_LINES = 20
"""Maximum number of message lines, after the first, that belong to a traceback."""


def traceback_in(texts: Sequence[str], exception: str | None = None) -> str | None:
    """Returns the last traceback in the lines, with its causes; of one exception if it is given."""
    blocks: list[list[str]] = []
    for index, text in enumerate(texts):
        if text.endswith(HEADING):
            blocks.append(_block(texts, index))
        elif text.endswith(f": {LOGGED_MESSAGE}"):
            blocks.append(_logged_block(texts, index))
    blocks = [block for block in blocks if block]
    if exception is not None:
        # A launcher prints its own traceback after that of the training.
        blocks = [block for block in blocks if any(_is_of(line, exception) for line in block)]
    return "\n".join(blocks[-1][-MAX_TRACE_LINES:]) if blocks else None


def raised_in(trace: str) -> str:
    """Returns the line of a traceback that names its exception."""
    lines = trace.split("\n")
    begin = max((index for index, line in enumerate(lines) if line.endswith(HEADING)), default=-1)
    named = _exception_line(lines[begin + 1 :])
    return "" if named is None else lines[begin + 1 + named].lstrip(GROUP_FRAME)


def _exception_line(lines: Sequence[str]) -> int | None:
    """Returns the index of the line that names an exception: not indented, preferably shaped like one.

    Other output of a failing program may be anywhere between the lines of its traceback.
    """
    flush = [index for index, line in enumerate(lines) if line[:1].strip()]
    named = [index for index in flush if _EXCEPTION_LINE.match(lines[index])]
    framed = [index for index, line in enumerate(lines) if _EXCEPTION_LINE.match(line.removeprefix("  | "))]
    return next(iter(named or flush or framed), None)


def _is_of(line: str, exception: str) -> bool:
    """Returns whether a line names the exception, with or without its module."""
    named = line.partition(":")[0].strip(GROUP_FRAME)
    return named.rpartition(".")[2] == exception.rpartition(".")[2]


def _block(texts: Sequence[str], index: int) -> list[str]:
    """Returns a traceback from its heading to the end of its message, without line prefixes."""
    prefix = texts[index].removesuffix(HEADING)
    if prefix.endswith(GROUP):
        return [texts[index], *itertools.takewhile(lambda text: text.startswith("  "), texts[index + 1 :])]
    lines = [text.removeprefix(prefix) for text in texts[index + 1 : index + 1 + MAX_TRACE_LINES]]
    body = _exception_line(lines)
    if body is None:
        return []
    end = body + 1
    while end < len(lines) and lines[end].strip() and end - body < MAX_MESSAGE_LINES:
        if HEADING in lines[end]:
            break
        end += 1
    return [*_raised_from(texts, index, prefix), HEADING, *lines[:end]]


def _raised_from(texts: Sequence[str], index: int, prefix: str) -> list[str]:
    """Returns the earlier tracebacks that this one names as its cause or context."""
    previous = index - 1
    while previous >= 0 and not texts[previous].removeprefix(prefix).strip():
        previous -= 1
    if previous < 0 or texts[previous].removeprefix(prefix) not in (CONTEXT, CAUSE):
        return []
    begin = next((index for index in range(previous, -1, -1) if texts[index] == f"{prefix}{HEADING}"), None)
    if begin is None:
        return []
    between = [text.removeprefix(prefix) for text in texts[begin:index]]
    return [*_raised_from(texts, begin, prefix), *between]


def _logged_block(texts: Sequence[str], index: int) -> list[str]:
    """Returns the exception that a log file has below the message that training failed."""
    lines = []
    for text in texts[index + 1 : index + 1 + MAX_TRACE_LINES]:
        if not text.startswith("    "):
            break
        lines.append(text[4:])
    return lines
