"""Finds settings that can be read but that a monitor or an agent would refuse or ignore."""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING, Any

from stepscope import plugins
from stepscope.alerts.defaults import default_rules, known_names
from stepscope.alerts.delivery.delivery import DEFAULT_CHANNELS, make_channel
from stepscope.alerts.delivery.quiet_hours import QuietHours
from stepscope.alerts.rule import rule_from
from stepscope.alerts.thresholds import threshold_rules
from stepscope.analysis.detector_registry import make_detectors
from stepscope.config.entry import Problem
from stepscope.config.reference import dotted, nearest
from stepscope.errors import ConfigError, StepscopeError
from stepscope.exporters.base import Feed
from stepscope.recorder.anonymity import privacy_of
from stepscope.samplers.base import Sampler
from stepscope.views.energy.prices import load_tables

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from stepscope.alerts.rule import Rule
    from stepscope.config.load import Loaded
    from stepscope.config.reference import Key
    from stepscope.config.sections import Alerts

_PART = re.compile(r"\.([\w-]+)|\[(\d+)\]")


def problems_of(loaded: Loaded) -> list[Problem]:
    """All problems of the settings, each with its file and line, in the order of the lines."""
    check = _Check(loaded)
    settings = loaded.settings
    check.attempt(("privacy",), lambda: privacy_of(settings.privacy))
    check.attempt(("energy",), lambda: load_tables(settings.energy))
    check.alerts(settings.alerts)
    check.samplers()
    check.exporters()
    for name, options in settings.detectors.items():
        check.attempt(("detectors", name), functools.partial(make_detectors, {name: options}))
    return check.in_order()


def alert_problems(loaded: Loaded) -> list[Problem]:
    """The same for the section `alerts` only."""
    check = _Check(loaded)
    check.alerts(loaded.settings.alerts)
    return check.in_order()


