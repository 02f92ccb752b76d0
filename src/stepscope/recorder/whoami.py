"""Works out which rank of which run this process is: torchrun, SLURM, MPI, plain Python."""

from __future__ import annotations

import hashlib
import itertools
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from stepscope import procfs
from stepscope.journal.folder import list_journals, opening_of
from stepscope.schema.identity import Identity

if TYPE_CHECKING:
    from collections.abc import Mapping

_RANK = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK")
_WORLD = ("WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")

SEGMENT_VARIABLE = "STEPSCOPE_SEGMENT"
"""Hands the segment of a run to the processes it starts, so that they join it."""

_starts = itertools.count()


def identify(
    name: str | None,
    project: str,
    environment: Mapping[str, str] = os.environ,
    parent: int | None = None,
    script: str | None = None,
) -> Identity:
    """The place of this process; a new segment unless its launcher began one for all its ranks.

    A run without a name is called after the script, this process's own if none is given.
    """
    launch = _launch(environment, os.getppid() if parent is None else parent)
    return Identity(
        name=name or _name_for(launch, script or _own_script()),
        project=project,
        segment=_segment(launch, environment),
        rank=_first_number(environment, _RANK, 0),
        world_size=_first_number(environment, _WORLD, 1),
        host=os.uname().nodename,
    )


def is_imported_by_worker() -> bool:
    """Whether a process of `multiprocessing` is importing the main module again, to find its functions."""
    process = sys.modules.get("multiprocessing.process")
    return process is not None and getattr(process.current_process(), "_inheriting", False)


def recording_of_parent(folder: Path) -> Identity | None:
    """What the process that started this one records into a folder now; None when it records nothing."""
    process = sys.modules.get("multiprocessing.process")
    parent = None if process is None else process.parent_process()
    pids = {os.getppid(), os.getppid() if parent is None else parent.pid}
    found = [(name, path) for name, path in list_journals(folder) if name.pid in pids]
    said = {name: words for name, path in found if (words := opening_of(path)) is not None}
    if not said:
        return None
    name, opening = max(said.items(), key=lambda one: one[1]["started_ns"])
    return Identity(opening["run"], opening["project"], name.segment, name.rank, 1, os.uname().nodename)


def _launch(environment: Mapping[str, str], parent: int) -> str | None:
    """What all ranks of one launch have in common and no other launch has; restarts left out."""
    elastic = environment.get("TORCHELASTIC_RUN_ID", "none")
    if elastic != "none":
        return f"torchelastic {elastic}"
    if "MASTER_ADDR" in environment and "RANK" in environment:
        # torchrun without a rendezvous id: its ranks on this host share it as a parent.
        address = f"{environment['MASTER_ADDR']}:{environment.get('MASTER_PORT')}"
        return f"torchrun {address} {parent} {procfs.start_ticks(parent)}"
    if _first_number(environment, ("SLURM_NTASKS",), 1) > 1 and "SLURM_JOB_ID" in environment:
        return f"slurm {environment['SLURM_JOB_ID']} {environment.get('SLURM_STEP_ID')}"
    if "OMPI_COMM_WORLD_RANK" in environment:
        return f"mpi {parent} {procfs.start_ticks(parent)}"
    return None


def _segment(launch: str | None, environment: Mapping[str, str]) -> str:
    start = next(_starts)
    handed_on = environment.get(SEGMENT_VARIABLE)
    if handed_on:
        return handed_on if start == 0 else f"{handed_on}n{start}"
    if launch is None:
        return f"{time.time_ns() // 10**9:08x}{os.urandom(3).hex()}"
    restarts = environment.get("TORCHELASTIC_RESTART_COUNT") or environment.get("SLURM_RESTART_COUNT", "0")
    return hashlib.sha256(f"{launch} {restarts} {start}".encode()).hexdigest()[:14]


def _own_script() -> str:
    return Path(sys.argv[0]).stem if sys.argv and sys.argv[0] not in ("", "-c", "-m") else "run"


def _name_for(launch: str | None, script: str) -> str:
    if launch is not None:
        return f"{script}-{hashlib.sha256(launch.encode()).hexdigest()[:6]}"
    return f"{script}-{time.strftime('%Y%m%d-%H%M%S')}-{os.urandom(2).hex()}"


def _first_number(environment: Mapping[str, str], names: tuple[str, ...], otherwise: int) -> int:
    for name in names:
        if environment.get(name, "").isdecimal():
            return int(environment[name])
    return otherwise
