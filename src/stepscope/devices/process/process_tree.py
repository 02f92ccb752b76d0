"""Follows the trees of watched processes, names loader workers, and finds the owner of a process."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

from stepscope.devices.host.kernel_files import list_names, read_text
from stepscope.devices.interval import Interval
from stepscope.devices.process.processes import ProcessKey, ProcessState, command_line, process_state
from stepscope.procfs import PROC

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from stepscope.devices.process.processes import ProcessFiles
    from stepscope.schema.sample import Watched

SETTLED_AFTER_S = 5.0
"""How long a command is read again: a new child has its parent's command until it runs its own program."""

RESCAN_S = 10.0
"""How often processes are listed anyway: some systems do not report that a process was started."""

MAX_SLOTS = 64
"""Workers beyond this number have no name, so that the number of series stays bounded."""

TORCH_NAME = "pt_data_worker"
"""The name of the first thread of a PyTorch worker."""

_AGENT = "stepscope.agent.process.attend"
_SPAWNED = "multiprocessing.spawn"
_SERVER = "multiprocessing.forkserver"


class Tree(NamedTuple):
    """A watched process and all its descendants, at one time."""

    owner: Watched
    root: ProcessState
    members: Sequence[ProcessState]
    """The root and all its descendants."""
    loaders: dict[ProcessKey, str]
    """The names of the members that are data loader workers."""


class _CachedCommand(NamedTuple):
    since: float
    command: str


class ProcessTrees:
    """The trees of all watched processes; stepscope's own agent is never part of one."""

    def __init__(
        self,
        proc: Path = PROC,
        now: Callable[[], float] = time.monotonic,
        files: ProcessFiles | None = None,
    ) -> None:
        self._proc, self._now = str(proc), now
        self._files = files or proc
        self._table = ProcessTable(proc, now)
        self._roots: dict[Watched, ProcessKey] = {}
        self._slots: dict[Watched, LoaderSlots] = {}
        self._known: dict[ProcessKey, _CachedCommand] = {}
        self._keys: dict[int, ProcessKey] = {}
        """The process that had each number at the last reading."""
        self._states: dict[int, ProcessState] = {}

    def read(self, watched: Sequence[Watched]) -> list[Tree]:
        """The trees of the watched processes that are alive."""
        self._table.refresh()
        self._states = {}
        self._roots = {process: self._roots[process] for process in watched if process in self._roots}
        self._slots = {process: self._slots.get(process, LoaderSlots()) for process in watched}
        pids = {process.pid for process in watched}
        trees = [tree for process in watched if (tree := self._tree(process, pids)) is not None]
        alive = {state.key for state in self._states.values()}
        self._known = {key: known for key, known in self._known.items() if key in alive}
        self._keys = {key.pid: key for key in alive}
        return trees

    def _tree(self, owner: Watched, watched: set[int]) -> Tree | None:
        root = self._state(owner.pid)
        if root is None or self._roots.setdefault(owner, root.key) != root.key:
            return None  # it has ended; another process may have its number
        descendants = self._table.descendants(owner.pid, self._is_excluded)
        members = {pid: state for pid in (owner.pid, *descendants) if (state := self._state(pid)) is not None}
        loaders = self._slots[owner].names(self._loaders(owner.pid, members, watched))
        return Tree(owner, root, list(members.values()), loaders)

    def _loaders(self, root: int, members: dict[int, ProcessState], watched: set[int]) -> list[ProcessKey]:
        """The loader workers among the members, without those of another watched process in the same tree."""
        foreign = watched - {root}
        workers = []
        for pid, state in list(members.items())[1:]:
            parent = members.get(state.parent)
            if pid in foreign or state.parent in foreign:
                foreign = foreign | {pid}
            elif parent is not None and self._is_worker(state, parent, is_child=state.parent == root):
                workers.append(state.key)
        return workers

    def _is_worker(self, state: ProcessState, parent: ProcessState, *, is_child: bool) -> bool:
        # Any starting program looks like a fork for a moment; PyTorch's thread name is certain.
        if state.name != TORCH_NAME and self._keys.get(state.key.pid) != state.key:
            return False
        return is_loader(
            ProcessRelation(
                state.name, parent.name, self._command(state), self._command(parent), is_child=is_child
            )
        )

    def _is_excluded(self, pid: int) -> bool:
        state = self._state(pid)
        return state is None or is_agent(self._command(state))

    def _state(self, pid: int) -> ProcessState | None:
        """The state of a process, read once per reading."""
        if pid not in self._states:
            state = process_state(pid, self._files)
            if state is None:
                return None
            if self._keys.get(pid, state.key) != state.key:
                self._table.remove(pid)
            self._states[pid] = state
        return self._states[pid]

    def _command(self, state: ProcessState) -> str:
        known = self._known.get(state.key)
        if known is None or self._now() - known.since < SETTLED_AFTER_S:
            since = self._now() if known is None else known.since
            known = self._known[state.key] = _CachedCommand(since, command_line(state.key.pid, self._proc))
        return known.command


