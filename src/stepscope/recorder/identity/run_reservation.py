"""Reserves the name of a run in its store: a script that is started again begins a run of its own.

A run has a file in the folder `runs` of the store, made by whichever of its processes comes first, with a
line for each segment. A name that is taken becomes `name-2`, unless the process belongs to that run: it is
another rank or a child of the same launch, the launch was restarted, or the user says that it is resumed.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from stepscope import procfs
from stepscope.filesystem import open_regular, read_regular, share, write_once
from stepscope.journal.folder import list_journals
from stepscope.recorder.identity.rank_detection import (
    RUN_ID_VARIABLE,
    SEGMENT_VARIABLE,
    earlier_segments,
    meeting_place,
    started_by,
    was_restarted,
)
from stepscope.schema.identity import run_id

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from stepscope.schema.identity import Identity

FOLDER = "runs"
DATABASE = "store.sqlite"
CLAIM = ".name"
"""Of the file that says what a run is called which a launcher has begun."""
MEETING_S = 600.0
"""Hosts of one launch begin within this time."""


_begun: set[str] = set()
"""Segments that this program has reserved a name for."""


@dataclass(frozen=True)
class Reserved:
    """The place of a process under a name that no other run has."""

    identity: Identity
    goes_on: bool
    """Whether it continues a run that had begun before."""


def reserved_for(
    folder: Path, identity: Identity, *, resume: bool, tell: Callable[[str], None]
) -> tuple[Identity, int]:
    """The place of a monitor in a run of its own, or in the one it goes on with, and its first step there."""
    try:
        found = reserve(folder, identity, resume=resume)
    except PermissionError:  # another user's store, into which this one may record all the same
        return identity, 0
    ours = found.identity
    if found.goes_on:
        from stepscope.agent.ingest.last_step import last_step  # lazy: it reads the store, and few resume

        last = last_step(folder, ours.run_id)
        return ours, 0 if last is None else last + 1
    if ours.name != identity.name and not ours.joined_id:
        tell(
            f"There is a run {identity.name!r} already; this one is {ours.name!r}. To go on with the earlier "
            "one, give resume=True."
        )
    return ours, 0


def reserve(
    folder: Path,
    identity: Identity,
    *,
    resume: bool,
    environment: Mapping[str, str] = os.environ,
) -> Reserved:
    """Finds the run that a process belongs to, or a name for a new one; raises OSError where it cannot."""
    runs = _folder_of_runs(folder)
    joined = None if resume else _joined(runs, identity, environment)
    if joined is not None:
        return Reserved(joined, goes_on=False)
    found = _reserve(runs, identity, resume=resume or was_restarted(environment), environment=environment)
    _begun.add(identity.segment)
    return found


def name_for_all(folder: Path, identity: Identity) -> None:
    """Notes that a launcher was told the name of its run: monitors in its command have no other."""
    claim = {"asked": None, "name": identity.name}
    write_once(_folder_of_runs(folder) / f"{identity.run_id}{CLAIM}", json.dumps(claim).encode())


def _joined(runs: Path, identity: Identity, environment: Mapping[str, str]) -> Identity | None:
    """The place of a monitor with a name of its own in a run that a launcher has begun for its process.

    The first such name is that of the run; monitors that are called otherwise have runs of their own.
    """
    launched = environment.get(RUN_ID_VARIABLE, "")
    is_first = identity.segment == environment.get(SEGMENT_VARIABLE)
    if not (launched and is_first) or not (runs / launched).exists() or launched == identity.run_id:
        return None
    path = runs / f"{launched}{CLAIM}"
    if not path.exists():
        name = _reserve(runs, identity, resume=False, environment=environment).identity.name
        write_once(path, json.dumps({"asked": identity.name, "name": name}).encode())
    claim = json.loads(read_regular(path))
    if claim["asked"] is not None and identity.name not in claim.values():
        return None
    return replace(identity, name=claim["name"], joined_id=launched)


def _reserve(runs: Path, identity: Identity, *, resume: bool, environment: Mapping[str, str]) -> Reserved:
    us = _Us.of(identity, environment)
    taken: list[tuple[str, _Run]] = []
    while True:
        name = identity.name if not taken else f"{identity.name}-{len(taken) + 1}"
        path = runs / run_id(identity.project, name)
        if not (resume and taken) and write_once(path, us.line()):
            return Reserved(replace(identity, name=name), goes_on=False)
        if not path.exists():
            break
        found = _Run.at(path)
        if found.has(us):
            return Reserved(replace(identity, name=name), goes_on=found.is_older_than(us))
        taken.append((name, found))
    name, found = taken[-1]
    found.add(us)
    return Reserved(replace(identity, name=name), goes_on=True)


@dataclass(frozen=True)
class _Us:
    segment: str
    earlier: frozenset[str]
    """Segments that the same launch had before it was restarted."""
    meeting: str
    """What hosts of one launch have in common; empty where it has one host."""
    host: str
    process: str
    """This process and none after it, but for the program that it becomes by `exec`."""
    parent: str
    """The process of `multiprocessing` that has started this one; empty where none has."""

    @classmethod
    def of(cls, identity: Identity, environment: Mapping[str, str]) -> _Us:
        """What tells this process and its launch from others; names and addresses only as digests."""
        place = meeting_place(environment)
        meeting = "" if place is None else hashlib.sha256(place.encode()).hexdigest()[:16]
        host = hashlib.sha256(identity.host.encode()).hexdigest()[:16]
        parent = started_by()
        return cls(
            segment=identity.segment,
            earlier=frozenset(earlier_segments(environment)),
            meeting=meeting,
            host=host,
            process=_place(os.getpid(), host),
            parent="" if parent is None else _place(parent, host),
        )

    def line(self) -> bytes:
        """What is kept of it."""
        said = {"segment": self.segment, "process": self.process, "host": self.host, "at": time.time()}
        return json.dumps({**said, "meeting": self.meeting, "parent": self.parent}).encode() + b"\n"


@dataclass
class _Run:
    """The file of a run that has begun."""

    path: Path
    lines: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    def at(cls, path: Path) -> _Run:
        """Reads it; one of another user, or damaged, says nothing of its segments."""
        lines = []
        with contextlib.suppress(OSError):
            for line in read_regular(path).splitlines():
                with contextlib.suppress(ValueError):
                    said = json.loads(line)
                    lines += [said] if isinstance(said, dict) else []
        return cls(path, lines)

    def has(self, us: _Us) -> bool:
        """Whether a process belongs to it; notes its segment if that is new."""
        segments = {line.get("segment") for line in self.lines}
        if us.segment in segments:
            return True
        if segments & us.earlier or self._meets(us) or self._became(us) or self._has_sibling(us):
            self.add(us)
            return True
        return False

    def is_older_than(self, us: _Us) -> bool:
        """Whether it had begun before this process was launched, or became another program."""
        return bool({line.get("segment") for line in self.lines} & us.earlier) or self._became(us)

    def _became(self, us: _Us) -> bool:
        """Whether this process has begun it as another program, before an `exec`."""
        return not _begun and us.process in {line.get("process") for line in self.lines}

    def add(self, us: _Us) -> None:
        """Notes a further segment."""
        with contextlib.suppress(OSError):
            descriptor = open_regular(self.path, os.O_WRONLY | os.O_APPEND)
            with os.fdopen(descriptor, "wb") as file:
                file.write(us.line())

    def _has_sibling(self, us: _Us) -> bool:
        """Whether a process that the same one has started records into it now, as ranks of `spawn` do."""
        siblings = [line for line in self.lines if us.parent and line.get("parent") == us.parent]
        return any(_is_alive(str(line.get("process"))) for line in siblings)

    def _meets(self, us: _Us) -> bool:
        """Whether another host of the same launch has begun it just now."""
        if not us.meeting:
            return False
        same = [line for line in self.lines if line.get("meeting") == us.meeting]
        hosts = {line.get("host") for line in same}
        newest = max((line["at"] for line in same if isinstance(line.get("at"), float)), default=0.0)
        return us.host not in hosts and abs(time.time() - newest) < MEETING_S


def _place(pid: int, host: str) -> str:
    return f"{pid} {procfs.start_ticks(pid)} {host}"


def _is_alive(process: str) -> bool:
    """Whether a process of this host goes on."""
    pid, _, rest = process.partition(" ")
    return pid.isdecimal() and f"{procfs.start_ticks(int(pid))}" == rest.partition(" ")[0]


def _folder_of_runs(folder: Path) -> Path:
    """The folder of their files; of runs that an earlier version has recorded, they are made."""
    runs = folder / FOLDER
    if not runs.is_dir():
        known = _known_before(folder)
        runs.mkdir(parents=True, exist_ok=True)
        share(runs, folder)
        for one in known:
            write_once(runs / one, b"")
    return runs


def _known_before(folder: Path) -> set[str]:
    found = {name.run_id for name, _ in list_journals(folder)}
    if (folder / DATABASE).is_file():  # to open a pipe would wait for ever
        import sqlite3  # lazy: needed once, in a store of an earlier version

        with contextlib.suppress(sqlite3.Error):
            connection = sqlite3.connect(f"file:{folder / DATABASE}?mode=ro", uri=True)
            found |= {str(row[0]) for row in connection.execute("SELECT id FROM run")}
            connection.close()
    return {one for one in found if os.sep not in one}
