"""Follows the tree of processes that work for each watched one, and names its loader workers."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

from stepscope.devices.host.kernel_files import PROC
from stepscope.devices.process.loaders import TORCH_NAME, Kin, LoaderSlots, is_agent, is_loader
from stepscope.devices.process.process_table import ProcessTable
from stepscope.devices.process.processes import ProcessKey, ProcessState, command_line, process_state

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from stepscope.devices.process.process_files import ProcessFiles
    from stepscope.schema.sample import Watched

SETTLED_AFTER_S = 5.0
"""A child has the command of its parent at first, and its own when it has begun to run its program."""


class Tree(NamedTuple):
    """A watched process and all that work for it, at this moment."""

    owner: Watched
    root: ProcessState
    members: Sequence[ProcessState]
    """The root, its children, theirs, and so on."""
    loaders: dict[ProcessKey, str]
    """The names of those members that are workers of a data loader."""


class _Known(NamedTuple):
    since: float
    command: str


class ProcessTrees:
    """The trees of all watched processes; stepscope's own agent is never a part of one."""

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
        self._known: dict[ProcessKey, _Known] = {}
        self._keys: dict[int, ProcessKey] = {}
        """The process that had a number at the last look."""
        self._states: dict[int, ProcessState] = {}

    def read(self, watched: Sequence[Watched]) -> list[Tree]:
        """The trees of those that are alive."""
        self._table.refresh()
        self._states = {}
        self._roots = {one: self._roots[one] for one in watched if one in self._roots}
        self._slots = {one: self._slots.get(one, LoaderSlots()) for one in watched}
        pids = {one.pid for one in watched}
        trees = [tree for one in watched if (tree := self._tree(one, pids)) is not None]
        alive = {state.key for state in self._states.values()}
        self._known = {key: known for key, known in self._known.items() if key in alive}
        self._keys = {key.pid: key for key in alive}
        return trees

    def _tree(self, owner: Watched, watched: set[int]) -> Tree | None:
        root = self._state(owner.pid)
        if root is None or self._roots.setdefault(owner, root.key) != root.key:
            return None  # it has ended; another process may have its number by now
        below = self._table.below(owner.pid, self._is_left_out)
        members = {pid: state for pid in (owner.pid, *below) if (state := self._state(pid)) is not None}
        loaders = self._slots[owner].names(self._loaders(owner.pid, members, watched))
        return Tree(owner, root, list(members.values()), loaders)

    def _loaders(self, root: int, members: dict[int, ProcessState], watched: set[int]) -> list[ProcessKey]:
        """The workers among the members, without those of another watched process in the same tree."""
        foreign = watched - {root}
        found = []
        for pid, state in list(members.items())[1:]:
            parent = members.get(state.parent)
            if pid in foreign or state.parent in foreign:
                foreign = foreign | {pid}
            elif parent is not None and self._is_worker(state, parent, is_child=state.parent == root):
                found.append(state.key)
        return found

    def _is_worker(self, state: ProcessState, parent: ProcessState, *, is_child: bool) -> bool:
        # Any program that is being started looks like a fork for a moment; PyTorch's name is beyond doubt.
        if state.name != TORCH_NAME and self._keys.get(state.key.pid) != state.key:
            return False
        return is_loader(
            Kin(state.name, parent.name, self._command(state), self._command(parent), is_child=is_child)
        )

    def _is_left_out(self, pid: int) -> bool:
        state = self._state(pid)
        return state is None or is_agent(self._command(state))

    def _state(self, pid: int) -> ProcessState | None:
        """A process, read once at each look."""
        if pid not in self._states:
            state = process_state(pid, self._files)
            if state is None:
                return None
            if self._keys.get(pid, state.key) != state.key:
                self._table.forget(pid)
            self._states[pid] = state
        return self._states[pid]

    def _command(self, state: ProcessState) -> str:
        known = self._known.get(state.key)
        if known is None or self._now() - known.since < SETTLED_AFTER_S:
            since = self._now() if known is None else known.since
            known = self._known[state.key] = _Known(since, command_line(state.key.pid, self._proc))
        return known.command
