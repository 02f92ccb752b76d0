"""Detects a rank that all others wait for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, NamedTuple

import numpy as np

from stepscope.analysis.wording import percent, seconds, within
from stepscope.config.bounds import Range
from stepscope.detectors.base import Detector, TooLittleEvidence
from stepscope.schema.finding import Chart, Estimate, Evidence, Finding, Remedy, severity_of
from stepscope.schema.keys import PHASES, RANK_WAIT_SECONDS, STEP_SECONDS, phase_key

if TYPE_CHECKING:
    from stepscope.schema.window import RankWindow, Window

MIN_STEPS, MIN_SAMPLES = 30, 10
"""Minimum number of steps that all ranks recorded; or, if each was timed in other steps, of each rank."""

NEARLY_ALWAYS = 0.9
"""In different steps, the last rank must wait less than the others in this share of all pairs of steps."""

EXPLAINED = 0.3
"""A phase must explain this part of the delay; otherwise it is in the backward pass itself."""

PHASE_KEYS = tuple(phase_key(name) for name in PHASES if name != "backward")
"""All phases except backward, which contains the wait itself."""


class _Late(NamedTuple):
    """The slowest rank, and how late it is."""

    rank: RankWindow
    steps: int
    """Number of steps that were compared."""
    last_in: float
    """The share of them in which it is last."""
    seconds: float
    """How much longer the others wait than this rank, in a median step."""
    step_s: float


@dataclass(frozen=True)
class Straggler(Detector):
    """Compares how long ranks wait for each other: the slowest rank waits least."""

    id: ClassVar[str] = "dist.straggler"
    title: ClassVar[str] = "All ranks wait for one rank"
    sentence: ClassVar[str] = (
        "one rank is last to the gradient exchange in most steps, and the others wait for it for a share of "
        "the step"
    )
    requires: ClassVar[tuple[tuple[str, ...], ...]] = ((RANK_WAIT_SECONDS,), (STEP_SECONDS,))
    reads: ClassVar[tuple[str, ...]] = PHASE_KEYS
    min_steps: ClassVar[int] = MIN_SAMPLES
    least_ranks: ClassVar[int] = 2
    for_each_rank: ClassVar[bool] = False

    share: Annotated[float, Range(0.01, 1)] = 0.05
    """Minimum share of the step for which the others wait."""

    last_in: Annotated[float, Range(0.3, 1)] = 0.6
    """Minimum share of steps in which the rank is last."""

    def examine(self, rank: RankWindow, window: Window) -> Finding | str:
        """Finds the rank that waits least."""
        late = _late_rank(window)
        if late is None:
            return TooLittleEvidence("Too few waits of the ranks were recorded.")
        share = late.seconds / late.step_s
        if share < self.share or late.last_in < self.last_in:
            measured = f"Rank {late.rank.rank} is last in {percent(late.last_in)} of steps"
            threshold = f"threshold: {percent(self.share)} late in {percent(self.last_in)} of steps."
            return f"{measured}, {percent(share)} of a step late; {threshold}"
        phase, longer = _phase(late.rank, window)
        is_explained = longer >= EXPLAINED * late.seconds
        phase = phase if is_explained else "backward"
        where = f", mostly {within(phase)}" if is_explained else ", in its backward pass"
        first, last = int(late.rank.steps[0]), int(late.rank.steps[-1])
        return Finding(
            id=self.id,
            title=self.title,
            headline=f"The other ranks wait {seconds(late.seconds)} of each {seconds(late.step_s)} step for "
            f"rank {late.rank.rank}{where}.",
            detail="All ranks finish the gradient exchange together, so the slowest rank slows down all.",
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
                Evidence("is last", percent(late.last_in), f"of {late.steps:,} steps"),
                *(
                    (Evidence(f"longer {within(phase)}", seconds(longer), "than the median rank"),)
                    if is_explained
                    else ()
                ),
            ),
            chart=Chart((RANK_WAIT_SECONDS, STEP_SECONDS), first, last),
            ruled_out=("Ranks that are alternately late: one rank is last in most steps.",),
            remedies=(
                Remedy("Compare this rank's host, GPU clocks and loader with those of the others."),
                Remedy("Give all ranks batches of about the same length: group samples by length."),
            ),
            tries=(f"look at what rank {late.rank.rank} does {within(phase)}",),
            estimate=Estimate(0.5 * share, share, share),
            how="A rank's wait is the part of its backward pass after its own last gradient. Medians over "
            "the steps that all ranks recorded.",
        )


def _late_rank(window: Window) -> _Late | None:
    ranks = [rank for rank in window.ranks if rank.has(RANK_WAIT_SECONDS, STEP_SECONDS)]
    if len(ranks) < 2:
        return None
    return _in_common_steps(ranks) or _in_any_steps(ranks)


def _in_any_steps(ranks: list[RankWindow]) -> _Late | None:
    """Compares the waits of ranks that were timed in different steps, if there are enough of each."""
    samples = [rank.aligned(RANK_WAIT_SECONDS, STEP_SECONDS) for rank in ranks]
    if min(len(waits) for waits, _ in samples) < MIN_SAMPLES:
        return None
    late = int(np.argmin([np.median(waits) for waits, _ in samples]))
    own = samples[late][0]
    others = [waits for place, (waits, _) in enumerate(samples) if place != late]
    # How often this rank waits less than another one, of all pairs of their steps.
    less = min(float((own[:, None] < waits[None, :]).mean()) for waits in others)
    usual = float(np.median([np.median(waits) for waits in others]))
    return _Late(
        ranks[late],
        min(len(waits) for waits, _ in samples),
        less if less >= NEARLY_ALWAYS else 0.0,
        usual - float(np.median(own)),
        float(np.median(np.concatenate([taken for _, taken in samples]))),
    )


def _in_common_steps(ranks: list[RankWindow]) -> _Late | None:
    chosen = [rank.where(RANK_WAIT_SECONDS, STEP_SECONDS) for rank in ranks]
    common = ranks[0].steps[chosen[0]]
    for rank, where in zip(ranks[1:], chosen[1:], strict=True):
        common = np.intersect1d(common, rank.steps[where])
    if len(common) < MIN_STEPS:
        return None
    places = [np.searchsorted(rank.steps, common) for rank in ranks]
    waits, taken = (
        np.array([rank.columns[key].values[at] for rank, at in zip(ranks, places, strict=True)])
        for key in (RANK_WAIT_SECONDS, STEP_SECONDS)
    )
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
    """Returns the phase in which the late rank loses most time, and the seconds; empty if there is none."""
    delays = []
    for name in PHASES:
        key = phase_key(name)
        others = [rank for rank in window.ranks if rank is not late and rank.has(key)]
        if key in PHASE_KEYS and late.has(key) and others:
            usual = float(np.median([np.median(rank.aligned(key)[0]) for rank in others]))
            delays.append((float(np.median(late.aligned(key)[0])) - usual, name))
    longer, name = max(delays, default=(0.0, ""))
    return (name, longer) if longer > 0 else ("", 0.0)
