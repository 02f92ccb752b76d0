"""A key by rank and step, to see which rank differs and which rank the others wait for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from stepscope.steps.ranks.gradients_ready import WAIT_SECONDS
from stepscope.views.formatting import duration
from stepscope.views.json_values import clean, finites
from stepscope.views.metrics.metric_meaning import unit_of
from stepscope.views.steps.ranks import lateness, phase_medians

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from stepscope.reading import Run
    from stepscope.schema.series import Buckets

MAX_RANKS = 1_024
MAX_COLUMNS = 4_000
MIN_LATE_S = 1e-6

_PHASE_WORDS = {"data": "its wait for data", "other": "its time outside the phases"}


@dataclass(frozen=True)
class LateRank:
    """The rank that the others wait for."""

    rank: int
    phase: str
    seconds: float
    """How much later than the others it is, in a median step."""
    text: str


@dataclass(frozen=True)
class Heatmap:
    """Means of a key, with a row for each rank and a column for each range of steps."""

    key: str
    unit: str
    ranks: tuple[int, ...]
    hosts: tuple[str, ...]
    """The last host of each rank."""
    starts: tuple[int, ...]
    """The first step of each column."""
    width: int
    values: tuple[tuple[float | None, ...], ...]
    """The mean of each cell, by rank and column."""
    late: LateRank | None


def heatmap_of(
    run: Run, key: str, low: int | None = None, high: int | None = None, columns: int = 200
) -> Heatmap:
    """Returns a key of all ranks that have it, in at most `columns` columns."""
    hosts = {
        summary.source.rank: summary.source.host
        for summary in sorted(run.summaries([key]), key=lambda summary: summary.last_ns)
        if summary.source.rank is not None
    }
    ranks = sorted(hosts)[:MAX_RANKS]
    columns = min(max(columns, 1), MAX_COLUMNS)
    buckets_by_rank = {
        rank: run.buckets(key, columns, low=low, high=high, rank=rank, axis="step") for rank in ranks
    }
    nonempty = {rank: buckets for rank, buckets in buckets_by_rank.items() if len(buckets)}
    if not nonempty:
        return Heatmap(key, unit_of(key), tuple(ranks), _hosts(hosts, ranks), (), 1, ((),) * len(ranks), None)
    # A rank with fewer steps has narrower buckets: all are brought to the width of the widest.
    width = _width(nonempty, columns)
    first = min(int(buckets.starts[0]) // width for buckets in nonempty.values())
    last = max(int(buckets.starts[-1]) // width for buckets in nonempty.values())
    rows = tuple(finites(_row(buckets_by_rank[rank], width, first, last).tolist()) for rank in ranks)
    starts = tuple(index * width for index in range(first, last + 1))
    return Heatmap(key, unit_of(key), tuple(ranks), _hosts(hosts, ranks), starts, width, rows, late_rank(run))


def late_rank(run: Run) -> LateRank | None:
    """Returns the rank that the others wait for; None for a single rank, or if ranks do not wait."""
    if not run.summaries([WAIT_SECONDS]):
        return None
    late = lateness(phase_medians(run))
    if late is None or late.seconds < MIN_LATE_S:
        return None
    text = f"Rank {late.rank} is {duration(late.seconds)} later than the others in a median step"
    if late.phase_seconds > MIN_LATE_S:
        phase = _PHASE_WORDS.get(late.phase, f"its {late.phase}")
        text += f"; {phase} takes {duration(late.phase_seconds)} longer"
    return LateRank(late.rank, late.phase, late.seconds, f"{text}.")


def _width(buckets_by_rank: dict[int, Buckets], columns: int) -> int:
    width = max(buckets.width for buckets in buckets_by_rank.values())
    first = min(int(buckets.starts[0]) for buckets in buckets_by_rank.values())
    last = max(int(buckets.starts[-1]) for buckets in buckets_by_rank.values())
    while last // width - first // width + 1 > max(columns, 2):
        width *= 2
    return width


def _row(buckets: Buckets, width: int, first: int, last: int) -> NDArray[np.float64]:
    """Returns the weighted means in wider buckets."""
    count = last - first + 1
    positions = buckets.starts // width - first
    weight = (buckets.count - buckets.nonfinite).astype(np.float64)
    known = weight > 0
    sums = np.bincount(positions[known], (buckets.mean * weight)[known], count)
    weights = np.bincount(positions[known], weight[known], count)
    with np.errstate(invalid="ignore"):
        means: NDArray[np.float64] = np.where(weights > 0, sums / np.maximum(weights, 1.0), np.nan)
    return means


def _hosts(hosts: dict[int, str], ranks: list[int]) -> tuple[str, ...]:
    return tuple(clean(hosts[rank], 300) for rank in ranks)
