"""Detects tensors that are kept at every step: losses that still exist, or memory that grows evenly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, NamedTuple

import numpy as np

from stepscope.analysis.gpu.device_memory import SETUP_EVENT, capacity_of, urgency
from stepscope.analysis.memory_growth import ALLOCATED, DEVICE_LIMITS, horizon_s
from stepscope.analysis.wording import percent
from stepscope.config.bounds import Range
from stepscope.detectors.base import Detector, TooLittleEvidence
from stepscope.number_format import duration, size
from stepscope.schema.finding import Chart, Evidence, Finding, Remedy

if TYPE_CHECKING:
    from stepscope.schema.finding import Severity
    from stepscope.schema.window import Floats, RankWindow, Window

KEPT = "losses/kept_ratio"
MIN_READINGS, MIN_CHECKS = 8, 3
TOLERANCE = 0.01
"""Growth per step is the same if it differs from the median by at most this share of it."""

ADVICE = (
    Remedy(
        "Look for a list, or a sum, of losses, outputs or metrics. Keep numbers, or tensors without their "
        "graph.",
        "losses.append(loss.detach())               # loss itself keeps all activations of its step",
        "PyTorch",
    ),
    Remedy(
        "Record which lines allocate memory that is not freed.",
        "torch.cuda.memory._record_memory_history()\n"
        "torch.cuda.memory._dump_snapshot('memory.pickle')   # open it on pytorch.org/memory_viz",
        "PyTorch",
    ),
)


class _Growth(NamedTuple):
    """Growth of the memory between the readings of steady steps."""

    per_step: float
    same: float
    """Share of the pairs of readings with the same growth per step."""
    fallen: float
    """The most that it fell between two readings."""
    level: float
    steps: int
    seconds: float


@dataclass(frozen=True)
class Retention(Detector):
    """Compares the memory of tensors between readings at the ends of steps."""

    id: ClassVar[str] = "mem.retention"
    title: ClassVar[str] = "Each step keeps tensors"
    sentence: ClassVar[str] = (
        "losses of earlier steps still exist with their graphs; or the memory of tensors on a GPU grows by "
        "the same number of bytes in every step, and never falls"
    )
    requires: ClassVar[tuple[tuple[str, ...], ...]] = ((ALLOCATED, KEPT),)
    reads: ClassVar[tuple[str, ...]] = tuple(DEVICE_LIMITS)
    events: ClassVar[tuple[str, ...]] = (SETUP_EVENT,)
    min_steps: ClassVar[int] = MIN_CHECKS
    is_optional: ClassVar[bool] = True
    explains: ClassVar[tuple[str, ...]] = ("mem.leak",)

    kept: Annotated[float, Range(0.5, 1)] = 0.95
    """Minimum share of the losses of earlier steps that still exist, in every check."""

    least_bytes: Annotated[float, Range(0)] = 64 * 2.0**10
    """Minimum growth in a step, in bytes."""

    agreement: Annotated[float, Range(0.5, 1)] = 0.9
    """Minimum share of the pairs of readings with the same growth per step."""

    def examine(self, rank: RankWindow, window: Window) -> Finding | str:
        """Looks at earlier losses, then compares the growth between readings of a GPU's memory."""
        kept = rank.aligned(KEPT)[0] if KEPT in rank.columns else np.empty(0)
        if len(kept) >= MIN_CHECKS and float(kept.min()) >= self.kept:
            return self._with_losses(rank, window, kept)
        chosen = rank.where(ALLOCATED) if ALLOCATED in rank.columns else np.zeros(len(rank.steps), bool)
        if chosen.sum() < MIN_READINGS:
            return (
                "Losses of earlier steps are freed." if len(kept) else TooLittleEvidence("Too few readings.")
            )
        growth = _growth(rank.steps[chosen], rank.times[chosen], rank.columns[ALLOCATED].values[chosen])
        measured = f"Tensors take {size(growth.per_step)} more in a median step"
        if growth.per_step < self.least_bytes:
            return f"{measured}; threshold: {size(self.least_bytes)}."
        if growth.same < self.agreement or growth.fallen > growth.per_step:
            return f"{measured}, the same in {percent(growth.same)} of the steps, or less again later."
        capacity = capacity_of(rank, window)
        if capacity is None:
            return TooLittleEvidence("Needs the size of the GPU's memory.")
        return self._finding(rank, window, growth, capacity)

    def _with_losses(self, rank: RankWindow, window: Window, kept: Floats) -> Finding:
        chosen = rank.where(KEPT)
        steps, times = rank.steps[chosen], rank.times[chosen]
        return Finding(
            id=self.id,
            title=self.title,
            headline="The losses of earlier steps still exist with their graphs: "
            f"{percent(float(kept.min()))} of those that were followed, up to step {int(steps[-1]):,}.",
            detail="Something keeps the loss of every step, such as a list or a sum, and with it the graph "
            "of its step. Memory grows until it is full, and steps become slower.",
            severity="notice",
            confidence=0.9,
            first_step=int(steps[0]),
            last_step=int(steps[-1]),
            first_time=float(times[0]),
            last_time=float(times[-1]),
            rank=rank.rank if len(window.ranks) > 1 else None,
            evidence=(
                Evidence("kept losses", percent(float(kept[-1])), f"in the newest of {len(kept):,} checks"),
            ),
            chart=Chart((KEPT,), int(steps[0]), int(steps[-1])),
            ruled_out=("Losses that are averaged over a few steps: these are older.",),
            remedies=ADVICE[:1],
            tries=("keep loss.detach() or loss.item()",),
            how="Some losses, all along the run, are followed with weak references.",
        )

    def _finding(self, rank: RankWindow, window: Window, growth: _Growth, capacity: float) -> Finding:
        chosen = rank.where(ALLOCATED)
        first, last = int(rank.steps[chosen][0]), int(rank.steps[chosen][-1])
        left_steps = (capacity - growth.level) / growth.per_step
        left_s = left_steps * growth.seconds / growth.steps
        is_soon = left_s <= horizon_s(growth.seconds, window.remaining_s) or growth.steps >= left_steps
        severity: Severity = urgency(left_s, growth.seconds) if is_soon else "info"
        return Finding(
            id=self.id,
            title=self.title,
            headline=f"Tensors take {size(growth.per_step)} more in a step, the same in each, and will "
            f"fill the GPU's memory in {duration(left_s)}.",
            detail="Something keeps tensors of every step. A loss or an output that is kept with its graph "
            "keeps all activations of its step.",
            severity=severity,
            confidence=0.9,
            first_step=first,
            last_step=last,
            first_time=float(rank.times[chosen][0]),
            last_time=float(rank.times[chosen][-1]),
            rank=rank.rank if len(window.ranks) > 1 else None,
            evidence=(
                Evidence("growth in a step", size(growth.per_step), f"the same in {percent(growth.same)}"),
                Evidence(
                    "growth observed", size(growth.per_step * growth.steps), f"in {growth.steps:,} steps"
                ),
                Evidence("in use", size(growth.level), f"of {size(capacity)}"),
            ),
            chart=Chart((ALLOCATED,), first, last),
            ruled_out=(
                "Caches that fill, and batches of other sizes: growth would differ from step to step.",
                "Values of an epoch that are freed at its end: the memory never falls.",
            ),
            remedies=ADVICE,
            tries=("keep loss.detach() or loss.item()",),
            how="Differences of the allocator's figures at the ends of steps, divided by the steps "
            f"between them; the same means within {percent(TOLERANCE)} of the median.",
        )


def _growth(steps: np.ndarray, times: Floats, values: Floats) -> _Growth:
    differences = np.diff(values)
    rates = differences / np.maximum(np.diff(steps), 1)
    median = float(np.median(rates))
    return _Growth(
        median,
        float((np.abs(rates - median) <= TOLERANCE * abs(median)).mean()),
        max(float(-differences.min()), 0.0),
        float(values[-1]),
        int(steps[-1] - steps[0]),
        float(times[-1] - times[0]),
    )
