"""Puts runs side by side: figures and their change against a baseline, how sure it is, configurations."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stepscope.errors import NotFound, StepscopeError
from stepscope.views.compare.compared_config import ConfigLine, config_lines
from stepscope.views.compare.compared_figures import PRESETS, FigureRow, figure_rows
from stepscope.views.compare.compared_groups import Group, GroupRow, group_rows, groups_of
from stepscope.views.compare.compared_run import ComparedRun
from stepscope.views.run_context import RunContext
from stepscope.views.runs.marks import NoMarks
from stepscope.views.runs.run_rows import KeptFigures, run_row

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stepscope.analysis.verdict import Verdict
    from stepscope.reading import Run
    from stepscope.views.runs.marks import Marks
    from stepscope.views.runs.run_rows import RunRow

MAX_RUNS = 50


@dataclass(frozen=True)
class Comparison:
    """Runs side by side, in the order they were named."""

    runs: tuple[RunRow, ...]
    baseline: str
    keys: tuple[str, ...]
    """What all of them logged."""
    warm_up_steps: tuple[int, ...]
    """How many of the first steps of each run the figures leave out."""
    figures: tuple[FigureRow, ...]
    groups: tuple[Group, ...]
    """None where no entry was named to group by."""
    group_figures: tuple[GroupRow, ...]
    config: tuple[ConfigLine, ...]
    """What differs comes first."""
    verdicts: tuple[Verdict, ...]


def compare(  # noqa: PLR0913 - a comparison is asked for in many ways
    runs: Sequence[Run],
    baseline: str | None = None,
    preset: str = "all",
    *,
    group_by: str | None = None,
    with_warm_up: bool = False,
    marks: Marks | None = None,
    now_ns: int | None = None,
    kept: KeptFigures | None = None,
) -> Comparison:
    """Compares runs with one of them, by its id: the first where none is named.

    `group_by` is an entry of their configurations; runs with one value of it are put together. Steps of the
    warm-up do not count, unless they are asked for.
    """
    if not 0 < len(runs) <= MAX_RUNS:
        raise StepscopeError(f"{len(runs)} runs are to be compared; name 1 to {MAX_RUNS} of them.")
    if preset not in PRESETS:
        raise StepscopeError(f"preset is {preset!r}; it must be one of {', '.join(PRESETS)}.")
    base = runs[0].id if baseline is None else baseline
    if all(run.id != base for run in runs):
        raise NotFound(f"The baseline {base!r} is not among the runs that are compared.")
    marks = marks or NoMarks()
    now_ns = time.time_ns() if now_ns is None else now_ns
    kept = kept or KeptFigures()
    kept.begin_list()
    scenes = [RunContext(run, marks, now_ns, kept) for run in runs]
    rows = tuple(run_row(run, marks, now_ns, kept) for run in runs)
    entrants = [ComparedRun(scene, with_warm_up=with_warm_up) for scene in scenes]
    figures = figure_rows(entrants, [run.id for run in runs].index(base), preset)
    groups = () if group_by is None else groups_of(rows, group_by)
    return Comparison(
        runs=rows,
        baseline=base,
        keys=_in_common(scenes),
        warm_up_steps=tuple(one.left_out for one in entrants),
        figures=figures,
        groups=groups,
        group_figures=group_rows(figures, groups, base) if groups else (),
        config=config_lines([row.config for row in rows]),
        verdicts=tuple(row.verdict for row in rows),
    )


def _in_common(scenes: Sequence[RunContext]) -> tuple[str, ...]:
    several = [{key for key in scene.summed.keys if scene.summed.logged(key)} for scene in scenes]
    return tuple(sorted(set.intersection(*several)))
