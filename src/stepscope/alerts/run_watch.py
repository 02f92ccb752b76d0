"""Watches one run by all of its rules: which fire, for whom, and since when."""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from stepscope.alerts.conditions.evaluation import Outcome, judges_of
from stepscope.alerts.conditions.history import History, Subject
from stepscope.alerts.conditions.moments import as_of
from stepscope.alerts.conditions.recent import MAX_UNJUDGED
from stepscope.alerts.page_rules import Made
from stepscope.alerts.rule import render
from stepscope.alerts.state import State
from stepscope.number_format import number
from stepscope.schema.alert import AlertDetail
from stepscope.schema.run import without_end_mark

if TYPE_CHECKING:
    from collections.abc import Collection, Generator, Iterator, Mapping, Sequence

    from stepscope.alerts.conditions.evaluation import Judge
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
    """A rule that begins to fire, or resolves, for a subject."""

    rule: Rule
    subject: Subject
    turn: Turn
    told: AlertDetail


@dataclass
class Said:
    """What the training itself says of a condition that only it can judge."""

    is_true: bool
    fields: dict[str, Any]


@dataclass
class RunWatch:
    """One run: its points, its rules, and where each of them stands."""

    run_id: str
    of_settings: Sequence[Rule] | None
    """Rules of the settings, those that are switched off as well; None where alerts are switched off."""
    of_training: dict[str, Rule] = field(default_factory=dict)
    """Rules that the training itself said, by name; they take the place of others."""
    made: Made = field(default_factory=Made)
    """What people made of rules on the page; does not count where alerts are switched off."""
    rules: dict[str, Rule] = field(default_factory=dict, init=False)
    """Those that are judged."""
    name: str = ""
    project: str = ""
    host: str = ""
    status: Status = "running"
    reason: str = ""
    _keys: set[str] = field(default_factory=set)
    """The metrics that any rule looks at."""
    behind: set[str] = field(default_factory=set)
    """Those of them that a rule looks further back at than there are points."""
    history: History = field(init=False)
    said: dict[str, Said] = field(default_factory=dict)
    """By rule, for those whose condition is a function of the training's."""
    tellings: dict[str, RepeatPolicy] = field(default_factory=dict)
    """By rule."""
    last_told: dict[str, AlertDetail] = field(default_factory=dict)
    """What people were last told of a rule that fires, to tell that it is over."""
    open: dict[int, tuple[str, AlertDetail]] = field(default_factory=dict)
    """Alerts that fire: their rule and what there is to tell, by number."""
    dropped: set[int] = field(default_factory=set)
    """Alerts whose rule is gone, or asks for something else by now."""
    _states: dict[tuple[str, Subject], State] = field(default_factory=dict)
    _failed: list[Rule] = field(default_factory=list)
    _due: set[str] = field(default_factory=set)
    """Rules to judge at the next look, whether or not their metrics have new points."""
    _asking: dict[str, list[str]] = field(default_factory=dict)
    """The rules that look at a metric."""
    _restless: set[str] = field(default_factory=set)
    """Rules that time alone may change, and whose metrics there are."""
    _judges: dict[int, list[Judge]] = field(default_factory=dict)
    """By the identity of a condition that one of the rules has."""
    _judges_made_for: int = -1
    """The generation of the history that they were made for."""
    _status_judged: str = ""
    _unkept: int = 0
    """Alerts of the last look that nobody has kept yet: until then its points are judged again."""

    def __post_init__(self) -> None:
        self.history = History(keys=self._keys, keep_unjudged=MAX_UNJUDGED)
        self._choose()

    def learn(self, rule: Rule) -> None:
        """Goes by one rule more, or by another in its place."""
        self.of_training[rule.name] = rule
        self._choose()

    def go_by_settings(self, rules: Sequence[Rule] | None) -> None:
        """Goes by the rules of other settings, where they are others: another process may decide by now."""
        if rules is not self.of_settings and rules != self.of_settings:
            self.of_settings = rules
            self._choose()

    def go_by(self, made: Made) -> None:
        """Goes by what people have made of rules since."""
        self.made = made
        self._choose()

    def _choose(self) -> None:
        given = {rule.name: rule for rule in self.of_settings or ()} | self.of_training
        made = Made() if self.of_settings is None else self.made
        chosen = made.over(given, (self.name, self.run_id), self.project)
        before, self.rules = self.rules, {n: rule for n, rule in chosen.items() if rule not in self._failed}
        for name, rule in before.items():
            after = self.rules.get(name)
            if after is None or (after.condition, after.clear) != (rule.condition, rule.clear):
                self._begin_anew(name)
        self._asking = {}
        for rule in self.rules.values():
            for key in rule.keys:
                self._asking.setdefault(key, []).append(rule.name)
            reach = rule.reach()
            held = {key for key in reach if key in self._keys and self.history.holds(reach[key])}
            self.behind.update(rule.keys - self._keys, reach.keys() - held)
            self._keys.update(rule.keys)
            self.history.widen(reach)
        self._judges_made_for = -1
        self._due.update(self.rules)

    def wants(self, keys: Collection[str]) -> bool:
        """Whether a rule looks at one of these metrics."""
        return not self._keys.isdisjoint(keys)

    def _begin_anew(self, name: str) -> None:
        """What a rule was true of says nothing of another rule of its name."""
        for place in [one for one in self._states if one[0] == name]:
            del self._states[place]
        self.dropped.update(number for number, (rule, _) in self.open.items() if rule == name)

    def let_go(self) -> None:
        """Forgets the alerts whose rule is gone; of a rule that is no more nobody is told anything."""
        self.open = {number: one for number, one in self.open.items() if number not in self.dropped}
        self.dropped.clear()
        for told in (self.tellings, self.last_told):
            for name in told.keys() - self.rules.keys():
                del told[name]

    def changes(self, now_ns: int) -> Iterator[Change]:
        """What has changed since the last look, by the rules for which anything can have."""
        self._unkept = 0
        for name in self._to_judge():
            rule = self.rules[name]
            try:
                changes = list(self._changes_of(rule, now_ns))
            except Exception:  # one rule must take neither the others nor the agent with it
                self._failed.append(self.rules.pop(rule.name))
                run = self.name or self.run_id
                log.exception("The rule %s of %s failed, and is left out.", rule.name, run)
            else:
                self._unkept += sum(change.turn == "fires" for change in changes)
                yield from changes
        if not self._unkept:
            self.history.all_judged()

    def _to_judge(self) -> list[str]:
        """The rules whose outcome may be another than at the last look, in their order."""
        status = self._judged_status()
        if status != self._status_judged:
            self._status_judged = status
            self._due.update(self.rules)
        for key in self.history.changed:
            self._due.update(self._asking.get(key, ()))
        due = [
            name
            for name, rule in self.rules.items()
            if name in self._due or name in self._restless or rule.condition is None
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
                yield Change(rule, subject, turn, self._told(rule, outcome, since_ns))
        if is_underway or fired_before_now or (rule.depends_on_time and self._judges.get(id(rule.condition))):
            self._restless.add(rule.name)
        else:
            self._restless.discard(rule.name)

    def _fired_before_now(self, rule: Rule) -> Generator[Change, None, tuple[set[Subject], set[Subject]]]:
        """The alerts of points that came since the last look; gives whose they are, and for whom it was true.

        A rule that must be true for a while is not missed by looks that are seconds apart.
        """
        fired: set[Subject] = set()
        were_true: set[Subject] = set()
        status = self._judged_status()
        for judge in () if rule.condition is None or rule.for_s else self._judges_for(rule.condition):
            if not judge.moments.are_several:
                continue
            truths = judge.moments.judge(status)
            if not truths.is_true.any() and not self._is_underway(rule.name, judge.subject):
                continue
            state = self._states.setdefault((rule.name, judge.subject), State())
            if truths.is_true.any():
                were_true.add(judge.subject)
            place = None if state.is_firing else state.advance_over(rule, truths)
            if place is not None:
                fired.add(judge.subject)
                with as_of(truths.ends, place):
                    outcome = judge.outcome(int(truths.times_ns[place]), status)
                    told = self._told(rule, outcome, state.true_since_ns or int(truths.times_ns[place]))
                yield Change(rule, judge.subject, "fires", told)
        return fired, were_true

    def fired(self, change: Change, alert_id: int) -> None:
        """A change has become an alert."""
        self._unkept -= 1
        if not self._unkept:
            self.history.all_judged()
        self._states[change.rule.name, change.subject].fired(alert_id)
        self.open[alert_id] = (change.rule.name, change.told)

    def resolved(self, change: Change) -> int:
        """An alert is over; gives its number."""
        state = self._states[change.rule.name, change.subject]
        alert_id = state.alert_id or 0
        state.resolved()
        self.open.pop(alert_id, None)
        return alert_id

    def take_up(self, alert: OpenAlert) -> None:
        """Goes on with an alert that an earlier agent has fired, if its rule is still there."""
        fields = alert.fields
        if alert.rule not in self.rules:
            self.dropped.add(alert.id)
        subject = Subject(fields.get("rank"), fields.get("host", ""), fields.get("device", ""))
        self._states[alert.rule, subject] = State(true_since_ns=alert.fired_ns, alert_id=alert.id)
        self._due.update(self.rules)
        known = ("key", "quantity", "value", "threshold", "step", "advice")
        told = {name: fields[name] for name in known if name in fields}
        self.open[alert.id] = (
            alert.rule,
            AlertDetail(
                alert.rule,
                alert.severity,
                alert.message,
                alert.fired_ns,
                rank=subject.rank,
                device=subject.device,
                recent=tuple(math.nan if one is None else one for one in fields.get("recent", ())),
                **told,
            ),
        )

    def _outcomes(self, rule: Rule, now_ns: int) -> list[Outcome]:
        said = self.said.get(rule.name)
        if rule.condition is None:
            if said is None:
                return []
            return [Outcome(is_true=said.is_true, rank=said.fields.get("rank"), step=said.fields.get("step"))]
        status = self._judged_status()
        return [
            judge.outcome(now_ns, status)
            for judge in self._judges_for(rule.condition)
            # Where nothing is underway, what is not true changes nothing, and that is what most looks find.
            if judge.is_true(now_ns, status) or self._is_underway(rule.name, judge.subject)
        ]

    def _is_underway(self, rule: str, subject: Subject) -> bool:
        state = self._states.get((rule, subject))
        return state is not None and state.is_underway

    def _judges_for(self, condition: Expression) -> list[Judge]:
        if self._judges_made_for != self.history.generation:
            self._judges.clear()
            self._judges_made_for = self.history.generation
        known = self._judges.get(id(condition))
        if known is None:
            known = self._judges[id(condition)] = judges_of(condition, self.history)
        return known

    def _judged_status(self) -> str:
        """The status that rules see: who stops a training by hand knows about it."""
        return "interrupted" if self.reason.endswith(INTERRUPTED) else self.status

    def _is_clear(self, rule: Rule, outcome: Outcome, now_ns: int) -> bool | None:
        if rule.clear is None:
            return None if outcome.is_true is None else not outcome.is_true
        subject = Subject(outcome.rank, outcome.host, outcome.device)
        for judge in self._judges_for(rule.clear):
            if judge.subject == subject:
                return judge.is_true(now_ns, self._judged_status())
        return None

    def _told(self, rule: Rule, outcome: Outcome, since_ns: int) -> AlertDetail:
        said = self.said.get(rule.name)
        values: dict[str, Any] = {**self.history.latest(outcome.rank, outcome.device)}
        if said is not None:
            values.update(said.fields.get("values", {}))
        values.update(self._labels(outcome))
        return AlertDetail(
            rule=rule.name,
            severity=rule.severity,
            message=render(rule.message, values) if rule.message else _usual_message(rule, outcome),
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
            "rank": outcome.rank,
            "device": outcome.device,
            "step": outcome.step,
            "run": self.name,
            "status": self.status,
            "reason": without_end_mark(self.reason) or None,
        }


def _usual_message(rule: Rule, outcome: Outcome) -> str:
    if outcome.value is None:
        return f"{rule.name}: {rule.condition}" if rule.condition is not None else rule.name
    limit = "" if outcome.threshold is None else f", the limit {number(outcome.threshold)}"
    return f"{outcome.quantity or outcome.key or rule.name} is {number(outcome.value)}{limit}."
