"""Keeps the last lines that a command prints: limited in size, readable, and without secrets."""

from __future__ import annotations

import re
import threading
from collections import deque

from stepscope.schema.failure import is_consequence
from stepscope.schema.redact import redact_text

MAX_LINES = 200
MAX_BYTES = 64 * 1024
MAX_LINE_BYTES = 4096

_CONTROL = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]?"  # colours and cursor movements
    r"|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?"  # titles and links
    r"|\x1b[ -/]*[0-~]?"
    r"|[\x00-\x08\x0b-\x1f\x7f-\x9f]"
)
_KEY_WITHOUT_BEGINNING = re.compile(r"\A(?:(?!-----BEGIN ).)*?-----END [A-Z ]*PRIVATE KEY-----", re.S)

_TRACEBACK = re.compile(r"^(?P<prefix>.*?)Traceback \(most recent call last\):$")
_SYNTAX_ERROR = re.compile(r'^(?P<prefix>.*?)  File "[^"]+", line \d+$')
_EXCEPTION = re.compile(r"^(?:\w+\.)*(?P<name>[^\W\d]\w*)(?:: *(?P<text>.*))?$")
_RANK = re.compile(r"\[(?:rank|default)(?P<rank>\d+)\]:")
MAX_EXCEPTION = 300


class ConsoleTail:
    """The last lines of a command's streams; lines of different streams are not mixed.

    A line is kept as a terminal shows it in the end: of a progress bar, only the newest state.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lines: deque[bytes] = deque(maxlen=MAX_LINES)
        self._unfinished: dict[str, bytes] = {}
        self._lines_seen = 0
        self.bytes_seen = 0

    def add(self, stream: str, data: bytes) -> None:
        """Adds the output of a stream."""
        with self._lock:
            self.bytes_seen += len(data)
            self._lines_seen += data.count(b"\n")
            # Only the last lines are kept: earlier ones are not processed.
            *finished, rest = (self._unfinished.get(stream, b"") + data).rsplit(b"\n", MAX_LINES)
            self._lines.extend(_last_state(line) for line in finished)
            self._unfinished[stream] = _last_state(rest) + (b"\r" if rest.endswith(b"\r") else b"")

    def text(self, max_bytes: int = MAX_BYTES) -> tuple[str, bool]:
        """The last lines, without control characters and secrets, and whether lines were left out."""
        with self._lock:
            unfinished = [line for line in self._unfinished.values() if line]
            lines = [*self._lines, *unfinished]
            left_out = self._lines_seen > len(self._lines)
        redacted = redact_text(_without_rest_of_key("\n".join(map(_readable, lines))))
        cut = _last_lines(redacted, max_bytes)
        return cut, left_out or len(cut) < len(redacted)


def _last_state(line: bytes) -> bytes:
    """A line after its carriage returns, limited to slightly more than the maximum length."""
    state = line.rpartition(b"\n")[2].rstrip(b"\r").rpartition(b"\r")[2]
    return state[: MAX_LINE_BYTES + 1]


def _readable(line: bytes) -> str:
    line = line.rstrip(b"\r")
    if len(line) > MAX_LINE_BYTES:
        # Cut at a space: half a secret would not be recognised as one.
        line = line[:MAX_LINE_BYTES].rpartition(b" ")[0] + b" [...]"
    return _CONTROL.sub("", line.decode(errors="replace"))


def _without_rest_of_key(text: str) -> str:
    """Removes the end of a private key whose beginning is no longer kept."""
    return _KEY_WITHOUT_BEGINNING.sub("[redacted:pem]", text)


def _last_lines(text: str, max_bytes: int) -> str:
    encoded = text.encode()
    if len(encoded) <= max_bytes:
        return text
    return encoded[-max_bytes:].partition(b"\n")[2].decode()


def last_exception(text: str) -> str | None:
    """The exception of the last traceback in a console; None if there is no traceback.

    If several ranks failed, a rank that only lost its connection is ignored if another one has an exception
    of its own. Launchers prefix every line of a rank; all lines of a traceback have the same prefix.
    """
    lines = text.splitlines()
    exceptions = [raised for first in range(len(lines)) if (raised := _exception_at(lines, first))]
    own = [raised for raised in exceptions if not is_consequence(raised[1])]
    return "".join((own or exceptions)[-1]) if exceptions else None


def _exception_at(lines: list[str], first: int) -> tuple[str, str] | None:
    """The rank, as text, and the exception of a traceback that begins at a line."""
    began = _TRACEBACK.match(lines[first]) or _SYNTAX_ERROR.match(lines[first])
    if began is None:
        return None
    prefix = began["prefix"].replace("+ Exception Group ", "| ")
    for line in lines[first + 1 :]:
        if not line.startswith(prefix):
            continue  # from another rank
        rest = line[len(prefix) :]
        if _TRACEBACK.match(rest):
            return None
        raised = _EXCEPTION.match(rest)
        if raised is not None:
            return _rank_of(prefix), _described(raised["name"], raised["text"] or "")
    return None


def _described(name: str, text: str) -> str:
    """An exception in the same text that a monitor records."""
    if name == "KeyboardInterrupt":
        return "interrupted by SIGINT"
    return f"{name}: {text.strip()[:MAX_EXCEPTION]}" if text.strip() else name


def _rank_of(prefix: str) -> str:
    labelled = _RANK.search(prefix)
    return "" if labelled is None else f"rank {labelled['rank']}: "
