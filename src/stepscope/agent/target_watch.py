"""Computes the figures that a run has targets for, so that alert rules judge them while it is live."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from stepscope.agent.containment import Containment
from stepscope.agent.cpu_share import CpuShare
from stepscope.alerts.target_rules import COST, PREFIX
from stepscope.config.sections import Targets
from stepscope.exporters.base import Table
from stepscope.schema.run import LIVE
from stepscope.schema.series import Source

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from stepscope.agent.run_settings import RunSettings
    from stepscope.schema.record import Event
    from stepscope.schema.run import Process
    from stepscope.store.base import Store

EVERY_S = 10.0
"""How often the figures of a run are computed while it makes steps."""

COST_EVERY_S = 30.0

MAX_SHARE, MAX_PAUSE_S = 0.002, 600.0
"""The share of one core for all runs together, and the longest pause that results from it."""


@dataclass
class _WatchedRun:
    """A live run with targets."""

    segment: str
    rates_due_at: float
    cost_due_at: float
    has_cost_target: bool = False
    has_new_steps: bool = False
    """Whether it made steps since its figures were computed: an evaluation says nothing about its speed."""

    @property
    def due_at(self) -> float:
        """When the next of its figures is due."""
        rates_due_at = self.rates_due_at if self.has_new_steps else math.inf
        return min(rates_due_at, self.cost_due_at if self.has_cost_target else math.inf)


class TargetWatch:
    """Passes the current figures of runs with targets to the alert rules, as metrics that are not stored.

    A failure in here is logged once and contained.
    """

    def __init__(
        self,
        store: Store,
        settings_of: Callable[[str], RunSettings],
        judge: Callable[[Table], None],
        now: Callable[[], float] = time.monotonic,
        now_ns: Callable[[], int] = time.time_ns,
        cpu_s: Callable[[], float] = time.thread_time,
    ) -> None:
        """`judge` takes the figures."""
        self._store, self._settings_of, self._judge = store, settings_of, judge
        self._now, self._now_ns = now, now_ns
        self._runs: dict[str, _WatchedRun] = {}
        self._live: dict[str, set[tuple[str, int, int]]] = {}
        """The live processes of each run."""
        self._cpu = CpuShare(MAX_SHARE, MAX_PAUSE_S, now, cpu_s)
        self._containment = Containment("alerts may be missing")

    def on_process(self, process: Process) -> None:
        """Takes a process of a run, or its new status."""
        if process.role not in ("rank", "launcher") or not process.started_ns:
            return
        live = self._live.setdefault(process.run_id, set())
        process_key = (process.segment, process.rank, process.pid)
        if process.status in LIVE:
            live.add(process_key)
            self._watch(process)
        else:
            live.discard(process_key)
        if not live:
            self._live.pop(process.run_id)
            self._runs.pop(process.run_id, None)

    def _watch(self, process: Process) -> None:
        settings = self._settings_of(process.run_id)
        if not settings.alerts.enabled or settings.targets == Targets():
            self._runs.pop(process.run_id, None)
            return
        run = self._runs.get(process.run_id)
        if run is None or run.segment < process.segment:
            due_at = self._now() + EVERY_S
            run = self._runs[process.run_id] = _WatchedRun(process.segment, due_at, due_at)
        # Another process may decide by now, with other settings.
        run.has_cost_target = settings.targets.cost is not None

    def on_rows(self, table: Table) -> None:
        """Notes that a run has new steps."""
        run = self._runs.get(table.source.run_id)
        if run is not None and table.source.axis == "step":
            run.has_new_steps = True

    def on_event(self, run_id: str, event: Event) -> None:
        """Does nothing: no figure depends on events alone."""

    def on_round_end(self) -> None:
        """Does nothing: figures are computed between the rounds."""

    def uses_any(self, keys: Collection[str]) -> bool:
        """Always False: machine metrics are read from the store."""
        return False

    def tick(self) -> None:
        """Computes figures of the run that is overdue longest: only one in a round, since journals wait."""
        now = self._now()
        due = {run_id: run.due_at for run_id, run in self._runs.items() if run.due_at <= now}
        if not due or not self._cpu.is_due:
            return
        run_id = min(due, key=due.__getitem__)
        with self._cpu.measure():
            run = self._runs[run_id]
            self._containment.run("Judging targets", lambda: self._pass_figures(run_id, run, now))

    def _pass_figures(self, run_id: str, run: _WatchedRun, now: float) -> None:
        # Lazy: the figures are those that views show, and an agent whose runs have no targets loads no views.
        from stepscope.views.overview.target_figures import cost_so_far, judged_rates

        settings, now_ns = self._settings_of(run_id), self._now_ns()
        source = Source(run_id, run.segment, None, "", axis="seconds")
        if run.has_new_steps and now >= run.rates_due_at:
            run.has_new_steps, run.rates_due_at = False, now + EVERY_S
            self._pass_on(source, judged_rates(self._store, run_id, settings.targets, now_ns), now_ns)
        if run.has_cost_target and now >= run.cost_due_at:
            run.cost_due_at = now + COST_EVERY_S
            cost = cost_so_far(self._store, run_id, settings.energy, now_ns)
            self._pass_on(source, {} if cost is None else {COST: cost}, now_ns)

    def _pass_on(self, source: Source, figures: Mapping[str, float], now_ns: int) -> None:
        if figures:
            keys = [f"{PREFIX}{name}" for name in figures]
            values = np.array([list(figures.values())])
            self._judge(Table(source, keys, np.zeros(1, np.int64), np.array([now_ns]), values))
