"""Decides from evidence whether a recording process is alive, stalled or dead, and why it died."""

from __future__ import annotations

import os
import select
import time
from datetime import datetime, timezone
from typing import TYPE_CHECKING, NamedTuple

from stepscope import procfs
from stepscope.descriptors import hold
from stepscope.devices.process.process_tree import ProcessTrees
from stepscope.devices.process.processes import ProcessFiles, input_output_counts
from stepscope.procfs import PROC
from stepscope.schema.sample import Watched

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from stepscope.agent.ingest.exit_notes import ExitNote
    from stepscope.descriptors import HeldDescriptor
    from stepscope.devices.process.process_tree import Tree
    from stepscope.devices.process.processes import ProcessKey
    from stepscope.schema.run import Process

MIN_PROBE_S = 5.0
"""Shorter intervals are not measured: processor time is counted in hundredths of a second."""

MIN_BUSY_SHARE = 0.03
"""The share of one core from which a process tree is busy; the monitor's own thread takes a thousandth."""


STALL_AVERAGE_GAPS = 3
"""A process is stalled after so many times its average pause between records."""

STALL_LONGEST_GAPS = 1.5
"""And not before so many times its longest pause so far, as for an evaluation; start-up does not count."""

BUSY_LIMITS = 10
"""Processor use alone counts as activity for so many stall limits: waiting for a lost rank may spin."""


class Activity(NamedTuple):
    """What a process tree did in an interval."""

    has_written: bool
    """Whether the training or its loader workers wrote something: log lines, a checkpoint, batches."""
    is_busy: bool
    """Whether its processes used the processor."""


class ActivityProbe:
    """Measures the activity of a training's processes between two calls, from what Linux counts for them."""

    def __init__(self, pid: int, proc: Path = PROC, now: Callable[[], float] = time.monotonic) -> None:
        self._watched = Watched("", "", 0, pid, "rank")
        self._proc, self._now = proc, now
        self._trees = ProcessTrees(proc, now, ProcessFiles(proc, max_open=0))
        self._read_at: float | None = None
        self._cpu_seconds: dict[ProcessKey, float] = {}
        self._bytes_written: dict[ProcessKey, float] = {}

    def reset(self) -> None:
        """Forgets the last measurement: activity from before now does not count."""
        self._read_at = None

    def since_last(self) -> Activity | None:
        """Activity since the last call; None at the first call, and after less than `MIN_PROBE_S`."""
        now = self._now()
        before = self._read_at
        if before is not None and now - before < MIN_PROBE_S:
            return None
        trees = self._trees.read([self._watched])
        if not trees:
            return None
        seconds, written = _cpu_seconds(trees[0]), self._read_bytes_written(trees[0])
        cpu_s = sum(value - self._cpu_seconds.get(key, 0.0) for key, value in seconds.items())
        has_written = any(value > self._bytes_written.get(key, 0.0) for key, value in written.items())
        self._cpu_seconds, self._bytes_written, self._read_at = seconds, written, now
        return (
            None
            if before is None
            else Activity(has_written, is_busy=cpu_s >= MIN_BUSY_SHARE * (now - before))
        )

    def _read_bytes_written(self, tree: Tree) -> dict[ProcessKey, float]:
        """Bytes written by the training and its loader workers, without other children such as a tracker."""
        keys = (tree.root.key, *tree.loaders)
        return {key: input_output_counts(key.pid, self._proc).get("write_bytes", 0.0) for key in keys}


def _cpu_seconds(tree: Tree) -> dict[ProcessKey, float]:
    return {member.key: member.user_seconds + member.system_seconds for member in tree.members}


class ProcessHandle:
    """Checks repeatedly whether a process is alive, through the kernel's handle (pidfd) of it.

    A check is one system call; reading `/proc` takes three and parsing. Without handles, `/proc` is read.
    """

    def __init__(self, mark: procfs.ProcessMark) -> None:
        self._mark = mark
        self._held: HeldDescriptor | None = None
        self._ended = select.poll()

    def is_alive(self) -> bool | None:
        """Whether exactly this process still runs; None where that cannot be determined from here."""
        if self._held is not None:
            if not self._ended.poll(0):
                return True
            self.close()
        alive = procfs.is_alive(self._mark)
        if alive:
            self._open()
            # Checked again: before the handle was open, another process could have got that number.
            alive = procfs.is_alive(self._mark)
        return alive

    def close(self) -> None:
        """Closes the handle."""
        if self._held is not None:
            self._ended.unregister(self._held.number)
            self._held.close()
            self._held = None

    def _open(self) -> None:
        try:
            self._held = hold(os.pidfd_open(self._mark.pid))
        except (AttributeError, OSError):  # another system, an older kernel, no descriptors left, or it ended
            return
        self._ended.register(self._held.number, select.POLLIN)


