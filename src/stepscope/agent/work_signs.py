"""Tells whether a process and those that work for it do anything, by what Linux counts for them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

from stepscope.devices.host.kernel_files import PROC
from stepscope.devices.process.process_files import ProcessFiles
from stepscope.devices.process.process_tree import ProcessTrees
from stepscope.devices.process.processes import input_output_counts
from stepscope.schema.sample import Watched

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from stepscope.devices.process.process_tree import Tree
    from stepscope.devices.process.processes import ProcessKey

MIN_SECONDS = 5.0
"""Shorter stretches are not judged: processor time is counted in hundredths of a second."""

BUSY = 0.03
"""The share of one core from which a tree of processes works; the monitor's own thread takes a thousandth."""


class Work(NamedTuple):
    """What a tree of processes did in a stretch of time."""

    writes: bool
    """The training or its loader's workers wrote something: log lines, a checkpoint, batches."""
    is_busy: bool
    """Some of its processes used a processor."""


class WorkSigns:
    """Looks at the processes of a training again and again, and tells what they did in between."""

    def __init__(self, pid: int, proc: Path = PROC, now: Callable[[], float] = time.monotonic) -> None:
        self._watched = Watched("", "", 0, pid, "rank")
        self._proc, self._now = proc, now
        self._trees = ProcessTrees(proc, now, ProcessFiles(proc, max_open=0))
        self._looked_at: float | None = None
        self._seconds: dict[ProcessKey, float] = {}
        self._written: dict[ProcessKey, float] = {}

    def begin_anew(self) -> None:
        """Forgets the last look: what was done before now tells nothing."""
        self._looked_at = None

    def since_last(self) -> Work | None:
        """What was done since the last look; None at the first one, and where too little time has passed."""
        now = self._now()
        before = self._looked_at
        if before is not None and now - before < MIN_SECONDS:
            return None
        trees = self._trees.read([self._watched])
        if not trees:
            return None
        seconds, written = _used(trees[0]), self._bytes_written(trees[0])
        used = sum(value - self._seconds.get(key, 0.0) for key, value in seconds.items())
        writes = any(value > self._written.get(key, 0.0) for key, value in written.items())
        self._seconds, self._written, self._looked_at = seconds, written, now
        return None if before is None else Work(writes, is_busy=used >= BUSY * (now - before))

    def _bytes_written(self, tree: Tree) -> dict[ProcessKey, float]:
        """Of the training and its loader's workers: other children, such as a tracker, may write for ever."""
        keys = (tree.root.key, *tree.loaders)
        return {key: input_output_counts(key.pid, self._proc).get("write_bytes", 0.0) for key in keys}


def _used(tree: Tree) -> dict[ProcessKey, float]:
    return {one.key: one.user_seconds + one.system_seconds for one in tree.members}
