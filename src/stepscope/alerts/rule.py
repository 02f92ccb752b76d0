"""Alert rules: their condition, severity and message, and how they are read from settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stepscope.alerts.conditions.expression import parse, parse_window
from stepscope.alerts.conditions.tree import Expression, Reach, Window
from stepscope.alerts.delivery.template import check_template, names_in, render
from stepscope.config.reference import nearest, shown
from stepscope.errors import ConfigError
from stepscope.schema.alert import SEVERITIES

if TYPE_CHECKING:
    from collections.abc import Callable

    from stepscope.schema.alert import Severity

__all__ = ["Rule", "render", "rule_from", "rule_from_training", "rules_from"]

COOLDOWN_S = 300.0
KEYS = (
    "name", "when", "for", "severity", "message", "cooldown", "remind", "channels", "resolve", "clear",
    "advice", "enabled",
)  # fmt: skip
"""The keys of a rule in a settings file."""
OTHER_KEYS = {"condition": "when", "cooldown_seconds": "cooldown"}
MAX_NAME_LENGTH = 100
MIN_REMIND_S = 10.0
"""Minimum time between two reminders."""


@dataclass(frozen=True)
class Rule:
    """When to notify people, and how."""

    name: str
    condition: Expression | None
    """None if only the training itself can evaluate it."""
    severity: Severity = "warning"
    message: str = ""
    """A template; empty for the default message."""
    for_s: float = 0.0
    """How many seconds the condition must have been true."""
    for_points: int = 0
    """For how many further points of the metric the condition must have been true."""
    cooldown_s: float = COOLDOWN_S
    """Minimum time between two notices about the rule."""
    remind_s: float | None = None
    """Time between reminders while it fires; None for no reminders."""
    resolve: bool = True
    """Whether people are notified when it is resolved."""
    clear: Expression | None = None
    """The condition that resolves it; None to resolve it when `condition` is not true."""
    channels: tuple[str, ...] | None = None
    """The channels of its notices; None for all."""
    advice: str = ""
    """What to do about it."""
    enabled: bool = True

    def __post_init__(self) -> None:
        if not 0 < len(self.name) <= MAX_NAME_LENGTH:
            raise ConfigError(
                f"The name of a rule is {self.name[:MAX_NAME_LENGTH]!r}; it must have 1 to {MAX_NAME_LENGTH} "
                "characters."
            )
        if self.severity not in SEVERITIES:
            raise ConfigError(
                f"severity of the rule {self.name!r} is {self.severity!r}; it must be one of "
                f"{', '.join(SEVERITIES)}."
            )
        try:
            check_template(self.message)
        except ConfigError as error:
            raise ConfigError(f"message of the rule {self.name!r}: {error}") from None

    @property
    def keys(self) -> frozenset[str]:
        """The names of all metrics it uses, including those in its message."""
        return frozenset(names_in(self.message)).union(*(expression.keys for expression in self._expressions))

    @property
    def depends_on_time(self) -> bool:
        """Whether it may fire or be resolved without a new point."""
        return any(expression.depends_on_time for expression in self._expressions)

    @property
    def _expressions(self) -> list[Expression]:
        return [expression for expression in (self.condition, self.clear) if expression is not None]

    def reach(self) -> dict[str, Reach]:
        """Returns the longest window it needs of each metric."""
        longest: dict[str, Reach] = {}
        for expression in self._expressions:
            for key, reach in expression.reach().items():
                known = longest.get(key, reach)
                longest[key] = Reach(max(known.seconds, reach.seconds), max(known.points, reach.points))
        return longest


def rules_from(settings_rules: Sequence[Mapping[str, Any]], where: str = "alerts.rules") -> list[Rule]:
    """Creates the rules of a settings file; raises one ConfigError with a line for each mistake."""
    rules: dict[str, Rule] = {}
    mistakes: list[str] = []
    for number, fields in enumerate(settings_rules):
        place = f"{where}[{number}]"
        try:
            rule = _rule(fields, place, needs_condition=True)
        except ConfigError as error:
            mistakes.append(str(error))
            continue
        if rule.name in rules:
            mistakes.append(f"{place}.name is {rule.name!r}, which another rule has; names must be unique.")
        rules[rule.name] = rule
    if mistakes:
        raise ConfigError("\n".join(mistakes))
    return list(rules.values())


def rule_from(fields: Mapping[str, Any], place: str) -> Rule:
    """Creates a rule from the keys of a settings file; raises a ConfigError that names the place."""
    return _rule(fields, place, needs_condition=True)


def rule_from_training(fields: Mapping[str, Any]) -> Rule:
    """Creates a rule that a training defined, from the keys of a settings file; the condition is optional."""
    return _rule(fields, "alert rule", needs_condition=False)


def _rule(fields: Mapping[str, Any], place: str, *, needs_condition: bool) -> Rule:
    if not isinstance(fields, Mapping):
        raise ConfigError(
            f"{place} is {shown(fields, ())}; it must be a section with name, when and other keys."
        )
    options = _with_standard_keys(fields, place)
    name = options.get("name")
    if not isinstance(name, str) or not 0 < len(name) <= MAX_NAME_LENGTH:
        raise ConfigError(
            f"{place}.name is {shown(name, ('name',))}; it must be text of 1 to {MAX_NAME_LENGTH} characters."
        )
    if needs_condition and options.get("when") is None:
        raise ConfigError(f'{place} ({name}) has no condition; write one, such as when: "loss > 2".')
    arguments: dict[str, Any] = {"condition": None}
    for key, value in options.items():
        if value is None or key == "name":
            continue
        try:
            arguments.update(_READERS[key](value))
        except ConfigError as error:
            raise ConfigError(f"{place}.{key} ({name}) is {shown(value, (key,))}: {error}") from None
    return Rule(name, **arguments)


def _with_standard_keys(fields: Mapping[str, Any], place: str) -> dict[str, Any]:
    options: dict[str, Any] = {}
    written_as: dict[str, str] = {}
    for written, value in fields.items():
        key = OTHER_KEYS.get(written, written)
        if key not in KEYS:
            similar = nearest(str(written), (*KEYS, *OTHER_KEYS))
            rest = f"did you mean {similar!r}?" if similar else f"there are {', '.join(KEYS)}."
            rule = f" (rule {fields['name']!r})" if "name" in fields else ""
            raise ConfigError(f"{place} has no key {written!r}{rule}; {rest}")
        if key in options:
            raise ConfigError(f"{place} has both {written_as[key]!r} and {written!r}; keep one.")
        options[key], written_as[key] = value, written
    return options


def _condition(value: Any) -> Expression:
    if not isinstance(value, str):
        raise ConfigError("it must be a condition in quotes, such as 'loss > 2'.")
    return parse(value)


def _duration(value: Any) -> dict[str, Any]:
    window = _window(value, "a number of seconds, or a text such as 60s, 2m or 100 steps")
    return {"for_s": window.seconds} if window.seconds is not None else {"for_points": window.points}


def _seconds(value: Any) -> float:
    words = "a number of seconds, or a text such as 60s or 2h"
    seconds = _window(value, words).seconds
    if seconds is None:
        raise ConfigError(f"it must be {words}.")
    return seconds


def _remind_seconds(value: Any) -> float:
    seconds = _seconds(value)
    if seconds < MIN_REMIND_S:
        raise ConfigError(f"it must be at least {MIN_REMIND_S:g} s; leave it out for no reminder.")
    return seconds


def _window(value: Any, words: str) -> Window:
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < float("inf"):
        return Window(seconds=float(value))
    if isinstance(value, str):
        if value.strip() in ("0", "0s"):
            return Window(seconds=0.0)
        try:
            return parse_window(value)
        except ConfigError:
            pass
    raise ConfigError(f"it must be {words}.")


def _severity(value: Any) -> str:
    if value not in SEVERITIES:
        similar = nearest(str(value), SEVERITIES)
        rest = f"; did you mean {similar!r}?" if similar else "."
        raise ConfigError(f"it must be one of {', '.join(SEVERITIES)}{rest}")
    return str(value)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ConfigError("it must be text.")
    return value


def _template(value: Any) -> str:
    check_template(_text(value))
    return str(value)


def _switch(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ConfigError("it must be true or false.")
    return value


def _channels(value: Any) -> tuple[str, ...]:
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        raise ConfigError("it must be a list of channel names, such as [slack, mail].")
    return tuple(names)


_READERS: dict[str, Callable[[Any], dict[str, Any]]] = {
    "when": lambda value: {"condition": _condition(value)},
    "clear": lambda value: {"clear": _condition(value)},
    "for": _duration,
    "severity": lambda value: {"severity": _severity(value)},
    "message": lambda value: {"message": _template(value)},
    "advice": lambda value: {"advice": _text(value)},
    "cooldown": lambda value: {"cooldown_s": _seconds(value)},
    "remind": lambda value: {"remind_s": _remind_seconds(value)},
    "channels": lambda value: {"channels": _channels(value)},
    "resolve": lambda value: {"resolve": _switch(value)},
    "enabled": lambda value: {"enabled": _switch(value)},
}
