"""Stores the rules that people create, enable and disable on the page, in a file of its own.

The store has one writer, the agent, but people write from anywhere. So they write to this file, and the agent
reads it when it has changed and applies it to live runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from stepscope.alerts.rule import Rule, rule_from
from stepscope.alerts.shared_file import SharedFile
from stepscope.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

    from stepscope.alerts.shared_file import Mark

NAME = "rules.json"
MAX_RULES = 200
"""Maximum number of rules in the file, and of switches."""
MAX_SCOPE_LENGTH = 300


@dataclass(frozen=True)
class PageRule:
    """A rule created on the page, and the runs it applies to."""

    rule: Rule
    fields: Mapping[str, Any]
    """As people wrote it, with the keys of a settings file."""
    run: str = ""
    """Name or id of a run, or a pattern; empty for every run."""
    project: str = ""
    """Name of a project, or a pattern; empty for every project."""

    @property
    def is_for_all(self) -> bool:
        """Whether it applies to every run."""
        return not self.run and not self.project

    def covers(self, runs: tuple[str, ...], project: str) -> bool:
        """Whether it applies to a run; `runs` are its name and its id."""
        has_run = not self.run or self.run in runs or any(fnmatchcase(name, self.run) for name in runs)
        has_project = not self.project or project == self.project or fnmatchcase(project, self.project)
        return has_run and has_project


@dataclass(frozen=True)
class PageRuleSet:
    """The content of the file: rules and switches."""

    rules: tuple[PageRule, ...] = ()
    switches: Mapping[str, bool] = field(default_factory=dict)
    """Rules from other places that were enabled or disabled here, by name."""
    problems: Mapping[str, str] = field(default_factory=dict)
    """Invalid rules by name, and the reason; they are ignored."""
    trouble: str = ""
    """Why the file cannot be read; its previous content applies until it can."""

    def apply_to(self, others: Mapping[str, Rule], runs: tuple[str, ...], project: str) -> dict[str, Rule]:
        """Returns the enabled rules of a run: rules from other places, replaced or switched by the page."""
        rules = {
            name: replace(rule, enabled=self.switches[name]) if name in self.switches else rule
            for name, rule in others.items()
        }
        rules.update({own.rule.name: own.rule for own in self.rules if own.covers(runs, project)})
        return {name: rule for name, rule in rules.items() if rule.enabled}


class PageRules:
    """Reads and changes the file; reads it again only when it has changed."""

    def __init__(self, folder: Path) -> None:
        self._file = SharedFile(folder / NAME)
        self._read_at: Mark | None = None
        self._rules = PageRuleSet()

    def read(self) -> PageRuleSet:
        """Returns the current content; the same object as before if the file is unchanged. Costs one stat."""
        mark = self._file.mark()
        if mark != self._read_at:
            self._read_at = mark
            self._rules = PageRuleSet() if mark is None else self._parse()
        return self._rules

    def put(self, fields: Mapping[str, Any]) -> None:
        """Creates a rule, or changes the one of the same name; raises ConfigError if it is invalid."""
        name = page_rule(fields).rule.name
        with self._file.changing(self._load_or_set_aside) as document:
            rules = document["rules"]
            place = next((at for at, rule in enumerate(rules) if _name_of(rule) == name), None)
            if place is not None:
                rules[place] = dict(fields)
            elif len(rules) < MAX_RULES:
                rules.append(dict(fields))
            else:
                raise ConfigError(f"The page has {MAX_RULES} rules, which is the maximum; delete one first.")
            document["switches"].pop(name, None)

    def delete(self, name: str) -> bool:
        """Deletes a rule; returns False if no rule of that name was created on the page."""
        with self._file.changing(self._load_or_set_aside) as document:
            kept = [rule for rule in document["rules"] if _name_of(rule) != name]
            is_deleted = len(kept) < len(document["rules"])
            document["rules"] = kept
        return is_deleted

    def switch(self, name: str, *, on: bool | None) -> None:
        """Enables or disables a rule; None removes the switch of a rule from another place."""
        with self._file.changing(self._load_or_set_aside) as document:
            own = [rule for rule in document["rules"] if _name_of(rule) == name]
            for rule in own:
                rule["enabled"] = on is not False
            document["switches"].pop(name, None)
            if not own and on is not None:
                if len(document["switches"]) >= MAX_RULES:
                    raise ConfigError(f"The page has {MAX_RULES} switched rules, which is the maximum.")
                document["switches"][name] = on

    def _parse(self) -> PageRuleSet:
        try:
            document = self._load()
        except (OSError, ValueError) as error:
            return replace(self._rules, trouble=f"{self._file.path} cannot be read: {error}")
        rules: dict[str, PageRule] = {}
        problems: dict[str, str] = {}
        for number, fields in enumerate(document["rules"]):
            name = _name_of(fields) or f"rules[{number}]"
            try:
                rule = page_rule(fields)
            except ConfigError as error:
                problems[name] = str(error)
                continue
            if name in rules or len(rules) < MAX_RULES:
                rules[name] = rule
            else:
                problems[name] = f"there are more than {MAX_RULES} rules."
        return PageRuleSet(tuple(rules.values()), document["switches"], problems)

    def _load(self) -> dict[str, Any]:
        """Reads the file, including invalid rules: changing one rule must not lose others."""
        try:
            document = self._file.read()
        except RecursionError as error:
            raise ValueError("it is nested too deeply") from error
        if not isinstance(document, dict):
            raise ValueError("it is not a JSON object")  # noqa: TRY004 - like all other errors in it
        rules, switches = document.get("rules", []), document.get("switches", {})
        if not isinstance(rules, list) or not isinstance(switches, dict):
            raise ValueError("rules must be a list and switches an object")  # noqa: TRY004 - the same
        return {
            "rules": rules,
            "switches": {name: on for name, on in switches.items() if isinstance(on, bool)},
        }

    def _load_or_set_aside(self) -> dict[str, Any]:
        """Reads the file to change it; a file that cannot be read is renamed, and an empty one started."""
        try:
            return self._load()
        except FileNotFoundError:
            return {"rules": [], "switches": {}}
        except ValueError:
            self._file.path.replace(self._file.path.with_suffix(".damaged"))
            return {"rules": [], "switches": {}}


def page_rule(fields: Mapping[str, Any], place: str = "rule") -> PageRule:
    """Creates a rule from the keys of a settings file, `run` and `project`."""
    if not isinstance(fields, Mapping):
        raise ConfigError(f"{place} must be an object with name, when and other keys.")
    scope = {key: _scope(fields.get(key), f"{place}.{key}") for key in ("run", "project")}
    rule = rule_from({key: value for key, value in fields.items() if key not in scope}, place)
    if not rule.name.isprintable() or rule.name != rule.name.strip() or rule.name in (".", ".."):
        raise ConfigError(f"{place}.name is {rule.name!r}; it must be one line without spaces around it.")
    return PageRule(rule, fields, **scope)


def _scope(value: object, place: str) -> str:
    if value is None:
        return ""
    if not isinstance(value, str) or len(value) > MAX_SCOPE_LENGTH:
        raise ConfigError(f"{place} must be a name or a pattern of at most {MAX_SCOPE_LENGTH} characters.")
    return value


def _name_of(fields: object) -> str:
    name = fields.get("name") if isinstance(fields, Mapping) else None
    return name if isinstance(name, str) else ""