class ProcessLiveness:
    """The state of one recording process: whether it is alive, when it last recorded, whether it is active.

    A process that records nothing is stalled only if it shows no other activity either: an evaluation, a long
    checkpoint or a slow loader records nothing for a while.
    """

    def __init__(
        self,
        mark: procfs.ProcessMark,
        stall_after_s: float,
        now: Callable[[], float] = time.monotonic,
        is_alive: Callable[[procfs.ProcessMark], bool | None] | None = None,
        probe: ActivityProbe | None = None,
    ) -> None:
        self._mark = mark
        # An agent inside the training process would count its own activity as the training's.
        is_elsewhere = is_alive is None and mark.pid != os.getpid()
        self._probe = probe or (ActivityProbe(mark.pid, now=now) if is_elsewhere else None)
        self._active_at = float("-inf")
        self._handle = ProcessHandle(mark)
        self._stall_after_s = stall_after_s
        self._now = now
        self._is_alive = is_alive
        self._recorded_at = now()
        self._average_gap_s = self._longest_gap_s = 0.0
        self._oom_kills = procfs.out_of_memory_kills()

    def add_records(self, count: int) -> None:
        """Notes that records came; a stall is measured against their average distance."""
        now = self._now()
        silence_s = now - self._recorded_at
        gap = silence_s / max(count, 1)
        if self._average_gap_s:
            self._longest_gap_s = max(self._longest_gap_s, silence_s)
        self._average_gap_s = gap if self._average_gap_s == 0 else 0.9 * self._average_gap_s + 0.1 * gap
        self._recorded_at = now
        if self._probe is not None:
            self._probe.reset()

    def is_alive(self) -> bool | None:
        """Whether the process is alive; None where that cannot be determined. Silence proves nothing."""
        return self._handle.is_alive() if self._is_alive is None else self._is_alive(self._mark)

    def close(self) -> None:
        """Closes the handle of the process."""
        self._handle.close()

    def stalled_for(self) -> float | None:
        """Seconds since the last record if the process is stalled; None if it is not."""
        now = self._now()
        silence_s = now - self._recorded_at
        limit = max(
            self._stall_after_s,
            STALL_AVERAGE_GAPS * self._average_gap_s,
            STALL_LONGEST_GAPS * self._longest_gap_s,
        )
        if silence_s <= 0.5 * limit:
            return None
        self._check_activity(now, trusts_cpu=silence_s <= BUSY_LIMITS * limit)
        return silence_s if silence_s > limit and now - self._active_at > limit else None

    def _check_activity(self, now: float, *, trusts_cpu: bool) -> None:
        """Measures the processes themselves; only in a long silence, since that is expensive."""
        if self._probe is None or not self.is_alive():
            return
        activity = self._probe.since_last()
        if activity is not None and (activity.has_written or (activity.is_busy and trusts_cpu)):
            self._active_at = now

    def had_oom_kill(self) -> bool:
        """Whether the kernel killed processes because memory ran out while this one ran."""
        kills = procfs.out_of_memory_kills()
        return kills is not None and self._oom_kills is not None and kills > self._oom_kills


def stall_reason(process: Process) -> str:
    """Since when a process has recorded nothing: a time, which stays true however long the stall lasts."""
    since = datetime.fromtimestamp(max(process.last_ns, process.started_ns) // 10**9, timezone.utc)
    return f"no record since {since:%Y-%m-%d %H:%M:%S} UTC"


def cause_of_death(process: Process, note: ExitNote, *, had_oom_kill: bool) -> tuple[str, str]:
    """Status and reason of a process that ended without an end record, from what its fault handlers wrote."""
    if "Fatal Python error:" in note.text:
        fatal = note.text.partition("Fatal Python error:")[2].splitlines()[0].strip()
        return "crashed", f"{fatal} in process {process.pid}"
    if note.text:
        return "failed", f"terminated by {note.signal}"
    if had_oom_kill:
        return "crashed", f"process {process.pid} was killed while the machine ran out of memory"
    cause = "by SIGKILL, by native code, or because the machine went down"
    return "crashed", f"process {process.pid} was killed (no error message): {cause}"
