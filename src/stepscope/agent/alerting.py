"""Alerting in the agent: the rules of its runs, the engine that evaluates them, the delivery of notices."""

from __future__ import annotations

import contextlib
import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stepscope.agent.containment import Containment
from stepscope.agent.cpu_share import CpuShare
from stepscope.alerts.defaults import all_rules, default_rules
from stepscope.alerts.delivery.delivery import Channels, Delivery
from stepscope.alerts.delivery.quiet_hours import QuietHours
from stepscope.alerts.delivery.routing import Routing
from stepscope.alerts.engine import Engine
from stepscope.alerts.finding_alerts import alerting_findings
from stepscope.alerts.page_rules import PageRules
from stepscope.alerts.silences import Silences
from stepscope.alerts.target_rules import target_rules
from stepscope.errors import ConfigError, StoreError
from stepscope.schema.finding import is_muted
from stepscope.store.open import open_marks

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from pathlib import Path
    from typing import Any

    from stepscope.agent.run_settings import RunSettings
    from stepscope.alerts.rule import Rule
    from stepscope.alerts.run_watch import RunWatch
    from stepscope.channels.base import Channel
    from stepscope.config.sections import Alerts
    from stepscope.exporters.base import Table
    from stepscope.schema.record import Event
    from stepscope.schema.run import Process
    from stepscope.store.base import Store

log = logging.getLogger("stepscope.agent")

MAX_SHARE = 0.003
"""The share of one core that evaluating rules may take while only rows are new."""

MAX_PAUSE_S = 2.5
"""The longest a row waits for evaluation, as with dozens of live runs."""


MAX_PLANS = 1000
"""Runs whose rules and channels are cached; beyond it the cache is cleared."""


@dataclass(frozen=True)
class _Plan:
    """The rules, routing and channels of one run, made from its settings."""

    settings: RunSettings
    rules: list[Rule] | None
    """None where alerts are switched off."""
    routing: Routing
    channels: dict[str, Channel]


class Alerting:
    """Evaluates the rules of all runs once a round, and delivers the notices.

    It receives everything that is stored. A failure in here is logged once and contained: records matter more
    than alerts. Disk and database errors are raised, and the agent retries the whole round.
    """

    def __init__(
        self,
        folder: Path,
        store: Store,
        settings_of: Callable[[str], RunSettings],
        now_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._folder, self._store = folder, store
        self._settings_of, self._silences = settings_of, Silences(folder)
        self._channels = Channels()
        self._plans: dict[str, _Plan] = {}
        self._delivery = Delivery(store, lambda run_id: self._plan_of(run_id).channels, now_ns)
        self._engine = Engine(
            store,
            lambda run_id: self._plan_of(run_id).rules,
            lambda run_id: self._plan_of(run_id).routing,
            now_ns,
            PageRules(folder),
            self._findings_of,
        )
        self._containment = Containment("alerts may be missing")
        self._evaluation_cost = CpuShare(MAX_SHARE, MAX_PAUSE_S)
        self._has_new_events = False
        """Whether a process has changed its status, or an event has come: more than rows."""
        self._statuses: dict[tuple[str, str, int, int], str] = {}

    @property
    def is_waiting(self) -> bool:
        """Whether a notice is still undelivered."""
        return self._delivery.is_waiting

    def on_rows(self, table: Table) -> None:
        """Takes rows that are in the store, or were read from the machine."""
        self._containment.run("Alerting on rows", lambda: self._engine.take(table))

    def on_process(self, process: Process) -> None:
        """Takes the new status of a process."""
        process_key = (process.run_id, process.segment, process.rank, process.pid)
        if self._statuses.get(process_key) != process.status:
            self._has_new_events = True
            self._statuses[process_key] = process.status
        if process.ended_ns is not None:
            del self._statuses[process_key]
        self._containment.run("Alerting on processes", lambda: self._engine.follow(process))

    def on_event(self, run_id: str, event: Event) -> None:
        """Takes an event of a run."""
        self._has_new_events = True
        self._containment.run("Alerting on events", lambda: self._engine.hear(run_id, event))

    def on_findings(self, run_id: str) -> None:
        """Takes the findings of a run after a diagnosis."""
        self._has_new_events = True
        self._containment.run("Alerting on findings", lambda: self._engine.take_findings(run_id))

    def uses_any(self, keys: Collection[str]) -> bool:
        """Whether a rule of any run uses one of these metrics."""
        return self._engine.wants(keys)

    def on_round_end(self) -> None:
        """Evaluates the rules on what came in this round.

        Where only rows have come and evaluating them is expensive, it may wait for more of them.
        """
        if self._has_new_events or self._evaluation_cost.is_due or self._engine.is_behind:
            self._has_new_events = False
            self._evaluate(self._engine.settle)

    def _evaluate(self, act: Callable[[], None]) -> None:
        with self._evaluation_cost.measure():
            self._containment.run("Evaluating alert rules", act)

    def tick(self) -> None:
        """Runs one round; never blocks."""
        if self._evaluation_cost.is_due:
            self._evaluate(self._engine.tick)
        if self._engine.has_posted:
            self._engine.has_posted = False
            self._delivery.has_news = True
        self._containment.run("Delivering notices", self._delivery.tick)

    def close(self) -> None:
        """Closes the channels."""
        self._delivery.close()

    def _findings_of(self, run: RunWatch) -> list[Mapping[str, Any]]:
        """The open findings of a run that raise an alert, without those that people have muted."""
        settings = self._settings_of(run.run_id).alerts
        if not settings.enabled:
            return []
        is_open = [finding for finding in self._store.findings(run.run_id) if finding.get("open")]
        findings = alerting_findings(is_open, settings.findings, settings.disabled)
        if not findings:
            return []
        muted: frozenset[str] = frozenset()
        with contextlib.closing(open_marks(self._folder)) as marks, contextlib.suppress(StoreError):
            muted = marks.muted(run.run_id, run.project)
        return [finding for finding in findings if not is_muted(finding, muted)]

    def _plan_of(self, run_id: str) -> _Plan:
        settings = self._settings_of(run_id)
        plan = self._plans.get(run_id)
        if plan is None or plan.settings is not settings:
            if len(self._plans) > MAX_PLANS:
                self._plans.clear()
            plan = self._plans[run_id] = self._make_plan(run_id, settings)
        return plan

    def _make_plan(self, run_id: str, settings: RunSettings) -> _Plan:
        alerts = settings.alerts
        channels = self._channels.of(alerts, settings.directory)
        quiet_hours = _quiet_hours(alerts, run_id)
        routing = Routing(tuple(channels), self._silences, quiet_hours, alerts.link or "")
        return _Plan(settings, _rules(settings, run_id), routing, channels)


def _rules(settings: RunSettings, run_id: str) -> list[Rule] | None:
    alerts = settings.alerts
    if not alerts.enabled:
        return None
    targets = target_rules(settings.targets, settings.energy.currency)
    try:
        return all_rules(alerts, targets)
    except ConfigError as error:
        log.warning("Custom alert rules of %s are ignored; default rules apply: %s", run_id, error)
        return [*default_rules(alerts.disabled), *targets]


def _quiet_hours(settings: Alerts, run_id: str) -> QuietHours | None:
    if settings.quiet_hours is None:
        return None
    try:
        return QuietHours.parse(settings.quiet_hours)
    except ConfigError as error:
        log.warning("%s Quiet hours of %s are ignored.", error, run_id)
        return None
