"""Formats an entry as a line: one JSON object, or text for people; removes secrets."""

from __future__ import annotations

import json
import logging
import re
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, cast

from stepscope.recorder.logs.log_entry import MAX_TEXT, cut
from stepscope.schema.redact import redact_text, redact_value

if TYPE_CHECKING:
    from stepscope.recorder.logs.log_entry import LogEntry
    from stepscope.schema.correlation import Correlation
    from stepscope.schema.privacy import Privacy

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029]")


class JsonFormat(logging.Formatter):
    """One JSON object per line, ASCII only: messages cannot contain line breaks or terminal escapes."""

    suffix = ".jsonl"

    def __init__(
        self, category: str, correlation: Correlation, host: str, pid: int, privacy: Privacy
    ) -> None:
        super().__init__()
        place: dict[str, Any] = {
            "correlation_id": correlation.id,
            "run": correlation.run_id,
            "segment": correlation.segment,
            "rank": correlation.rank,
            "host": host,
            "pid": pid,
            "trace_id": correlation.trace_id,
            "span_id": correlation.span_id,
        }
        if correlation.parent is not None:
            place["parent_span_id"] = correlation.parent.span_id
        self._place = json.dumps(place)[1:-1]
        self._category, self._privacy = category, privacy

    def format(self, record: logging.LogRecord) -> str:
        """The line of an entry, including the line break."""
        entry = cast("LogEntry", record)
        head = {
            "time": time_of(entry.created),
            "level": entry.levelname.lower(),
            "category": self._category,
            "message": safe_text(entry.msg, self._privacy),
        }
        tail: dict[str, Any] = {"logger": entry.name}
        if entry.step is not None:
            tail["step"] = entry.step
        tail |= _rest(entry, self._privacy)
        if self._category != entry.category:
            tail["copy_of"] = entry.category
        return f"{json.dumps(head)[:-1]}, {self._place}, {json.dumps(tail)[1:]}\n"


class TextFormat(logging.Formatter):
    """A line for people; continuation lines are indented."""

    suffix = ".log"

    def __init__(self, category: str, correlation: Correlation, privacy: Privacy) -> None:
        super().__init__()
        self._category, self._id, self._privacy = category, correlation.id, privacy

    def format(self, record: logging.LogRecord) -> str:
        """The line of an entry, including the line break."""
        entry = cast("LogEntry", record)
        step = "" if entry.step is None else f" step {entry.step}"
        begin = f"{time_of(entry.created)} {entry.levelname} {self._category} {self._id}{step} {entry.name}:"
        rest = _rest(entry, self._privacy)
        message = safe_text(entry.msg, self._privacy)
        fields = rest.get("fields")
        if fields:
            message += " " + " ".join(f"{name}={json.dumps(value)}" for name, value in fields.items())
        parts = [
            f"{begin} {message}",
            *_trace_lines(rest.get("exception")),
            *rest.get("stack", "").splitlines(),
        ]
        lines = _CONTROL.sub(_escaped, "\n".join(parts)).rstrip("\n").replace("\n", "\n    ")
        return f"{lines}\n"


def time_of(created: float) -> str:
    """Seconds since the epoch as ISO 8601 in UTC, with microseconds."""
    try:
        moment = datetime.fromtimestamp(created, timezone.utc)
    except (OverflowError, ValueError, OSError):
        moment = datetime.now(timezone.utc)  # an invalid time: the current time is close enough
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def safe_text(text: str, privacy: Privacy) -> str:
    """Text without secrets and private data."""
    return cut(privacy.text(redact_text(text)), MAX_TEXT + 100)


def _rest(entry: LogEntry, privacy: Privacy) -> dict[str, Any]:
    """Fields, exception and stack without secrets and private data."""
    rest: dict[str, Any] = {}
    if entry.fields:
        rest["fields"] = privacy.nested(redact_value(entry.fields))
    if entry.exception is not None:
        rest["exception"] = privacy.nested(redact_value(entry.exception))
    if entry.stack_info:
        rest["stack"] = safe_text(entry.stack_info, privacy)
    return rest


def _trace_lines(exception: dict[str, Any] | None) -> list[str]:
    """The lines of an exception, with its causes after it."""
    lines: list[str] = []
    title = ""
    while exception is not None:
        lines.append(f"{title}{exception['type']}: {exception['message']}")
        lines += [
            f"  {frame['file']}:{frame['line']} in {frame['function']}" for frame in exception["frames"]
        ]
        lines += exception.get("notes", [])
        title = "caused by " if "cause" in exception else "while handling "
        exception = exception.get("cause", exception.get("context"))
    return lines


def _escaped(match: re.Match[str]) -> str:
    return f"\\x{ord(match[0]):02x}"
