"""Detects batches that come late again and again while most are ready in time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, NamedTuple

import numpy as np

from stepscope.analysis.loader_plan import loader_of
from stepscope.analysis.phase_shares import device_shares
from stepscope.analysis.processor_load import (
    GPU_BUSY,
    GPU_MEMORY,
    QUEUED,
    QUEUED_RATIO,
    queued_shares,
    waits_are_hidden,
)
from stepscope.analysis.remedies import remedies_in
from stepscope.analysis.wording import percent, seconds
from stepscope.config.bounds import Range
from stepscope.detectors.base import Detector
from stepscope.schema.finding import Chart, Estimate, Evidence, Finding, Remedy, severity_of
from stepscope.schema.keys import EPOCH_GAP_SECONDS, STEP_SECONDS, device_key, phase_key

if TYPE_CHECKING:
    from stepscope.schema.window import Flags, Floats, Ints, RankWindow, Window

WAIT, READY, MICRO_STEPS = phase_key("data"), "loader/ready_batches", "micro_steps"
DEVICE_KEYS = (device_key("data"), device_key("step"))

USUAL = 0.4
"""The wait for a usual batch: this quantile, because one of two workers may be slow."""

MIN_LATE_S = 0.002
"""A wait below this is not late: taking a batch from a worker takes about a millisecond."""

MIN_LATE, MIN_PART, MAX_PART, MANY_PART = 8, 0.03, 0.6, 0.2
"""Late batches: how many at least, and which part of all. Fewer are reported as slow steps; if they are more
than `MANY_PART`, one worker must make most of them."""

OF_ONE_WORKER, OF_ITS_BATCHES = 0.8, 0.6
"""A worker is slow if this part of the late time is in its batches, and this part of its batches is late."""

OFTEN_EMPTY, MIN_LOOKS = 0.2, 4
"""If no batch is ready more often than this, all workers are slow, and their batches come in groups."""

CONTENTION = 0.05
"""Waits of irregular batches say nothing about samples if the training waits for a processor this much."""

FIND_SAMPLES = """\
def __getitem__(self, index):
    began = time.perf_counter()
    sample = self.load(index)
    if time.perf_counter() - began > 0.1:
        print(f"sample {index} took {time.perf_counter() - began:.2f} s")
    return sample"""
FIND_WORKER = """\
worker = torch.utils.data.get_worker_info()   # in __getitem__ or __iter__ of the dataset
print(worker.id, worker.num_workers, time.perf_counter() - began)"""


class _Late(NamedTuple):
    """The late batches of the steady steps."""

    is_late: Flags
    excess: Floats
    """Seconds above the usual wait; 0 for batches that are not late."""
    usual: float
    share: float
    """Share of step time."""
    worker: int | None
    """The worker that makes most of them; None if none does."""

    @property
    def part(self) -> float:
        return float(self.is_late.mean())


@dataclass(frozen=True)
class InputJitter(Detector):
    """Compares the waits for late batches with those for usual ones, and finds the worker they come from."""

    id: ClassVar[str] = "input.jitter"
    title: ClassVar[str] = "Some batches come late"
    sentence: ClassVar[str] = (
        "one of several loader workers is far slower than the others, or at least 3% of batches come far "
        "later than usual ones, and the waits for them take a share of step time"
    )
    requires: ClassVar[tuple[tuple[str, ...], ...]] = ((WAIT,), (STEP_SECONDS,))
    reads: ClassVar[tuple[str, ...]] = (
        READY, MICRO_STEPS, EPOCH_GAP_SECONDS, QUEUED, QUEUED_RATIO, GPU_MEMORY, GPU_BUSY, *DEVICE_KEYS,
    )  # fmt: skip
    events: ClassVar[tuple[str, ...]] = ("loader",)
    min_steps: ClassVar[int] = 80
    explains: ClassVar[tuple[str, ...]] = ("input.exposed_wait", "step.outliers")

    share: Annotated[float, Range(0.01, 1)] = 0.05
    """Minimum share of step time that waits for late batches take."""

    ratio: Annotated[float, Range(2)] = 5.0
    """A batch is late if the wait for it is this many times the usual one."""

    def examine(self, rank: RankWindow, window: Window) -> Finding | str:
        """Finds the late batches, then whether they come from one worker or from slow samples."""
        loader = loader_of(window, rank.rank)
        workers = (loader or {}).get("num_workers")
        if not isinstance(workers, int) or workers < 1:
            return "Batches are not made by loader workers."
        late = self._late(rank, workers)
        measured = f"{percent(late.part)} of batches come late and cost {percent(late.share)} of step time"
        if late.share < self.share or late.is_late.sum() < MIN_LATE or not MIN_PART <= late.part <= MAX_PART:
            return f"{measured}; threshold: {percent(self.share)}."
        share = min(late.share, device_shares(rank).get("data", 1.0))
        if share < self.share or waits_are_hidden(rank, window, share):
            return f"{measured}, but the GPU was busy meanwhile."
        excuse = _excuse_of_samples(rank, window, late) if late.worker is None else _excuse_of_worker(rank)
        return f"{measured}; {excuse}." if excuse else self._finding(rank, window, late, share)

    def _late(self, rank: RankWindow, workers: int) -> _Late:
        chosen, number = rank.where(WAIT, STEP_SECONDS), _number_in_pass(rank)
        waits, taken = rank.columns[WAIT].values[chosen], rank.columns[STEP_SECONDS].values[chosen]
        usual = float(np.quantile(waits, USUAL))
        # A late batch must be felt in its step as well.
        is_late = waits > max(self.ratio * usual, usual + MIN_LATE_S, 0.2 * float(np.median(taken - waits)))
        if number is not None:
            is_late &= number[chosen] > 0  # workers have just started
        excess = np.where(is_late, waits - usual, 0.0)
        share = float(excess.sum() / taken.sum())
        worker = None if number is None else _slow_worker(number[chosen], is_late, excess, workers)
        return _Late(is_late, excess, usual, share, worker)

    def _finding(self, rank: RankWindow, window: Window, late: _Late, share: float) -> Finding:
        chosen = rank.where(WAIT, STEP_SECONDS)
        steps, times = rank.steps[chosen][late.is_late], rank.times[chosen][late.is_late]
        each, interval = float(late.excess[late.is_late].mean()), _interval(steps)
        workers = int((loader_of(window, rank.rank) or {})["num_workers"])
        count, empty = len(steps), _empty_queue(rank)
        if late.worker is not None:
            headline = (
                f"Loader worker {late.worker} of 0 to {workers - 1} is slow: steps wait {seconds(each)} for "
                f"each of its batches, {percent(share)} of step time."
            )
            detail = (
                "Batches are used in order, so the step waits for this worker while batches of the others "
                "are ready. More workers would not help."
            )
            remedies = _worker_remedies(late.worker)
            tries: tuple[str, ...] = (f"look at what worker {late.worker} reads", "in_order=False")
        else:
            rhythm = f", one in {interval:,}" if interval else ""
            headline = (
                f"{count:,} batches come late{rhythm}: steps wait {seconds(each)} for each, {percent(share)} "
                "of step time."
            )
            detail = (
                "Most batches are ready in time, but some hold samples that take long: a large file, a new "
                "shard, a retry. More workers help less than more batches in reserve."
            )
            remedies = _sample_remedies(window.libraries(rank.rank), workers)
            tries = ("find slow samples", "prefetch_factor=8")
        return Finding(
            id=self.id,
            title=self.title,
            headline=headline,
            detail=detail,
            severity=severity_of(share),
            confidence=min(0.95, 0.6 + 0.01 * count),
            share=share,
            first_step=int(steps[0]),
            last_step=int(steps[-1]),
            first_time=float(times[0]),
            last_time=float(times[-1]),
            rank=rank.rank if len(window.ranks) > 1 else None,
            evidence=(
                Evidence("late batches", f"{count:,}", f"{percent(late.part)} of all"),
                Evidence("wait for a late one", seconds(late.usual + each), f"usually {seconds(late.usual)}"),
                Evidence("batches between them", f"{interval:,}" if interval else "irregular"),
                Evidence("workers", str(workers)),
                *(() if empty is None else (Evidence("no batch ready", percent(empty), "of all checks"),)),
            ),
            chart=Chart((WAIT, STEP_SECONDS), int(steps[0]), int(steps[-1])),
            ruled_out=(
                f"A loader that is too slow: usual batches are there after {seconds(late.usual)}.",
                *(
                    ("Workers that are all slow: batches of the others are ready.",)
                    if late.worker is not None
                    else ()
                ),
            ),
            remedies=remedies,
            tries=tries,
            estimate=Estimate(0.3 * share, 0.7 * share, share),
            how=f"Waits above {self.ratio:g} times the usual one, which is the {percent(USUAL)} quantile: "
            "their time above it, divided by the time of all steps. Workers make batches in turn.",
        )


def _excuse_of_samples(rank: RankWindow, window: Window, late: _Late) -> str:
    """Returns why late batches of all workers are no finding; empty if they are one."""
    if late.part > MANY_PART:
        return "that many are not an exception"
    queued = queued_shares(rank, window) if QUEUED in rank.columns else np.empty(0)
    if len(queued) and float(np.median(queued)) >= CONTENTION:
        return "the training also waits for a processor, so their samples may not be the cause"
    return ""


def _excuse_of_worker(rank: RankWindow) -> str:
    """Returns why late batches of one worker are no finding; empty if they are one."""
    empty = _empty_queue(rank)
    if empty is None:
        return "the queue was not read often enough to tell whether one worker is slow"
    return "batches come in groups, because all workers are slow" if empty > OFTEN_EMPTY else ""


def _slow_worker(number: Ints, is_late: Flags, excess: Floats, workers: int) -> int | None:
    """Returns the worker that makes most late batches, None if there is none: workers take turns."""
    if workers < 2 or not excess.any():
        return None
    maker = number % workers
    late_s = np.bincount(maker, excess, workers)
    worst = int(np.argmax(late_s))
    of_worst = float(is_late[maker == worst].mean())
    return worst if late_s[worst] >= OF_ONE_WORKER * late_s.sum() and of_worst >= OF_ITS_BATCHES else None


def _number_in_pass(rank: RankWindow) -> Ints | None:
    """Returns the number of each step's batch in its pass over the data; None if that cannot be counted."""
    if MICRO_STEPS in rank.columns:
        return None
    gaps = rank.columns.get(EPOCH_GAP_SECONDS)
    starts = np.empty(0, int) if gaps is None else np.flatnonzero(gaps.present)
    if rank.is_whole:
        starts = np.union1d(starts, [0])
    if not len(starts):
        return None
    places = np.arange(len(rank.steps))
    pass_of = np.maximum(np.searchsorted(starts, places, "right") - 1, 0)
    numbers: Ints = places - starts[pass_of]
    return numbers


