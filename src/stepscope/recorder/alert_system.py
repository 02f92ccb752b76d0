"""`monitor.alert_system`: alert rules that are written in Python, beside those in the settings."""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Any

from stepscope.errors import ConfigError, RecorderError
from stepscope.guard import shown
from stepscope.recorder.values import as_number, is_on_device
from stepscope.schema.alert import SEVERITIES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from stepscope.config.sections import Alerts
    from stepscope.guard import Guard

    Condition = Callable[["LatestMetrics"], Any]

MAX_ROWS = 1000
"""Rows that wait to be judged; where more come in half a second, the oldest are passed over."""


def check_alerts(settings: Alerts) -> None:
    """Raises ConfigError for rules that make no sense: here, where mistakes in the settings are told."""
    if not (settings.rules or settings.thresholds or settings.disabled or settings.quiet_hours):
        return
    from stepscope.alerts.defaults import check_rules  # lazy: most settings have none

    check_rules(settings)


_LENGTHS = {"cooldown": "cooldown_seconds", "for": "for_seconds"}


def _seconds(name: str, value: Any) -> float:
    number = as_number(value)
    if number is None or not 0 <= number < float("inf"):
        raise ConfigError(f"{name} is {shown(value)}; it must be a number of seconds.")
    return number


class LatestMetrics:
    """The latest value of each metric, by attribute or by name: `metrics.loss`, `metrics["val/loss"]`."""

    def __init__(self, values: Mapping[str, float]) -> None:
        self._values = values

    def __getattr__(self, name: str) -> float:
        try:
            return self._values[name]
        except KeyError:
            raise AttributeError(name) from None

    def __getitem__(self, name: str) -> float:
        return self._values[name]

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def get(self, name: str, otherwise: Any = None) -> Any:
        """The latest value of a metric, or something else where it was not logged yet."""
        return self._values.get(name, otherwise)


class AlertSystem:
    """Takes rules, and judges those whose condition is a function, beside the training.

    Whatever a rule leads to is done by the agent: it is told the rules, and when a condition begins and
    ceases to hold.
    """

    def __init__(
        self, event: Callable[..., None], guard: Guard, ask_for_rows: Callable[[AlertSystem], None]
    ) -> None:
        self._event, self._guard, self._ask_for_rows = event, guard, ask_for_rows
        self._rules: dict[str, dict[str, Any]] = {}
        self._conditions: dict[str, Condition] = {}
        self._holds: dict[str, bool] = {}
        self._latest: dict[str, float] = {}
        self._rows: deque[tuple[Mapping[Any, Any], int]] = deque(maxlen=MAX_ROWS)
        self._lock = threading.Lock()

    def add_alert_rule(  # noqa: PLR0913 - the names people know
        self,
        name: str,
        condition: Condition | str,
        severity: str = "warning",
        message: str = "",
        cooldown_seconds: float = 300.0,
        *,
        for_seconds: float = 0.0,
        advice: str = "",
    ) -> None:
        """Tells a person when a condition holds: a function of the latest metrics, or an expression.

            alerts.add_alert_rule("high_loss", lambda metrics: metrics.loss > 2, message="Loss is {loss:.2f}")
            alerts.add_alert_rule("slow", "p50(step_seconds, 2m) > 1.5 * baseline", severity="critical")

        A rule with wrong arguments is not added, and that is said. A function that fails is passed over, and
        that is said once.
        """
        given = {"severity": severity, "message": message, "cooldown": cooldown_seconds}
        try:
            self._add(name, condition, {**given, "for": for_seconds, "advice": advice})
        except RecorderError:
            raise
        except Exception as error:  # noqa: BLE001 - anything may be handed over, training goes on
            said = str(error).partition("\n")[0] if isinstance(error, ConfigError) else shown(error)
            topic = f"rule {shown(name)}"
            self._guard.complain(topic, f"The alert {topic} was not added: {said}", error)

    def _add(self, name: str, condition: Condition | str, given: dict[str, Any]) -> None:
        severity = given["severity"]
        if severity not in SEVERITIES:
            raise ConfigError(f"severity is {shown(severity)}; it must be one of {', '.join(SEVERITIES)}.")
        seconds = {key: _seconds(label, given[key]) for key, label in _LENGTHS.items()}
        said = {"name": name, **given, **seconds}
        if isinstance(condition, str):
            said["when"] = condition
        elif not callable(condition):
            raise ConfigError(
                f"condition is {shown(condition)}; it must be a function of the latest "
                'metrics, as in lambda metrics: metrics.loss > 2, or an expression, as in "loss > 2".'
            )
        from stepscope.alerts.rule import rule_said  # lazy: most trainings have no rule of their own

        rule_said(said)
        with self._lock:
            self._conditions.pop(name, None)
            if not isinstance(condition, str):
                self._conditions[name] = condition
        self._rules[name] = said
        self._event("alert_rule", **said)
        if self._conditions:
            self._ask_for_rows(self)

    def begin_anew(self) -> None:
        """A further segment begins, to which the same rules apply."""
        self._holds.clear()
        for said in self._rules.values():
            self._event("alert_rule", **said)
        if self._conditions:
            self._ask_for_rows(self)

    def take(self, metrics: Mapping[Any, Any], step: int) -> None:
        """Remembers a row to be judged; called in the training thread."""
        self._rows.append((dict(metrics), step))

    def judge(self) -> None:
        """Judges the rows that have come; called beside the training, and once at its end."""
        with self._lock:
            while self._rows:
                metrics, step = self._rows.popleft()
                for key, value in metrics.items():
                    number = None if is_on_device(value) else as_number(value)
                    if number is not None:
                        self._latest[str(key)] = number
                for name, condition in self._conditions.items():
                    self._judge(name, condition, step)

    def _judge(self, name: str, condition: Condition, step: int) -> None:
        try:
            holds = bool(condition(LatestMetrics(self._latest)))
        except (AttributeError, KeyError):
            return  # a metric that was not logged yet
        except Exception as error:  # noqa: BLE001 - a user's function may raise anything
            said = f"The condition of the rule {name!r} failed: {shown(error)}"
            self._guard.warn_once(f"rule {name}", said)
            return
        if holds != self._holds.get(name, False):
            self._holds[name] = holds
            # By name rather than as `step=`: the event has a step of its own, which may be a later one.
            self._event("alert_condition", rule=name, is_true=holds, at_step=step, values=dict(self._latest))
