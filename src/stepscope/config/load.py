"""Lays the sources of settings over each other and checks the result.

The order is defaults, YAML file, environment, dictionary, arguments: the later wins.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter, ValidationError

from stepscope.config import document, older
from stepscope.config import environment as variables
from stepscope.config.entry import (
    Entry,
    OriginOf,
    Problem,
    Tree,
    entry_at,
    flatten,
    laid_out,
    laid_over,
    plain,
    values_of,
)
from stepscope.config.find import Source, settings_file
from stepscope.config.plain import to_dict
from stepscope.config.sections import Sampler, Settings
from stepscope.config.shape import Key, dotted, hint_at, is_section, names_in
from stepscope.config.wording import allowed, nearest, no_such_setting, shown
from stepscope.errors import ConfigError

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

UNKNOWN_KEY = "unexpected_keyword_argument"


@dataclass(frozen=True)
class Loaded:
    """Checked settings, and where each value came from."""

    settings: Settings
    origins: dict[str, str]
    """`default`, `FILE:LINE`, `environment NAME`, `dictionary` or `argument` by dotted key."""


def load(
    source: Source = None,
    *,
    environment: Mapping[str, str] = os.environ,
    arguments: Mapping[str, Any] | None = None,
    directory: Path | None = None,
) -> Loaded:
    """Returns the settings that hold; raises ConfigError with one line per problem.

    An argument that is None counts as not given.
    """
    problems: list[Problem] = []
    tree: Tree = {}
    for entries in _sources(source, environment, arguments, directory, problems):
        tidied = [_tidied(entry, problems) for entry in entries]
        tree = laid_over(tree, laid_out(tidied, problems))
    _hand_down_sampler_default(tree)
    settings = _checked(tree, problems)
    if settings is None or problems:
        lines = dict.fromkeys(str(problem) for problem in sorted(problems, key=_place))
        raise ConfigError("\n".join(lines))
    return Loaded(settings, _origins(settings, tree))


def _sources(
    source: Source,
    environment: Mapping[str, str],
    arguments: Mapping[str, Any] | None,
    directory: Path | None,
    problems: list[Problem],
) -> Iterator[Iterator[Entry]]:
    if source is not None and not isinstance(source, Mapping | str | os.PathLike):
        kind = type(source).__name__
        raise ConfigError(f"Settings are a mapping or the path of a YAML file, not {kind}.")
    name = settings_file(source, environment, directory)
    if name is not None:
        file = document.read((directory or Path()) / name, name)
        problems.extend(file.problems)
        yield _entries_of(file.data, file.origin_of, problems)
    yield variables.entries_of(environment, problems)
    if isinstance(source, Mapping):
        yield _entries_of(source, lambda _key: "dictionary", problems)
    given = {key: value for key, value in (arguments or {}).items() if value is not None}
    yield _entries_of(given, lambda _key: "argument", problems)


def _entries_of(data: Mapping[str, Any], origin_of: OriginOf, problems: list[Problem]) -> Iterator[Entry]:
    return older.modernised(flatten(plain(data, origin_of, problems), origin_of), problems)


def _tidied(entry: Entry, problems: list[Problem]) -> Entry:
    """Reads an empty section as one without settings, and files away a sampler's own options."""
    key = entry.key
    if key[0] == "samplers" and len(key) > 2 and key[2] not in names_in(Sampler):
        if nearest(key[2], names_in(Sampler)) is not None:
            written = entry.written_at(key[:3])
            text = no_such_setting(written, names_in(Sampler))
            problems.append(Problem(entry.origin_of(written), text))
        return replace(entry, key=(*key[:2], "options", *key[2:]))
    if entry.value is None and is_section(hint_at(key)):
        return replace(entry, value={})
    return entry


def _hand_down_sampler_default(tree: Tree) -> None:
    """Gives every named sampler the values of `default` that it does not set itself."""
    samplers = tree.get("samplers")
    default = samplers.get("default") if isinstance(samplers, dict) else None
    if not isinstance(samplers, dict) or not isinstance(default, dict):
        return
    for name, node in samplers.items():
        if isinstance(node, Entry) and node.value != {}:
            continue
        samplers[name] = laid_over(default, node if isinstance(node, dict) else {})


@functools.cache
def _adapter() -> TypeAdapter[Settings]:
    return TypeAdapter(Settings)


def _checked(tree: Tree, problems: list[Problem]) -> Settings | None:
    try:
        return _adapter().validate_python(values_of(tree))
    except ValidationError as error:
        # The error itself quotes the values, secrets among them: it must not become a cause.
        problems.extend(_problem(details, tree) for details in error.errors(include_url=False))
        return None


def _problem(details: ErrorDetails, tree: Tree) -> Problem:
    key: Key = details["loc"]
    entry = entry_at(tree, key)
    written = entry.written_at(key)
    if details["type"] == UNKNOWN_KEY:
        older_names = older.ROOTS if len(key) == 1 else ()
        text = no_such_setting(written, names_in(hint_at(key[:-1])), older_names)
    else:
        value = shown(details["input"], key)
        text = f"{dotted(written)} is {value}; it must be {allowed(hint_at(key))}."
    return Problem(entry.origin_of(written), text)


def _place(problem: Problem) -> tuple[bool, int]:
    """Sorts what has a line by its line, and the rest behind it."""
    line = problem.origin.rpartition(":")[2]
    return (False, int(line)) if line.isdecimal() else (True, 0)


def _origins(settings: Settings, tree: Tree) -> dict[str, str]:
    leaves = flatten(to_dict(settings), lambda _key: "default")
    return {dotted(leaf.key): _origin(leaf, tree) for leaf in leaves}


def _origin(leaf: Entry, tree: Tree) -> str:
    node: Tree | Entry = tree
    for part in leaf.key:
        if isinstance(node, Entry) or part not in node:
            return leaf.origin
        node = node[part]
    return node.origin if isinstance(node, Entry) else leaf.origin
