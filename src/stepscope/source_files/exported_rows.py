"""Reads rows that `stepscope export` has written: where each comes from, and its keys as they were."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

LABELS = ("run", "segment", "rank", "host", "device", "step", "time")
WIDE_LABELS = (*LABELS, "time_seconds")
"""The first columns of a row for each step; the others are metrics."""
LONG_COLUMNS = (*LABELS, "key", "value")
"""The columns of a row for each value."""
APOSTROPHE = "'"
"""In CSV it stands before texts that a spreadsheet would compute."""


class ExportSource(NamedTuple):
    """What has logged a row; a part that the row does not have is empty."""

    run: str
    rank: str
    host: str
    device: str


def is_export(names: Iterable[str]) -> bool:
    """Whether a row with these names, in this order, is one of `stepscope export`."""
    columns = tuple(names)
    return columns == LONG_COLUMNS or columns[: len(WIDE_LABELS)] == WIDE_LABELS


def source_of_row(row: Mapping[str, Any]) -> ExportSource:
    """What has logged a row."""
    return ExportSource(*("" if row[label] is None else str(row[label]) for label in ExportSource._fields))


def source_names(sources: Sequence[ExportSource]) -> list[str]:
    """A name for each source: its run, and what distinguishes it from the other sources."""
    varying = [part for part in ("rank", "host", "device") if len({getattr(s, part) for s in sources}) > 1]
    names = []
    for source in sources:
        parts = [f"rank{source.rank}" if part == "rank" else getattr(source, part) for part in varying]
        names.append("/".join([source.run, *filter(None, parts)]))
    return names


def keys_by_column(columns: Iterable[str]) -> dict[str, str]:
    """The key of each column whose name differs: a key such as `step` has got underscores."""
    keys: dict[str, str] = {}
    names = sorted(columns, key=len)
    for label in WIDE_LABELS:
        renamed = [name for name in names if name != label and name.rstrip("_") == label]
        if renamed:
            keys[renamed[-1]] = label
    return keys


def values_of_row(row: Mapping[str, Any], keys: Mapping[str, str]) -> dict[str, Any]:
    """The values of a row by their keys."""
    if tuple(row) == LONG_COLUMNS:
        return {str(row["key"]): row["value"]}
    return {keys.get(name, name): value for name, value in row.items() if name not in WIDE_LABELS}


def without_apostrophe(cell: str) -> str:
    """The original text of a cell in CSV."""
    return cell.removeprefix(APOSTROPHE)
