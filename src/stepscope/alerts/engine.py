"""Evaluates the rules of all runs, stores alerts, and posts notices for people."""

from __future__ import annotations

import logging
import math
import time
from typing import TYPE_CHECKING, Any

from stepscope.alerts.catching_up import catch_up
from stepscope.alerts.conditions.recent_points import MAX_UNEVALUATED
from stepscope.alerts.finding_alerts import report_findings
from stepscope.alerts.page_rules import PageRuleSet
from stepscope.alerts.repeat_policy import RepeatPolicy
from stepscope.alerts.rule import Rule, rule_from_training
from stepscope.alerts.run_watch import ReportedCondition, RunWatch
from stepscope.alerts.unrecorded import RULE_FIELD, UnrecordedMetrics
from stepscope.errors import ConfigError
from stepscope.schema.alert import SEVERITIES, Notice
from stepscope.schema.failure import is_consequence
from stepscope.schema.record import Event
from stepscope.schema.run import LIVE, outcome_of
from stepscope.store.base import OpenAlert

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from stepscope.alerts.delivery.routing import Routing
    from stepscope.alerts.page_rules import PageRules
    from stepscope.alerts.run_watch import Change
    from stepscope.exporters.base import Table
    from stepscope.schema.alert import AlertDetail, Kind
    from stepscope.schema.run import Process
    from stepscope.store.base import Store

log = logging.getLogger("stepscope.agent")

PAUSE_NS = 400_000_000
"""Minimum time between two evaluations without new points, for rules that depend on time."""

MANY_UNEVALUATED = MAX_UNEVALUATED // 5
"""Rules are evaluated immediately if a series has more points than this that were not evaluated."""

CAUSE_WITHIN_NS = 10_000_000_000
"""How long the other processes of a run have to report why one of them lost its connection."""

RULE_EVENT, CONDITION_EVENT = "alert_rule", "alert_condition"
"""Events with which a training defines rules, and reports conditions that only it can evaluate."""

NOTICE = "notice"
"""Kind of events with which stepscope reports something about a run."""


