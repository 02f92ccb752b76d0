"""The diagnosis of an agent: looks at live runs now and then, keeps what it finds as it comes and goes."""

from __future__ import annotations

import json
import logging
import sqlite3
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from stepscope.errors import ConfigError, StoreError
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
"""A run is first looked at after this time, and again while it is not certain how a finding stands."""

MAX_SHARE, MAX_SHARE_UNSURE = 0.0005, 0.002
"""The share of one core that looking at one run may take: what costs more is done less often."""

MAX_SHARE_OF_ALL = 0.002
"""The share of one core for all runs together: with many live runs, each is looked at less often."""

MAX_SAVED_S = 0.05
"""Processor time saved up while nothing was due: a few runs that begin together need not wait."""

RAISE_AFTER = 2
"""A finding is kept when so many looks in a row have found it."""

CLEAR_AFTER = 3
"""And is over when so many have not."""

MAX_DIAGNOSTICIANS = 100
"""So many sets of options are kept, of runs that each have their own."""

MOVED = 0.05
"""A share that has moved by so much is told anew."""


@dataclass
class _Standing:
    """How one finding of a run stands."""

    seen: int = 0
    """Looks in a row that found it."""
    missed: int = 0
    """Looks in a row that did not."""
    kept: dict[str, Any] | None = None
    """What the store has of it; None while it is not open there."""


@dataclass
class _Watched:
    """A run that is looked at."""

    due_at: float
    has_news: bool = True
    living: dict[tuple[str, int, int], bool] = field(default_factory=dict)
    """Whether each of its ranks still records."""
    gist: tuple[object, ...] = ()
    """What was last kept of its checks, in short."""
    standings: dict[str, _Standing] = field(default_factory=dict)
    """By the key of the finding."""

    @property
    def is_unsure(self) -> bool:
        """Whether a finding is about to be kept, or to be over."""
        return any(one.missed if one.kept is not None else one.seen for one in self.standings.values())

    @property
    def has_ended(self) -> bool:
        """Whether none of its ranks records any more."""
        return not any(self.living.values())


