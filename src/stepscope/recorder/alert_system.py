"""`monitor.alert_system`: alert rules written in Python, in addition to those in the settings."""

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
"""Maximum number of rows waiting for evaluation; if more arrive in half a second, the oldest are skipped."""

MAX_SENT = 100
"""Maximum number of alerts that a process reports by `send_alert`."""
MAX_TITLE, MAX_MESSAGE = 90, 900


def check_alerts(settings: Alerts) -> None:
    """Raises ConfigError for invalid rules."""
    if not (settings.rules or settings.thresholds or settings.disabled or settings.quiet_hours):
        return
    from stepscope.alerts.defaults import check_rules  # lazy: most settings have no rules

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
        """The latest value of a metric, or `otherwise` if it was not logged yet."""
        return self._values.get(name, otherwise)


class AlertSystem:
    """Adds alert rules, and evaluates conditions that are functions, outside the training thread.

    The agent handles the alerts: it receives the rules, and an event when a condition becomes true or false.
    """

    def __init__(
        self, event: Callable[..., None], guard: Guard, ask_for_rows: Callable[[AlertSystem], None]
    ) -> None:
        self._event, self._guard, self._ask_for_rows = event, guard, ask_for_rows
        self._rules: dict[str, dict[str, Any]] = {}
        self._conditions: dict[str, Condition] = {}
        self._holds: dict[str, bool] = {}
        self._latest: dict[str, float] = {}
        self._titles: dict[str, int] = {}
        self._sent = 0
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
        """Adds an alert rule; its condition is a function of the latest metrics, or an expression.

            alerts.add_alert_rule("high_loss", lambda metrics: metrics.loss > 2, message="Loss is {loss:.2f}")
            alerts.add_alert_rule("slow", "p50(step_seconds, 2m) > 1.5 * baseline", severity="critical")

        A rule with wrong arguments is not added, which is logged. A function that raises is skipped, which is
        logged once.
        """
        options = {"severity": severity, "message": message, "cooldown": cooldown_seconds}
        try:
            self._add(name, condition, {**options, "for": for_seconds, "advice": advice})
        except RecorderError:
            raise
        except Exception as error:  # noqa: BLE001 - users may pass anything, training goes on
            reason = str(error).partition("\n")[0] if isinstance(error, ConfigError) else shown(error)
            topic = f"rule {shown(name)}"
            self._guard.complain(topic, f"The alert {topic} was not added: {reason}", error)

    def _add(self, name: str, condition: Condition | str, options: dict[str, Any]) -> None:
        severity = options["severity"]
        if severity not in SEVERITIES:
            raise ConfigError(f"severity is {shown(severity)}; it must be one of {', '.join(SEVERITIES)}.")
        seconds = {key: _seconds(label, options[key]) for key, label in _LENGTHS.items()}
        rule = {"name": name, **options, **seconds}
        if isinstance(condition, str):
            rule["when"] = condition
        elif not callable(condition):
            raise ConfigError(
                f"condition is {shown(condition)}; it must be a function of the latest "
                'metrics, as in lambda metrics: metrics.loss > 2, or an expression, as in "loss > 2".'
            )
        from stepscope.alerts.rule import rule_from_training  # lazy: most trainings have no rules in Python

        rule_from_training(rule)
        with self._lock:
            self._conditions.pop(name, None)
            if not isinstance(condition, str):
                self._conditions[name] = condition
        self._rules[name] = rule
        self._event("alert_rule", **rule)
        if self._conditions:
            self._ask_for_rows(self)

    def send_alert(self, title: str, text: str = "", severity: str = "warning") -> None:
        """Reports an alert now, without a rule; the channels of the settings deliver it.

            alerts.send_alert("Low accuracy", "Accuracy is 0.31 after 5 epochs.")

        Each call is an alert of its own, up to 100 in a process; an unknown severity counts as a warning.
        """
        try:
            self._send(str(title) or "alert", str(text), severity)
        except RecorderError:
            raise
        except Exception as error:  # noqa: BLE001 - an object's own text may raise anything
            self._guard.complain("alert", f"The alert {shown(title)} was not sent: {shown(error)}", error)

    def _send(self, title: str, text: str, severity: str) -> None:
        if severity not in SEVERITIES:
            allowed = ", ".join(SEVERITIES)
            message = f"severity is {shown(severity)}; it must be one of {allowed}. The alert is a warning."
            self._guard.complain("severity", message)
            severity = "warning"
        if self._sent == MAX_SENT:
            self._guard.complain("many alerts", f"Only the first {MAX_SENT} alerts of this process are sent.")
            return
        self._sent += 1
        # The agent keeps one state for each rule, so a second alert of the same title needs another name.
        count = self._titles[title] = self._titles.get(title, 0) + 1
        name = title[:MAX_TITLE] if count == 1 else f"{title[:MAX_TITLE]} ({count})"
        message = (text or title)[:MAX_MESSAGE].replace("{", "{{").replace("}", "}}")
        self._event("alert_rule", name=name, severity=severity, message=message, cooldown=0.0, resolve=False)
        self._event("alert_condition", rule=name, is_true=True)

    def resend_rules(self) -> None:
        """Records the rules again at the start of another segment."""
        self._holds.clear()
        for rule in self._rules.values():
            self._event("alert_rule", **rule)
        if self._conditions:
            self._ask_for_rows(self)

    def take(self, metrics: Mapping[Any, Any], step: int) -> None:
        """Queues a row for evaluation; called in the training thread."""
        self._rows.append((dict(metrics), step))

    def judge(self) -> None:
        """Evaluates the queued rows; called in another thread, and once at the end of the training."""
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
            return  # a metric has not been logged yet
        except Exception as error:  # noqa: BLE001 - a user's function may raise anything
            message = f"The condition of the rule {name!r} failed: {shown(error)}"
            self._guard.warn_once(f"rule {name}", message)
            return
        if holds != self._holds.get(name, False):
            self._holds[name] = holds
            # As `at_step`, because the event has a step of its own, which may be a later one.
            self._event("alert_condition", rule=name, is_true=holds, at_step=step, values=dict(self._latest))
