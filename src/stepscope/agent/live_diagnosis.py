"""Diagnosis of live runs in the agent: runs the detectors at intervals, opens and closes findings."""

from __future__ import annotations

import json
import logging
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from stepscope.agent.containment import Containment
from stepscope.errors import ConfigError
from stepscope.schema.keys import CHECKS_EVENT
from stepscope.schema.record import Event
from stepscope.schema.run import LIVE

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from stepscope.analysis.diagnose import Diagnosis, Diagnostician
    from stepscope.exporters.base import Table
    from stepscope.schema.finding import Finding
    from stepscope.schema.run import Process
    from stepscope.store.base import Store

log = logging.getLogger("stepscope.agent")

EVERY_S = 10.0
"""A run is first diagnosed after this time, and again while a finding is not confirmed."""

MAX_SHARE, MAX_SHARE_UNSURE = 0.0005, 0.002
"""The share of one core that diagnosing one run may take: expensive runs are diagnosed less often."""

MAX_SHARE_OF_ALL = 0.002
"""The share of one core for all runs together: with many live runs, each is diagnosed less often."""

MAX_BUDGET_S = 0.05
"""The most unused processor time that is carried over: a few runs that start together need not wait."""

RAISE_AFTER = 2
"""A finding is stored when so many diagnoses in a row have found it."""

CLEAR_AFTER = 3
"""It is closed when so many in a row have not."""

MAX_DIAGNOSTICIANS = 100
"""Sets of detector options that are cached, for runs that each have their own."""

STALL = "run.stall"
"""The key of the finding that describes a stall."""

MIN_SHARE_CHANGE = 0.05
"""A finding is stored again when its share has changed by this much."""


@dataclass
class _FindingState:
    """The state of one finding of a run."""

    hits: int = 0
    """Diagnoses in a row that found it."""
    misses: int = 0
    """Diagnoses in a row that did not."""
    stored: dict[str, Any] | None = None
    """The finding as it is in the store; None while it is not open there."""


@dataclass
class _WatchedRun:
    """A run that is diagnosed."""

    due_at: float
    has_new_steps: bool = True
    is_rank_live: dict[tuple[str, int, int], bool] = field(default_factory=dict)
    """Whether each of its ranks still records, by segment, rank and process."""
    stalled: set[tuple[str, int, int]] = field(default_factory=set)
    """The ranks that are stalled: these have no new steps, and are diagnosed because they have none."""
    first_rank: Process | None = None
    """The newest process of rank 0."""
    checks_digest: tuple[object, ...] = ()
    """The checks that were last stored, in short."""
    findings: dict[str, _FindingState] = field(default_factory=dict)
    """By the key of the finding."""

    @property
    def is_unsure(self) -> bool:
        """Whether a finding is about to be opened or closed."""
        return any(
            state.misses if state.stored is not None else state.hits for state in self.findings.values()
        )

    @property
    def has_ended(self) -> bool:
        """Whether none of its ranks records any more."""
        return not any(self.is_rank_live.values())


