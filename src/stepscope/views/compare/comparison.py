"""Compares runs: figures and their change relative to a baseline, groups of runs, configurations."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from stepscope.analysis.verdict import Verdict  # noqa: TC001 - the schema of the API reads it
from stepscope.errors import NotFound, StepscopeError
from stepscope.views.compare.compared_config import ConfigDifference, config_lines, kind_of, quoted, shown
from stepscope.views.compare.compared_figures import (
    PRESETS,
    UNKNOWN,
    Better,
    Cell,
    Figure,
    change,
    change_text,
    figure_rows,
    is_sure,
)
from stepscope.views.compare.compared_run import ComparedRun
from stepscope.views.formatting import quantity
from stepscope.views.run_context import RunContext
from stepscope.views.runs.axes import AxisChoice, Segment, SharedAxes
from stepscope.views.runs.marks import NoMarks
from stepscope.views.runs.run_rows import FigureCache, RunRow, run_row

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from stepscope.reading import Run
    from stepscope.views.json_values import Scalar
    from stepscope.views.runs.marks import Marks

MAX_RUNS = 50


@dataclass(frozen=True)
class Comparison:
    """The comparison of several runs, in the order given."""

    runs: tuple[RunRow, ...]
    baseline: str
    keys: tuple[str, ...]
    """The keys that all runs logged."""
    warm_up_steps: tuple[int, ...]
    """How many first steps of each run the figures leave out."""
    figures: tuple[Figure, ...]
    groups: tuple[Group, ...]
    """Empty unless `group_by` names an entry."""
    group_figures: tuple[GroupFigure, ...]
    config: tuple[ConfigDifference, ...]
    """Entries that differ come first."""
    verdicts: tuple[Verdict, ...]
    segments: tuple[tuple[Segment, ...], ...]
    """The segments of each run."""
    axes: tuple[AxisChoice, ...]
    """The x axes that charts of all runs can have."""


def compare(  # noqa: PLR0913 - a comparison has many options
    runs: Sequence[Run],
    baseline: str | None = None,
    preset: str = "all",
    *,
    group_by: str | None = None,
    with_warm_up: bool = False,
    marks: Marks | None = None,
    now_ns: int | None = None,
    cache: FigureCache | None = None,
    axes: SharedAxes | None = None,
) -> Comparison:
    """Compares runs with a baseline, given by id; by default the first run.

    `group_by` is a configuration entry; runs with the same value form a group. Steps of the warm-up are left
    out unless `with_warm_up` is set. `axes` is what charts of the runs need.
    """
    if not 0 < len(runs) <= MAX_RUNS:
        raise StepscopeError(f"Cannot compare {len(runs)} runs; choose 1 to {MAX_RUNS}.")
    if preset not in PRESETS:
        raise StepscopeError(f"preset is {preset!r}; it must be one of {', '.join(PRESETS)}.")
    base = runs[0].id if baseline is None else baseline
    if all(run.id != base for run in runs):
        raise NotFound(f"The baseline {base!r} is not one of the compared runs.")
    marks = marks or NoMarks()
    now_ns = time.time_ns() if now_ns is None else now_ns
    cache, axes = cache or FigureCache(), axes or SharedAxes()
    cache.begin_list()
    contexts = [RunContext(run, marks, now_ns, cache) for run in runs]
    rows = tuple(run_row(run, marks, now_ns, cache) for run in runs)
    compared_runs = [ComparedRun(context, with_warm_up=with_warm_up) for context in contexts]
    figures = figure_rows(compared_runs, [run.id for run in runs].index(base), preset)
    groups = () if group_by is None else groups_of(rows, group_by)
    return Comparison(
        runs=rows,
        baseline=base,
        keys=_in_common(contexts),
        warm_up_steps=tuple(compared_run.left_out for compared_run in compared_runs),
        figures=figures,
        groups=groups,
        group_figures=group_rows(figures, groups, base) if groups else (),
        config=config_lines([row.config for row in rows]),
        verdicts=tuple(row.verdict for row in rows),
        segments=axes.segments,
        axes=axes.axes,
    )


def _in_common(contexts: Sequence[RunContext]) -> tuple[str, ...]:
    logged_keys = [
        {key for key in context.summaries.keys if context.summaries.logged(key)} for context in contexts
    ]
    return tuple(sorted(set.intersection(*logged_keys)))


@dataclass(frozen=True)
class Group:
    """Runs with the same value of the grouping entry."""

    value: str | None
    """None if they do not have the entry."""
    runs: tuple[str, ...]


@dataclass(frozen=True)
class GroupCell:
    """The mean of a figure over the runs of a group, and its change relative to the baseline's group."""

    runs: int
    """How many of the runs have the figure."""
    value: float | None
    """The mean; None if no run has the figure, or one of them ended with NaN."""
    text: str
    low: float | None
    high: float | None
    delta_ratio: float | None
    delta_text: str
    sure: bool | None
    """Whether groups differ by more than noise between their runs; None for too few runs."""


