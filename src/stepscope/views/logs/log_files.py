"""Reads the log files of a run from the folder it recorded; other files are never read."""

from __future__ import annotations

import json
import os
import re
import stat
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stepscope.recorder.logs.log_entry import CATEGORIES
from stepscope.views.json_values import as_list, as_mapping, clean
from stepscope.views.logs.traceback_text import CAUSE, CONTEXT, HEADING
from stepscope.views.run_setup import first_process

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stepscope.reading import Run


@dataclass(frozen=True)
class ConsoleLine:
    """One line that a run printed or logged."""

    number: int
    """Its position among all lines, from 1."""
    text: str
    time: float | None
    """When it was printed, or at the latest captured."""
    step: int | None
    stream: str
    """`console`, or the category of a log file."""
    level: str


LOG_DIRECTORY = "log_directory"
"""The fact with the folder of a run's log files."""

MAX_BYTES = 2 * 2**20
"""Only the end of a longer file is read."""

MAX_FILES = 32
MAX_CAUSES = 5
MAX_LINE = 4_000

_ENTRY = re.compile(r"(\S+Z) ([A-Z]+) (\S+) (.*)")
_STEP = re.compile(r"\S+Z [A-Z]+ \S+ \S+ step (\d{1,18}) ")


def log_lines(run: Run) -> tuple[list[ConsoleLine], str | None]:
    """Returns the lines of all log files of a run in order of time, and the path of one file."""
    process = first_process(run)
    folder = None if process is None else process.facts.get(LOG_DIRECTORY)
    if not isinstance(folder, str) or not Path(folder).is_absolute():
        return [], None
    files = _files(Path(folder), run.id)
    lines = _without_copies([line for category, path in files for line in _read(path, category)])
    # A line without its own time belongs to the previous one: a stable sort keeps them together.
    lines.sort(key=lambda line: line.time or 0.0)
    return lines, str(files[0][1]) if files else None


def _files(folder: Path, run_id: str) -> list[tuple[str, Path]]:
    """Returns the files named after the run, in the folders of the categories."""
    files: list[tuple[str, Path]] = []
    for category in CATEGORIES:
        try:
            names = sorted(entry.name for entry in os.scandir(folder / category))
        except OSError:
            continue
        run_files = [
            name for name in names if name.startswith(f"{run_id}-") and name.endswith((".log", ".jsonl"))
        ]
        files += [(category, folder / category / name) for name in run_files]
    return files[:MAX_FILES]


def _read(path: Path, category: str) -> list[ConsoleLine]:
    try:
        # Links are not followed: a store may come from an untrusted source.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return []
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        os.close(descriptor)
        return []
    with os.fdopen(descriptor, "rb") as file:
        file.seek(max(status.st_size - MAX_BYTES, 0))
        data = file.read(MAX_BYTES)
    if status.st_size > MAX_BYTES:
        data = data.partition(b"\n")[2]
    lines: list[ConsoleLine] = []
    for text in data.decode("utf-8", "replace").splitlines():
        lines += _entry(text, category, lines[-1].time if lines else None)
    return lines


def _without_copies(lines: list[ConsoleLine]) -> list[ConsoleLine]:
    """Removes errors that are in the file of all errors and also in another file."""
    elsewhere = {(line.time, _message(line)) for line in lines if line.stream != "errors"}
    return [line for line in lines if line.stream != "errors" or (line.time, _message(line)) not in elsewhere]


def _message(line: ConsoleLine) -> str:
    """Returns a line without the name of its category."""
    match = _ENTRY.match(line.text)
    return line.text if match is None else match[4]


def _entry(text: str, category: str, before: float | None) -> list[ConsoleLine]:
    """Returns a line of a file; a JSON object with an exception also gives its traceback."""
    if not text.startswith("{"):
        return [_line(text, category, before)]
    fields = _fields(text)
    step = fields.get("step")
    level = clean(fields.get("level", ""), 20).lower()
    time = _timestamp(str(fields.get("time", ""))) or before
    texts = [str(fields.get("message", text)), *trace_lines(as_mapping(fields.get("exception")))]
    known = step if isinstance(step, int) else None
    return [ConsoleLine(0, clean(line, MAX_LINE), time, known, category, level) for line in texts]


def trace_lines(exception: Mapping[str, Any], depth: int = MAX_CAUSES) -> list[str]:
    """Formats a logged exception as Python prints it; its cause comes first."""
    if not exception:
        return []
    lines: list[str] = []
    for name, sentence in (("cause", CAUSE), ("context", CONTEXT)):
        if depth and as_mapping(exception.get(name)):
            lines += [*trace_lines(as_mapping(exception[name]), depth - 1), "", sentence, ""]
    lines.append(HEADING)
    frames = (as_mapping(frame) for frame in as_list(exception.get("frames")))
    lines += [
        f'  File "{frame.get("file")}", line {frame.get("line")}, in {frame.get("function")}'
        for frame in frames
    ]
    message = str(exception.get("message", ""))
    lines += f"{exception.get('type')}{': ' if message else ''}{message}".splitlines()
    return [*lines, *(str(note) for note in as_list(exception.get("notes")))]


def _line(text: str, category: str, before: float | None) -> ConsoleLine:
    match = _ENTRY.match(text)
    if match is None:
        return ConsoleLine(0, clean(text, MAX_LINE), before, None, category, "")
    step_match = _STEP.match(text)
    step = int(step_match[1]) if step_match else None
    return ConsoleLine(
        0, clean(text, MAX_LINE), _timestamp(match[1]) or before, step, category, match[2].lower()
    )


def _fields(text: str) -> dict[str, Any]:
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return fields if isinstance(fields, dict) else {}


def _timestamp(text: str) -> float | None:
    try:
        return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()
    except (ValueError, OverflowError, OSError):
        return None
