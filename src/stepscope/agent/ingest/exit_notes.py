"""Reads the exit note of a process, a file beside its journal: a stack, or an end record that did not fit."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stepscope.errors import JournalError
from stepscope.journal.folder import END_MARK, TRACE_BYTES, TRACED_SIGNALS, open_file
from stepscope.journal.layout import json_safe
from stepscope.journal.records import BadRecordError, check_end, is_int64

if TYPE_CHECKING:
    from pathlib import Path

MAX_NOTE_BYTES = 1 << 20


@dataclass(frozen=True)
class ExitNote:
    """What a process wrote when it ended."""

    text: str = ""
    """The stack of a fatal error or of a signal that ended the process; empty without one."""
    signal: str = ""
    """The name of that signal."""
    end: dict[str, Any] | None = None
    """The end record that did not fit into the journal, with `time` in ns since the epoch."""


def read_exit_note(path: Path) -> ExitNote:
    """Reads an exit note; returns an empty one where there is no such file, or it cannot be read."""
    try:
        descriptor = open_file(path)
    except (OSError, JournalError):
        return ExitNote()
    try:
        raw = os.pread(descriptor, MAX_NOTE_BYTES, 0)
    except OSError:
        return ExitNote()
    finally:
        os.close(descriptor)
    text = raw.decode(errors="replace").replace("\0", "")
    before, mark, after = text.partition(END_MARK)
    slot = (len(raw) - len(raw.lstrip(b"\0"))) // TRACE_BYTES
    name = TRACED_SIGNALS[min(slot, len(TRACED_SIGNALS) - 1)]
    return ExitNote(before.strip(), name, _end(after.partition("\n")[0]) if mark else None)


def _end(line: str) -> dict[str, Any] | None:
    try:
        fields = json_safe(json.loads(line))
        return check_end(fields) if isinstance(fields, dict) and is_int64(fields.get("time")) else None
    except (BadRecordError, ValueError, RecursionError):
        return None