class _Check:
    """Collects problems of settings."""

    def __init__(self, loaded: Loaded) -> None:
        self._loaded = loaded
        self._problems: list[Problem] = []

    def in_order(self) -> list[Problem]:
        """The problems, sorted by line."""
        return sorted(self._problems, key=lambda problem: _line(problem.origin))

    def attempt(self, key: Key, act: Callable[[], Any]) -> Any:
        """The result of `act`, which uses the setting at `key`; None where it fails, which is noted."""
        try:
            return act()
        except StepscopeError as error:
            text = str(error)
            wrong = re.search(r" has no (?:key|option) '([^']*)'", text)
            self._note((*key, wrong[1]) if wrong else _key_named_by(text, key), text)
        except OSError as error:
            self._note(key, f"{dotted(key)}: {error.filename} cannot be read: {error.strerror}.")
        return None

    def alerts(self, alerts: Alerts) -> None:
        """Checks rules, thresholds, disabled rules, channels and quiet hours."""
        rules = [*self._rules(alerts), *self._thresholds(alerts)]
        self._disabled(alerts, known_names((*rules, *default_rules()), alerts.disabled))
        if alerts.quiet_hours is not None:
            hours = alerts.quiet_hours
            self.attempt(("alerts", "quiet_hours"), lambda: QuietHours.parse(hours))
        for name, options in alerts.channels.items():
            self._channel(name, options)

    def _rules(self, alerts: Alerts) -> Iterator[Rule]:
        names: set[str] = set()
        channels = {**DEFAULT_CHANNELS, **alerts.channels}
        for number, fields in enumerate(alerts.rules):
            key = ("alerts", "rules", number)
            rule = self.attempt(key, functools.partial(rule_from, fields, dotted(key)))
            if rule is None:
                continue
            if rule.name in names:
                text = f"{dotted(key)}.name is {rule.name!r}, the name of another rule; names must be unique."
                self._note((*key, "name"), text)
            names.add(rule.name)
            for name in rule.channels or ():
                if name not in channels:
                    text = f"{dotted(key)}.channels has {name!r}, which is not in alerts.channels; "
                    self._note((*key, "channels"), text + _suggestion(name, channels))
            yield rule

    def _thresholds(self, alerts: Alerts) -> Iterator[Rule]:
        for name, limit in alerts.thresholds.items():
            key = ("alerts", "thresholds", name)
            rules = self.attempt(key, functools.partial(threshold_rules, {name: limit}))
            yield from rules or ()

    def _disabled(self, alerts: Alerts, known: set[str]) -> None:
        for number, name in enumerate(alerts.disabled):
            if name not in known:
                text = f"alerts.disabled has {name!r}, and there is no such rule; {_suggestion(name, known)}"
                self._note(("alerts", "disabled", number), text)

    def _channel(self, name: str, options: dict[str, Any]) -> None:
        key = ("alerts", "channels", name)
        if not self._is_on(key, options):
            return
        kind = str(options.get("kind", name))
        kinds = plugins.names("channels")
        if kind not in kinds:
            place = key if kind == name else (*key, "kind")
            self._note(place, f"there is no channel {kind!r}; {_suggestion(kind, kinds)}")
            return
        self.attempt(key, lambda: make_channel(name, options))

    def samplers(self) -> None:
        """Checks names and options of samplers."""
        known = plugins.names("samplers")
        for name, settings in self._loaded.settings.samplers.items():
            key = ("samplers", name)
            own = self._own_options(name)
            if name == "default":
                for option in own:
                    text = f"samplers.default has no option {option!r}; write it under one sampler's name."
                    self._note((*key, "options", option), text)
            elif name not in known:
                self._note(key, f"there is no sampler {name!r}; {_suggestion(name, known)}")
            else:
                kind = plugins.load("samplers", name, Sampler)  # type: ignore[type-abstract]  # only its members
                options = {option: value for option, value in settings.options.items() if option in own}
                self._options(key, kind, options)

    def _own_options(self, name: str) -> set[str]:
        """The options written for a sampler itself, and not inherited from `default`."""
        options = self._loaded.settings.samplers[name].options
        if name == "default" or "default" not in self._loaded.settings.samplers:
            return set(options)
        inherited = self._loaded.settings.samplers["default"].options
        return {option for option in options if options[option] != inherited.get(option, object())}

    def exporters(self) -> None:
        """Checks names and options of exporters."""
        known = running_exporters()
        for name, options in self._loaded.settings.exporters.items():
            key = ("exporters", name)
            if not self._is_on(key, options):
                continue
            if name in known:
                own_options = {option: value for option, value in options.items() if option != "enabled"}
                self._options(key, known[name], own_options)
                self._exporter(key, name, own_options)
            elif name in plugins.names("exporters"):
                text = f"{name!r} writes runs that have ended: stepscope export. "
                self._note(key, text + f"There are: {', '.join(known)}.")
            else:
                self._note(key, f"there is no exporter {name!r}; {_suggestion(name, known)}")

    def _exporter(self, key: Key, name: str, options: dict[str, Any]) -> None:
        """Checks values of the right type that the exporter itself refuses."""
        try:
            plugins.make("exporters", name, Feed, options, {})  # type: ignore[type-abstract]  # only its members
        except ConfigError as error:
            self._note(_key_named_by(str(error), key), str(error))
        except StepscopeError:
            return  # already noted for its options

    def _options(self, key: Key, kind: type, options: dict[str, Any]) -> None:
        try:
            plugins.check_options(key[0], key[1], kind, options)
        except StepscopeError as error:
            wrong = re.search(r"no option '([^']*)'", str(error))
            below = ("options",) if key[0] == "samplers" else ()
            named = (*key, *below, wrong[1]) if wrong else _key_named_by(str(error), key)
            self._note(named, str(error))

    def _is_on(self, key: Key, options: dict[str, Any]) -> bool:
        is_on = options.get("enabled", True)
        if not isinstance(is_on, bool):
            self._note((*key, "enabled"), f"{dotted(key)}.enabled is {is_on!r}; it must be true or false.")
        return is_on is True

    def _note(self, key: Key, text: str) -> None:
        self._problems.append(Problem(self._loaded.origin_of(key), text))


def running_exporters() -> dict[str, type[Feed]]:
    """The exporters that export while a run is recorded, by their names in the settings."""
    exporters: dict[str, type[Feed]] = {}
    for name in plugins.names("exporters"):
        try:
            exporters[name] = plugins.load("exporters", name, Feed)  # type: ignore[type-abstract]  # only its members
        except (StepscopeError, ImportError):
            continue  # it writes runs that have ended, or lacks a package
    return exporters


def _suggestion(name: str, known: Iterable[str]) -> str:
    similar = nearest(name, known)
    return f"did you mean {similar!r}?" if similar else f"there are: {', '.join(sorted(known)) or 'none'}."


def _key_named_by(text: str, key: Key) -> Key:
    """The key that a message begins with, if it is below `key`; otherwise `key`."""
    rest = text.removeprefix(dotted(key))
    if rest == text:
        return key
    named = key
    at = 0
    while (part := _PART.match(rest, at)) is not None:
        named = (*named, part[1] if part[1] is not None else int(part[2]))
        at = part.end()
    return named


def _line(origin: str) -> tuple[bool, int]:
    line = origin.rpartition(":")[2]
    return (False, int(line)) if line.isdecimal() else (True, 0)
