"""Detects a training thread that waits for a processor: too many threads of its own, or other programs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

import numpy as np

from stepscope.analysis.phase_shares import phase_shares
from stepscope.analysis.processor_load import (
    LOAD_EVENTS,
    LOAD_KEYS,
    QUEUED,
    processor_load,
    queued_shares,
    waits_are_hidden,
)
from stepscope.analysis.remedies import remedies_in
from stepscope.analysis.wording import number, percent
from stepscope.config.bounds import Range
from stepscope.detectors.base import Detector, TooLittleEvidence
from stepscope.schema.finding import Chart, Estimate, Evidence, Finding, Remedy, severity_of
from stepscope.schema.keys import STEP_SECONDS

if TYPE_CHECKING:
    from stepscope.analysis.processor_load import ProcessorLoad
    from stepscope.schema.window import Floats, RankWindow, Window

THROTTLED = "cpu/cgroup_throttled_periods_ratio"
MOSTLY_OTHERS, SOME_OTHERS = 0.5, 0.2
"""Other programs are the cause if they take this share of the processor time in use. The first applies where
the threads of an operation, or the workers, are too many even without each other."""

FEW_READINGS, MIN_READINGS, MANY_READINGS = 2, 4, 12
CLEAR = 4.0
"""Fewer readings than the minimum are enough if each is this many times the threshold."""

BUSIEST = "ps -eo pid,user,ni,pcpu,comm --sort=-pcpu | head"


@dataclass(frozen=True)
class Oversubscribed(Detector):
    """Reads how long the training thread is ready to run and waits, and compares threads with processors."""

    id: ClassVar[str] = "host.oversubscribed"
    title: ClassVar[str] = "The training waits for a processor"
    sentence: ClassVar[str] = (
        "the training thread is ready to run and waits for a processor for a share of the time in most "
        "readings, and either the run has too many threads and loader workers, or other programs keep the "
        "processors busy"
    )
    requires: ClassVar[tuple[tuple[str, ...], ...]] = ((QUEUED,), (STEP_SECONDS,))
    reads: ClassVar[tuple[str, ...]] = (*LOAD_KEYS, THROTTLED)
    events: ClassVar[tuple[str, ...]] = LOAD_EVENTS
    min_steps: ClassVar[int] = 1
    is_optional: ClassVar[bool] = True
    explains: ClassVar[tuple[str, ...]] = ("input.exposed_wait", "step.outliers")

    share: Annotated[float, Range(0.01, 1)] = 0.05
    """Minimum share of time in which the training thread waits for a processor."""

    threads_for_each_core: Annotated[float, Range(1)] = 1.5
    """Threads and loader workers are too many above this number for each processor."""

    quota_share: Annotated[float, Range(0.001, 1)] = 0.02
    """A container that uses up its quota in this share of the periods is stopped by that."""

    def examine(self, rank: RankWindow, window: Window) -> Finding | str:
        """Compares the wait with what competes for the processors."""
        shares = queued_shares(rank, window)
        load = processor_load(rank, window)
        is_clear = len(shares) >= FEW_READINGS and float(shares.min()) >= CLEAR * self.share
        if load is None or not (is_clear or len(shares) >= MIN_READINGS):
            return TooLittleEvidence("Needs more readings of the wait, and the number of processors.")
        share = float(np.median(shares))
        measured = f"The training thread waits for a processor {percent(share)} of the time"
        # A few readings must agree more, and be further above the threshold.
        least, in_most = (self.share, 0.5) if len(shares) >= MANY_READINGS else (2 * self.share, 1.0)
        if share < least or float(np.quantile(shares, 0.25)) < in_most * self.share:
            return f"{measured}; threshold: {percent(least)} in most readings."
        if not load.are_busy:
            return f"{measured}, but processors are idle."
        cause = self._cause(rank, window, load, share)
        return f"{measured}{cause}" if isinstance(cause, str) else self._finding(rank, window, shares, cause)

    def _cause(
        self, rank: RankWindow, window: Window, load: ProcessorLoad, share: float
    ) -> _BusyMachine | _TooManyThreads | str:
        """Returns the cause of the wait, or the end of a sentence that says why it is no problem."""
        throttled = [float(figures.values.mean()) for figures in window.figures(THROTTLED, rank.host)]
        if max(throttled, default=0.0) >= self.quota_share:
            return ", stopped by the quota of its container."
        if waits_are_hidden(rank, window, share):
            return ", but the GPU was busy meanwhile, so the wait costs nothing."
        limit = self.threads_for_each_core * load.cores
        is_clear = max(load.threads, load.workers) > limit
        if load.others_share >= (MOSTLY_OTHERS if is_clear else SOME_OTHERS):
            return _BusyMachine(load, window.libraries(rank.rank), has_many=is_clear)
        if load.threads + load.workers <= limit:
            return "; neither its own threads nor other programs explain that."
        if load.workers <= load.cores and phase_shares(rank).get("data", 0.0) > share:
            return ", less than it waits for data."
        return _TooManyThreads(load, window.libraries(rank.rank))

    def _finding(
        self, rank: RankWindow, window: Window, shares: Floats, cause: _BusyMachine | _TooManyThreads
    ) -> Finding:
        share, load = float(np.median(shares)), cause.load
        steps, times = rank.steps[rank.steady], rank.times[rank.steady]
        above = int((shares >= self.share).sum())
        busy = (
            ("this run", load.own, "processors busy, with its workers"),
            ("other programs", load.others, "processors busy"),
        )
        return Finding(
            id=self.id,
            title=self.title,
            headline=f"The training thread waits for a processor {percent(share)} of the time: {cause.fact}.",
            detail=cause.detail,
            severity=severity_of(cause.likely * share),
            confidence=round(min(0.95, above / (len(shares) + 4)), 3),
            share=share,
            first_step=int(steps[0]),
            last_step=int(steps[-1]),
            first_time=float(times[0]),
            last_time=float(times[-1]),
            rank=rank.rank if len(window.ranks) > 1 else None,
            evidence=(
                Evidence("wait for a processor", percent(share), "of the time, in the median reading"),
                Evidence("processors", str(load.cores), "of this rank"),
                Evidence("threads", str(load.threads), "of one operation of PyTorch"),
                Evidence("workers", str(load.workers), "of the data loader"),
                *(
                    Evidence(label, number(value, 2), note)
                    for label, value, note in busy
                    if value is not None
                ),
            ),
            chart=Chart((QUEUED, STEP_SECONDS), int(steps[0]), int(steps[-1])),
            ruled_out=(
                f"A short burst of load: {above} of {len(shares)} readings are above the threshold.",
                "A quota of processor time: it is not used up.",
            ),
            remedies=cause.remedies,
            tries=cause.tries,
            estimate=Estimate(0.0, cause.likely * share, share, "the time of the run"),
            how="The kernel counts how long a thread is ready and does not run (schedstat); the share is the "
            f"median of {len(shares)} readings. Other programs: the processors in use without those of "
            "this run.",
        )


class _BusyMachine:
    """Other programs keep the processors busy."""

    likely = 1.0

    def __init__(self, load: ProcessorLoad, libraries: set[str], *, has_many: bool) -> None:
        self.load = load
        others = f"{number(load.others or 0.0, 2)} of {number((load.own or 0.0) + (load.others or 0.0), 2)}"
        self.fact = f"other programs use {others} busy processors"
        self.detail = (
            "Other programs on the machine take the processors in turn with the training, so every phase "
            "takes longer. More loader workers or threads would make it worse."
            + (f" The run itself has too many as well: {_both(load)}." if has_many else "")
        )
        fewer, tries = _fewer(load, libraries) if has_many else ((), ())
        self.remedies = (
            Remedy("Find the programs that use most processor time, and stop or move them.", BUSIEST),
            Remedy(
                "Or run the training where it has processors of its own.",
                f"srun --exclusive --cpus-per-task={load.cores} ...   # Slurm; Kubernetes: requests.cpu",
            ),
            *fewer,
        )
        self.tries = ("stop other programs", "a machine or processors of its own", *tries)


class _TooManyThreads:
    """The threads and loader workers of the run compete with each other."""

    likely = 0.5

    def __init__(self, load: ProcessorLoad, libraries: set[str]) -> None:
        self.load, self.fact = load, _both(load)
        self.detail = (
            "More threads than processors take turns, and an operation ends only with its slowest thread. "
            "More workers would not bring batches sooner."
        )
        if load.others_share >= SOME_OTHERS:
            self.detail += f" Other programs keep {number(load.others or 0.0, 2)} processors busy as well."
        self.remedies, self.tries = _fewer(load, libraries)


def _fewer(load: ProcessorLoad, libraries: set[str]) -> tuple[tuple[Remedy, ...], tuple[str, ...]]:
    """Returns remedies for too many threads and workers, and the same as short hints."""
    workers = min(load.workers, max(load.cores - 1, 1))
    threads = max(load.cores - workers, 1)
    remedies: list[Remedy] = []
    tries = []
    if load.workers > workers:
        text = f"Use {workers} loader worker{'s' if workers > 1 else ''}."
        line = f"DataLoader(dataset, num_workers={workers}, persistent_workers=True)"
        codes = {
            "torch": f"loader = {line}",
            "lightning": f"def train_dataloader(self):\n    return {line}",
            "transformers": f"arguments = TrainingArguments(..., dataloader_num_workers={workers})",
        }
        remedies += remedies_in(libraries, text, codes)
        tries.append(f"num_workers={workers}")
    if load.threads > threads:
        text = f"Use {threads} thread{'s' if threads > 1 else ''} for an operation."
        code = f"torch.set_num_threads({threads})   # or OMP_NUM_THREADS={threads} in the environment"
        remedies.append(Remedy(text, code, "PyTorch"))
        tries.append(f"torch.set_num_threads({threads})")
    return tuple(remedies), tuple(tries)


def _both(load: ProcessorLoad) -> str:
    threads = f"{load.threads} thread{'s' if load.threads != 1 else ''}"
    workers = f" and {load.workers} loader worker{'s' if load.workers != 1 else ''}" if load.workers else ""
    return f"{threads}{workers} on {load.cores} processor{'s' if load.cores != 1 else ''}"
