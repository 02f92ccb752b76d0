"""Measures how the training thread spends its time: running, waiting for a core, waiting for a disk."""

from __future__ import annotations

import os
import resource
import threading
from time import perf_counter_ns, thread_time_ns
from typing import TYPE_CHECKING

from stepscope.descriptors import hold, open_above_streams
from stepscope.procfs import PROC

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from stepscope.descriptors import HeldDescriptor


class ThreadTime:
    """Reads the CPU time of the calling thread since the last reading.

    Time in the run queue is a mean per step; context switches and page faults are running totals.
    """

    def __init__(
        self,
        proc: Path = PROC,
        now_ns: Callable[[], int] = perf_counter_ns,
        busy_ns: Callable[[], int] = thread_time_ns,
        usage: Callable[[], tuple[int, int]] | None = None,
    ) -> None:
        self._proc, self._now_ns, self._busy_ns = proc, now_ns, busy_ns
        self._usage = usage or _switches_and_faults
        self._thread = 0
        self._file: HeldDescriptor | None = None
        self._at_ns = self._was_busy_ns = 0
        self._was_queued_ns: int | None = None

    def read(self, steps: int) -> Mapping[str, float]:
        """How the time of these steps was spent; empty if they ran in another thread."""
        if threading.get_native_id() != self._thread:
            self._start_thread()
            return {}
        now, busy, queued = self._now_ns(), self._busy_ns(), self._queued_ns()
        switches, faults = self._usage()
        values = {
            "host/cpu_ratio": (busy - self._was_busy_ns) / (now - self._at_ns),
            "host/involuntary_switches_total": float(switches),
            "host/major_faults_total": float(faults),
        }
        if queued is not None and self._was_queued_ns is not None:
            values["host/queued_seconds"] = (queued - self._was_queued_ns) * 1e-9 / steps
        self._at_ns, self._was_busy_ns, self._was_queued_ns = now, busy, queued
        return values

    def close(self) -> None:
        """Closes the kernel's file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _start_thread(self) -> None:
        self.close()
        self._thread = threading.get_native_id()  # a new thread may have the `get_ident` of one that ended
        try:
            path = self._proc / f"self/task/{self._thread}/schedstat"
            self._file = hold(open_above_streams(path, os.O_RDONLY))
        except OSError:  # not every kernel has these statistics
            self._file = None
        self._at_ns, self._was_busy_ns = self._now_ns(), self._busy_ns()
        self._was_queued_ns = self._queued_ns()

    def _queued_ns(self) -> int | None:
        """Nanoseconds the thread was runnable but not running since it started; None if not available."""
        if self._file is None or not self._file.is_own():
            return None
        busy, queued, turns = os.pread(self._file.number, 96, 0).split()
        return int(queued) if turns != b"0" or busy != b"0" else None


def _switches_and_faults() -> tuple[int, int]:
    """Involuntary context switches and major page faults of this thread."""
    used = resource.getrusage(resource.RUSAGE_THREAD)
    return used.ru_nivcsw, used.ru_majflt
