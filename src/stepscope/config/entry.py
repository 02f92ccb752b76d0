"""One setting with its origin, and the tree in which the sources of settings are merged."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, Union

from stepscope.config.reference import Key, dotted

MAX_DEPTH = 32

ENVIRONMENT = "environment"
"""The first word of the origin of an environment variable; its name follows."""

OriginOf: TypeAlias = Callable[[Key], str]
"""Returns where a key was written: `train.yaml:7`, `argument`, ..."""


@dataclass(frozen=True)
class Problem:
    """One error, and where it is."""

    origin: str
    text: str
    is_hyperparameter: bool = False
    """Whether it looks like a hyper-parameter of the model instead of a setting."""

    @property
    def variable(self) -> str | None:
        """The environment variable it is about; None for other origins."""
        kind, _, name = self.origin.partition(" ")
        return name if kind == ENVIRONMENT else None

    def __str__(self) -> str:
        return f"{self.origin}: {self.text}"


@dataclass(frozen=True)
class Entry:
    """A value, its key, and the key under which it was written."""

    key: Key
    value: Any
    written: Key
    origin_of: OriginOf

    @property
    def origin(self) -> str:
        """Where the value was written."""
        return self.origin_of(self.written)

    def written_at(self, key: Key) -> Key:
        """Returns how a key above or below this entry's key was written."""
        surplus = len(self.key) - len(key)
        if surplus > 0:
            return self.written[: max(len(self.written) - surplus, 1)]
        return (*self.written, *key[len(self.key) :])


Tree: TypeAlias = dict[str, Union["Tree", Entry]]


def flatten(data: Mapping[str, Any], origin_of: OriginOf, parent: Key = ()) -> Iterator[Entry]:
    """Yields every value of nested data that is not itself a non-empty section."""
    for name, value in data.items():
        key = (*parent, name)
        if isinstance(value, dict) and value:
            yield from flatten(value, origin_of, key)
        else:
            yield Entry(key, value, key, origin_of)


def plain(value: Any, origin_of: OriginOf, problems: list[Problem], key: Key = ()) -> Any:
    """Copies a value into dicts, lists, text and numbers; other types are added to the problems."""
    if len(key) > MAX_DEPTH:
        problems.append(Problem(origin_of(key), f"{dotted(key[:3])} is nested too deeply."))
        return None
    if isinstance(value, Mapping):
        return {
            name: plain(part, origin_of, problems, (*key, name))
            for name, part in value.items()
            if _is_name(name, origin_of, problems, key)
        }
    if isinstance(value, list | tuple):
        parts = enumerate(value)
        return [plain(part, origin_of, problems, (*key, index)) for index, part in parts]
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if value is None or isinstance(value, bool | int | float) or _is_unicode(value):
        return value
    kind = "text with half a character" if isinstance(value, str) else f"of type {type(value).__name__}"
    text = f"{dotted(key)} is {kind}; it must be text, a number, a list or a section."
    problems.append(Problem(origin_of(key), text))
    return None


def build_tree(entries: Iterable[Entry], problems: list[Problem]) -> Tree:
    """Builds the tree of one source, in which no setting may be given twice."""
    tree: Tree = {}
    for entry in entries:
        node = tree
        for name in entry.key[:-1]:
            child = node.setdefault(name, {})
            if isinstance(child, Entry):
                _refuse_second(entry, child, problems)
                child = node[name] = {}
            node = child
        _put(node, entry, problems)
    return tree


def merge_trees(base: Tree, override: Tree) -> Tree:
    """Merges two trees; values of the second override those of the first."""
    merged = dict(base)
    for name, node in override.items():
        existing = base.get(name)
        if isinstance(node, dict) and isinstance(existing, dict):
            merged[name] = merge_trees(existing, node)
        elif not (isinstance(existing, dict) and isinstance(node, Entry) and node.value == {}):
            merged[name] = node
    return merged


def values_of(tree: Tree) -> dict[str, Any]:
    """Returns the tree as nested data."""
    return {name: node.value if isinstance(node, Entry) else values_of(node) for name, node in tree.items()}


def node_at(tree: Tree, key: Key) -> Tree | Entry | None:
    """Returns the section or entry at exactly this key, None if there is none."""
    node: Tree | Entry = tree
    for part in key:
        if isinstance(node, Entry) or part not in node:
            return None
        node = node[part]
    return node


def entries_below(node: Tree | Entry | None) -> Iterator[Entry]:
    """Yields an entry itself, or all entries of a section."""
    if isinstance(node, Entry):
        yield node
    for part in node.values() if isinstance(node, dict) else ():
        yield from entries_below(part)


def entry_at(tree: Tree, key: Key) -> Entry:
    """Returns the entry at a key, or the one above it, or the first below it."""
    node: Tree | Entry = tree
    for part in key:
        if isinstance(node, Entry) or part not in node:
            break
        node = node[part]
    return next(entries_below(node))


def remove_at(tree: Tree, key: Key) -> bool:
    """Removes what is at a key, or the entry above it, and empty sections; False if there was nothing."""
    node = tree.get(key[0]) if key else None
    if node is None:
        return False
    if isinstance(node, dict) and len(key) > 1:
        is_removed = remove_at(node, key[1:])
        if not node:
            del tree[key[0]]
        return is_removed
    del tree[key[0]]
    return True


def _put(node: Tree, entry: Entry, problems: list[Problem]) -> None:
    name = entry.key[-1]
    existing = node.get(name)
    if isinstance(existing, dict):
        if entry.value != {}:
            _refuse_second(entry, entry_at(existing, ()), problems)
        return
    if existing is not None:
        _refuse_second(entry, existing, problems)
    node[name] = entry


def _refuse_second(entry: Entry, first: Entry, problems: list[Problem]) -> None:
    if first.value in ({}, entry.value):
        return
    problems.append(
        Problem(
            entry.origin,
            f"{dotted(entry.key)} is given twice, here as {dotted(entry.written)!r} and as "
            f"{dotted(first.written)!r} ({first.origin}); keep one.",
        )
    )


def _is_name(name: Any, origin_of: OriginOf, problems: list[Problem], key: Key) -> bool:
    if isinstance(name, str) and _is_unicode(name):
        return True
    where = f" in {dotted(key)}" if key else ""
    problems.append(Problem(origin_of(key), f"the key {name!a:.60}{where} must be text."))
    return False


def _is_unicode(value: Any) -> bool:
    """Whether a value is text without lone surrogates, which can be neither printed nor stored."""
    if not isinstance(value, str):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
