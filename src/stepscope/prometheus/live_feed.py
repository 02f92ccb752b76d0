"""What exporters for Prometheus share: they keep the newest figures of runs and of their machine."""

from __future__ import annotations

import contextlib
import threading
from abc import abstractmethod
from typing import TYPE_CHECKING

from stepscope.errors import StepscopeError
from stepscope.exporters.base import Feed
from stepscope.prometheus.run_state import EVENT_KINDS
from stepscope.store.open import open_reader

if TYPE_CHECKING:
    from pathlib import Path

    from stepscope.exporters.base import Table
    from stepscope.prometheus.live_state import LiveState
    from stepscope.prometheus.options import Options
    from stepscope.schema.record import Event
    from stepscope.schema.run import Process
    from stepscope.schema.sample import DeviceFacts
    from stepscope.store.base import Reader

VERDICT_INTERVAL_S = 5.0


class LiveFeed(Feed):
    """Takes what runs record into a `LiveState`; findings and alerts are read from their store."""

    def __init__(self, options: Options, store: Path | None) -> None:
        """Without a store there are no findings and alerts."""
        self._options, self._store = options, store
        self._run_ids: set[str] = set()
        self._verdicts: VerdictWatch | None = None

    @property
    @abstractmethod
    def _state(self) -> LiveState:
        """Where the figures are kept."""

    def begin(self, process: Process) -> None:
        """Takes a process of a run, or its new status."""
        self._state.add_run(process.run_id, self._options)
        if process.run_id not in self._run_ids:
            self._run_ids.add(process.run_id)
            if self._verdicts is None and self._store is not None:
                self._verdicts = VerdictWatch(self._state, self._store)
            if self._verdicts is not None:
                self._verdicts.add_run(process.run_id)
        self._state.begin(process)

    def take(self, table: Table) -> None:
        """Keeps the newest figures of the rows."""
        self._state.take(table)

    def take_event(self, run_id: str, event: Event) -> None:
        """Keeps what an event says about a run."""
        self._state.take_event(run_id, event)

    def describe(self, facts: DeviceFacts) -> None:
        """Keeps the facts of a device."""
        self._state.describe(facts)

    def close(self) -> None:
        """Ends reading the store."""
        if self._verdicts is not None:
            self._verdicts.close()


class VerdictWatch:
    """Reads the findings, alerts and notices of runs from the store, in a thread of its own."""

    def __init__(self, state: LiveState, folder: Path, interval_s: float = VERDICT_INTERVAL_S) -> None:
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
