"""Rules people made on the page, and those they switched off there, in a file of its own.

As with silences: the store has one writer, the agent, and people write from anywhere. The agent reads the
file when it has changed, and goes by it in runs that are live.
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
MOST = 200
"""So many rules are taken, and so many switches."""
MAX_IN_SCOPE = 300


@dataclass(frozen=True)
class PageRule:
    """A rule made on the page, and the runs it is meant for."""

    rule: Rule
    fields: Mapping[str, Any]
    """As people wrote it, with the keys of a settings file."""
    run: str = ""
    """A run's name or id, or a pattern of them; empty for every run."""
    project: str = ""
    """The same of projects."""

    @property
    def is_for_all(self) -> bool:
        """Whether it holds in every run."""
        return not self.run and not self.project

    def covers(self, runs: tuple[str, ...], project: str) -> bool:
        """Whether it holds in a run, which has a name and an id."""
        is_of_run = not self.run or self.run in runs or any(fnmatchcase(name, self.run) for name in runs)
        is_of_project = not self.project or project == self.project or fnmatchcase(project, self.project)
        return is_of_run and is_of_project


@dataclass(frozen=True)
class Made:
    """All that people have made of rules."""

    rules: tuple[PageRule, ...] = ()
    switches: Mapping[str, bool] = field(default_factory=dict)
    """Rules from elsewhere that were switched on or off, by name."""
    problems: Mapping[str, str] = field(default_factory=dict)
    """Rules that make no sense, by name, and why; they are left out."""
    trouble: str = ""
    """Why the file cannot be read; what was read before holds until it can."""

    def over(self, others: Mapping[str, Rule], runs: tuple[str, ...], project: str) -> dict[str, Rule]:
        """The rules to judge in a run: those from elsewhere, with what was made here in their place."""
        found = {
            name: replace(rule, enabled=self.switches[name]) if name in self.switches else rule
            for name, rule in others.items()
        }
        found.update({one.rule.name: one.rule for one in self.rules if one.covers(runs, project)})
        return {name: rule for name, rule in found.items() if rule.enabled}


class PageRules:
    """The file, read again when it has changed."""

    def __init__(self, folder: Path) -> None:
        self._file = SharedFile(folder / NAME)
        self._read_at: Mark | None = None
        self._made = Made()

    def read(self) -> Made:
        """What holds now; the same object as before where the file is the same. Costs one stat."""
        mark = self._file.mark()
        if mark != self._read_at:
            self._read_at = mark
            self._made = Made() if mark is None else self._read_anew()
        return self._made

    def put(self, fields: Mapping[str, Any]) -> None:
        """Makes a rule, or changes the one of its name; raises ConfigError where it makes no sense."""
        made = page_rule(fields)
        with self._file.changing(self._load_or_put_aside) as document:
            rules = document["rules"]
            known = next((at for at, one in enumerate(rules) if _name_of(one) == made.rule.name), None)
            if known is not None:
                rules[known] = dict(fields)
            elif len(rules) < MOST:
                rules.append(dict(fields))
            else:
                raise ConfigError(f"There are {MOST} rules of the page, the most there may be; delete one.")
            document["switches"].pop(made.rule.name, None)

    def delete(self, name: str) -> bool:
        """Takes a rule away; False where none of that name was made here."""
        with self._file.changing(self._load_or_put_aside) as document:
            kept = [one for one in document["rules"] if _name_of(one) != name]
            was_there = len(kept) < len(document["rules"])
            document["rules"] = kept
        return was_there

    def switch(self, name: str, *, on: bool | None) -> None:
        """Switches a rule on or off; None leaves one from elsewhere as it is there."""
        with self._file.changing(self._load_or_put_aside) as document:
            own = [one for one in document["rules"] if _name_of(one) == name]
            for one in own:
                one["enabled"] = on is not False
            document["switches"].pop(name, None)
            if not own and on is not None:
                if len(document["switches"]) >= MOST:
                    raise ConfigError(f"{MOST} rules were switched here, the most there may be.")
                document["switches"][name] = on

    def _read_anew(self) -> Made:
        try:
            document = self._load()
        except (OSError, ValueError) as error:
            return replace(self._made, trouble=f"{self._file.path} cannot be read: {error}")
        rules: dict[str, PageRule] = {}
        problems: dict[str, str] = {}
        for number, fields in enumerate(document["rules"]):
            name = _name_of(fields) or f"rules[{number}]"
            try:
                made = page_rule(fields)
            except ConfigError as error:
                problems[name] = str(error)
                continue
            if name in rules or len(rules) < MOST:
                rules[name] = made
            else:
                problems[name] = f"There are more than {MOST}."
        return Made(tuple(rules.values()), document["switches"], problems)

    def _load(self) -> dict[str, Any]:
        """The file as it is, rules that make no sense included: nothing is lost by a change of another."""
        try:
            document = self._file.read()
        except RecursionError as error:
            raise ValueError("its parts lie too deep within each other") from error
        if not isinstance(document, dict):
            raise ValueError("it holds no section")  # noqa: TRY004 - like all else that is wrong with it
        rules, switches = document.get("rules", []), document.get("switches", {})
        if not isinstance(rules, list) or not isinstance(switches, dict):
            raise ValueError("it holds no list of rules and section of switches")  # noqa: TRY004 - the same
        return {
            "rules": rules,
            "switches": {name: on for name, on in switches.items() if isinstance(on, bool)},
        }

    def _load_or_put_aside(self) -> dict[str, Any]:
        """The same, to be changed; a file that cannot be read is kept under another name."""
        try:
            return self._load()
        except FileNotFoundError:
            return {"rules": [], "switches": {}}
        except ValueError:
            self._file.path.replace(self._file.path.with_suffix(".damaged"))
            return {"rules": [], "switches": {}}


def page_rule(fields: Mapping[str, Any], place: str = "rule") -> PageRule:
    """The rule that fields say, with the keys of a settings file and `run` and `project`."""
    if not isinstance(fields, Mapping):
        raise ConfigError(f"{place} is no section with name, when and others.")
    scope = {key: _scope(fields.get(key), f"{place}.{key}") for key in ("run", "project")}
    rule = rule_from({key: value for key, value in fields.items() if key not in scope}, place)
    if not rule.name.isprintable() or rule.name != rule.name.strip() or rule.name in (".", ".."):
        raise ConfigError(f"{place}.name is {rule.name!r}; it must be one line without blanks around it.")
    return PageRule(rule, fields, **scope)


def _scope(value: object, place: str) -> str:
    if value is None:
        return ""
    if not isinstance(value, str) or len(value) > MAX_IN_SCOPE:
        raise ConfigError(f"{place} must be a name or a pattern of at most {MAX_IN_SCOPE} characters.")
    return value


def _name_of(fields: object) -> str:
    name = fields.get("name") if isinstance(fields, Mapping) else None
    return name if isinstance(name, str) else ""
