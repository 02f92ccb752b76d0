"""Detects checkpoints that hold up the training."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

import numpy as np

from stepscope.analysis.large_shares import wall_seconds
from stepscope.analysis.phase_shares import recorded, seconds_within
from stepscope.analysis.remedies import remedies_in
from stepscope.analysis.wording import percent, round_up, seconds
from stepscope.config.bounds import Range
from stepscope.detectors.base import Detector, TooLittleEvidence
from stepscope.schema.finding import Chart, Estimate, Evidence, Finding, Remedy
from stepscope.schema.keys import STEP_SECONDS, gap_key, phase_key

if TYPE_CHECKING:
    from stepscope.schema.window import Flags, Floats, RankWindow, Window

SAVING = phase_key("checkpoint")
MINUTE_S = 60.0

OTHER_PAUSES = ("compile/seconds", "gc/pause_seconds")
MIN_OTHERS = 10
"""Steps that save are compared with at least this many that do not."""

COSTLY = 0.1
"""Checkpoints that take this share of the time are a warning. Less is a notice: they also buy safety."""

IN_BACKGROUND = """\
from concurrent.futures import ThreadPoolExecutor
writer = ThreadPoolExecutor(1)
state = {name: value.detach().cpu().clone() for name, value in model.state_dict().items()}
saving = writer.submit(torch.save, state, path)  # writes while the training goes on
saving.result()                            # before the next one: raises what went wrong"""


@dataclass(frozen=True)
class CheckpointStall(Detector):
    """Sums the time in which checkpoints are written, within steps and between them."""

    id: ClassVar[str] = "ckpt.stall"
    title: ClassVar[str] = "The training waits for its checkpoints"
    sentence: ClassVar[str] = "several checkpoints together take a share of the time"
    requires: ClassVar[tuple[tuple[str, ...], ...]] = ((SAVING,), (STEP_SECONDS,))
    reads: ClassVar[tuple[str, ...]] = (
        gap_key("checkpoint"), phase_key("eval"), gap_key("eval"), *OTHER_PAUSES,
    )  # fmt: skip
    min_steps: ClassVar[int] = 0
    in_steady_state: ClassVar[bool] = False
    is_optional: ClassVar[bool] = True

    share: Annotated[float, Range(0.001, 1)] = 0.02
    """Minimum share of time that checkpoints take."""

    short_run_share: Annotated[float, Range(0.001, 1)] = 0.1
    """The same where less than a minute was recorded: a short run has to save, too."""

    checkpoints: Annotated[int, Range(2)] = 3
    """Minimum number of checkpoints."""

    failures_in_a_day: Annotated[float, Range(0.01, 100)] = 1.0
    """How often the run is expected to be interrupted, for the advice on how often to save."""

    def examine(self, rank: RankWindow, window: Window) -> Finding | str:
        """Compares the time of checkpoints with the time since the first of the examined steps."""
        chosen = rank.where(SAVING, steady=False) & (rank.columns[SAVING].values > 0)
        wall = wall_seconds(rank)
        if wall is None:
            return TooLittleEvidence("Too little time was recorded.")
        count = int(chosen.sum())
        if not count:
            return "No checkpoints were written."
        share = _share(rank, chosen, wall)
        written = f"{count:,} checkpoint{'s' if count != 1 else ''}"
        least = self.share if wall >= MINUTE_S else max(self.share, self.short_run_share)
        if share < least or count < self.checkpoints:
            return f"{written} took {percent(share)} of the time."
        return self._finding(rank, window, chosen, min(share, 1.0), wall)

    def _finding(self, rank: RankWindow, window: Window, chosen: Flags, share: float, wall: float) -> Finding:
        took, at = _costs(rank, chosen), rank.steps[chosen]
        rest = float(np.mean(took - rank.columns[SAVING].values[chosen]))
        each, between = float(np.mean(took)), max(int(np.median(np.diff(at))), 1)
        step_s = wall * (1 - share) / len(rank.steps)
        (usual,) = rank.aligned(STEP_SECONDS, steady=False)
        interval_s = math.sqrt(2 * each * 86400 / self.failures_in_a_day)
        rarer = max(round_up(interval_s / max(step_s, 1e-6)), between)
        still = share * between / rarer
        likely = share - still / (1 - share + still)
        first, last = int(rank.steps[0]), int(rank.steps[-1])
        return Finding(
            id=self.id,
            title=self.title,
            headline=f"Checkpoints take {percent(share)} of the time: {len(took):,} of {seconds(each)} each, "
            f"{f'one in {between:,} steps' if between > 1 else 'one in each step'}.",
            detail=f"The training waits while a checkpoint is written. {self._interval(interval_s)}",
            severity="warning" if share >= COSTLY else "notice",
            confidence=min(0.95, 0.7 + 0.02 * len(took)),
            share=share,
            first_step=first,
            last_step=last,
            first_time=float(rank.times[0]),
            last_time=float(rank.times[-1]),
            rank=rank.rank if len(window.ranks) > 1 else None,
            evidence=(
                Evidence("checkpoints", percent(share), f"{seconds(float(took.sum()))} of {seconds(wall)}"),
                Evidence("one checkpoint", seconds(each), f"a step takes {seconds(float(np.median(usual)))}"),
                *((Evidence("after the save", seconds(rest), "of that, in the same step"),) if rest else ()),
                Evidence("steps between checkpoints", f"{between:,}", seconds(between * step_s)),
            ),
            chart=Chart((SAVING, STEP_SECONDS), first, last),
            ruled_out=("One slow checkpoint: the share is that of several.",),
            remedies=(
                *remedies_in(
                    window.libraries(rank.rank),
                    f"Save once in {rarer:,} steps, about every {seconds(rarer * step_s)}.",
                    {
                        "torch": f"if step % {rarer} == 0:\n    torch.save(state, path)",
                        "lightning": f"checkpoints = ModelCheckpoint(every_n_train_steps={rarer})",
                        "transformers": f'arguments = TrainingArguments(..., save_strategy="steps", '
                        f"save_steps={rarer})",
                    },
                ),
                Remedy("Copy the weights, and write the copy in another thread.", IN_BACKGROUND),
            ),
            tries=(f"save once in {rarer:,} steps", "write checkpoints in another thread"),
            estimate=Estimate(0.5 * likely, likely, share, "the time of the run"),
            how="The time in `torch.save`, and what its steps take longer than others besides, such as "
            "waiting for the disk, divided by the time since the first of the examined steps. The advised "
            "interval is the square root of twice the time of a checkpoint multiplied by the time between "
            "two failures (Young).",
        )

    def _interval(self, interval_s: float) -> str:
        failures = f"{self.failures_in_a_day:g} interruption{'s' if self.failures_in_a_day != 1 else ''}"
        return f"With {failures} a day, least time is lost by saving about every {seconds(interval_s)}."


