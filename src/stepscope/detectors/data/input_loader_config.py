"""Detects a loader that starts its workers anew for each pass over the data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, NamedTuple

import numpy as np

from stepscope.analysis.large_shares import wall_seconds
from stepscope.analysis.loader_plan import loader_of
from stepscope.analysis.remedies import remedies_in
from stepscope.analysis.wording import percent, seconds
from stepscope.config.bounds import Range
from stepscope.detectors.base import Detector, TooLittleEvidence
from stepscope.schema.finding import Chart, Estimate, Evidence, Finding, severity_of
from stepscope.schema.keys import EPOCH_GAP_SECONDS, STEP_SECONDS, phase_key

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stepscope.schema.window import Floats, RankWindow, Window

WAIT = phase_key("data")

LONGEST_START_S = {"fork": (0.3, 0.1)}
LONGEST_SPAWN_S = (5.0, 2.0)
"""The longest time in which workers start and end, and what each worker adds to it, by start method; spawned
ones import the program again. More than this between two passes is spent by other code of the loop."""

RECOVERED = 0.7
"""The part of that time that is likely saved: the first batch of a pass has to be made in any case."""

TAKING_S = 0.001
"""Taking a batch from a worker takes about this long."""

MOSTLY = 0.5
"""If waits for data within a pass are more than this part of those at its start, only the time between two
passes counts: the rest may be a loader that is too slow."""


class _Starts(NamedTuple):
    """What the start of a pass costs, for each pass of the window but the first."""

    gaps: Floats
    """Seconds between two passes, as far as workers can take them."""
    waits: Floats
    """Seconds that the first step of a pass waits for data, above the usual wait."""
    within: float
    """Seconds that all other steps of the window wait for data, without what taking a batch costs."""

    @property
    def seconds(self) -> float:
        return float(self.gaps.sum() + self.waits.sum())


@dataclass(frozen=True)
class LoaderSettings(Detector):
    """Sums the time between passes and the wait for their first batches, if workers do not stay alive."""

    id: ClassVar[str] = "input.loader_config"
    title: ClassVar[str] = "Loader workers start anew in each epoch"
    sentence: ClassVar[str] = (
        "the loader has workers that are not persistent, and their start takes a share of the time at the "
        "beginning of several passes over the data"
    )
    requires: ClassVar[tuple[tuple[str, ...], ...]] = ((EPOCH_GAP_SECONDS,), (STEP_SECONDS,))
    reads: ClassVar[tuple[str, ...]] = (WAIT,)
    events: ClassVar[tuple[str, ...]] = ("loader",)
    min_steps: ClassVar[int] = 0
    in_steady_state: ClassVar[bool] = False
    is_optional: ClassVar[bool] = True
    explains: ClassVar[tuple[str, ...]] = ("input.exposed_wait", "step.outliers")

    share: Annotated[float, Range(0.005, 1)] = 0.03
    """Minimum share of time that the starts of workers take."""

    passes: Annotated[int, Range(2)] = 3
    """Minimum number of passes that begin in the window, without the first one of the run."""

    def examine(self, rank: RankWindow, window: Window) -> Finding | str:
        """Adds up what the starts of passes cost."""
        loader = loader_of(window, rank.rank)
        if loader is None or not loader.get("num_workers"):
            return "Batches are not made by loader workers."
        if loader.get("persistent_workers"):
            return "The workers stay alive between passes."
        wall, starts = wall_seconds(rank), _starts(rank, loader)
        if wall is None or len(starts.gaps) < self.passes:
            return TooLittleEvidence(f"Needs at least {self.passes} passes over the data.")
        if starts.within > MOSTLY * starts.seconds:
            # A loader that is too slow delays the first batches of a pass as well.
            starts = starts._replace(waits=np.zeros(len(starts.waits)))
        share = min(starts.seconds / wall, 1.0)
        if share < self.share:
            beside = "" if starts.waits.any() else ", besides waits within a pass"
            measured = f"Starting workers takes {percent(share)} of the time{beside}"
            return f"{measured}; threshold: {percent(self.share)}."
        return self._finding(rank, window, loader, starts, wall)

    def _finding(
        self, rank: RankWindow, window: Window, loader: Mapping[str, Any], starts: _Starts, wall: float
    ) -> Finding:
        share, count, workers = min(starts.seconds / wall, 1.0), len(starts.gaps), int(loader["num_workers"])
        first, last = int(rank.steps[0]), int(rank.steps[-1])
        each = seconds(starts.seconds / count)
        them = f"The {workers} loader workers" if workers > 1 else "The loader worker"
        return Finding(
            id=self.id,
            title=self.title,
            headline=f"{them} start anew in each epoch, which takes {percent(share)} of the time: "
            f"{each} in each of {count:,} epochs.",
            detail="Without `persistent_workers`, workers end with each pass over the data, and the next one "
            "waits until new processes have started and have made the first batches.",
            severity=severity_of(RECOVERED * share),
            confidence=min(0.9, 0.6 + 0.03 * count),
            share=share,
            first_step=first,
            last_step=last,
            first_time=float(rank.times[0]),
            last_time=float(rank.times[-1]),
            rank=rank.rank if len(window.ranks) > 1 else None,
            evidence=(
                Evidence("between two passes", seconds(float(starts.gaps.mean())), "evaluations left out"),
                *(
                    (Evidence("wait for the first batch", seconds(first_wait), "above the usual"),)
                    if (first_wait := float(starts.waits.mean()))
                    else ()
                ),
                Evidence("persistent_workers", "False", f"num_workers={workers}"),
                Evidence("passes", f"{count:,}", f"in {seconds(wall)}"),
            ),
            chart=Chart((EPOCH_GAP_SECONDS, WAIT), first, last),
            ruled_out=(
                "Evaluations and checkpoints between passes: their time is left out.",
                "A loader that is too slow: steps hardly wait for data within a pass."
                if first_wait
                else "A loader that is too slow: waits for batches are left out.",
            ),
            remedies=remedies_in(
                window.libraries(rank.rank),
                "Keep the workers alive between epochs.",
                {
                    "torch": f"loader = DataLoader(dataset, num_workers={workers}, persistent_workers=True)",
                    "lightning": "def train_dataloader(self):\n"
                    f"    return DataLoader(dataset, num_workers={workers}, persistent_workers=True)",
                    "transformers": f"arguments = TrainingArguments(..., dataloader_num_workers={workers},\n"
                    "    dataloader_persistent_workers=True)",
                },
            ),
            tries=("persistent_workers=True",),
            estimate=Estimate(0.3 * share, RECOVERED * share, share, "the time of the run"),
            how="The time between two passes, as far as workers can take it, and what the first step of a "
            "pass waits for data longer than usual ones, divided by the time since the first step.",
        )


def _starts(rank: RankWindow, loader: Mapping[str, Any]) -> _Starts:
    """Returns what the starts of passes cost."""
    fixed, for_each = LONGEST_START_S.get(str(loader.get("start_method")), LONGEST_SPAWN_S)
    longest = fixed + for_each * int(loader["num_workers"])
    gaps = rank.columns[EPOCH_GAP_SECONDS]
    is_start = gaps.finite & ~(np.arange(len(rank.steps)) == 0)
    waits = np.zeros(len(rank.steps))
    if WAIT in rank.columns:
        column = rank.columns[WAIT]
        waits = np.where(column.finite, column.values, 0.0)
    others = waits[~is_start]
    usual = float(np.median(others)) if len(others) else 0.0
    above = np.clip(waits[is_start] - usual, 0.0, longest)
    # The first pass of a run is its start-up.
    return _Starts(
        np.minimum(gaps.values[is_start], longest), above, float(np.maximum(others[1:] - TAKING_S, 0).sum())
    )
