"""Detects which rank of which run this process is: torchrun, SLURM, MPI, plain Python."""

from __future__ import annotations

import hashlib
import itertools
import os
import sys
import time
from collections import ChainMap
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from stepscope import procfs
from stepscope.journal.folder import list_journals, opening_of
from stepscope.recorder.identity.notebook_kernel import is_kernel, notebook_name
from stepscope.schema.identity import Identity

if TYPE_CHECKING:
    from collections.abc import Mapping

_RANK = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK")
_WORLD = ("WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")

SEGMENT_VARIABLE = "STEPSCOPE_SEGMENT"
"""Passes the segment of a run to the processes it starts, so that they join it."""

RUN_ID_VARIABLE = "STEPSCOPE_RUN_ID"
"""Passes the id of a run to a launched command; a monitor in the command may name the run."""

LAUNCH_VARIABLE = "STEPSCOPE_LAUNCH"
"""Identifies a launch whose ranks a framework reports."""

_reported: dict[str, str] = {}
"""What a framework has reported by `report_rank`, in the form of environment variables."""

ENVIRONMENT: Mapping[str, str] = ChainMap(_reported, os.environ)
"""The environment variables, and what a framework has reported."""

MAX_RESTARTS = 100
MAX_STARTS = 4
"""Maximum number of monitors per process that are considered after a restart."""

_starts = itertools.count()


def identify(
    name: str | None,
    project: str,
    environment: Mapping[str, str] = ENVIRONMENT,
    parent: int | None = None,
    script: str | None = None,
    joined_id: str = "",
) -> Identity:
    """The identity of this process, in a new segment unless its launcher has started one for all ranks.

    A run without a name is named after the script; the default is this process's own script.
    """
    launch = _launch(environment, os.getppid() if parent is None else parent)
    return Identity(
        name=name or _name_for(launch, script or _own_script()),
        project=project,
        segment=_segment(launch, environment),
        rank=_first_number(environment, _RANK, 0),
        world_size=_first_number(environment, _WORLD, 1),
        host=os.uname().nodename,
        joined_id=joined_id,
    )


def report_rank(rank: int, world_size: int, launch: str) -> None:
    """Sets the rank of this process, for frameworks that start ranks without telling the environment.

    `launch` identifies the launch: it is the same text in all of its ranks, and in no other launch.
    """
    _reported.clear()
    if world_size > 1 and not any(name in os.environ for name in _RANK):
        _reported.update(RANK=str(rank), WORLD_SIZE=str(world_size))
        _reported[LAUNCH_VARIABLE] = launch


def started_at(identity: Identity, monotonic_ns: int | None) -> Identity:
    """The identity with its start time, given on the monotonic clock; now if that is None."""
    since_ns = 0 if monotonic_ns is None else time.monotonic_ns() - monotonic_ns
    return replace(identity, started_ns=time.time_ns() - since_ns)


def is_imported_by_worker() -> bool:
    """Whether a `multiprocessing` worker is importing the main module again, to find its functions."""
    process = sys.modules.get("multiprocessing.process")
    return process is not None and getattr(process.current_process(), "_inheriting", False)


def started_by() -> int | None:
    """The id of the process that started this one with `multiprocessing`; None if none did."""
    process = sys.modules.get("multiprocessing.process")
    parent = None if process is None else process.parent_process()
    return None if parent is None else parent.pid


def recording_of_parent(folder: Path) -> Identity | None:
    """The identity under which the parent process records into a folder; None if it records nothing."""
    pids = {os.getppid(), started_by() or os.getppid()}
    journals = [(name, path) for name, path in list_journals(folder) if name.pid in pids]
    openings = {name: opening for name, path in journals if (opening := opening_of(path)) is not None}
    if not openings:
        return None
    name, opening = max(openings.items(), key=lambda journal: journal[1]["started_ns"])
    host = os.uname().nodename
    return Identity(opening["run"], opening["project"], name.segment, name.rank, 1, host, name.run_id)


