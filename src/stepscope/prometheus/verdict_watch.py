"""Reads findings and alerts of runs from the store in the background, for an exporter that gets only rows."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING

from stepscope.errors import StepscopeError
from stepscope.prometheus.run_state import EVENT_KINDS
from stepscope.store.open import open_reader

if TYPE_CHECKING:
    from pathlib import Path

    from stepscope.prometheus.live_state import LiveState
    from stepscope.store.base import Reader

INTERVAL_S = 5.0


class VerdictWatch:
    """Brings the findings, alerts and notices of runs into memory, from a thread of its own."""

    def __init__(self, state: LiveState, folder: Path, interval_s: float = INTERVAL_S) -> None:
        self._state, self._folder, self._interval_s = state, folder, interval_s
        self._run_ids: frozenset[str] = frozenset()
        self._known: set[str] = set()
        """Runs whose earlier events were taken."""
        self._is_closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="stepscope-prometheus-alerts", daemon=True)
        self._thread.start()

    def add_run(self, run_id: str) -> None:
        """Follows another run."""
        self._run_ids |= {run_id}

    def close(self) -> None:
        """Ends the thread."""
        self._is_closing.set()

    def _run(self) -> None:
        reader: Reader | None = None
        while not self._is_closing.wait(self._interval_s):
            try:
                reader = reader or open_reader(self._folder)
                self._read(reader)
            except StepscopeError:
                # The store does not exist yet, was replaced or is damaged: the agent reports that.
                if reader is not None:
                    with contextlib.suppress(StepscopeError):
                        reader.close()
                reader = None
        if reader is not None:
            reader.close()

    def _read(self, reader: Reader) -> None:
        for run_id in self._run_ids & self._state.run_ids():
            with reader.moment():
                if run_id not in self._known:
                    # An agent that was started again gets no event a second time.
                    for event in reader.events(run_id, EVENT_KINDS):
                        self._state.take_event(run_id, event)
                    self._known.add(run_id)
                verdicts = reader.findings(run_id), reader.alerts(run_id), reader.notices(run_id)
            self._state.set_verdicts(run_id, *verdicts)