def _share(rank: RankWindow, chosen: Flags, wall: float) -> float:
    """The share of time that checkpoints take, without the first one and the time before it if that is less.

    A window of steps that begins and ends with a checkpoint has one more of them than intervals.
    """
    took, ends = _costs(rank, chosen), rank.times[chosen]
    shares = [float(took.sum()) / wall]
    if len(took) > 1 and ends[-1] > ends[0]:
        shares.append(float(took[1:].sum()) / float(ends[-1] - ends[0]))
    return min(shares)


def _costs(rank: RankWindow, chosen: Flags) -> Floats:
    """Returns the seconds of each checkpoint, with what its step usually takes longer besides.

    What follows a save in the same step, such as waiting for the disk, is not timed by itself.
    """
    took = rank.columns[SAVING].values[chosen]
    timed = rank.where(STEP_SECONDS, steady=False)
    usual = rank.columns[STEP_SECONDS].values[timed & ~chosen]
    within = timed & chosen
    if len(usual) < MIN_OTHERS or not within.any():
        return took
    known = seconds_within(rank, "checkpoint") + seconds_within(rank, "eval")
    known += sum(recorded(rank, key) for key in OTHER_PAUSES)
    rest = rank.columns[STEP_SECONDS].values[within] - known[within]
    longer = float(np.median(rest)) - float(np.median(usual))
    if longer <= float(np.quantile(usual, 0.9)) - float(np.median(usual)):
        return took
    return took + np.where(within[chosen], longer, 0.0)
