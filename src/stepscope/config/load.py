"""Merges the sources of settings and validates the result.

The order is defaults, YAML file, environment, dictionary, arguments: later sources override earlier ones. An
invalid value in a file, a dictionary or an argument is an error. One in the environment, which a cluster may
set for everybody, is logged once per process, and the variable is ignored.

Pydantic validates; the merging is ours. pydantic-settings merges sources too, but drops where a value was
written, which errors and `stepscope config` name, and takes 190 ms to import where pydantic takes 49 ms.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter, ValidationError

from stepscope.config import document, document_keys
from stepscope.config import environment as variables
from stepscope.config.entry import (
    ENVIRONMENT,
    Entry,
    OriginOf,
    Problem,
    Tree,
    build_tree,
    entries_below,
    entry_at,
    flatten,
    merge_trees,
    node_at,
    plain,
    remove_at,
    values_of,
)
from stepscope.config.find import FILE_VARIABLE, Source, settings_file
from stepscope.config.reference import (
    Key,
    allowed,
    dotted,
    hint_at,
    is_section,
    meant_setting,
    names_in,
    nearest,
    no_such_setting,
    shown,
)
from stepscope.config.sections import Sampler, Settings, to_dict
from stepscope.errors import ConfigError

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

UNKNOWN_KEY = "unexpected_keyword_argument"
DICTIONARY = "dictionary"

HYPERPARAMETERS = (
    "Hyper-parameters are not settings; give them as TrainingMonitor(..., params={...}) "
    "or monitor.log_params({...})."
)

_logged: set[str] = set()
"""Messages about the environment that this process has logged."""


@dataclass(frozen=True)
class Loaded:
    """Validated settings, and the origin of each value."""

    settings: Settings
    origins: dict[str, str]
    """`default`, `FILE:LINE`, `environment NAME`, `dictionary` or `argument` by dotted key."""
    notes: tuple[Problem, ...]
    """Settings that are accepted and have no effect, without duplicates."""
    tree: Tree

    def origin_of(self, key: Key) -> str:
        """Where a setting, or the nearest one above it, was written; `default` for neither."""
        if not key or key[0] not in self.tree:
            return "default"
        entry = entry_at(self.tree, key)
        # Values that a sampler inherits from `default` were written there, not in the sampler's section.
        below = entries_below(node_at(self.tree, key))
        entry = next((own for own in below if own.written[: len(key)] == key), entry)
        return entry.origin_of(entry.written_at(key))


def load(
    source: Source = None,
    *,
    environment: Mapping[str, str] = os.environ,
    arguments: Mapping[str, Any] | None = None,
    directory: Path | None = None,
    strict: bool | None = True,
) -> Loaded:
    """Returns the settings that apply; raises ConfigError with one line per problem.

    An argument that is None counts as not given. Unless `strict`, problems of the environment are logged and
    the variables ignored; None uses recorder.strict.
    """
    variables_left = dict(environment)
    ignored: list[Problem] = []
    while True:
        problems: list[Problem] = []
        notes: list[Problem] = []
        tree = _tree(_sources(source, variables_left, arguments, directory, problems), problems, notes)
        settings = _validate(tree, problems)
        if settings is not None and not problems:
            break
        invalid = {problem.variable for problem in problems}
        if strict or not invalid <= variables_left.keys():
            raise ConfigError(_lines([*ignored, *problems]))
        ignored += problems
        # A value that an invalid variable overrode may be invalid too: everything is read again without it.
        variables_left = {name: text for name, text in variables_left.items() if name not in invalid}
    if ignored and strict is None and settings.recorder.strict:
        raise ConfigError(_lines(ignored))
    _log(ignored, environment)
    return Loaded(settings, _origins(settings, tree), tuple(dict.fromkeys(notes)), tree)


def load_valid_part(source: Source) -> tuple[Loaded, list[Problem]]:
    """The valid part of the settings, and the problems in the order of their lines.

    So one invalid setting does not hide another.
    """
    problems: list[Problem] = []
    notes: list[Problem] = []
    tree = _tree(_sources(source, os.environ, None, None, problems), problems, notes)
    while (settings := _validate(tree, problems, removes_invalid=True)) is None:
        pass
    loaded = Loaded(settings, _origins(settings, tree), tuple(dict.fromkeys(notes)), tree)
    return loaded, sorted(problems, key=_line_order)


def _tree(sources: Iterator[Iterator[Entry]], problems: list[Problem], notes: list[Problem]) -> Tree:
    tree: Tree = {}
    for entries in sources:
        normalized = [_normalize(entry, problems) for entry in entries if not _is_inert(entry, notes)]
        tree = merge_trees(tree, build_tree(normalized, problems))
    _apply_sampler_default(tree)
    return tree


def _is_inert(entry: Entry, notes: list[Problem]) -> bool:
    note = document_keys.without_effect(entry)
    # A switch that is off requests nothing.
    if note is not None and entry.value not in (False, None, {}, []):
        notes.append(note)
    return note is not None


def _lines(problems: list[Problem]) -> str:
    lines = dict.fromkeys(str(problem) for problem in sorted(problems, key=_line_order))
    if any(problem.is_hyperparameter for problem in problems):
        lines[HYPERPARAMETERS] = None
    return "\n".join(lines)


def _log(ignored: list[Problem], environment: Mapping[str, str]) -> None:
    for problem in ignored:
        name = problem.variable or ""
        assignment = variables.assignment(name, environment[name])
        message = f"stepscope ignores the environment variable {assignment}: {problem.text}"
        if message not in _logged:
            _logged.add(message)
            logging.getLogger("stepscope").warning("%s", message)


def _sources(
    source: Source,
    environment: Mapping[str, str],
    arguments: Mapping[str, Any] | None,
    directory: Path | None,
    problems: list[Problem],
) -> Iterator[Iterator[Entry]]:
    if source is not None and not isinstance(source, Mapping | str | os.PathLike):
        kind = type(source).__name__
        raise ConfigError(f"Settings are a mapping or the path of a YAML file, not {kind}. {HYPERPARAMETERS}")
    name = settings_file(source, environment, directory)
    if isinstance(source, str) and _is_run_name(source) and not ((directory or Path()) / source).exists():
        raise ConfigError(
            f"{source}: there is no such file. The first argument is a file of settings; the name of a run "
            f"is run={source!r}."
        )
    if name is not None and _can_be_read(name, source, environment, directory, problems):
        file = document.read((directory or Path()) / name, name)
        problems.extend(file.problems)
        yield _entries_of(file.data, file.origin_of, problems)
    yield variables.entries_of(environment, problems)
    if isinstance(source, Mapping):
        yield _entries_of(source, lambda _key: DICTIONARY, problems)
    arguments_given = {key: value for key, value in (arguments or {}).items() if value is not None}
    yield _entries_of(arguments_given, lambda _key: "argument", problems)
    yield variables.switched_off(environment, problems)


def _is_run_name(source: str) -> bool:
    """Whether a text is a single word, as the names of runs are and files of settings are not."""
    return len(source) < 200 and source.replace("-", "_").isidentifier()


def _can_be_read(
    name: str,
    source: Source,
    environment: Mapping[str, str],
    directory: Path | None,
    problems: list[Problem],
) -> bool:
    """Whether the file named by the variable can be read; a file named in code must exist."""
    if isinstance(source, str | os.PathLike) or not environment.get(FILE_VARIABLE):
        return True
    path = (directory or Path()) / name
    with contextlib.suppress(OSError):
        if path.is_file() and os.access(path, os.R_OK):
            return True
    problems.append(Problem(f"{ENVIRONMENT} {FILE_VARIABLE}", f"{name} is not a file that can be read."))
    return False


def _entries_of(data: Mapping[str, Any], origin_of: OriginOf, problems: list[Problem]) -> Iterator[Entry]:
    return document_keys.to_current_keys(flatten(plain(data, origin_of, problems), origin_of), problems)


def _normalize(entry: Entry, problems: list[Problem]) -> Entry:
    """Normalizes an empty section to one without settings, and moves a sampler's own options to `options`."""
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


