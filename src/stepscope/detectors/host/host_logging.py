"""Detects a loop that spends its time on logging: log lines, prints, progress bars, trackers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

from stepscope.analysis.large_shares import LARGE
from stepscope.analysis.phase_shares import phase_shares
from stepscope.analysis.remedies import RARER, remedies_in
from stepscope.analysis.stack_samples import lower_bound, newest_samples
from stepscope.analysis.wording import percent, seconds
from stepscope.config.bounds import Range
from stepscope.detectors.base import Detector, TooLittleEvidence
from stepscope.schema.finding import Chart, Estimate, Evidence, Finding, Remedy, severity_of
from stepscope.schema.keys import SAMPLED_RATIO, STACKS_EVENT, STEP_SECONDS, phase_key

if TYPE_CHECKING:
    from stepscope.analysis.stack_samples import SampledLine, StackSamples
    from stepscope.schema.window import RankWindow, Window

MAX_SHOWN = 3

IN_A_THREAD = Remedy(
    "Write the log in another thread, so that the step does not wait for a slow disk or terminal.",
    "lines = queue.Queue()\n"
    "log.addHandler(logging.handlers.QueueHandler(lines))\n"
    "logging.handlers.QueueListener(lines, slow_handler).start()",
)
PROGRESS = Remedy("Draw the progress bar less often.", "for batch in tqdm(loader, mininterval=10): ...")


@dataclass(frozen=True)
class SlowLogging(Detector):
    """Counts the stack samples of the training thread in which it printed, logged or wrote."""

    id: ClassVar[str] = "host.logging"
    title: ClassVar[str] = "The loop spends its time on logging"
    sentence: ClassVar[str] = (
        "in a share of the stack samples, clearly above chance, the training thread prints, writes a log, "
        "draws a progress bar or calls a tracker"
    )
    requires: ClassVar[tuple[tuple[str, ...], ...]] = ((STEP_SECONDS,),)
    reads: ClassVar[tuple[str, ...]] = (SAMPLED_RATIO, phase_key("other"))
    events: ClassVar[tuple[str, ...]] = (STACKS_EVENT,)
    min_steps: ClassVar[int] = 20
    explains: ClassVar[tuple[str, ...]] = ("host.loop_code",)

    share: Annotated[float, Range(0.005, 1)] = 0.02
    """Minimum share of the samples, as the lower bound of its 95% interval."""

    samples: Annotated[int, Range(3)] = 4
    """Minimum number of samples in which it logs."""

    def examine(self, rank: RankWindow, window: Window) -> Finding | str:
        """Compares the lower bound of the share with the threshold."""
        stacks = newest_samples(window, rank.rank)
        outside = phase_shares(rank).get("other")
        if stacks is None:
            if outside is not None and outside >= LARGE:
                return TooLittleEvidence("Needs stack samples of the training thread.")
            return "No sign of slow code in the loop, so no stack samples were taken."
        lines = stacks.logging_lines()
        count = sum(line.samples for line in lines)
        share = count / max(stacks.samples, 1)
        if count < self.samples or lower_bound(count, stacks.samples) < self.share:
            return f"The training thread was logging in {count} of {stacks.samples} stack samples."
        if outside is not None and outside < self.share:
            return f"Only {percent(outside)} of step time is outside the phases, where the loop logs."
        return self._finding(rank, window, stacks, lines, share if outside is None else min(share, outside))

    def _finding(
        self, rank: RankWindow, window: Window, stacks: StackSamples, lines: list[SampledLine], share: float
    ) -> Finding:
        (taken,) = rank.aligned(STEP_SECONDS)
        count, top = sum(line.samples for line in lines), lines[0]
        first, last = int(rank.steps[0]), int(rank.steps[-1])
        is_progress = any(line.call.startswith(("tqdm", "rich.")) for line in lines)
        low = min(lower_bound(count, stacks.samples), share)
        return Finding(
            id=self.id,
            title=self.title,
            headline=f"Logging takes {percent(share)} of each step, about {seconds(share * taken.mean())}: "
            f"{top.place}.",
            detail="The training thread itself prints, writes or sends what it logs, and the next step "
            "begins when it has finished.",
            severity=severity_of(share),
            confidence=round(min(0.95, 0.6 + 0.35 * low / share), 2),
            share=share,
            first_step=first,
            last_step=last,
            first_time=float(rank.times[0]),
            last_time=float(rank.times[-1]),
            rank=rank.rank if len(window.ranks) > 1 else None,
            where=top.place,
            evidence=(
                Evidence("samples that log", f"{count} of {stacks.samples}", "of the training thread"),
                *(line.evidence() for line in lines[:MAX_SHOWN]),
            ),
            chart=Chart((phase_key("other"), STEP_SECONDS), first, last),
            ruled_out=("Data, checkpoints and evaluation: samples in them are not counted.",),
            remedies=(
                *remedies_in(window.libraries(rank.rank), "Print and log less often.", RARER),
                *((PROGRESS,) if is_progress else ()),
                IN_A_THREAD,
            ),
            tries=("log less often", "log in another thread"),
            estimate=Estimate(round(0.5 * low, 3), round(0.9 * share, 3), round(share, 3)),
            how="The stack of the training thread was read at random moments. The share of samples in which "
            "it logs is the share of its time, and at most that of the time outside the measured phases.",
            refs=("https://docs.python.org/3/howto/logging-cookbook.html#dealing-with-handlers-that-block",),
        )
