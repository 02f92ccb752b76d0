"""Prints data safely: text without control characters, numbers, sparklines, strict JSON."""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import shutil
import sys
import time
from typing import TYPE_CHECKING, Any

from stepscope import number_format
from stepscope.alerts.delivery.sparkline import LEVELS
from stepscope.alerts.delivery.sparkline import sparkline as bars
from stepscope.cli.main import discard_output
from stepscope.errors import StepscopeError
from stepscope.views.json_values import bucket_levels

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from stepscope.schema.series import Buckets

UNLIMITED = 100_000
"""The width when the output is not a terminal: piped output is not shortened."""

_SEQUENCES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)")
_BREAKS = re.compile(r"[\t\n\v\f\r\x1c-\x1f\x85\u2028\u2029]+")
_UNSAFE = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")
_COLOURS = {
    "finished": 32, "ok": 32,
    "failed": 31, "crashed": 31, "problem": 31,
    "stalled": 33, "note": 33,
    "running": 36,
    "heading": 1, "faint": 2,
}  # fmt: skip
_PLAIN_LEVELS = "_.-~=+*#"


def safe(text: object) -> str:
    """One line without characters that control a terminal: control, escape and direction characters."""
    without_sequences = _SEQUENCES.sub("", str(text))
    return _UNSAFE.sub("", _BREAKS.sub(" ", without_sequences))


def emit(lines: Iterable[str]) -> None:
    """Prints lines that are already safe; characters the terminal cannot encode become question marks.

    Raises BrokenPipeError if the reader of the output has ended, and StepscopeError if it cannot be written.
    """
    if sys.stdout is None:  # closed by whoever started the command
        return
    encoding = sys.stdout.encoding or "utf-8"
    for line in lines:
        with _writing_output():
            print(line.encode(encoding, "replace").decode(encoding))
    with _writing_output():
        sys.stdout.flush()  # a closed pipe raises here, where the command can still handle it


@contextlib.contextmanager
def _writing_output() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        discard_output()
        raise StepscopeError(f"The output could not be written: {error.strerror}.") from error


def say(text: str) -> None:
    """Prints a message to standard error."""
    print(f"stepscope: {safe(text)}", file=sys.stderr)


def to_json(value: Any, indent: int | None = 2) -> str:
    """Strict JSON; numbers that are not finite are "NaN", "Infinity", "-Infinity". No indent: one line."""
    return json.dumps(_strict(value), indent=indent, allow_nan=False)


def _strict(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return nonfinite(value)
    if isinstance(value, dict):
        return {key: _strict(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_strict(part) for part in value]
    return value


def nonfinite(value: float) -> str:
    """The usual JSON name of a number that is not finite."""
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"


def screen_width() -> int:
    """The width of the output: COLUMNS, else the terminal's, else no limit."""
    return shutil.get_terminal_size((UNLIMITED, 24)).columns


def paint(text: str, style: str) -> str:
    """Colours text if the output is a terminal and NO_COLOR is not set."""
    is_coloured = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    if not is_coloured or os.environ.get("TERM") == "dumb" or style not in _COLOURS:
        return text
    return f"\x1b[{_COLOURS[style]}m{text}\x1b[0m"


def number(value: float | None) -> str:
    """A number for a table; a dash when there is none."""
    if value is None:
        return "-"
    return number_format.number(value, 5)


def moment(seconds: float | None) -> str:
    """Local date and time; a dash when unknown, or in a year that no calendar has."""
    if seconds is None:
        return "-"
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))
    except (OverflowError, OSError, ValueError):
        return "-"


def bucket_heights(buckets: Buckets) -> list[float | None]:
    """The mean of each bucket from the first to the last; None where nothing was logged."""
    if not len(buckets):
        return []
    places = (buckets.starts - buckets.starts[0]) // buckets.width
    heights: list[float | None] = [None] * (int(places[-1]) + 1)
    for place, mean in zip(places.tolist(), bucket_levels(buckets).tolist(), strict=True):
        heights[place] = mean
    return heights


def sparkline(heights: Sequence[float | None]) -> str:
    """A line of bars; None is a gap, NaN a cross. ASCII bars where the terminal has no block characters."""
    return bars(heights) if can_print(LEVELS) else bars(heights, _PLAIN_LEVELS, "x")


def can_print(text: str) -> bool:
    """Whether standard output can encode these characters."""
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        return False
    return True
