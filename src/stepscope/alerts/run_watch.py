"""Evaluates all rules of one run: which fire, for which rank, host or device, and since when."""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from stepscope.alerts.conditions.evaluation import Outcome, evaluators_of
from stepscope.alerts.conditions.moments import as_of
from stepscope.alerts.conditions.recent_points import MAX_UNEVALUATED
from stepscope.alerts.conditions.run_history import History
from stepscope.alerts.conditions.subjects import Subject
from stepscope.alerts.page_rules import PageRuleSet
from stepscope.alerts.rule import render
from stepscope.alerts.state import State
from stepscope.number_format import number
from stepscope.schema.alert import AlertDetail
from stepscope.schema.run import without_end_mark

if TYPE_CHECKING:
    from collections.abc import Collection, Generator, Iterator, Mapping, Sequence

    from stepscope.alerts.conditions.evaluation import Evaluator
    from stepscope.alerts.conditions.tree import Expression
    from stepscope.alerts.repeat_policy import RepeatPolicy
    from stepscope.alerts.rule import Rule
    from stepscope.alerts.state import Turn
    from stepscope.schema.run import Status
    from stepscope.store.base import OpenAlert

log = logging.getLogger("stepscope.agent")

INTERRUPTED = "interrupted by SIGINT"
"""The reason of a run that a person stopped."""


@dataclass(frozen=True)
class Change:
    """A rule that starts to fire, or resolves, for a subject."""

    rule: Rule
    subject: Subject
    turn: Turn
    detail: AlertDetail


@dataclass
class ReportedCondition:
    """A condition that only the training can evaluate, as the training reported it."""

    is_true: bool
    fields: dict[str, Any]
    is_evaluated: bool = False
    next: ReportedCondition | None = None
    """The report that followed before this one was evaluated, so that a short one is not missed."""