class Diagnosing:
    """Listens to what is kept, and looks at each run that has something new.

    What fails in here is said once and goes no further: records are worth more than a diagnosis. What the
    disk is to blame for the agent tries again with the rest.
    """

    def __init__(
        self,
        store: Store,
        options_of: Callable[[str], Mapping[str, Mapping[str, Any]]],
        now: Callable[[], float] = time.monotonic,
        now_ns: Callable[[], int] = time.time_ns,
        clock: Callable[[], float] = time.thread_time,
    ) -> None:
        """`options_of` gives the options of detectors that a run's own settings have."""
        self._store, self._options_of = store, options_of
        self._now, self._now_ns, self._clock = now, now_ns, clock
        self._runs: dict[str, _Watched] = {}
        self._made: dict[str, Diagnostician] = {}
        """By the options; most runs have none."""
        self._failed = False
        self._saved_s, self._saved_at = MAX_SAVED_S, now()

    def take(self, table: Table) -> None:
        """Learns that a run has new steps; figures of the machine are looked at together with these."""
        run = self._runs.get(table.source.run_id)
        if run is not None and table.source.axis == "step":
            run.has_news = True

    def wants(self, keys: Collection[str]) -> bool:
        """None of them: it reads them from the store when a run has new steps."""
        return False

    def follow(self, process: Process) -> None:
        """Learns of a process of a run, or what has become of it."""
        if process.role != "rank" or not process.started_ns:
            return
        run = self._runs.get(process.run_id)
        if run is None:
            # Not at once: a run that has just begun has nothing to look at.
            run = self._runs[process.run_id] = _Watched(self._now() + EVERY_S)
            self._contain(lambda: self._remember(process.run_id))
        run.living[process.segment, process.rank, process.pid] = process.status in LIVE

    def hear(self, run_id: str, event: Event) -> None:
        """Events are read with the window."""

    def settle(self) -> None:
        """All that was kept has been told: runs that have ended are looked at once more, and left."""
        for run_id, run in list(self._runs.items()):
            if run.has_ended:
                del self._runs[run_id]
                self._contain(lambda run_id=run_id, run=run: self._look(run_id, run))  # type: ignore[misc]

    def tick(self) -> None:
        """Looks at the run that is overdue longest: one in a round, which journals wait for."""
        now = self._now()
        self._saved_s = min(self._saved_s + MAX_SHARE_OF_ALL * (now - self._saved_at), MAX_SAVED_S)
        self._saved_at = now
        due = [run_id for run_id, run in self._runs.items() if run.has_news and now >= run.due_at]
        if not due or self._saved_s <= 0:
            return
        run_id = min(due, key=lambda one: self._runs[one].due_at)
        run = self._runs[run_id]
        run.has_news = False
        began = self._clock()
        self._contain(lambda: self._look(run_id, run))
        spent_s = self._clock() - began
        self._saved_s -= spent_s
        share = MAX_SHARE_UNSURE if run.is_unsure else MAX_SHARE
        run.due_at = now + max(EVERY_S, spent_s / share)

    def _contain(self, act: Callable[[], None]) -> None:
        try:
            act()
        except (OSError, sqlite3.Error, StoreError):
            raise
        except Exception:
            if not self._failed:
                self._failed = True
                log.exception("The diagnosis failed. The agent goes on; findings may be missing.")

    def _remember(self, run_id: str) -> None:
        """Takes up the findings that an earlier agent, or an earlier segment, has left open."""
        for finding in self._store.findings(run_id):
            if finding.get("open"):
                standing = _Standing(seen=RAISE_AFTER, kept=finding)
                self._runs[run_id].standings[finding["key"]] = standing

    def _look(self, run_id: str, run: _Watched) -> None:
        diagnosis = self._diagnostician(run_id).diagnose(self._store, run_id)
        self._keep_checks(run_id, run, diagnosis)
        found = {one.key: one for one in diagnosis.findings}
        opened: list[Finding] = []
        closed: list[str] = []
        for key in {**run.standings, **found}:
            standing = run.standings.setdefault(key, _Standing())
            finding = found.get(key)
            if finding is not None:
                standing.seen, standing.missed = standing.seen + 1, 0
                is_sure = standing.seen >= RAISE_AFTER or run.has_ended or standing.kept is not None
                if is_sure and _is_news(standing.kept, finding, at_end=run.has_ended):
                    opened.append(finding)
            else:
                standing.seen, standing.missed = 0, standing.missed + 1
                # At the end of a run there are no further looks to be sure by.
                is_over = standing.missed >= CLEAR_AFTER or run.has_ended
                if standing.kept is not None and is_over:
                    closed.append(key)
        if opened or closed:
            self._keep(run_id, run, opened, closed)

    def _diagnostician(self, run_id: str) -> Diagnostician:
        options = self._options_of(run_id)
        place = json.dumps(options, sort_keys=True)
        if place not in self._made:
            if len(self._made) >= MAX_DIAGNOSTICIANS:
                self._made.clear()
            self._made[place] = _diagnostician(options, run_id)
        return self._made[place]

    def _keep_checks(self, run_id: str, run: _Watched, diagnosis: Diagnosis) -> None:
        """Keeps what checks came to, for lists: when that changes, and at the end."""
        checks = diagnosis.checks
        gist = (checks.passed, checks.not_run, checks.is_timed, checks.share is None)
        if not checks.examined or (gist == run.gist and not run.has_ended):
            return
        run.gist = gist
        segment = diagnosis.segment
        event = Event(CHECKS_EVENT, self._now_ns(), None, 0, segment, checks.as_dict())
        with self._store.transaction():
            self._store.put_event(run_id, event)

    def _keep(self, run_id: str, run: _Watched, opened: list[Finding], closed: list[str]) -> None:
        at_ns = self._now_ns()
        with self._store.transaction():
            for finding in opened:
                self._store.put_finding(run_id, finding.as_dict(), at_ns)
            for key in closed:
                self._store.clear_finding(run_id, key, at_ns)
        for finding in opened:
            run.standings[finding.key].kept = finding.as_dict()
        for key in closed:
            del run.standings[key]


def _is_news(kept: dict[str, Any] | None, finding: Finding, *, at_end: bool) -> bool:
    """Whether a finding differs from what the store has by something a person would want to know."""
    if kept is None:
        return True
    if at_end or (kept["severity"], kept["rank"]) != (finding.severity, finding.rank):
        return True
    before, now = kept.get("share"), finding.share
    return (before is None) != (now is None) or abs((now or 0.0) - (before or 0.0)) >= MOVED


def _diagnostician(options: Mapping[str, Mapping[str, Any]], run_id: str) -> Diagnostician:
    """The detectors as a run's settings want them; where these are wrong, as they are by themselves."""
    from stepscope.analysis.diagnose import Diagnostician  # lazy: an agent that only catches up needs none

    try:
        return Diagnostician(options)
    except ConfigError as error:
        log.warning("The options of detectors of %s are left out: %s", run_id, error)
        return Diagnostician({})