@dataclass(frozen=True)
class GroupFigure:
    """One figure of all groups."""

    name: str
    unit: str
    better: Better
    cells: tuple[GroupCell, ...]


def groups_of(rows: Sequence[RunRow], key: str) -> tuple[Group, ...]:
    """Returns the groups of an entry: sorted if all values are numbers, otherwise in order of the runs."""
    rows_by_value: dict[tuple[str, Scalar], list[RunRow]] = {}
    for row in rows:
        # 1 and 1.0 are the same value, 1 and "1" are not.
        value = row.config.get(key)
        rows_by_value.setdefault((kind_of(value) if key in row.config else "", value), []).append(row)
    if all(kind == "" for kind, _ in rows_by_value):
        raise NotFound(f"None of the compared runs has a configuration entry {key!r}.")
    kinds = {kind for kind, _ in rows_by_value} - {""}
    ordered = list(rows_by_value)
    if kinds == {"number"}:
        ordered.sort(key=lambda kind_and_value: (kind_and_value[0] == "", kind_and_value[1] or 0))
    return tuple(
        Group(
            None if kind == "" else quoted(value) if len(kinds) > 1 else shown(value),
            tuple(row.id for row in rows_by_value[kind, value]),
        )
        for kind, value in ordered
    )


def group_rows(figures: Sequence[Figure], groups: Sequence[Group], baseline: str) -> tuple[GroupFigure, ...]:
    """Returns the figures of groups, relative to the group of the baseline."""
    base = next(index for index, group in enumerate(groups) if baseline in group.runs)
    return tuple(_group_row(figure, groups, base) for figure in figures)


def _group_row(figure: Figure, groups: Sequence[Group], base: int) -> GroupFigure:
    by_run = {cell.run: cell for cell in figure.cells}
    values_by_group = [
        np.array([value for run in group.runs if (value := by_run[run].value) is not None])
        for group in groups
    ]
    means = [
        None if _nonfinite(by_run[run] for run in group.runs) or not len(values) else float(values.mean())
        for group, values in zip(groups, values_by_group, strict=True)
    ]
    cells = []
    for index, values in enumerate(values_by_group):
        ratio = None if index == base else change(means[index], means[base])
        sure = is_sure(values, values_by_group[base]) if ratio is not None else None
        low, high = (float(values.min()), float(values.max())) if len(values) else (None, None)
        mean = means[index]
        text = (
            quantity(mean, figure.unit)
            if mean is not None
            else (_nonfinite(by_run[run] for run in groups[index].runs) or UNKNOWN)
        )
        delta_text = change_text(ratio, figure.better, sure, figure.unit)
        cells.append(GroupCell(len(values), mean, text, low, high, ratio, delta_text, sure))
    return GroupFigure(figure.name, figure.unit, figure.better, tuple(cells))


def _nonfinite(cells: Iterable[Cell]) -> str | None:
    """Returns the text of a value that is not finite, if a run has one: the group's mean is then that too."""
    return next((cell.text for cell in cells if cell.value is None and cell.text != UNKNOWN), None)
