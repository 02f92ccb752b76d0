"""Puts runs together that have one value of a configuration entry: their mean, and how far they reach."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from stepscope.errors import NotFound
from stepscope.views.compare.compared_config import kind_of, quoted, shown
from stepscope.views.compare.compared_figures import UNKNOWN, change, is_sure, worded
from stepscope.views.wording import quantity

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from stepscope.views.compare.compared_figures import Better, Cell, FigureRow
    from stepscope.views.plain import Scalar
    from stepscope.views.runs.run_rows import RunRow


@dataclass(frozen=True)
class Group:
    """Runs with one value."""

    value: str | None
    """None where they do not have the entry."""
    runs: tuple[str, ...]


@dataclass(frozen=True)
class GroupCell:
    """A figure of the runs of a group, each of which counts once."""

    runs: int
    """How many of them have the figure."""
    value: float | None
    """The mean; None where none of them has the figure, or one of them ended with NaN."""
    text: str
    low: float | None
    high: float | None
    delta_ratio: float | None
    delta_text: str
    sure: bool | None
    """Whether groups differ by more than their runs do; None for too few runs to tell."""


@dataclass(frozen=True)
class GroupRow:
    """One figure of all groups."""

    name: str
    unit: str
    better: Better
    cells: tuple[GroupCell, ...]


def groups_of(rows: Sequence[RunRow], key: str) -> tuple[Group, ...]:
    """The groups of an entry: by size where all values are numbers, else in the order of the runs."""
    found: dict[tuple[str, Scalar], list[RunRow]] = {}
    for row in rows:
        # 1 and 1.0 are one value, 1 and "1" are two.
        value = row.config.get(key)
        found.setdefault((kind_of(value) if key in row.config else "", value), []).append(row)
    if all(kind == "" for kind, _ in found):
        raise NotFound(f"None of the compared runs has a configuration entry {key!r}.")
    kinds = {kind for kind, _ in found} - {""}
    ordered = list(found)
    if kinds == {"number"}:
        ordered.sort(key=lambda one: (one[0] == "", one[1] or 0))
    return tuple(
        Group(
            None if kind == "" else quoted(value) if len(kinds) > 1 else shown(value),
            tuple(row.id for row in found[kind, value]),
        )
        for kind, value in ordered
    )


def group_rows(figures: Sequence[FigureRow], groups: Sequence[Group], baseline: str) -> tuple[GroupRow, ...]:
    """The figures of groups, against the group of the baseline."""
    base = next(at for at, group in enumerate(groups) if baseline in group.runs)
    return tuple(_row(figure, groups, base) for figure in figures)


def _row(figure: FigureRow, groups: Sequence[Group], base: int) -> GroupRow:
    by_run = {cell.run: cell for cell in figure.cells}
    several = [
        np.array([value for run in group.runs if (value := by_run[run].value) is not None])
        for group in groups
    ]
    means = [
        None if _nonfinite(by_run[run] for run in group.runs) or not len(values) else float(values.mean())
        for group, values in zip(groups, several, strict=True)
    ]
    cells = []
    for at, values in enumerate(several):
        ratio = None if at == base else change(means[at], means[base])
        sure = is_sure(values, several[base]) if ratio is not None else None
        low, high = (float(values.min()), float(values.max())) if len(values) else (None, None)
        mean = means[at]
        text = (
            quantity(mean, figure.unit)
            if mean is not None
            else (_nonfinite(by_run[run] for run in groups[at].runs) or UNKNOWN)
        )
        change_text = worded(ratio, figure.better, sure, figure.unit)
        cells.append(GroupCell(len(values), mean, text, low, high, ratio, change_text, sure))
    return GroupRow(figure.name, figure.unit, figure.better, tuple(cells))


def _nonfinite(cells: Iterable[Cell]) -> str | None:
    """What a figure is in a run where it is not finite: the mean of the group is that as well."""
    return next((cell.text for cell in cells if cell.value is None and cell.text != UNKNOWN), None)
