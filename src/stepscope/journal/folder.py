"""The folder of journals: names, lists and opens journal files, by process."""

from __future__ import annotations

import json
import os
import re
import stat
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stepscope.errors import JournalError
from stepscope.filesystem import share
from stepscope.journal import layout

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MAX_NUMBER = 2**31
EXIT_NOTE_SUFFIX = ".words"
"""The suffix of a process's exit note: a file beside its journal with a stack, or an end that did not fit."""
END_MARK = "stepscope end "
"""The prefix of the end record in an exit note, which is a line of JSON."""
TRACED_SIGNALS = ("SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGALRM", "SIGXCPU")
"""Signals that end a process by default; each has a part of the exit note for its stack, before the end."""
TRACE_BYTES = 1 << 16
"""Size of such a part. The order of the signals above never changes: new ones are appended."""

ALL = -1
"""Instead of a number of bytes: the whole file."""

_NAME = re.compile(r"(?P<segment>[0-9a-z]+)-r(?P<rank>\d+)-(?P<pid>\d+)\.(?P<number>\d+)\Z")


@dataclass(frozen=True, order=True)
class JournalName:
    """The parts of `<run>/<segment>-r<rank>-<pid>.<number>`."""

    run_id: str
    segment: str
    rank: int
    pid: int
    number: int = 0

    @property
    def stem(self) -> tuple[str, str, int, int]:
        """The part that all files of one process share."""
        return self.run_id, self.segment, self.rank, self.pid

    def path(self, journals: Path) -> Path:
        """The path of the file."""
        return journals / self.run_id / f"{self.segment}-r{self.rank}-{self.pid}.{self.number}"

    def numbered(self, number: int) -> JournalName:
        """The name of another file of the same process."""
        return JournalName(self.run_id, self.segment, self.rank, self.pid, number)


def journals_of(store: Path) -> Path:
    """The folder of all journals of a store."""
    return store / "journal"


def make_run_folder(path: Path) -> None:
    """Creates the folder of a run's journals, and its parents, writable for all who may write the store.

    Where the path is a link to a deleted folder, creates that folder again.
    """
    journals, store = path.parent, path.parent.parent
    missing = [folder for folder in (journals, path) if not folder.exists()]
    try:
        path.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        Path(os.path.realpath(path)).mkdir(parents=True, exist_ok=True)
    for folder in missing:
        share(folder, store)


def parse(path: Path) -> JournalName | None:
    """Parses a file's name; None when it is not a journal."""
    match = _NAME.match(path.name)
    if match is None:
        return None
    rank, pid, number = (int(match[part]) for part in ("rank", "pid", "number"))
    if max(rank, pid, number) >= MAX_NUMBER:
        return None  # no process of ours has such numbers, and the database cannot store them
    return JournalName(path.parent.name, match["segment"], rank, pid, number)


def number_of(path: Path) -> int:
    """The number of a file within the journal of its process; -1 for a file of another kind."""
    name = parse(path)
    return -1 if name is None else name.number


@dataclass(frozen=True)
class Listing:
    """The contents of a store's journal folder."""

    journals: list[tuple[JournalName, Path]]
    """Journal files, those of each process in order."""
    exit_notes: list[JournalName]
    """Processes that have left an exit note."""


def _ignore(_folder: Path, _error: OSError) -> None: ...


def list_folder(
    store: Path,
    on_error: Callable[[Path, OSError], None] = _ignore,
    entries: Callable[..., list[str]] | None = None,
) -> Listing:
    """Lists the journal folder; a subfolder that cannot be listed is reported and left out.

    `entries`, if given, is called to list each folder.
    """
    journals, exit_notes = [], []
    list_entries = entries or entries_of
    for run in list_entries(str(journals_of(store)), on_error):
        for file in list_entries(run, on_error):
            if file.endswith(EXIT_NOTE_SUFFIX):
                name = parse(Path(file.removesuffix(EXIT_NOTE_SUFFIX) + ".0"))
                exit_notes += [name] if name is not None else []
                continue
            path = Path(file)
            name = parse(path)
            if name is not None:
                journals.append((name, path))
    return Listing(sorted(journals), exit_notes)


def list_journals(store: Path) -> Iterator[tuple[JournalName, Path]]:
    """All journal files of a store, those of each process in order."""
    yield from list_folder(store).journals


def opening_of(path: Path) -> dict[str, Any] | None:
    """The opening record of a journal file; None where it cannot be read."""
    try:
        with path.open("rb") as file:
            file.seek(layout.HEADER_BYTES)
            head = file.read(layout.HEAD.size)
            _, units, kind_and_set = layout.HEAD.unpack(head)
            body = file.read(units * 8 - layout.MIN_FRAME)
        return dict(json.loads(body)) if kind_and_set >> 28 == layout.OPEN else None
    except (OSError, ValueError, TypeError, struct.error):
        return None


def stored_so_far(path: Path) -> int:
    """How far the agent has stored a file, as it has marked there: 0 for no mark, else bytes or ALL."""
    head, _ = header_of(path)
    if head[layout.STORED_AT : layout.STORED_AT + 1] == b"\x01":
        return ALL
    return 8 * int.from_bytes(head[layout.STORED_SO_FAR], "little")


def header_of(path: Path) -> tuple[bytes, int]:
    """The header and the size of a file; empty and 0 when it is gone, or may not be read."""
    try:
        descriptor = open_file(path)
    except (OSError, JournalError):
        return b"", 0
    try:
        return os.pread(descriptor, layout.HEADER_BYTES, 0), os.fstat(descriptor).st_size
    except OSError:
        return b"", 0
    finally:
        os.close(descriptor)


def entries_of(folder: str | Path, on_error: Callable[[Path, OSError], None] = _ignore) -> list[str]:
    """The paths in a folder; called several times a second, and `Path.glob` would cost far more."""
    try:
        with os.scandir(folder) as entries:
            return [entry.path for entry in entries]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        on_error(Path(folder), error)
        return []


def files_of(store: Path, name: JournalName) -> list[Path]:
    """The files of one process that are not completely stored."""
    paths = [Path(entry) for entry in entries_of(journals_of(store) / name.run_id)]
    return [path for path in paths if (parsed := parse(path)) is not None and parsed.stem == name.stem]


def bytes_on_disk(store: Path, name: JournalName) -> int:
    """The size of one process's unread files."""
    total = 0
    for path in files_of(store, name):
        try:
            total += path.lstat().st_size
        except FileNotFoundError:  # the agent has stored and deleted it
            continue
    return total


def open_file(path: Path) -> int:
    """Opens a regular file for reading without blocking; raises JournalError for any other kind of file."""
    kind = path.lstat().st_mode
    if not stat.S_ISREG(kind):
        raise JournalError(f"{path} is {_KINDS.get(stat.S_IFMT(kind), 'not a file')}, expected a file")
    # It may have been replaced since: a pipe must not block, a link must not be followed.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise JournalError(f"{path} is not a file, expected a file")
    return descriptor


_KINDS = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFDIR: "a folder",
    stat.S_IFSOCK: "a socket",
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
