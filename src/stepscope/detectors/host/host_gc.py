"""Detects garbage collection that pauses the training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

import numpy as np

from stepscope.analysis.remedies import remedies_in
from stepscope.analysis.wording import percent, seconds
from stepscope.config.bounds import Range
from stepscope.detectors.base import Detector
from stepscope.schema.finding import Chart, Estimate, Evidence, Finding, severity_of
from stepscope.schema.keys import STEP_SECONDS

if TYPE_CHECKING:
    from stepscope.schema.window import Flags, Floats, RankWindow, Window

LONGEST = "gc/longest_pause_seconds"
PAUSE, COLLECTIONS, FULL = "gc/pause_seconds", "gc/collections", "gc/full_collections"

FREEZE = {
    "torch": """\
import gc
gc.collect()
gc.freeze()                                # after the set-up: never collect objects that exist now
gc.disable()
for step, batch in enumerate(loader):
    ...
    if step % 1000 == 0:
        gc.collect(1)                      # at the same step on every rank""",
    "lightning": """\
class PlannedCollection(Callback):
    def on_train_start(self, trainer, module):
        gc.collect(); gc.freeze(); gc.disable()
    def on_train_batch_end(self, trainer, module, outputs, batch, step):
        if step % 1000 == 0:
            gc.collect(1)""",
    "transformers": """\
class PlannedCollection(TrainerCallback):
    def on_train_begin(self, args, state, control, **kwargs):
        gc.collect(); gc.freeze(); gc.disable()
    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step % 1000 == 0:
            gc.collect(1)""",
}


@dataclass(frozen=True)
class GarbagePauses(Detector):
    """Sums the pauses of the garbage collector and counts the long ones."""

    id: ClassVar[str] = "host.gc"
    title: ClassVar[str] = "Python's garbage collector pauses the training"
    sentence: ClassVar[str] = (
        "pauses of the garbage collector take a share of the time; or several of them take a large part of a "
        "step each"
    )
    requires: ClassVar[tuple[tuple[str, ...], ...]] = ((PAUSE,), (STEP_SECONDS,))
    reads: ClassVar[tuple[str, ...]] = (COLLECTIONS, FULL, LONGEST)
    min_steps: ClassVar[int] = 3

    share: Annotated[float, Range(0.001, 1)] = 0.01
    """Minimum share of time that pauses take."""

    of_a_step: Annotated[float, Range(0.01)] = 0.2
    """Length from which a single pause counts as long, as a share of a step."""

    pauses: Annotated[int, Range(1)] = 3
    """Minimum number of long pauses."""

    def examine(self, rank: RankWindow, window: Window) -> Finding | str:
        """Sums the recorded pauses after the warm-up."""
        chosen = rank.where(PAUSE, steady=False) & (np.arange(len(rank.steps)) >= rank.warm_up)
        paused, times = rank.columns[PAUSE].values[chosen], rank.times[chosen]
        (taken,) = rank.aligned(STEP_SECONDS)
        elapsed = float(times[-1] - times[0]) if len(times) else 0.0
        if elapsed <= 0 or not len(taken):
            return "Too little time was recorded."
        # The first value covers time before the window.
        total, usual = float(paused[1:].sum()), float(np.median(taken))
        lost = total / elapsed
        long_pauses = int((_single(rank, chosen)[1:] >= self.of_a_step * usual).sum())
        takes_much = lost >= self.share and total >= 2 * float(paused[1:].max())
        is_frequent = long_pauses >= self.pauses and lost >= 0.1 * self.share
        if not takes_much and not is_frequent:
            pauses = f"{long_pauses} long pause{'s' if long_pauses != 1 else ''}"
            return f"Garbage collection takes {percent(lost)} of the time, with {pauses}."
        return self._finding(rank, window, chosen, lost, usual)

    def _finding(
        self,
        rank: RankWindow,
        window: Window,
        chosen: Flags,
        lost: float,
        usual: float,
    ) -> Finding:
        paused, steps, times = rank.columns[PAUSE].values[chosen], rank.steps[chosen], rank.times[chosen]
        # Where the longest pauses were not recorded only their mean is known, and it is named so.
        is_longest = LONGEST in rank.columns and bool(rank.columns[LONGEST].finite[chosen][1:].any())
        counted = max(_sum(rank, COLLECTIONS, chosen), 1.0) if COLLECTIONS in rank.columns else len(paused)
        mean = float(paused.sum()) / counted
        longest = float(_single(rank, chosen)[1:].max()) if is_longest else mean
        at_once = f"up to {seconds(longest)} at once" if is_longest else f"{seconds(longest)} each on average"
        first, last = int(steps[0]), int(steps[-1])
        elapsed, kind = float(times[-1] - times[0]), "longest" if is_longest else "mean"
        collected, full = _sum(rank, COLLECTIONS, chosen), _sum(rank, FULL, chosen)
        return Finding(
            id=self.id,
            title=self.title,
            headline=f"Garbage collection pauses the training for {percent(lost)} of the time, {at_once}.",
            detail="A collection visits many Python objects, a full one all. Training rarely creates "
            "reference cycles that need it, and objects that exist after the set-up usually live to the end.",
            severity=severity_of(lost),
            confidence=min(0.95, 0.7 + 0.02 * len(paused)),
            share=lost,
            first_step=first,
            last_step=last,
            first_time=float(times[0]),
            last_time=float(times[-1]),
            rank=rank.rank if len(window.ranks) > 1 else None,
            evidence=(
                Evidence(
                    "paused", percent(lost), f"{seconds(float(paused[1:].sum()))} of {seconds(elapsed)}"
                ),
                Evidence(f"{kind} pause", seconds(longest), f"a step takes {seconds(usual)}"),
                Evidence("collections", f"{collected:,.0f}", f"{full:,.0f} of them full"),
            ),
            chart=Chart((PAUSE, STEP_SECONDS), first, last),
            ruled_out=("The warm-up: its steps are left out.",),
            remedies=(
                *remedies_in(
                    window.libraries(rank.rank),
                    "Freeze the objects that exist after the set-up, and collect at fixed steps.",
                    FREEZE,
                ),
            ),
            tries=("gc.freeze() after the set-up", "collect every 1,000 steps"),
            estimate=Estimate(0.5 * lost, 0.9 * lost, lost, "the time of the run"),
            how="Python reports when each collection begins and ends. The processor time between is summed "
            "and divided by the elapsed time.",
            refs=("https://docs.python.org/3/library/gc.html#gc.freeze",),
        )


def _single(rank: RankWindow, chosen: Flags) -> Floats:
    """Returns the longest pause of each recording interval, or their mean if the longest is not recorded."""
    paused = rank.columns[PAUSE].values[chosen]
    if LONGEST in rank.columns and rank.columns[LONGEST].finite[chosen].any():
        return np.nan_to_num(rank.columns[LONGEST].values[chosen])
    if COLLECTIONS not in rank.columns:
        return paused
    counts = np.nan_to_num(rank.columns[COLLECTIONS].values[chosen], nan=1.0)
    means: Floats = paused / np.maximum(counts, 1.0)
    return means


def _sum(rank: RankWindow, key: str, chosen: Flags) -> float:
    return float(np.nansum(rank.columns[key].values[chosen])) if key in rank.columns else 0.0
