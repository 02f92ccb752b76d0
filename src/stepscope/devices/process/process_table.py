"""Knows which process is whose child, reading only about those that are new."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from stepscope.devices.host.kernel_files import PROC, listed, read_text
from stepscope.devices.pace import Pace
from stepscope.devices.process.processes import process_state

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

LOOK_ANYWAY_S = 10.0
"""Some systems do not tell that a process was started: then a child is found this late at most."""


class ProcessTable:
    """The processes of the host by their parents."""

    def __init__(self, proc: Path = PROC, now: Callable[[], float] = time.monotonic) -> None:
        self._proc = str(proc)
        self._parents: dict[int, int] = {}
        self._children: dict[int, list[int]] = {}
        self._newest: str | None = None
        self._pace = Pace(LOOK_ANYWAY_S, now)

    def refresh(self) -> None:
        """Takes notice of processes that came and went; costs next to nothing when none was started."""
        newest = (read_text(f"{self._proc}/loadavg") or "").rpartition(" ")[2].strip()
        is_due = self._pace.is_due()
        if newest == self._newest and newest not in ("", "0") and not is_due:
            return
        self._newest = newest
        present = {int(name) for name in listed(self._proc) if name.isdecimal()}
        # A process whose parent has ended belongs to another from then on.
        known = {
            pid: parent
            for pid, parent in self._parents.items()
            if pid in present and (parent in present or parent == 0)
        }
        for pid in present - known.keys():
            state = process_state(pid, self._proc)
            if state is not None:
                known[pid] = state.parent
        self._take(known)

    def forget(self, pid: int) -> None:
        """Drops what is known of a number that another process has now."""
        if self._parents.pop(pid, None) is not None:
            self._newest = None
            self._take(self._parents)

    def below(self, pid: int, is_left_out: Callable[[int], bool] = lambda _: False) -> list[int]:
        """All descendants of a process, each after its parent, without those left out and theirs."""
        found: list[int] = []
        waiting = [pid]
        while waiting:
            children = [child for child in self._children.get(waiting.pop(), ()) if not is_left_out(child)]
            found += children
            waiting += children
        return found

    def _take(self, parents: dict[int, int]) -> None:
        self._parents, self._children = parents, {}
        for pid, parent in sorted(parents.items()):
            self._children.setdefault(parent, []).append(pid)
