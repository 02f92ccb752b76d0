"""Reserves the name of a run in its store: a script that is started again gets a new run.

Each run has a file in the folder `runs` of the store, created by its first process, with a line for each
segment. A name that is taken becomes `name-2`, unless the process belongs to that run: it is another rank or
a child of the same launch, the launch was restarted, or the user resumes the run.
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
    ENVIRONMENT,
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
"""Suffix of the file with the name of a run that a launcher has started."""
MEETING_S = 600.0
"""All hosts of one launch start within this time."""


_begun: set[str] = set()
"""Segments for which this program has reserved a name."""


@dataclass(frozen=True)
class Reserved:
    """The identity of a process under a name that no other run has."""

    identity: Identity
    continues: bool
    """Whether it continues an earlier run."""


def reserve_for_monitor(
    folder: Path, identity: Identity, *, resume: bool, warn: Callable[[str], None]
) -> tuple[Identity, int]:
    """The identity of a monitor in a new run, or in the one it continues, and its first step."""
    try:
        reserved = reserve(folder, identity, resume=resume)
    except PermissionError:  # another user's store, in which this user may still record
        return identity, 0
    reserved_identity = reserved.identity
    if reserved.continues:
        from stepscope.agent.ingest.last_step import (
            last_step,  # lazy: it reads the store, and is rarely needed
        )

        last = last_step(folder, reserved_identity.run_id)
        return reserved_identity, 0 if last is None else last + 1
    if reserved_identity.name != identity.name and not reserved_identity.joined_id:
        warn(
            f"There is already a run {identity.name!r}; this one is {reserved_identity.name!r}. To continue "
            "the earlier one, pass resume=True."
        )
    return reserved_identity, 0


def reserve(
    folder: Path,
    identity: Identity,
    *,
    resume: bool,
    environment: Mapping[str, str] = ENVIRONMENT,
) -> Reserved:
    """Finds the run that a process belongs to, or a name for a new one; raises OSError if that fails."""
    runs = _folder_of_runs(folder)
    joined = None if resume else _joined(runs, identity, environment)
    if joined is not None:
        return Reserved(joined, continues=False)
    reserved = _reserve(runs, identity, resume=resume or was_restarted(environment), environment=environment)
    _begun.add(identity.segment)
    return reserved


def first_step_of_rank(folder: Path, identity: Identity) -> int:
    """The first step of a process that joins a launcher's run: after those of earlier processes of its rank.

    A command may train in several programs, one after another, and a run may be resumed.
    """
    runs = _folder_of_runs(folder)
    is_first = write_once(runs / f"{identity.run_id}.r{identity.rank}", b"")
    if is_first and len(_Run.at(runs / identity.run_id).lines) < 2:
        return 0
    from stepscope.agent.ingest.last_step import last_step  # lazy: it reads the store, and is rarely needed

    last = last_step(folder, identity.run_id)
    return 0 if last is None else last + 1


def claim_name(folder: Path, identity: Identity) -> None:
    """Fixes the name of a launcher's run: monitors in its command cannot rename it."""
    claim = {"asked": None, "name": identity.name}
    write_once(_folder_of_runs(folder) / f"{identity.run_id}{CLAIM}", json.dumps(claim).encode())


def _joined(runs: Path, identity: Identity, environment: Mapping[str, str]) -> Identity | None:
    """The identity of a named monitor in the run that a launcher has started for its process.

    The first such name becomes the name of the run; monitors with other names get runs of their own.
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
    this = _ThisProcess.of(identity, environment)
    taken: list[tuple[str, _Run]] = []
    while True:
        name = identity.name if not taken else f"{identity.name}-{len(taken) + 1}"
        path = runs / run_id(identity.project, name)
        if not (resume and taken) and write_once(path, this.line()):
            return Reserved(replace(identity, name=name), continues=False)
        if not path.exists():
            break
        run = _Run.at(path)
        if run.has(this):
            return Reserved(replace(identity, name=name), continues=run.is_older_than(this))
        taken.append((name, run))
    name, run = taken[-1]
    run.add(this)
    return Reserved(replace(identity, name=name), continues=True)


@dataclass(frozen=True)
class _ThisProcess:
    """What identifies this process and its launch."""

    segment: str
    earlier: frozenset[str]
    """Segments that the same launch had before it was restarted."""
    meeting: str
    """An identifier shared by all hosts of one launch; empty for a launch on one host."""
    host: str
    process: str
    """Identifies this process, and the program it becomes by `exec`."""
    parent: str
    """Identifies the process that started this one with `multiprocessing`; empty if none did."""
    launched: str
    """The id of the run that a launcher has started for this process; empty if none did."""

    @classmethod
    def of(cls, identity: Identity, environment: Mapping[str, str]) -> _ThisProcess:
        """Reads the identifiers of this process; names and addresses are kept as digests only."""
        address = meeting_place(environment)
        meeting = "" if address is None else hashlib.sha256(address.encode()).hexdigest()[:16]
        host = hashlib.sha256(identity.host.encode()).hexdigest()[:16]
        parent = started_by()
        is_first = identity.segment == environment.get(SEGMENT_VARIABLE)
        return cls(
            segment=identity.segment,
            earlier=frozenset(earlier_segments(environment)),
            meeting=meeting,
            host=host,
            process=_process_mark(os.getpid(), host),
            parent="" if parent is None else _process_mark(parent, host),
            launched=environment.get(RUN_ID_VARIABLE, "") if is_first else "",
        )

    def line(self) -> bytes:
        """The line for the run's file."""
        entry = {"segment": self.segment, "process": self.process, "host": self.host, "at": time.time()}
        return json.dumps({**entry, "meeting": self.meeting, "parent": self.parent}).encode() + b"\n"