class Engine:
    """The alerts of one agent. Every alert is in the store before anybody is notified."""

    def __init__(
        self,
        store: Store,
        rules_of: Callable[[str], list[Rule] | None],
        routing_of: Callable[[str], Routing],
        now_ns: Callable[[], int] = time.time_ns,
        page_rules: PageRules | None = None,
        findings_of: Callable[[RunWatch], list[Mapping[str, Any]]] = lambda _run: [],
    ) -> None:
        """`rules_of` and `routing_of` use the settings of a run; no rules for a run without alerts.

        `findings_of` returns the findings of a run that raise an alert now.
        """
        self._store, self._rules_of, self._routing_of, self._now_ns = store, rules_of, routing_of, now_ns
        self._page_rules_file, self._page_rules = page_rules, PageRuleSet()
        self._findings_of = findings_of
        self._logged_problems: set[str] = set()
        self._runs: dict[str, RunWatch] = {}
        self._unrecorded: dict[str, UnrecordedMetrics] = {}
        self._processes: dict[str, dict[tuple[str, int, int], Process]] = {}
        self._inherited_alerts = store.alert_book.open_alerts()
        """Open alerts of an earlier agent whose runs this one has not met yet."""
        self._evaluated_until_ns = {run.id: run.last_ns for run in store.runs() if run.status in LIVE}
        """Until when an earlier agent has evaluated the points of each run."""
        self._just_begun: set[str] = set()
        """Runs whose rows of this round were already read from the store."""
        self._lost_connection: set[str] = set()
        """Runs of which one process lost its connection and the others may still report the cause."""
        self._has_news, self._evaluated_ns = True, 0
        self.has_posted = False
        """Whether something was posted since this was last set to False."""

    def follow(self, process: Process) -> None:
        """Registers a process of a run, or its new status."""
        if process.role in ("worker", "machine") or not process.started_ns:
            return
        run = self._runs.get(process.run_id)
        if run is None:
            run = self._begin(process)
        else:
            run.use_settings_rules(self._rules_of(process.run_id))
        if process.role != "launcher" or not run.name:  # a monitor in its command may have named the run
            run.name, run.project = process.name, process.project
        run.host = run.host or process.host
        known = self._processes.setdefault(process.run_id, {})
        known[process.segment, process.rank, process.pid] = process
        self._update_status(run)

    def _newest_processes(self, run: RunWatch) -> list[Process]:
        known = self._processes[run.run_id].values()
        newest = max(process.segment for process in known)
        return [process for process in known if process.segment == newest]

    def _update_status(self, run: RunWatch) -> None:
        """Updates the status of a run; after a lost connection it waits for the rank that caused it."""
        processes = self._newest_processes(run)
        status, reason = outcome_of(processes)
        is_waiting = status not in LIVE and is_consequence(reason) and run.status in LIVE
        ends_ns = [process.ended_ns for process in processes if process.ended_ns is not None]
        is_new = bool(ends_ns) and self._now_ns() - min(ends_ns) < CAUSE_WITHIN_NS
        if is_waiting and is_new and len(ends_ns) < len(processes):
            self._lost_connection.add(run.run_id)
        else:
            self._lost_connection.discard(run.run_id)
            run.status, run.reason = status, reason

    def _update_lost_connections(self) -> None:
        for run_id in list(self._lost_connection):
            self._update_status(self._runs[run_id])

    def take(self, table: Table) -> None:
        """Takes rows that are in the store, or that samplers read."""
        run = self._runs.get(table.source.run_id)
        if run is not None and run.run_id not in self._just_begun:
            run.history.add(table.source, table.keys, table.steps, table.times_ns, table.values)

    @property
    def is_behind(self) -> bool:
        """Whether too many points wait for evaluation, so that further ones may be dropped."""
        return any(run.history.unevaluated > MANY_UNEVALUATED for run in self._runs.values())

    def wants(self, keys: Collection[str]) -> bool:
        """Whether a rule of any run uses one of these metrics."""
        return any(run.wants(keys) for run in self._runs.values())

    def hear(self, run_id: str, event: Event) -> None:
        """Takes an event: a rule of the training, a condition that it reports, or an earlier notice."""
        run = self._runs.get(run_id)
        if run is None or event.by_user:
            return
        if event.kind == RULE_EVENT:
            self._add_rule(run, event.fields)
        elif event.kind == NOTICE and RULE_FIELD in event.fields:
            self._unrecorded[run_id].skip(str(event.fields[RULE_FIELD]))
        elif event.kind == CONDITION_EVENT:
            name = str(event.fields.get("rule", ""))
            fields = {**event.fields, "step": event.step, "rank": event.rank}
            run.report(name, ReportedCondition(bool(event.fields.get("is_true")), fields))

    def take_findings(self, run_id: str) -> None:
        """Takes the findings of a run, which may have changed."""
        run = self._runs.get(run_id)
        if run is not None:
            report_findings(run, self._findings_of(run))
            self._has_news = True

    def settle(self) -> None:
        """Evaluates all rules after the newest rows were stored, so that an ended run has its alerts."""
        self._just_begun.clear()
        self._has_news = True
        self.tick()

    def tick(self) -> None:
        """Evaluates the rules of all runs; runs that have ended are evaluated once more and removed."""
        now_ns = self._now_ns()
        if not self._has_news and now_ns - self._evaluated_ns < PAUSE_NS:
            return
        self._has_news, self._evaluated_ns = False, now_ns
        self._read_page_rules()
        self._update_lost_connections()
        for run in list(self._runs.values()):
            if run.missing_history:
                catch_up(run, self._store, self._segment_of(run.run_id))
            changes = list(run.changes(now_ns))
            # Processes of a run that fail one after another make one alert.
            has_ended = run.status not in LIVE and all(
                process.ended_ns is not None for process in self._newest_processes(run)
            )
            if run.dropped or changes or has_ended or self._has_due_notices(run, now_ns):
                with self._store.transaction():
                    self._resolve_dropped(run, now_ns)
                    for change in changes:
                        self._store_change(run, change, now_ns)
                    self._notify(run, now_ns)
                    if has_ended:
                        self._resolve_all(run, now_ns)
            self._report_unrecorded(run, now_ns, has_ended=has_ended)
            if has_ended:
                self._lost_connection.discard(run.run_id)
                del self._runs[run.run_id], self._unrecorded[run.run_id]
                self._processes.pop(run.run_id, None)

    def _report_unrecorded(self, run: RunWatch, now_ns: int, *, has_ended: bool) -> None:
        """Reports once, as an event of the run and in the log, which rules use metrics that do not exist."""
        check = self._unrecorded[run.run_id]
        warnings = list(check.check(run.rules.values(), self._store, now_ns, has_ended=has_ended))
        if not warnings:
            return
        segment = self._segment_of(run.run_id)
        with self._store.transaction():
            for rule, text in warnings:
                fields = {"host": run.host, "text": text, RULE_FIELD: rule}
                self._store.put_event(run.run_id, Event(NOTICE, now_ns, None, None, segment, fields))
                log.warning("%s: %s", run.name or run.run_id, text)

    def _read_page_rules(self) -> None:
        """Applies changes of the rules on the page; costs one stat if there are none."""
        if self._page_rules_file is None or not self._runs:
            return
        page_rules = self._page_rules_file.read()
        if page_rules is self._page_rules:
            return
        self._page_rules = page_rules
        problems = page_rules.problems.items()
        invalid = [f"Rule {name!r} of the page is ignored: {why}" for name, why in problems]
        for problem in [*invalid, page_rules.trouble]:
            if problem and problem not in self._logged_problems:
                self._logged_problems.add(problem)
                log.warning("%s", problem)
        for run in self._runs.values():
            run.use_page_rules(page_rules)

    def _segment_of(self, run_id: str) -> str:
        return max(process.segment for process in self._processes[run_id].values())

    def _begin(self, process: Process) -> RunWatch:
        run = RunWatch(
            process.run_id, self._rules_of(process.run_id), name=process.name, project=process.project
        )
        self._runs[process.run_id] = run
        self._unrecorded[process.run_id] = UnrecordedMetrics(process.run_id, self._now_ns())
        self._read_page_rules()
        run.use_page_rules(self._page_rules)
        for event in self._store.events(process.run_id):
            self.hear(process.run_id, event)
        report_findings(run, self._findings_of(run))
        # Its rows of this round are in the store already.
        self._just_begun.add(run.run_id)
        catch_up(run, self._store, process.segment, self._evaluated_until_ns.get(run.run_id, 0))
        for alert in self._inherited_alerts:
            if alert.run_id == process.run_id:
                run.adopt_alert(alert)
                notified_ns = alert.fields.get("notified_ns")
                if notified_ns is not None:
                    run.repeat_policies[alert.rule] = RepeatPolicy(reported_firing=True, last_ns=notified_ns)
                    run.last_reported[alert.rule] = run.open[alert.id][1]
        self._inherited_alerts = [alert for alert in self._inherited_alerts if alert.run_id != process.run_id]
        for name in run.rules:
            last_ns = self._store.alert_book.notified_ns(process.run_id, name)
            if last_ns is not None and name not in run.repeat_policies:
                run.repeat_policies[name] = RepeatPolicy(last_ns=last_ns)
        return run

    def _add_rule(self, run: RunWatch, fields: Mapping[str, Any]) -> None:
        try:
            rule = rule_from_training(fields)
        except ConfigError as error:
            log.warning("A rule of %s is ignored: %s", run.name or run.run_id, error)
            return
        run.add_rule(rule)

    def _resolve_dropped(self, run: RunWatch, now_ns: int) -> None:
        """Resolves the alerts of rules that were removed or have a different condition now."""
        for number in run.dropped:
            self._store.alert_book.resolve(number, now_ns)
            self._store.alert_book.add_fields(number, {"ended_with_rule": True})
        run.forget_dropped()

    def _store_change(self, run: RunWatch, change: Change, now_ns: int) -> None:
        book = self._store.alert_book
        if change.turn == "resolves":
            book.resolve(run.resolved(change), now_ns)
            return
        detail = change.detail
        fields = {
            "rank": change.subject.rank,
            "host": change.subject.host,
            "device": change.subject.device,
            "key": detail.key,
            "quantity": detail.quantity,
            "value": _json_number(detail.value),
            "threshold": _json_number(detail.threshold),
            "step": detail.step,
            "since_ns": detail.since_ns,
            "recent": [_json_number(value) for value in detail.recent],
            "advice": detail.advice,
        }
        alert = OpenAlert(run.run_id, detail.rule, detail.severity, detail.message, now_ns, fields)
        run.fired(change, book.fire(alert))

    def _due_notices(self, run: RunWatch, now_ns: int) -> Iterator[tuple[Rule, Kind, list[int]]]:
        """Yields the rules that people must be notified of now, with the ids of their firing alerts."""
        if not run.open and not run.repeat_policies:
            return
        routing = self._routing_of(run.run_id)
        acknowledged = routing.silences.read().acknowledged
        for rule in run.rules.values():
            ids = [number for number, (name, _) in run.open.items() if name == rule.name]
            policy = run.repeat_policies.get(rule.name)
            if not ids and policy is None:
                continue
            policy = run.repeat_policies.setdefault(rule.name, RepeatPolicy())
            is_due = policy.is_due(fires=bool(ids), cooldown_s=rule.cooldown_s, now_ns=now_ns)
            reminds = policy.should_remind(rule.remind_s, now_ns) and not acknowledged.issuperset(ids)
            if (is_due or reminds) and not routing.is_silenced(run, rule, now_ns):
                yield rule, ("resolved" if not ids else "firing" if is_due else "reminder"), ids

    def _has_due_notices(self, run: RunWatch, now_ns: int) -> bool:
        return any(True for _ in self._due_notices(run, now_ns))

    def _notify(self, run: RunWatch, now_ns: int) -> None:
        """Posts one notice for all new alerts, one for all resolved ones, and one for reminders."""
        alerts: dict[Kind, list[tuple[Rule, AlertDetail, list[int]]]] = {}
        for rule, kind, ids in list(self._due_notices(run, now_ns)):
            policy = run.repeat_policies[rule.name]
            policy.record_notice(fires=bool(ids), cooldown_s=rule.cooldown_s, now_ns=now_ns)
            if ids:
                alerts.setdefault(kind, []).extend((rule, run.open[number][1], [number]) for number in ids)
                run.last_reported[rule.name] = run.open[ids[0]][1]
            elif rule.resolve and rule.name in run.last_reported:
                alerts.setdefault(kind, []).append((rule, run.last_reported.pop(rule.name), []))
        for kind, of_kind in alerts.items():
            self._post(run, kind, of_kind, now_ns)

    def _resolve_all(self, run: RunWatch, now_ns: int) -> None:
        """Resolves all alerts of a run that has ended."""
        for number in list(run.open):
            self._store.alert_book.resolve(number, now_ns)
            self._store.alert_book.add_fields(number, {"ended_with_run": True})

    def _post(
        self, run: RunWatch, kind: Kind, alerts: list[tuple[Rule, AlertDetail, list[int]]], now_ns: int
    ) -> None:
        book, routing = self._store.alert_book, self._routing_of(run.run_id)
        alerts.sort(key=lambda alert: SEVERITIES.index(alert[0].severity))
        for channel in routing.channels:
            details = tuple(
                detail for rule, detail, _ in alerts if rule.channels is None or channel in rule.channels
            )
            if details:
                book.post(channel, self._notice(run, kind, details, now_ns))
                self.has_posted = True
        for _, _, numbers in alerts:
            for number in numbers:
                book.add_fields(number, {"notified_ns": now_ns})

    def _pid_of(self, run: RunWatch) -> int | None:
        processes = self._processes.get(run.run_id, {}).values()
        return min(processes, key=lambda process: process.rank).pid if processes else None

    def _notice(self, run: RunWatch, kind: Kind, details: tuple[AlertDetail, ...], now_ns: int) -> Notice:
        return Notice(
            id=f"{run.run_id}-{kind}-{details[0].rule}-{now_ns}",
            kind=kind,
            run=run.name or run.run_id,
            run_id=run.run_id,
            project=run.project,
            host=run.host,
            at_ns=now_ns,
            alerts=details,
            link=self._routing_of(run.run_id).link_to(run.run_id, details),
            # A training that has ended has printed its failure to its own console.
            pid=self._pid_of(run) if run.status in LIVE else None,
        )


def _json_number(value: float | None) -> float | None:
    """Returns finite numbers only: JSON in databases has no others."""
    return value if value is not None and math.isfinite(value) else None
