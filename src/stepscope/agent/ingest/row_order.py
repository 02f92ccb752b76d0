"""Puts the rows of a round into the order in which they were logged, for each key."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from stepscope.exporters.base import Table

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from stepscope.schema.series import Source


def in_logged_order(tables: Iterable[Table]) -> Iterator[Table]:
    """Splits tables of one source that share a key, where rows of one were logged between those of another.

    A key that is logged alone at most steps, and together with others at some, is in several tables. Tables
    without a common key stay whole: most programs take them faster than many small ones.
    """
    by_source: dict[Source, list[Table]] = {}
    for table in tables:
        by_source.setdefault(table.source, []).append(table)
    for own in by_source.values():
        for related in _with_common_keys(own):
            yield from _by_time(related) if len(related) > 1 else related


def _with_common_keys(tables: list[Table]) -> list[list[Table]]:
    """Groups tables: each shares a key with another of its group, and with none of another group."""
    groups: list[tuple[set[str], list[Table]]] = []
    for table in tables:
        keys, related = set(table.keys), [table]
        apart = []
        for other_keys, others in groups:
            if keys.isdisjoint(other_keys):
                apart.append((other_keys, others))
            else:
                keys, related = keys | other_keys, others + related
        groups = [*apart, (keys, related)]
    return [related for _, related in groups]


def _by_time(tables: list[Table]) -> Iterator[Table]:
    owners = np.repeat(np.arange(len(tables)), [len(table.times_ns) for table in tables])
    rows = np.concatenate([np.arange(len(table.times_ns)) for table in tables])
    order = np.argsort(np.concatenate([table.times_ns for table in tables]), kind="stable")
    owners, rows = owners[order], rows[order]
    changes = np.flatnonzero(np.diff(owners)) + 1
    for owner, chosen in zip(owners[[0, *changes]], np.split(rows, changes), strict=True):
        table = tables[owner]
        yield Table(
            table.source, table.keys, table.steps[chosen], table.times_ns[chosen], table.values[chosen]
        )
