"""A page of the list of runs, and the runs that a filter selects."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from stepscope.schema.notation import NotationError
from stepscope.views.runs.filter import parse
from stepscope.views.runs.run_rows import RunRow  # noqa: TC001 - the schema of the API reads it

if TYPE_CHECKING:
    from collections.abc import Sequence


SORTS = Literal[
    "started",
    "ended",
    "name",
    "project",
    "status",
    "duration_s",
    "last_seen",
    "step",
    "steps_per_second",
    "eta_s",
    "loss_last",
    "loss_best",
    "data_wait_ratio",
    "gpu_mean_ratio",
    "gpu_worst_ratio",
    "peak_memory_bytes",
    "open_alerts",
    "ranks",
    "segments",
]
"""The columns a list can be sorted by."""


@dataclass(frozen=True)
class FilterTrouble:
    """What is wrong with a filter, and at which characters, counted from 0."""

    message: str
    begin: int
    end: int


@dataclass(frozen=True)
class RunList:
    """A page of the list of runs."""

    total: int
    """Number of matching runs on all pages together."""
    runs: tuple[RunRow, ...]
    filter_error: FilterTrouble | None
    """What is wrong with the filter, which is then ignored; None if it is valid."""
    config_keys: tuple[str, ...]
    """Configuration entries of any run."""
    tags: tuple[str, ...]
    """Tags of any run."""
    attention: int
    """Number of runs that need attention, regardless of the filter."""


def filtered(rows: Sequence[RunRow], text: str, now_ns: int) -> tuple[list[RunRow], FilterTrouble | None]:
    """Returns the rows that match a filter; with an invalid filter, all rows and the error."""
    if not text.strip():
        return list(rows), None
    try:
        run_filter = parse(text)
        return [row for row in rows if run_filter.matches(row, now_ns)], None
    except NotationError as error:
        return list(rows), FilterTrouble(str(error), error.begin, error.end)


def sorted_rows(rows: Sequence[RunRow], sort: SORTS, *, descending: bool) -> list[RunRow]:
    """Returns rows by a figure; rows that lack it come last in either direction."""
    sortable = [row for row in rows if getattr(row, sort) is not None]
    sortable.sort(key=lambda row: (getattr(row, sort), row.started, row.id), reverse=descending)
    return sortable + [row for row in rows if getattr(row, sort) is None]