class ProcessRelation(NamedTuple):
    """The properties of a process and its parent that show whether it is a loader worker."""

    name: str
    parent_name: str
    command: str
    parent_command: str
    is_child: bool
    """Whether it is a direct child of the watched process."""


def is_agent(command: str) -> bool:
    """Whether a process is stepscope's agent, which a training may have started."""
    return _AGENT in command


def is_loader(relation: ProcessRelation) -> bool:
    """Whether a process is a data loader worker, or looks like one.

    PyTorch names its workers. Those of older versions and of other loaders are children of `multiprocessing`:
    forked, with the command of their parent; spawned, with a command that says so; or forked by a server.
    """
    if relation.parent_name == TORCH_NAME:  # a child of a worker, which initially has its name
        return False
    if relation.name == TORCH_NAME:
        return True
    if _SERVER in relation.command:
        return _SERVER in relation.parent_command
    return relation.is_child and (
        _SPAWNED in relation.command or (relation.command == relation.parent_command != "")
    )


class LoaderSlots:
    """Names the workers of one process; the name of an ended worker goes to the next one."""

    def __init__(self) -> None:
        self._taken: dict[ProcessKey, int] = {}

    def names(self, workers: Iterable[ProcessKey]) -> dict[ProcessKey, str]:
        """The names of the live workers; new ones are named in the order of their start."""
        living = sorted(workers, key=lambda key: (key.start_ticks, key.pid))
        self._taken = {key: self._taken[key] for key in living if key in self._taken}
        free = sorted(set(range(MAX_SLOTS)) - set(self._taken.values()), reverse=True)
        for key in living:
            if key not in self._taken and free:
                self._taken[key] = free.pop()
        return {key: f"loader-{slot}" for key, slot in self._taken.items()}


class ProcessTable:
    """The processes of the host by parent; reads only processes that are new."""

    def __init__(self, proc: Path = PROC, now: Callable[[], float] = time.monotonic) -> None:
        self._proc = str(proc)
        self._parents: dict[int, int] = {}
        self._children: dict[int, list[int]] = {}
        self._newest: str | None = None
        self._rescan_interval = Interval(RESCAN_S, now)

    def refresh(self) -> None:
        """Updates the list of processes; cheap when none was started."""
        newest = (read_text(f"{self._proc}/loadavg") or "").rpartition(" ")[2].strip()
        is_due = self._rescan_interval.is_due()
        if newest == self._newest and newest not in ("", "0") and not is_due:
            return
        self._newest = newest
        present = {int(name) for name in list_names(self._proc) if name.isdecimal()}
        # A process whose parent has ended has a new parent.
        known = {
            pid: parent
            for pid, parent in self._parents.items()
            if pid in present and (parent in present or parent == 0)
        }
        for pid in present - known.keys():
            state = process_state(pid, self._proc)
            if state is not None:
                known[pid] = state.parent
        self._set_parents(known)

    def remove(self, pid: int) -> None:
        """Removes a number that another process has now."""
        if self._parents.pop(pid, None) is not None:
            self._newest = None
            self._set_parents(self._parents)

    def descendants(self, pid: int, is_excluded: Callable[[int], bool] = lambda _: False) -> list[int]:
        """All descendants of a process, each after its parent; skips excluded ones and their descendants."""
        pids: list[int] = []
        pending = [pid]
        while pending:
            children = [child for child in self._children.get(pending.pop(), ()) if not is_excluded(child)]
            pids += children
            pending += children
        return pids

    def _set_parents(self, parents: dict[int, int]) -> None:
        self._parents, self._children = parents, {}
        for pid, parent in sorted(parents.items()):
            self._children.setdefault(parent, []).append(pid)


def parent_of(pid: int, proc: Path = PROC) -> int | None:
    """The parent of a process; None when the process is gone, or was started by the kernel."""
    text = read_text(f"{proc}/{pid}/stat")
    # The name of the process is in brackets and may contain anything, including brackets.
    parent = int(text.rpartition(")")[2].split()[1]) if text else 0
    return parent or None


def owners_of(
    pid: int, watched: Iterable[Watched], find_parent: Callable[[int], int | None] = parent_of
) -> list[Watched]:
    """The recording processes a process belongs to: its nearest recording ancestor of each run.

    Walking up from the few processes on a GPU costs less than listing the descendants of every rank.
    """
    roots: dict[int, list[Watched]] = {}
    for process in watched:
        roots.setdefault(process.pid, []).append(process)
    nearest: dict[str, Watched] = {}
    for ancestor in _ancestors(pid, find_parent):
        for process in roots.get(ancestor, ()):
            nearest.setdefault(process.run_id, process)
    return list(nearest.values())


def _ancestors(pid: int, find_parent: Callable[[int], int | None]) -> Iterator[int]:
    """A process and its ancestors; stops at a number that repeats, as after a number was reused."""
    visited: set[int] = set()
    current: int | None = pid
    while current is not None and current not in visited:
        visited.add(current)
        yield current
        current = find_parent(current)