@dataclass
class _Run:
    """The file of an existing run."""

    path: Path
    lines: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    def at(cls, path: Path) -> _Run:
        """Reads the file; one of another user, or a damaged one, has no lines."""
        lines = []
        with contextlib.suppress(OSError):
            for line in read_regular(path).splitlines():
                with contextlib.suppress(ValueError):
                    entry = json.loads(line)
                    lines += [entry] if isinstance(entry, dict) else []
        return cls(path, lines)

    def has(self, this: _ThisProcess) -> bool:
        """Whether a process belongs to the run; adds its segment if it is new."""
        segments = {line.get("segment") for line in self.lines}
        if this.segment in segments:
            return True
        if self.path.name == this.launched:
            # The launcher has lost its line: the folder was deleted since.
            self.add(this)
            return True
        if segments & this.earlier or self._meets(this) or self._became(this) or self._has_sibling(this):
            self.add(this)
            return True
        return False

    def is_older_than(self, this: _ThisProcess) -> bool:
        """Whether the run began before this process was launched, or before it called `exec`."""
        return bool({line.get("segment") for line in self.lines} & this.earlier) or self._became(this)

    def _became(self, this: _ThisProcess) -> bool:
        """Whether this process started the run as another program, before an `exec`."""
        return not _begun and this.process in {line.get("process") for line in self.lines}

    def add(self, this: _ThisProcess) -> None:
        """Adds a segment to the file."""
        with contextlib.suppress(OSError):
            descriptor = open_regular(self.path, os.O_WRONLY | os.O_APPEND)
            with os.fdopen(descriptor, "wb") as file:
                file.write(this.line())

    def _has_sibling(self, this: _ThisProcess) -> bool:
        """Whether another child of the same parent records into the run now, as ranks of `spawn` do."""
        siblings = [line for line in self.lines if this.parent and line.get("parent") == this.parent]
        return any(_is_alive(str(line.get("process"))) for line in siblings)

    def _meets(self, this: _ThisProcess) -> bool:
        """Whether another host of the same launch has just started the run."""
        if not this.meeting:
            return False
        same = [line for line in self.lines if line.get("meeting") == this.meeting]
        hosts = {line.get("host") for line in same}
        newest = max((line["at"] for line in same if isinstance(line.get("at"), float)), default=0.0)
        return this.host not in hosts and abs(time.time() - newest) < MEETING_S


def _process_mark(pid: int, host: str) -> str:
    return f"{pid} {procfs.start_ticks(pid)} {host}"


def _is_alive(process: str) -> bool:
    """Whether a process of this host is still running."""
    pid, _, rest = process.partition(" ")
    return pid.isdecimal() and f"{procfs.start_ticks(int(pid))}" == rest.partition(" ")[0]


def _folder_of_runs(folder: Path) -> Path:
    """The folder of the runs' files; creates them for runs that an earlier version has recorded."""
    runs = folder / FOLDER
    if not runs.is_dir():
        earlier_runs = _known_before(folder)
        runs.mkdir(parents=True, exist_ok=True)
        share(runs, folder)
        for run in earlier_runs:
            write_once(runs / run, b"")
    return runs


def _known_before(folder: Path) -> set[str]:
    run_ids = {name.run_id for name, _ in list_journals(folder)}
    if (folder / DATABASE).is_file():  # opening a pipe would block
        import sqlite3  # lazy: needed once, in a store of an earlier version

        with contextlib.suppress(sqlite3.Error):
            connection = sqlite3.connect(f"file:{folder / DATABASE}?mode=ro", uri=True)
            run_ids |= {str(row[0]) for row in connection.execute("SELECT id FROM run")}
            connection.close()
    return {run for run in run_ids if os.sep not in run}
