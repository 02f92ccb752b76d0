"""Finds the step at which a diagnosis names a fault first: the window is examined as it grew."""

from collections.abc import Iterator
from dataclasses import replace

from stepscope.analysis.diagnose import Diagnostician
from stepscope.analysis.steady import steadiness_of
from stepscope.schema.window import Column, MachineFigures, RankWindow, Window
from zoo.case import Case

EVERY = 10
"""How many steps there are between two diagnoses."""


def steps_until_named(case: Case, window: Window, diagnostician: Diagnostician) -> int | None:
    """Returns how many steady steps with the fault there were; None if it is never named."""
    last = max((int(rank.steps[-1]) for rank in window.ranks), default=0)
    for end in _ends(case.begins, last):
        part = until(window, end)
        ids = {finding.id for finding in diagnostician.examine(part).findings if finding.severity != "info"}
        if ids & case.all_expected:
            rank = part.ranks[0]
            return int((rank.steady & (rank.steps >= case.begins)).sum())
    return None


def until(window: Window, last_step: int) -> Window:
    """Returns the window as it was after a step."""
    ranks = tuple(rank for rank in (_rank_until(rank, last_step) for rank in window.ranks) if len(rank.steps))
    now = max((float(rank.times[-1]) for rank in ranks), default=0.0)
    figures = (_figures_until(figures, now) for figures in window.machine)
    return replace(
        window,
        ranks=ranks,
        machine=tuple(each for each in figures if len(each.times)),
        events=tuple(event for event in window.events if event.time <= now),
        remaining_s=None,
    )


def _ends(begins: int, last: int) -> Iterator[int]:
    yield from range(begins + EVERY - 1, last, EVERY)
    yield last


def _rank_until(rank: RankWindow, last_step: int) -> RankWindow:
    count = int((rank.steps <= last_step).sum())
    columns = {
        key: Column(column.values[:count], column.present[:count], column.finite[:count])
        for key, column in rank.columns.items()
        if column.present[:count].any()
    }
    steady, warm_up, compiled = steadiness_of(columns, count, is_whole=True)
    return replace(
        rank,
        steps=rank.steps[:count],
        times=rank.times[:count],
        columns=columns,
        steady=steady,
        warm_up=warm_up,
        compiled=compiled,
    )


def _figures_until(figures: MachineFigures, now: float) -> MachineFigures:
    chosen = figures.times <= now
    return replace(figures, times=figures.times[chosen], values=figures.values[chosen])
