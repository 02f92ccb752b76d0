"""Recognises a rank that all others wait for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, NamedTuple

import numpy as np

from stepscope.analysis.wording import percent, seconds
from stepscope.config.bounds import Range
from stepscope.detectors.base import Detector
from stepscope.schema.finding import Chart, Estimate, Evidence, Finding, Remedy, severity_of
from stepscope.schema.keys import PHASES, RANK_WAIT_SECONDS, STEP_SECONDS, phase_key

if TYPE_CHECKING:
    from stepscope.schema.window import RankWindow, Window

MIN_STEPS = 30
PHASE_KEYS = tuple(phase_key(name) for name in PHASES if name != "backward")
"""The backward pass holds the wait itself."""


class _Late(NamedTuple):
    """The rank that comes last, and by how much."""

    rank: RankWindow
    steps: int
    """Steps that all ranks have in common."""
    last_in: float
    """The share of them in which it comes last."""
    seconds: float
    """How much longer the others wait than it does, in a median step."""
    step_s: float


@dataclass(frozen=True)
class Straggler(Detector):
    """Compares how long ranks wait for each other: the one that comes last waits least."""

    id: ClassVar[str] = "dist.straggler"
    title: ClassVar[str] = "All ranks wait for one"
    sentence: ClassVar[str] = (
        "one rank comes last to the exchange of gradients in most steps, and the others wait for it for a "
        "share of the step"
    )
    requires: ClassVar[tuple[tuple[str, ...], ...]] = ((RANK_WAIT_SECONDS,), (STEP_SECONDS,))
    reads: ClassVar[tuple[str, ...]] = PHASE_KEYS
    min_steps: ClassVar[int] = MIN_STEPS
    least_ranks: ClassVar[int] = 2
    for_each_rank: ClassVar[bool] = False

    share: Annotated[float, Range(0.01, 1)] = 0.05
    """The share of the step for which the others wait."""

    last_in: Annotated[float, Range(0.3, 1)] = 0.6
    """The share of steps in which the rank comes last."""

    def examine(self, rank: RankWindow, window: Window) -> Finding | str:
        """Looks for the rank that waits least, step by step."""
        late = _late_rank(window)
        if late is None:
            return "There are no two ranks that wait for each other."
        share = late.seconds / late.step_s
        if share < self.share or late.last_in < self.last_in:
            known = f"Rank {late.rank.rank} comes last in {percent(late.last_in)} of steps"
            needed = f"{percent(self.share)} in {percent(self.last_in)} of steps would count."
            return f"{known}, {percent(share)} of a step late; {needed}"
        phase, longer = _phase(late.rank, window)
        where = f", mostly in {phase}" if phase else ""
        first, last = int(late.rank.steps[0]), int(late.rank.steps[-1])
        return Finding(
            id=self.id,
            title=self.title,
            headline=f"The other ranks wait for rank {late.rank.rank}: {seconds(late.seconds)} of each step "
            f"of {seconds(late.step_s)}{where}.",
            detail="Ranks leave the exchange of gradients together, so the slowest sets the pace of all.",
            severity=severity_of(share),
            confidence=min(0.95, 0.5 + 0.4 * late.last_in + 0.0005 * late.steps),
            share=share,
            first_step=first,
            last_step=last,
            first_time=float(late.rank.times[0]),
            last_time=float(late.rank.times[-1]),
            rank=late.rank.rank,
            evidence=(
                Evidence("others wait", seconds(late.seconds), f"in a median step of {seconds(late.step_s)}"),
                Evidence("comes last", percent(late.last_in), f"of {late.steps:,} steps"),
                *(
                    (Evidence(f"longer in {phase}", seconds(longer), "than the median rank"),)
                    if phase
                    else ()
                ),
            ),
            chart=Chart((RANK_WAIT_SECONDS, STEP_SECONDS), first, last),
            ruled_out=("Ranks that are late by turns: one is last in most steps.",),
            remedies=(
                Remedy("Compare this rank's host, GPU clocks and loader with those of the others."),
                Remedy("Give all ranks batches of about the same length: group samples by it."),
            ),
            tries=(f"look at what rank {late.rank.rank} does in {phase}" if phase else "compare the ranks",),
            estimate=Estimate(0.5 * share, share, share),
            how="What is left of the backward pass after a rank's own last gradient is its wait for the "
            "others; medians over the steps that all ranks recorded.",
        )


def _late_rank(window: Window) -> _Late | None:
    ranks = [one for one in window.ranks if one.has(RANK_WAIT_SECONDS, STEP_SECONDS)]
    if len(ranks) < 2:
        return None
    chosen = [one.where(RANK_WAIT_SECONDS, STEP_SECONDS) for one in ranks]
    common = ranks[0].steps[chosen[0]]
    for one, where in zip(ranks[1:], chosen[1:], strict=True):
        common = np.intersect1d(common, one.steps[where])
    if len(common) < MIN_STEPS:
        return None
    places = [np.searchsorted(one.steps, common) for one in ranks]
    waits = np.array(
        [one.columns[RANK_WAIT_SECONDS].values[at] for one, at in zip(ranks, places, strict=True)]
    )
    taken = np.array([one.columns[STEP_SECONDS].values[at] for one, at in zip(ranks, places, strict=True)])
    late = int(np.argmin(np.median(waits, axis=1)))
    others = np.median(np.delete(waits, late, axis=0), axis=0)
    return _Late(
        ranks[late],
        len(common),
        float((np.argmin(waits, axis=0) == late).mean()),
        float(np.median(others - waits[late])),
        float(np.median(taken)),
    )


def _phase(late: RankWindow, window: Window) -> tuple[str, float]:
    """What takes the late rank longer than it takes the others, most of all; empty where nothing does."""
    found = []
    for name in PHASES:
        key = phase_key(name)
        others = [one for one in window.ranks if one is not late and one.has(key)]
        if key in PHASE_KEYS and late.has(key) and others:
            usual = float(np.median([np.median(one.aligned(key)[0]) for one in others]))
            found.append((float(np.median(late.aligned(key)[0])) - usual, name))
    longer, name = max(found, default=(0.0, ""))
    return (name, longer) if longer > 0 else ("", 0.0)