@dataclass
class RunWatch:
    """One run: its points, its rules, and the state of each rule."""

    run_id: str
    settings_rules: Sequence[Rule] | None
    """Rules of the settings, including disabled ones; None if alerts are disabled."""
    training_rules: dict[str, Rule] = field(default_factory=dict)
    """Rules that the training defined, by name; they replace others of the same name."""
    page_rules: PageRuleSet = field(default_factory=PageRuleSet)
    """Rules and switches of the page; ignored if alerts are disabled."""
    rules: dict[str, Rule] = field(default_factory=dict, init=False)
    """The rules that are evaluated, by name."""
    name: str = ""
    project: str = ""
    host: str = ""
    status: Status = "running"
    reason: str = ""
    _keys: set[str] = field(default_factory=set)
    """The metrics that rules use."""
    missing_history: set[str] = field(default_factory=set)
    """Metrics for which a rule needs older points than the history has."""
    history: History = field(init=False)
    reported: dict[str, ReportedCondition] = field(default_factory=dict)
    """By rule, for rules whose condition is a function of the training."""
    repeat_policies: dict[str, RepeatPolicy] = field(default_factory=dict)
    """By rule."""
    last_reported: dict[str, AlertDetail] = field(default_factory=dict)
    """The last alert in a notice about each firing rule, for the notice that it is resolved."""
    open: dict[int, tuple[str, AlertDetail]] = field(default_factory=dict)
    """Firing alerts by id: rule and detail."""
    dropped: set[int] = field(default_factory=set)
    """Ids of alerts whose rule was removed or has a different condition now."""
    _states: dict[tuple[str, Subject], State] = field(default_factory=dict)
    _failed: list[Rule] = field(default_factory=list)
    _due: set[str] = field(default_factory=set)
    """Rules to evaluate next time, whether or not their metrics have new points."""
    _rules_by_key: dict[str, list[str]] = field(default_factory=dict)
    """The rules that use a metric."""
    _time_dependent: set[str] = field(default_factory=set)
    """Rules whose result may change without new points."""
    _evaluators: dict[int, list[Evaluator]] = field(default_factory=dict)
    """By the identity of a rule's condition."""
    _evaluators_generation: int = -1
    """The generation of the history for which the evaluators were created."""
    _evaluated_status: str = ""
    _unstored: int = 0
    """New alerts that are not stored yet: until they are, their points are evaluated again."""

    def __post_init__(self) -> None:
        self.history = History(keys=self._keys, keep_unevaluated=MAX_UNEVALUATED)
        self._select_rules()

    def add_rule(self, rule: Rule) -> None:
        """Adds a rule of the training, or replaces the one of the same name."""
        self.training_rules[rule.name] = rule
        self._select_rules()

    def use_settings_rules(self, rules: Sequence[Rule] | None) -> None:
        """Uses the rules of other settings, if they differ: another process may have other settings."""
        if rules is not self.settings_rules and rules != self.settings_rules:
            self.settings_rules = rules
            self._select_rules()

    def use_page_rules(self, page_rules: PageRuleSet) -> None:
        """Uses the current rules and switches of the page."""
        self.page_rules = page_rules
        self._select_rules()

    def _select_rules(self) -> None:
        others = {rule.name: rule for rule in self.settings_rules or ()} | self.training_rules
        page_rules = PageRuleSet() if self.settings_rules is None else self.page_rules
        chosen = page_rules.apply_to(others, (self.name, self.run_id), self.project)
        before, self.rules = self.rules, {n: rule for n, rule in chosen.items() if rule not in self._failed}
        for name, rule in before.items():
            after = self.rules.get(name)
            if after is None or (after.condition, after.clear) != (rule.condition, rule.clear):
                self._reset(name)
        self._rules_by_key = {}
        for rule in self.rules.values():
            for key in rule.keys:
                self._rules_by_key.setdefault(key, []).append(rule.name)
            reach = rule.reach()
            held = {key for key in reach if key in self._keys and self.history.holds(reach[key])}
            self.missing_history.update(rule.keys - self._keys, reach.keys() - held)
            self._keys.update(rule.keys)
            self.history.widen(reach)
        self._evaluators_generation = -1
        self._due.update(self.rules)

    def report(self, rule: str, reported: ReportedCondition) -> None:
        """Takes a condition that the training has evaluated."""
        last = self.reported.get(rule)
        if last is None or last.is_evaluated or not last.is_true:
            self.reported[rule] = reported
        else:
            last.next = None if reported.is_true else reported

    def wants(self, keys: Collection[str]) -> bool:
        """Whether a rule uses one of these metrics."""
        return not self._keys.isdisjoint(keys)

    def _reset(self, name: str) -> None:
        """Forgets the state of a rule; it does not apply to a new rule of the same name."""
        for rule, subject in [place for place in self._states if place[0] == name]:
            del self._states[rule, subject]
        self.dropped.update(number for number, (rule, _) in self.open.items() if rule == name)

    def forget_dropped(self) -> None:
        """Forgets dropped alerts, and the notices of rules that no longer exist."""
        self.open = {number: alert for number, alert in self.open.items() if number not in self.dropped}
        self.dropped.clear()
        for by_rule in (self.repeat_policies, self.last_reported):
            for name in by_rule.keys() - self.rules.keys():
                del by_rule[name]

    def changes(self, now_ns: int) -> Iterator[Change]:
        """Evaluates the rules whose result may have changed; yields those that start to fire or resolve."""
        self._unstored = 0
        for name in self._due_rules():
            rule = self.rules[name]
            try:
                changes = list(self._changes_of(rule, now_ns))
            except Exception:  # a rule that fails must not stop the others or the agent
                self._failed.append(self.rules.pop(rule.name))
                run = self.name or self.run_id
                log.exception("Rule %s of %s failed and is ignored.", rule.name, run)
            else:
                self._unstored += sum(change.turn == "fires" for change in changes)
                yield from changes
        if not self._unstored:
            self.history.mark_evaluated()

    def _due_rules(self) -> list[str]:
        """Returns the rules whose result may have changed since the last evaluation, in their order."""
        status = self._rule_status()
        if status != self._evaluated_status:
            self._evaluated_status = status
            self._due.update(self.rules)
        for key in self.history.changed:
            self._due.update(self._rules_by_key.get(key, ()))
        due = [
            name
            for name, rule in self.rules.items()
            if name in self._due or name in self._time_dependent or rule.condition is None
        ]
        self.history.changed.clear()
        self._due.clear()
        return due

    def _changes_of(self, rule: Rule, now_ns: int) -> Iterator[Change]:
        is_underway = False
        fired_before_now, were_true = yield from self._fired_before_now(rule)
        for outcome in self._outcomes(rule, now_ns):
            subject = Subject(outcome.rank, outcome.host, outcome.device)
            if subject in fired_before_now:
                continue
            state = self._states.setdefault((rule.name, subject), State())
            is_to_clear = state.is_firing and subject not in were_true
            turn = state.advance(
                rule,
                is_true=outcome.is_true,
                is_clear=self._is_clear(rule, outcome, now_ns) if is_to_clear else None,
                now_ns=now_ns,
                points=outcome.points,
            )
            is_underway = is_underway or state.is_underway
            if turn is not None:
                since_ns = state.true_since_ns or now_ns
                yield Change(rule, subject, turn, self._detail(rule, outcome, since_ns))
        if (
            is_underway
            or fired_before_now
            or (rule.depends_on_time and self._evaluators.get(id(rule.condition)))
        ):
            self._time_dependent.add(rule.name)
        else:
            self._time_dependent.discard(rule.name)

    def _fired_before_now(self, rule: Rule) -> Generator[Change, None, tuple[set[Subject], set[Subject]]]:
        """Yields alerts of points between two evaluations; returns the subjects that fired and were true.

        Rules with a duration in seconds are skipped: evaluations are frequent enough for them.
        """
        fired: set[Subject] = set()
        were_true: set[Subject] = set()
        status = self._rule_status()
        for evaluator in () if rule.condition is None or rule.for_s else self._evaluators_for(rule.condition):
            if not evaluator.moments.has_several:
                continue
            truths = evaluator.moments.evaluate(status)
            if not truths.is_true.any() and not self._is_underway(rule.name, evaluator.subject):
                continue
            state = self._states.setdefault((rule.name, evaluator.subject), State())
            if truths.is_true.any():
                were_true.add(evaluator.subject)
            place = None if state.is_firing else state.advance_all(rule, truths)
            if place is not None:
                fired.add(evaluator.subject)
                with as_of(truths.ends, place):
                    outcome = evaluator.outcome(int(truths.times_ns[place]), status)
                    since_ns = state.true_since_ns or int(truths.times_ns[place])
                    detail = self._detail(rule, outcome, since_ns)
                yield Change(rule, evaluator.subject, "fires", detail)
        return fired, were_true

    def fired(self, change: Change, alert_id: int) -> None:
        """Records the id under which an alert was stored."""
        self._unstored -= 1
        if not self._unstored:
            self.history.mark_evaluated()
        self._states[change.rule.name, change.subject].fired(alert_id)
        self.open[alert_id] = (change.rule.name, change.detail)

    def resolved(self, change: Change) -> int:
        """Removes a resolved alert; returns its id."""
        state = self._states[change.rule.name, change.subject]
        alert_id = state.alert_id or 0
        state.resolved()
        self.open.pop(alert_id, None)
        return alert_id

    def adopt_alert(self, alert: OpenAlert) -> None:
        """Continues an open alert of an earlier agent, if its rule still exists."""
        fields = alert.fields
        if alert.rule not in self.rules:
            self.dropped.add(alert.id)
        subject = Subject(fields.get("rank"), fields.get("host", ""), fields.get("device", ""))
        self._states[alert.rule, subject] = State(true_since_ns=alert.fired_ns, alert_id=alert.id)
        self._due.update(self.rules)
        names = ("key", "quantity", "value", "threshold", "step", "advice")
        stored = {name: fields[name] for name in names if name in fields}
        self.open[alert.id] = (
            alert.rule,
            AlertDetail(
                alert.rule,
                alert.severity,
                alert.message,
                alert.fired_ns,
                rank=subject.rank,
                device=subject.device,
                recent=tuple(math.nan if value is None else value for value in fields.get("recent", ())),
                **stored,
            ),
        )

    def _outcomes(self, rule: Rule, now_ns: int) -> list[Outcome]:
        if rule.condition is None:
            reported = self.reported.get(rule.name)
            if reported is None:
                return []
            if reported.is_evaluated and reported.next is not None:
                reported = self.reported[rule.name] = reported.next
            reported.is_evaluated = True
            rank, step = reported.fields.get("rank"), reported.fields.get("step")
            return [Outcome(is_true=reported.is_true, rank=rank, step=step)]
        status = self._rule_status()
        return [
            evaluator.outcome(now_ns, status)
            for evaluator in self._evaluators_for(rule.condition)
            # A condition that is not true changes nothing unless the rule is pending or firing.
            if evaluator.is_true(now_ns, status) or self._is_underway(rule.name, evaluator.subject)
        ]

    def _is_underway(self, rule: str, subject: Subject) -> bool:
        state = self._states.get((rule, subject))
        return state is not None and state.is_underway

    def _evaluators_for(self, condition: Expression) -> list[Evaluator]:
        if self._evaluators_generation != self.history.generation:
            self._evaluators.clear()
            self._evaluators_generation = self.history.generation
        evaluators = self._evaluators.get(id(condition))
        if evaluators is None:
            evaluators = self._evaluators[id(condition)] = evaluators_of(condition, self.history)
        return evaluators

    def _rule_status(self) -> str:
        """Returns the status for rules; a run that a person interrupted needs no alert."""
        return "interrupted" if self.reason.endswith(INTERRUPTED) else self.status

    def _is_clear(self, rule: Rule, outcome: Outcome, now_ns: int) -> bool | None:
        if rule.clear is None:
            return None if outcome.is_true is None else not outcome.is_true
        subject = Subject(outcome.rank, outcome.host, outcome.device)
        for evaluator in self._evaluators_for(rule.clear):
            if evaluator.subject == subject:
                return evaluator.is_true(now_ns, self._rule_status())
        return None

    def _detail(self, rule: Rule, outcome: Outcome, since_ns: int) -> AlertDetail:
        reported = self.reported.get(rule.name)
        values: dict[str, Any] = {**self.history.latest(outcome.rank, outcome.device)}
        if reported is not None:
            values.update(reported.fields.get("values", {}))
        values.update(self._labels(outcome))
        return AlertDetail(
            rule=rule.name,
            severity=rule.severity,
            message=render(rule.message, values) if rule.message else _default_message(rule, outcome),
            since_ns=since_ns,
            key=outcome.key,
            quantity=outcome.quantity,
            value=outcome.value,
            threshold=outcome.threshold,
            step=outcome.step,
            rank=outcome.rank,
            device=outcome.device,
            recent=tuple(outcome.recent),
            advice=rule.advice,
        )

    def _labels(self, outcome: Outcome) -> Mapping[str, Any]:
        return {
            "value": outcome.value,
            "threshold": outcome.threshold,
            "difference": _difference(outcome),
            "rank": outcome.rank,
            "device": outcome.device,
            "step": outcome.step,
            "run": self.name,
            "status": self.status,
            "reason": without_end_mark(self.reason) or None,
        }


def _difference(outcome: Outcome) -> float | None:
    if outcome.value is None or outcome.threshold is None:
        return None
    return abs(outcome.value - outcome.threshold)


def _default_message(rule: Rule, outcome: Outcome) -> str:
    if outcome.value is None:
        return f"{rule.name}: {rule.condition}" if rule.condition is not None else rule.name
    limit = "" if outcome.threshold is None else f", the limit is {number(outcome.threshold)}"
    return f"{outcome.quantity or outcome.key or rule.name} is {number(outcome.value)}{limit}."