def _empty_queue(rank: RankWindow) -> float | None:
    """Returns how often no batch was ready; None if there are too few readings."""
    if READY not in rank.columns:
        return None
    (ready,) = rank.aligned(READY)
    return float((ready < 1).mean()) if len(ready) >= MIN_LOOKS else None


def _interval(steps: Ints) -> int | None:
    """Returns how many batches are between late ones if that is nearly constant."""
    gaps = np.diff(steps)
    usual = float(np.median(gaps))
    is_regular = float((np.abs(gaps - usual) <= 0.05 * usual).mean()) >= 0.8
    return round(usual) if is_regular and usual > 1 else None


def _worker_remedies(worker: int) -> tuple[Remedy, ...]:
    return (
        Remedy(
            f"Find what worker {worker} does that the others do not: its shard, its disk, its file handles.",
            FIND_WORKER,
            "PyTorch",
        ),
        Remedy(
            "Use batches in the order in which they are ready (PyTorch 2.6 and later).",
            "loader = DataLoader(dataset, ..., in_order=False)",
            "PyTorch",
        ),
    )


def _sample_remedies(libraries: set[str], workers: int) -> tuple[Remedy, ...]:
    line = f"DataLoader(dataset, num_workers={max(workers, 2)}, persistent_workers=True, prefetch_factor=8)"
    codes = {
        "torch": f"loader = {line}",
        "lightning": f"def train_dataloader(self):\n    return {line}",
        "transformers": "arguments = TrainingArguments(..., dataloader_prefetch_factor=8)",
    }
    return (
        Remedy(
            "Find the samples that take long, and store them in a form that is quick to read.", FIND_SAMPLES
        ),
        *remedies_in(libraries, "Keep more batches in reserve.", codes),
    )