def _launch(environment: Mapping[str, str], parent: int) -> str | None:
    """An identifier shared by all ranks of one launch and by no other launch; restarts keep it."""
    if LAUNCH_VARIABLE in environment:
        return environment[LAUNCH_VARIABLE]
    elastic = environment.get("TORCHELASTIC_RUN_ID", "none")
    if elastic != "none":
        return f"torchelastic {elastic}"
    if "MASTER_ADDR" in environment and "RANK" in environment:
        # torchrun without a rendezvous id: the ranks on this host have the same parent process.
        address = f"{environment['MASTER_ADDR']}:{environment.get('MASTER_PORT')}"
        return f"torchrun {address} {parent} {procfs.start_ticks(parent)}"
    if _first_number(environment, ("SLURM_NTASKS",), 1) > 1 and "SLURM_JOB_ID" in environment:
        return f"slurm {environment['SLURM_JOB_ID']} {environment.get('SLURM_STEP_ID')}"
    if "OMPI_COMM_WORLD_RANK" in environment:
        return f"mpi {parent} {procfs.start_ticks(parent)}"
    return None


def was_restarted(environment: Mapping[str, str] = ENVIRONMENT) -> bool:
    """Whether a launcher or scheduler has restarted this process."""
    return _restarts(environment) > 0


def earlier_segments(environment: Mapping[str, str] = ENVIRONMENT, parent: int | None = None) -> set[str]:
    """The segments of this launch before it was restarted."""
    launch = _launch(environment, os.getppid() if parent is None else parent)
    if launch is None:
        return set()
    restarts = range(min(_restarts(environment), MAX_RESTARTS))
    return {_segment_of(launch, restart, start) for restart in restarts for start in range(MAX_STARTS)}


def meeting_place(environment: Mapping[str, str] = ENVIRONMENT) -> str | None:
    """An identifier shared by the hosts of one launch; None for a launch on one host."""
    world = _first_number(environment, _WORLD, 1)
    local = _first_number(environment, ("LOCAL_WORLD_SIZE",), world)
    if "MASTER_ADDR" not in environment or local >= world:
        return None
    return f"{environment['MASTER_ADDR']}:{environment.get('MASTER_PORT')} {world}"


def _restarts(environment: Mapping[str, str]) -> int:
    return _first_number(environment, ("TORCHELASTIC_RESTART_COUNT",), 0) or _first_number(
        environment, ("SLURM_RESTART_COUNT",), 0
    )


def _segment_of(launch: str, restart: int, start: int) -> str:
    return hashlib.sha256(f"{launch} {restart} {start}".encode()).hexdigest()[:14]


def _segment(launch: str | None, environment: Mapping[str, str]) -> str:
    start = next(_starts)
    handed_on = environment.get(SEGMENT_VARIABLE)
    if handed_on:
        return handed_on if start == 0 else f"{handed_on}n{start}"
    if launch is None:
        return f"{time.time_ns() // 10**9:08x}{os.urandom(3).hex()}"
    return _segment_of(launch, _restarts(environment), start)


def _own_script() -> str:
    # An embedded interpreter may have no arguments, and a script may change them.
    words = getattr(sys, "argv", None) or [""]
    script = words[0] if isinstance(words[0], str | os.PathLike) else ""
    if is_kernel([str(script)]) or (not script and is_kernel()):
        return notebook_name()
    return Path(script).stem if script not in ("", "-", "-c", "-m") else "run"


def _name_for(launch: str | None, script: str) -> str:
    if launch is not None:
        return f"{script}-{hashlib.sha256(launch.encode()).hexdigest()[:6]}"
    return f"{script}-{time.strftime('%Y%m%d-%H%M%S')}-{os.urandom(2).hex()}"


def _first_number(environment: Mapping[str, str], names: tuple[str, ...], otherwise: int) -> int:
    for name in names:
        if environment.get(name, "").isdecimal():
            return int(environment[name])
    return otherwise
