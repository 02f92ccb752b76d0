"""Maintains the journal in a thread: prepares files, writes late numbers, recovers from disk errors."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from stepscope.guard import Guard
    from stepscope.journal.writer import JournalWriter

PERIOD_S = 0.5
AGENT_PERIOD_S = 5.0


class MaintenanceThread:
    """A thread that wakes twice a second to prepare files, follow the folder and restart the agent."""

    def __init__(
        self,
        writer: JournalWriter,
        check_folder: Callable[[], None],
        drain: Callable[[], None],
        ensure_agent: Callable[[], None],
        guard: Guard,
    ) -> None:
        self._writer, self._guard = writer, guard
        self.sample: Callable[[], float] = lambda: PERIOD_S
        """Called after as many seconds as it returned last, at most half a second."""
        self._check_folder, self._drain, self._ensure_agent = check_folder, drain, ensure_agent
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="stepscope-maintenance", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread and waits for it."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        checked_at = maintained_at = time.monotonic()
        wait_s = PERIOD_S
        while not self._stop.wait(wait_s):
            try:
                wait_s = self._next_sample_s()
                if time.monotonic() - maintained_at < PERIOD_S and wait_s < PERIOD_S:
                    continue
                maintained_at = time.monotonic()
                self._writer.prepare()
                self._check_folder()
                self._writer.recover()
                self._drain()
                if time.monotonic() - checked_at >= AGENT_PERIOD_S:
                    self._ensure_agent()
                    checked_at = time.monotonic()
            except Exception as error:  # noqa: BLE001 - an exception must not end the thread silently
                self._guard.tell(f"The journal is no longer maintained: {error!r}")
                return

    def _next_sample_s(self) -> float:
        """Samples the training; a failure switches that off, and nothing else."""
        try:
            return min(self.sample(), PERIOD_S)
        except Exception as error:  # noqa: BLE001 - the journal must be maintained all the same
            self.sample = lambda: PERIOD_S
            self._guard.tell(f"The stack of the training is no longer sampled: {error!r}")
            return PERIOD_S
