"""Evaluates the rules of all runs, keeps what fires, and posts what people are to be told."""

from __future__ import annotations

import logging
import math
import time
from typing import TYPE_CHECKING, Any

from stepscope.alerts.catching_up import catch_up
from stepscope.alerts.conditions.recent import MAX_UNJUDGED
from stepscope.alerts.page_rules import Made
from stepscope.alerts.repeat_policy import RepeatPolicy
from stepscope.alerts.rule import Rule, rule_said
from stepscope.alerts.run_watch import RunWatch, Said
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
"""Without news there is a look at most this often, for what time alone brings about."""

MANY_UNJUDGED = MAX_UNJUDGED // 5
"""With so many points of a series that no rule has looked at, there is a look at once."""

CAUSE_WITHIN_NS = 10_000_000_000
"""So long the other processes of a run have to say why one of them lost its connection."""

RULE_EVENT, CONDITION_EVENT = "alert_rule", "alert_condition"
"""What a training says of rules of its own, and of conditions that only it can judge."""

NOTICE = "notice"
"""What stepscope itself has to say of a run."""


class Engine:
    """The alerts of one agent. Whatever it decides is in the store before anybody is told."""

    def __init__(
        self,
        store: Store,
        rules_of: Callable[[str], list[Rule] | None],
        routing_of: Callable[[str], Routing],
        now_ns: Callable[[], int] = time.time_ns,
        page_rules: PageRules | None = None,
    ) -> None:
        """Both give what a run's own settings ask for; no rules where it is not to be watched at all."""
        self._store, self._rules_of, self._routing_of, self._now_ns = store, rules_of, routing_of, now_ns
        self._page_rules, self._made = page_rules, Made()
        self._complaints: set[str] = set()
        self._runs: dict[str, RunWatch] = {}
        self._unrecorded: dict[str, UnrecordedMetrics] = {}
        self._processes: dict[str, dict[tuple[str, int, int], Process]] = {}
        self._unheard = store.alert_book.open_alerts()
        self._judged_until_ns = {run.id: run.last_ns for run in store.runs() if run.status in LIVE}
        """Up to when an earlier agent has judged what the runs logged that it has left."""
        self._just_begun: set[str] = set()
        """Runs whose rows of this round were read from the store already."""
        self._lost_connection: set[str] = set()
        """Runs of which one process lost its connection, and the others may still say why."""
        self._has_news, self._looked_ns = True, 0
        self.has_posted = False
        """Whether something was posted since this was last set to False."""

    def follow(self, process: Process) -> None:
        """Learns of a process of a run, or what has become of it."""
        if process.role in ("worker", "machine") or not process.started_ns:
            return
        run = self._runs.get(process.run_id)
        if run is None:
            run = self._begin(process)
        else:
            run.go_by_settings(self._rules_of(process.run_id))
        if process.role != "launcher" or not run.name:  # a monitor in its command may have named the run
            run.name, run.project = process.name, process.project
        run.host = run.host or process.host
        known = self._processes.setdefault(process.run_id, {})
        known[process.segment, process.rank, process.pid] = process
        self._judge_outcome(run)

    def _newest_processes(self, run: RunWatch) -> list[Process]:
        known = self._processes[run.run_id].values()
        newest = max(process.segment for process in known)
        return [process for process in known if process.segment == newest]

    def _judge_outcome(self, run: RunWatch) -> None:
        """What has become of a run; of a lost connection the rank that caused it may still say why."""
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

    def _judge_lost_connections(self) -> None:
        for run_id in list(self._lost_connection):
            self._judge_outcome(self._runs[run_id])

    def take(self, table: Table) -> None:
        """Takes rows that are safe in the store, or were read of the machine."""
        run = self._runs.get(table.source.run_id)
        if run is not None and run.run_id not in self._just_begun:
            run.history.add(table.source, table.keys, table.steps, table.times_ns, table.values)

    @property
    def is_behind(self) -> bool:
        """Whether so many points wait to be judged that more of them may not be kept for that."""
        return any(run.history.unjudged > MANY_UNJUDGED for run in self._runs.values())

    def wants(self, keys: Collection[str]) -> bool:
        """Whether a rule of any run looks at one of these metrics."""
        return any(run.wants(keys) for run in self._runs.values())

    def hear(self, run_id: str, event: Event) -> None:
        """Takes what a training says of its own rules."""
        run = self._runs.get(run_id)
        if run is None or event.by_user:
            return
        if event.kind == RULE_EVENT:
            self._learn_rule(run, event.fields)
        elif event.kind == NOTICE and RULE_FIELD in event.fields:
            self._unrecorded[run_id].skip(str(event.fields[RULE_FIELD]))
        elif event.kind == CONDITION_EVENT:
            name = str(event.fields.get("rule", ""))
            fields = {**event.fields, "step": event.step, "rank": event.rank}
            run.said[name] = Said(bool(event.fields.get("is_true")), fields)

    def settle(self) -> None:
        """All that was kept has been told. Who waits for the end of a run then finds its alerts."""
        self._just_begun.clear()
        self._has_news = True
        self.tick()

    def tick(self) -> None:
        """Looks at all runs; those that have ended are looked at once more, and left."""
        now_ns = self._now_ns()
        if not self._has_news and now_ns - self._looked_ns < PAUSE_NS:
            return
        self._has_news, self._looked_ns = False, now_ns
        self._look_at_page_rules()
        self._judge_lost_connections()
        for run in list(self._runs.values()):
            if run.behind:
                catch_up(run, self._store, self._segment_of(run.run_id))
            changes = list(run.changes(now_ns))
            # One alert for all processes of a run that fail one after another.
            has_ended = run.status not in LIVE and all(
                process.ended_ns is not None for process in self._newest_processes(run)
            )
            if run.dropped or changes or has_ended or self._has_to_tell(run, now_ns):
                with self._store.transaction():
                    self._drop(run, now_ns)
                    for change in changes:
                        self._note(run, change, now_ns)
                    self._tell(run, now_ns)
                    if has_ended:
                        self._close(run, now_ns)
            self._report_unrecorded(run, now_ns, has_ended=has_ended)
            if has_ended:
                self._lost_connection.discard(run.run_id)
                del self._runs[run.run_id], self._unrecorded[run.run_id]
                self._processes.pop(run.run_id, None)

    def _report_unrecorded(self, run: RunWatch, now_ns: int, *, has_ended: bool) -> None:
        """Says once in the run, and in the log, which of its rules look at nothing."""
        check = self._unrecorded[run.run_id]
        found = list(check.check(run.rules.values(), self._store, now_ns, has_ended=has_ended))
        if not found:
            return
        segment = self._segment_of(run.run_id)
        with self._store.transaction():
            for rule, text in found:
                fields = {"host": run.host, "text": text, RULE_FIELD: rule}
                self._store.put_event(run.run_id, Event(NOTICE, now_ns, None, None, segment, fields))
                log.warning("%s: %s", run.name or run.run_id, text)

    def _look_at_page_rules(self) -> None:
        """Goes by what people have changed since the last look; costs one stat where that is nothing."""
        if self._page_rules is None or not self._runs:
            return
        made = self._page_rules.read()
        if made is self._made:
            return
        self._made = made
        wrong = [f"The rule {name!r} of the page is left out: {why}" for name, why in made.problems.items()]
        for complaint in [*wrong, made.trouble]:
            if complaint and complaint not in self._complaints:
                self._complaints.add(complaint)
                log.warning("%s", complaint)
        for run in self._runs.values():
            run.go_by(made)

    def _segment_of(self, run_id: str) -> str:
        return max(one.segment for one in self._processes[run_id].values())

    def _begin(self, process: Process) -> RunWatch:
        run = RunWatch(
            process.run_id, self._rules_of(process.run_id), name=process.name, project=process.project
        )
        self._runs[process.run_id] = run
        self._unrecorded[process.run_id] = UnrecordedMetrics(process.run_id, self._now_ns())
        self._look_at_page_rules()
        run.go_by(self._made)
        for event in self._store.events(process.run_id):
            self.hear(process.run_id, event)
        # What is told of it in this round is in the store already.
        self._just_begun.add(run.run_id)
        catch_up(run, self._store, process.segment, self._judged_until_ns.get(run.run_id, 0))
        for alert in self._unheard:
            if alert.run_id == process.run_id:
                run.take_up(alert)
                notified_ns = alert.fields.get("notified_ns")
                if notified_ns is not None:
                    run.tellings[alert.rule] = RepeatPolicy(as_firing=True, last_ns=notified_ns)
                    run.last_told[alert.rule] = run.open[alert.id][1]
        self._unheard = [alert for alert in self._unheard if alert.run_id != process.run_id]
        for name in run.rules:
            last_ns = self._store.alert_book.notified_ns(process.run_id, name)
            if last_ns is not None and name not in run.tellings:
                run.tellings[name] = RepeatPolicy(last_ns=last_ns)
        return run

    def _learn_rule(self, run: RunWatch, fields: Mapping[str, Any]) -> None:
        try:
            rule = rule_said(fields)
        except ConfigError as error:
            log.warning("A rule of %s is left out: %s", run.name or run.run_id, error)
            return
        run.learn(rule)

    def _drop(self, run: RunWatch, now_ns: int) -> None:
        """Ends the alerts of rules that are gone, or ask for something else by now."""
        for number in run.dropped:
            self._store.alert_book.resolve(number, now_ns)
            self._store.alert_book.add_fields(number, {"ended_with_rule": True})
        run.let_go()

    def _note(self, run: RunWatch, change: Change, now_ns: int) -> None:
        book = self._store.alert_book
        if change.turn == "resolves":
            book.resolve(run.resolved(change), now_ns)
            return
        told = change.told
        fields = {
            "rank": change.subject.rank,
            "host": change.subject.host,
            "device": change.subject.device,
            "key": told.key,
            "quantity": told.quantity,
            "value": _json_number(told.value),
            "threshold": _json_number(told.threshold),
            "step": told.step,
            "since_ns": told.since_ns,
            "recent": [_json_number(one) for one in told.recent],
            "advice": told.advice,
        }
        alert = OpenAlert(run.run_id, told.rule, told.severity, told.message, now_ns, fields)
        run.fired(change, book.fire(alert))

    def _to_tell(self, run: RunWatch, now_ns: int) -> Iterator[tuple[Rule, Kind, list[int]]]:
        """The rules of which there is something to say now, with the alerts of each that fire."""
        if not run.open and not run.tellings:
            return
        routing = self._routing_of(run.run_id)
        said = routing.silences.read()
        for rule in run.rules.values():
            ids = [number for number, (name, _) in run.open.items() if name == rule.name]
            telling = run.tellings.get(rule.name)
            if not ids and telling is None:
                continue
            telling = run.tellings.setdefault(rule.name, RepeatPolicy())
            is_due = telling.is_due(fires=bool(ids), cooldown_s=rule.cooldown_s, now_ns=now_ns)
            reminds = telling.is_to_remind(rule.remind_s, now_ns) and not said.acknowledged.issuperset(ids)
            if (is_due or reminds) and not routing.is_to_wait(run, rule, now_ns):
                yield rule, ("resolved" if not ids else "firing" if is_due else "reminder"), ids

    def _has_to_tell(self, run: RunWatch, now_ns: int) -> bool:
        return any(True for _ in self._to_tell(run, now_ns))

    def _tell(self, run: RunWatch, now_ns: int) -> None:
        """Posts one notice for all that is new, one for all that is over, and one of what still fires."""
        news: dict[Kind, list[tuple[Rule, AlertDetail, list[int]]]] = {}
        for rule, kind, ids in list(self._to_tell(run, now_ns)):
            run.tellings[rule.name].told(fires=bool(ids), cooldown_s=rule.cooldown_s, now_ns=now_ns)
            if ids:
                news.setdefault(kind, []).extend((rule, run.open[number][1], [number]) for number in ids)
                run.last_told[rule.name] = run.open[ids[0]][1]
            elif rule.resolve and rule.name in run.last_told:
                news.setdefault(kind, []).append((rule, run.last_told.pop(rule.name), []))
        for kind, several in news.items():
            self._post(run, kind, several, now_ns)

    def _close(self, run: RunWatch, now_ns: int) -> None:
        """Nothing goes on of a run that has ended."""
        for number in list(run.open):
            self._store.alert_book.resolve(number, now_ns)
            self._store.alert_book.add_fields(number, {"ended_with_run": True})

    def _post(
        self, run: RunWatch, kind: Kind, several: list[tuple[Rule, AlertDetail, list[int]]], now_ns: int
    ) -> None:
        book, routing = self._store.alert_book, self._routing_of(run.run_id)
        several.sort(key=lambda one: SEVERITIES.index(one[0].severity))
        for channel in routing.channels:
            told = tuple(one for rule, one, _ in several if rule.channels is None or channel in rule.channels)
            if told:
                book.post(channel, self._notice(run, kind, told, now_ns))
                self.has_posted = True
        for _, _, numbers in several:
            for number in numbers:
                book.add_fields(number, {"notified_ns": now_ns})

    def _pid_of(self, run: RunWatch) -> int | None:
        several = self._processes.get(run.run_id, {}).values()
        return min(several, key=lambda one: one.rank).pid if several else None

    def _notice(self, run: RunWatch, kind: Kind, told: tuple[AlertDetail, ...], now_ns: int) -> Notice:
        return Notice(
            id=f"{run.run_id}-{kind}-{told[0].rule}-{now_ns}",
            kind=kind,
            run=run.name or run.run_id,
            run_id=run.run_id,
            project=run.project,
            host=run.host,
            at_ns=now_ns,
            alerts=told,
            link=self._routing_of(run.run_id).link_to(run.run_id, told),
            # A training that has ended has said so on its own console.
            pid=self._pid_of(run) if run.status in LIVE else None,
        )


def _json_number(value: float | None) -> float | None:
    """What JSON has a number for; databases refuse the rest."""
    return value if value is not None and math.isfinite(value) else None
