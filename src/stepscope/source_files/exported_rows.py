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
MACHINE = "machine"
"""In names of runs: the rows without a rank, which are the figures of a machine and of its devices."""
ROOT = "root"
"""In names of runs: the file system `/`."""


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
    if len(sources) == 1:
        return [source.run for source in sources]
    has_ranks, has_hosts, has_devices = (
        len({getattr(source, part) for source in sources}) > 1 for part in ("rank", "host", "device")
    )
    names = []
    for source in sources:
        rank = f"rank{source.rank}" * has_ranks if source.rank else MACHINE
        host, device = source.host * has_hosts, _device_name(source.device) * has_devices
        names.append("/".join(filter(None, [source.run, rank, host, device])))
    return names


def _device_name(device: str) -> str:
    """A device in the name of a run: a file system is named by its path."""
    return ROOT if device == "/" else device.strip("/")


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
