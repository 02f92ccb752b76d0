"""Alert rules: when to tell a person, how urgently, and in which words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stepscope.alerts.conditions.expression import parse, parse_window
from stepscope.alerts.conditions.tree import Expression, Reach, Window
from stepscope.alerts.delivery.template import check_template, names_in, render
from stepscope.config.wording import nearest, shown
from stepscope.errors import ConfigError
from stepscope.schema.alert import SEVERITIES

if TYPE_CHECKING:
    from collections.abc import Callable

    from stepscope.schema.alert import Severity

__all__ = ["Rule", "render", "rule_from", "rule_said", "rules_from"]

COOLDOWN_S = 300.0
KEYS = (
    "name", "when", "for", "severity", "message", "cooldown", "remind", "channels", "resolve", "clear",
    "advice", "enabled",
)  # fmt: skip
"""What a rule may say in a settings file."""
OTHER_KEYS = {"condition": "when", "cooldown_seconds": "cooldown"}
MAX_IN_NAME = 100
MIN_REMIND_S = 10.0
"""More reminders than one in this time help nobody."""


@dataclass(frozen=True)
class Rule:
    """When to tell a person, and what."""

    name: str
    condition: Expression | None
    """None where only the training itself can judge it."""
    severity: Severity = "warning"
    message: str = ""
    """A template; empty for the usual words."""
    for_s: float = 0.0
    """How long the condition must have been true."""
    for_points: int = 0
    """For how many further points of the metric the condition must have been true."""
    cooldown_s: float = COOLDOWN_S
    """How long nothing is said of the rule after something was."""
    remind_s: float | None = None
    """How often it is said again while it goes on; None for never."""
    resolve: bool = True
    """Whether it is told when it is over."""
    clear: Expression | None = None
    """What must be true for it to be over; None for the condition not being true."""
    channels: tuple[str, ...] | None = None
    """Through which channels; None for all."""
    advice: str = ""
    """What to do about it."""
    enabled: bool = True

    def __post_init__(self) -> None:
        if not 0 < len(self.name) <= MAX_IN_NAME:
            raise ConfigError(
                f"A rule is called {self.name[:MAX_IN_NAME]!r}; a name has 1 to {MAX_IN_NAME} characters."
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
        """Every name it may look up a metric by, those in its message included."""
        conditions = [one for one in (self.condition, self.clear) if one is not None]
        return frozenset(names_in(self.message)).union(*(one.keys for one in conditions))

    @property
    def depends_on_time(self) -> bool:
        """Whether it may fire, or be over, without a new point."""
        return any(one.depends_on_time for one in (self.condition, self.clear) if one is not None)

    def reach(self) -> dict[str, Reach]:
        """The longest window it needs of each metric."""
        longest: dict[str, Reach] = {}
        for one in (self.condition, self.clear):
            for key, reach in one.reach().items() if one is not None else ():
                known = longest.get(key, reach)
                longest[key] = Reach(max(known.seconds, reach.seconds), max(known.points, reach.points))
        return longest


def rules_from(settings_rules: Sequence[Mapping[str, Any]], where: str = "alerts.rules") -> list[Rule]:
    """The rules of a settings file; raises one ConfigError with a line for each mistake in them."""
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
            mistakes.append(f"{place}.name is {rule.name!r}, like that of another rule; each has its own.")
        rules[rule.name] = rule
    if mistakes:
        raise ConfigError("\n".join(mistakes))
    return list(rules.values())


def rule_from(fields: Mapping[str, Any], place: str) -> Rule:
    """One rule with the keys of a settings file; raises ConfigError that names the place."""
    return _rule(fields, place, needs_condition=True)


def rule_said(fields: Mapping[str, Any]) -> Rule:
    """A rule that a training has said, with the keys of a settings file; it may lack a condition."""
    return _rule(fields, "alert rule", needs_condition=False)


def _rule(fields: Mapping[str, Any], place: str, *, needs_condition: bool) -> Rule:
    if not isinstance(fields, Mapping):
        raise ConfigError(f"{place} is {shown(fields, ())}; a rule is a section with name, when and others.")
    said = _with_usual_keys(fields, place)
    name = said.get("name")
    if not isinstance(name, str) or not 0 < len(name) <= MAX_IN_NAME:
        raise ConfigError(
            f"{place}.name is {shown(name, ('name',))}; it must be a text of 1 to {MAX_IN_NAME} characters."
        )
    if needs_condition and said.get("when") is None:
        raise ConfigError(f'{place} ({name}) has no condition; write one, such as when: "loss > 2".')
    given = {key: value for key, value in said.items() if value is not None and key != "name"}
    made: dict[str, Any] = {"condition": None}
    for key, value in given.items():
        try:
            made.update(_READERS[key](value))
        except ConfigError as error:
            raise ConfigError(f"{place}.{key} ({name}) is {shown(value, (key,))}: {error}") from None
    return Rule(name, **made)


def _with_usual_keys(fields: Mapping[str, Any], place: str) -> dict[str, Any]:
    said: dict[str, Any] = {}
    written_as: dict[str, str] = {}
    for written, value in fields.items():
        key = OTHER_KEYS.get(written, written)
        if key not in KEYS:
            meant = nearest(str(written), (*KEYS, *OTHER_KEYS))
            rest = f"did you mean {meant!r}?" if meant else f"there are {', '.join(KEYS)}."
            rule = f" (rule {fields['name']!r})" if "name" in fields else ""
            raise ConfigError(f"{place} has no key {written!r}{rule}; {rest}")
        if key in said:
            raise ConfigError(f"{place} has both {written_as[key]!r} and {written!r}; keep one.")
        said[key], written_as[key] = value, written
    return said


def _condition(value: Any) -> Expression:
    if not isinstance(value, str):
        raise ConfigError("it must be a condition in quotes, such as 'loss > 2'.")
    return parse(value)


def _lasting(value: Any) -> dict[str, Any]:
    window = _window(value, "a number of seconds, or a text such as 60s, 2m or 100 steps")
    return {"for_s": window.seconds} if window.seconds is not None else {"for_points": window.points}


def _seconds(value: Any) -> float:
    words = "a number of seconds, or a text such as 60s or 2h"
    seconds = _window(value, words).seconds
    if seconds is None:
        raise ConfigError(f"it must be {words}.")
    return seconds


def _pause(value: Any) -> float:
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
        meant = nearest(str(value), SEVERITIES)
        rest = f"; did you mean {meant!r}?" if meant else "."
        raise ConfigError(f"it must be one of {', '.join(SEVERITIES)}{rest}")
    return str(value)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ConfigError("it must be a text.")
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
        raise ConfigError("it must be a list of names of channels, such as [slack, mail].")
    return tuple(names)


_READERS: dict[str, Callable[[Any], dict[str, Any]]] = {
    "when": lambda value: {"condition": _condition(value)},
    "clear": lambda value: {"clear": _condition(value)},
    "for": _lasting,
    "severity": lambda value: {"severity": _severity(value)},
    "message": lambda value: {"message": _template(value)},
    "advice": lambda value: {"advice": _text(value)},
    "cooldown": lambda value: {"cooldown_s": _seconds(value)},
    "remind": lambda value: {"remind_s": _pause(value)},
    "channels": lambda value: {"channels": _channels(value)},
    "resolve": lambda value: {"resolve": _switch(value)},
    "enabled": lambda value: {"enabled": _switch(value)},
}