def _apply_sampler_default(tree: Tree) -> None:
    """Gives every named sampler the values of `default` that it does not set itself."""
    samplers = tree.get("samplers")
    default = samplers.get("default") if isinstance(samplers, dict) else None
    if not isinstance(samplers, dict) or not isinstance(default, dict):
        return
    for name, node in samplers.items():
        if isinstance(node, Entry) and node.value != {}:
            continue
        samplers[name] = merge_trees(default, node if isinstance(node, dict) else {})


@functools.cache
def _adapter() -> TypeAdapter[Settings]:
    return TypeAdapter(Settings)


def _validate(tree: Tree, problems: list[Problem], *, removes_invalid: bool = False) -> Settings | None:
    try:
        return _adapter().validate_python(values_of(tree))
    except ValidationError as error:
        # The error quotes values, which may be secret: it must not become the cause of another error.
        errors = error.errors(include_url=False)
    problems.extend(_problem(details, tree) for details in errors)
    if removes_invalid:
        removed = [remove_at(tree, details["loc"]) for details in errors]
        if not any(removed):
            raise ConfigError(_lines(problems))
    return None


def _problem(details: ErrorDetails, tree: Tree) -> Problem:
    key: Key = details["loc"]
    entry = entry_at(tree, key)
    written = entry.written_at(key)
    if details["type"] == UNKNOWN_KEY:
        return _unknown_key(key, written, entry.origin_of(written))
    value = shown(details["input"], key)
    text = f"{dotted(written)} is {value}; it must be {allowed(hint_at(key))}."
    return Problem(entry.origin_of(written), text)


def _unknown_key(key: Key, written: Key, origin: str) -> Problem:
    is_top = len(key) == 1
    names = names_in(hint_at(key[:-1])), document_keys.ROOTS if is_top else ()
    is_hyperparameter = is_top and origin == DICTIONARY and meant_setting(written, *names) is None
    return Problem(origin, no_such_setting(written, *names), is_hyperparameter)


def _line_order(problem: Problem) -> tuple[bool, int]:
    """Sort key: problems with a line number by line, then the rest."""
    line = problem.origin.rpartition(":")[2]
    return (False, int(line)) if line.isdecimal() else (True, 0)


def _origins(settings: Settings, tree: Tree) -> dict[str, str]:
    leaves = flatten(to_dict(settings), lambda _key: "default")
    return {dotted(leaf.key): _origin(leaf, tree) for leaf in leaves}


def _origin(leaf: Entry, tree: Tree) -> str:
    node = node_at(tree, leaf.key)
    return node.origin if isinstance(node, Entry) else leaf.origin