class LiveDiagnosis:
    """Follows what is stored, and diagnoses each run that has new steps.

    A failure in here is logged once and contained.
    """

    def __init__(
        self,
        store: Store,
        options_of: Callable[[str], Mapping[str, Mapping[str, Any]]],
        now: Callable[[], float] = time.monotonic,
        now_ns: Callable[[], int] = time.time_ns,
        clock: Callable[[], float] = time.thread_time,
        report: Callable[..., None] = lambda _process, _diagnosis, **_: None,
    ) -> None:
        """`options_of` returns the detector options in the settings of a run.

        `report` is called with the process of rank 0, each diagnosis, and whether the run `has_ended`.
        """
        self._store, self._options_of = store, options_of
        self._now, self._now_ns, self._clock, self._report = now, now_ns, clock, report
        self._runs: dict[str, _WatchedRun] = {}
        self._diagnosticians: dict[str, Diagnostician] = {}
        """By their options; most runs have none."""
        self._containment = Containment("findings may be missing")
        self._budget_s, self._budget_at = MAX_BUDGET_S, now()

    def on_rows(self, table: Table) -> None:
        """Notes that a run has new steps; machine metrics are read together with these."""
        run = self._runs.get(table.source.run_id)
        if run is not None and table.source.axis == "step":
            run.has_new_steps = True

    def uses_any(self, keys: Collection[str]) -> bool:
        """Always False: it reads machine metrics from the store when a run has new steps."""
        return False

    def on_process(self, process: Process) -> None:
        """Takes a process of a run, or its new status."""
        if process.role != "rank" or not process.started_ns:
            return
        run = self._runs.get(process.run_id)
        if run is None:
            # Not at once: a run that has just begun has nothing to diagnose.
            run = self._runs[process.run_id] = _WatchedRun(self._now() + EVERY_S)
            self._contain(lambda: self._restore_open(process.run_id))
        key = process.segment, process.rank, process.pid
        run.is_rank_live[key] = process.status in LIVE
        if (process.status == "stalled") != (key in run.stalled):
            run.stalled ^= {key}
            run.has_new_steps, run.due_at = True, self._now()
        if process.rank == 0:
            run.first_rank = process

    def on_event(self, run_id: str, event: Event) -> None:
        """Does nothing: events are read with the window."""

    def on_round_end(self) -> None:
        """Diagnoses runs that have ended a last time."""
        for run_id, run in list(self._runs.items()):
            if run.has_ended:
                del self._runs[run_id]
                self._contain(lambda run_id=run_id, run=run: self._diagnose(run_id, run))  # type: ignore[misc]

    def tick(self) -> None:
        """Diagnoses the run that is overdue longest: only one in a round, since journals wait meanwhile."""
        now = self._now()
        self._budget_s = min(self._budget_s + MAX_SHARE_OF_ALL * (now - self._budget_at), MAX_BUDGET_S)
        self._budget_at = now
        due = [run_id for run_id, run in self._runs.items() if run.has_new_steps and now >= run.due_at]
        if not due or self._budget_s <= 0:
            return
        run_id = min(due, key=lambda due_run: self._runs[due_run].due_at)
        run = self._runs[run_id]
        run.has_new_steps = False
        began = self._clock()
        self._contain(lambda: self._diagnose(run_id, run))
        spent_s = self._clock() - began
        self._budget_s -= spent_s
        stall = run.findings.get(STALL)
        run.has_new_steps |= stall is not None and stall.stored is None  # it is confirmed without new steps
        share = MAX_SHARE_UNSURE if run.is_unsure else MAX_SHARE
        run.due_at = now + max(EVERY_S, spent_s / share)

    def _contain(self, act: Callable[[], None]) -> None:
        self._containment.run("The diagnosis", act)

    def _restore_open(self, run_id: str) -> None:
        """Reads the findings that an earlier agent or segment has left open."""
        for finding in self._store.findings(run_id):
            if finding.get("open"):
                state = _FindingState(hits=RAISE_AFTER, stored=finding)
                self._runs[run_id].findings[finding["key"]] = state

    def _diagnose(self, run_id: str, run: _WatchedRun) -> None:
        diagnosis = self._diagnostician(run_id).diagnose(self._store, run_id)
        self._store_checks(run_id, run, diagnosis)
        current = {finding.key: finding for finding in diagnosis.findings}
        opened: list[Finding] = []
        closed: list[str] = []
        for key in {**run.findings, **current}:
            state = run.findings.setdefault(key, _FindingState())
            finding = current.get(key)
            if finding is not None:
                state.hits, state.misses = state.hits + 1, 0
                is_confirmed = state.hits >= RAISE_AFTER or run.has_ended or state.stored is not None
                if is_confirmed and _is_changed(state.stored, finding, at_end=run.has_ended):
                    opened.append(finding)
            else:
                state.hits, state.misses = 0, state.misses + 1
                # At the end of a run there is no further diagnosis that could confirm it.
                is_over = state.misses >= CLEAR_AFTER or run.has_ended
                if state.stored is not None and is_over:
                    closed.append(key)
        if opened or closed:
            self._store_changes(run_id, run, opened, closed)
        if run.first_rank is not None:
            self._report(run.first_rank, diagnosis, has_ended=run.has_ended)

    def _diagnostician(self, run_id: str) -> Diagnostician:
        options = self._options_of(run_id)
        options_key = json.dumps(options, sort_keys=True)
        if options_key not in self._diagnosticians:
            if len(self._diagnosticians) >= MAX_DIAGNOSTICIANS:
                self._diagnosticians.clear()
            self._diagnosticians[options_key] = _diagnostician(options, run_id)
        return self._diagnosticians[options_key]

    def _store_checks(self, run_id: str, run: _WatchedRun, diagnosis: Diagnosis) -> None:
        """Stores the results of the checks, for the run list: when they change, and at the end."""
        checks = diagnosis.checks
        digest = (checks.passed, checks.not_run, checks.is_timed, checks.share is None)
        if not checks.examined or (digest == run.checks_digest and not run.has_ended):
            return
        run.checks_digest = digest
        segment = diagnosis.segment
        event = Event(CHECKS_EVENT, self._now_ns(), None, 0, segment, checks.as_dict())
        with self._store.transaction():
            self._store.put_event(run_id, event)

    def _store_changes(self, run_id: str, run: _WatchedRun, opened: list[Finding], closed: list[str]) -> None:
        at_ns = self._now_ns()
        with self._store.transaction():
            for finding in opened:
                self._store.put_finding(run_id, finding.as_dict(), at_ns)
            for key in closed:
                self._store.clear_finding(run_id, key, at_ns)
        for finding in opened:
            run.findings[finding.key].stored = finding.as_dict()
        for key in closed:
            del run.findings[key]


def _is_changed(stored: dict[str, Any] | None, finding: Finding, *, at_end: bool) -> bool:
    """Whether a finding differs from the stored one by something a person would want to know."""
    if stored is None:
        return True
    if at_end or (stored["severity"], stored["rank"]) != (finding.severity, finding.rank):
        return True
    before, now = stored.get("share"), finding.share
    return (before is None) != (now is None) or abs((now or 0.0) - (before or 0.0)) >= MIN_SHARE_CHANGE


def _diagnostician(options: Mapping[str, Mapping[str, Any]], run_id: str) -> Diagnostician:
    """The detectors with a run's options; with the defaults where its options are not valid."""
    from stepscope.analysis.diagnose import Diagnostician  # lazy: an agent that only catches up needs none

    try:
        return Diagnostician(options)
    except ConfigError as error:
        log.warning("Detector options of %s are ignored: %s", run_id, error)
        return Diagnostician({})
