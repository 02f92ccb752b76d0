"""Detects a few steps that take far longer than the others, and names the phase they spend it in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, NamedTuple

import numpy as np

from stepscope.analysis.large_shares import wall_seconds
from stepscope.analysis.loader_plan import LoaderPlan, loader_of
from stepscope.analysis.phase_shares import recorded, seconds_within
from stepscope.analysis.processor_load import (
    GPU_BUSY,
    GPU_MEMORY,
    LOAD_EVENTS,
    LOAD_KEYS,
    waiting_share,
)
from stepscope.analysis.remedies import RARER, loader_remedies, loader_tries, remedies_in
from stepscope.analysis.robust import block_edges, block_medians, block_shares, spread
from stepscope.analysis.stack_samples import MOST, blocked_samples
from stepscope.analysis.wording import percent, seconds, within
from stepscope.config.bounds import Range
from stepscope.detectors.base import Detector
from stepscope.schema.finding import Chart, Estimate, Evidence, Finding, Remedy, severity_of
from stepscope.schema.keys import (
    BATCH_SIZES,
    PHASES,
    STACKS_EVENT,
    STEP_SECONDS,
    device_key,
    gap_key,
    phase_key,
)

if TYPE_CHECKING:
    from stepscope.analysis.stack_samples import SampledLine
    from stepscope.schema.window import Flags, Floats, Ints, RankWindow, Window

DATA, CHECKPOINT, PAUSE = phase_key("data"), phase_key("checkpoint"), "gc/pause_seconds"
DEVICE_STEP = device_key("step")
MINUTE_S = 60.0

SEPARATE = 6.0
"""A slow step must also be this many spreads above the others: noise alone has a tail as well."""

MIN_EXCESS_S = 0.01
"""And this much longer: the kernel interrupts any thread for some milliseconds now and then."""

MAX_FREQUENT = 0.2
"""More slow steps than this share are a kind of step of their own, such as those with two updates."""

NEIGHBOURS = 50
"""Steps are compared with about this many around them, so that a change of speed is no outlier."""

MORE_WORK, FOLLOWS = 1.3, 0.7
"""Slow steps are explained by batches larger by this factor; or, where their sizes are unknown, by this
correlation of batch size and step time."""

CONTENTION = 0.5
"""Slow steps at odd times are explained by waits for a processor that take this part of their time."""

WAITS_OFTEN = 0.05
"""Steps that wait for data for this share of the time in most blocks are reported as that."""

UNKNOWN_WORK = 0.049
"""If the work of a step is unknown the severity is notice at most: slow steps may have more of it."""

ALIKE = """\
length = 64 * math.ceil(max(map(len, texts)) / 64)  # a few different shapes, not hundreds
torch.backends.cudnn.benchmark = False     # it tries all algorithms again for each new shape"""

CAUSES = {
    None: "No phase has most of it, or too few of these steps were timed by phase. Another program on the "
    "machine slows down all phases.",
    "data": "Most batches are ready in time, but some are not: a slow file, a new shard, or the start of an "
    "epoch.",
    "other": "Outside the phases, the code of the loop runs: printing, logging, plots, files.",
    "eval": "The model is evaluated within these steps.",
    "forward": "The model takes longer for longer inputs, and for a shape that is new.",
    "backward": "The model takes longer for longer inputs. Several ranks also wait for each other here.",
    "transfer": "Some batches take longer to copy, or the GPU was still at work when they were copied.",
    "optimizer": "The optimizer does more in some steps than in others.",
}
ADVICE = {
    "forward": Remedy("Use a few shapes only: pad to a multiple, and group by length.", ALIKE, "PyTorch"),
    "eval": Remedy("Evaluate less often, and on a part of the data."),
    "transfer": Remedy("Copy from pinned memory.", "x = x.to(device, non_blocking=True)", "PyTorch"),
    "optimizer": Remedy("Look for what the optimizer or its hooks do only in some steps."),
}


class _SlowSteps(NamedTuple):
    """The slow steps among the steady ones; each array has a value for every steady step."""

    is_slow: Flags
    excess: Floats
    """Seconds above the usual step; 0 for steps that are not slow."""
    usual: Floats
    known: Floats
    """Seconds of checkpoints and garbage collection, which are left out: other detectors report them."""
    steps: Ints
    """The numbers of the slow steps."""
    starts: Ints
    """Those at which slow ones begin; neighbours count as one."""
    total: float
    """Seconds of all steady steps."""

    @property
    def share(self) -> float:
        return float(self.excess.sum()) / self.total

    @property
    def interval(self) -> int | None:
        return _interval(self.steps, self.excess[self.is_slow])


@dataclass(frozen=True)
class StepOutliers(Detector):
    """Sums what slow steps take longer than the median of the steps around them."""

    id: ClassVar[str] = "step.outliers"
    title: ClassVar[str] = "A few slow steps take much of the time"
    sentence: ClassVar[str] = (
        "steps that take more than twice the median, beyond its noise, lose a share of step time together, "
        "without checkpoints and garbage collection, and not because of larger batches or a busy processor"
    )
    requires: ClassVar[tuple[tuple[str, ...], ...]] = ((STEP_SECONDS,),)
    reads: ClassVar[tuple[str, ...]] = (
        *map(phase_key, PHASES), gap_key("checkpoint"), gap_key("eval"), PAUSE, *BATCH_SIZES, DEVICE_STEP,
        *LOAD_KEYS,
    )  # fmt: skip
    events: ClassVar[tuple[str, ...]] = (*LOAD_EVENTS, STACKS_EVENT)
    min_steps: ClassVar[int] = 100

    share: Annotated[float, Range(0.01, 1)] = 0.05
    """Minimum share of step time that slow steps take longer than usual ones."""

    short_run_share: Annotated[float, Range(0.01, 1)] = 0.1
    """The same where less than a minute was recorded: a short run mostly starts and saves."""

    ratio: Annotated[float, Range(1.2)] = 2.0
    """A step is slow if it takes more than this many times the median."""

    outliers: Annotated[int, Range(2)] = 3
    """Minimum number of slow steps that are not neighbours."""

    def examine(self, rank: RankWindow, window: Window) -> Finding | str:
        """Finds the slow steps, then what may explain or excuse them."""
        slow = self._slow_steps(rank)
        wall = wall_seconds(rank)
        is_short = wall is None or wall < MINUTE_S
        least = max(self.share, self.short_run_share) if is_short else self.share
        count = int(slow.is_slow.sum())
        slow_steps = f"{count:,} slow step{'s' if count != 1 else ''}"
        if len(slow.starts) < self.outliers or slow.share < least:
            return f"{slow_steps} cost {percent(slow.share)} of step time; threshold: {percent(least)}."
        if count > MAX_FREQUENT * len(slow.is_slow):
            return f"{slow_steps} of {len(slow.is_slow):,} are not an exception."
        if slow.excess.sum() < 2 * slow.excess.max():
            return f"One step alone takes {seconds(float(slow.excess.max()))} longer."
        share = min(slow.share, _idle(rank, window, slow.total))
        if share < least:
            return f"{slow_steps} cost {percent(slow.share)} of step time, but the GPU was busy meanwhile."
        phase, part = _phase(rank, slow)
        reason = _reason(rank, window, slow, phase)
        return (
            f"{slow_steps} {reason}." if reason else self._finding(rank, window, slow, share, (phase, part))
        )

    def _slow_steps(self, rank: RankWindow) -> _SlowSteps:
        chosen = rank.where(STEP_SECONDS)
        taken, steps = rank.columns[STEP_SECONDS].values[chosen], rank.steps[chosen]
        known = np.minimum(seconds_within(rank, "checkpoint")[chosen] + recorded(rank, PAUSE)[chosen], taken)
        net = taken - known
        edges = block_edges(len(net), len(net), NEIGHBOURS)
        around = np.repeat(block_medians(net, edges), np.diff(edges))
        # The first few steps, which belong to no block, are compared with those of the first one.
        usual = np.maximum(np.r_[np.full(edges[0], around[0]), around], np.median(net))
        usual = np.maximum(usual, np.finfo(np.float64).tiny)
        limit = max(self.ratio, 1 + SEPARATE * float(spread(net / usual)))
        is_slow = net > np.maximum(limit * usual, usual + MIN_EXCESS_S)
        # What else happens in a step that saves, such as waiting for the disk, counts as its checkpoint.
        is_slow &= seconds_within(rank, "checkpoint")[chosen] <= 0
        begins = is_slow & ~np.r_[False, is_slow[:-1]]
        excess = np.where(is_slow, net - usual, 0.0)
        return _SlowSteps(is_slow, excess, usual, known, steps[is_slow], steps[begins], float(taken.sum()))

    def _finding(
        self,
        rank: RankWindow,
        window: Window,
        slow: _SlowSteps,
        share: float,
        cause: tuple[str | None, float],
    ) -> Finding:
        phase, part = cause
        chosen = rank.where(STEP_SECONDS)
        steps, times = rank.steps[chosen][slow.is_slow], rank.times[chosen][slow.is_slow]
        count, interval = len(steps), slow.interval
        each = float(slow.excess.sum()) / count
        is_known = rank.first_of(BATCH_SIZES) is not None
        # In a backward pass, a rank also waits for a slow step of another one.
        is_excused = not is_known and phase not in ("data", "other", "eval")
        is_excused |= phase == "backward" and len(window.ranks) > 1
        estimate = Estimate((0.5 if phase else 0.2) * share, 0.8 * share, share)
        remedies, tries = _advice(rank, window, phase, estimate)
        line = _line(window, rank, steps)
        rhythm = f", one in {interval:,} steps" if interval else ""
        where = f", mostly {within(phase)}" if phase else ""
        return Finding(
            id=self.id,
            title=self.title,
            headline=f"{count:,} slow steps cost {percent(share)} of step time: {seconds(each)} longer than "
            f"usual each{rhythm}{where}.",
            detail=CAUSES[phase],
            severity=severity_of(min(share, UNKNOWN_WORK) if is_excused else share),
            confidence=min(0.95, 0.6 + 0.02 * len(slow.starts) + (0.1 if phase else 0.0)),
            share=share,
            first_step=int(steps[0]),
            last_step=int(steps[-1]),
            first_time=float(times[0]),
            last_time=float(times[-1]),
            rank=rank.rank if len(window.ranks) > 1 else None,
            where="" if line is None else line.place,
            evidence=(
                *_evidence(slow, interval, phase, part),
                *(() if line is None else (line.evidence(),)),
            ),
            chart=Chart(
                (STEP_SECONDS, *((phase_key(phase),) if phase else ())), int(steps[0]), int(steps[-1])
            ),
            ruled_out=(
                "The warm-up and compilation: their steps are left out.",
                "Checkpoints and garbage collection: steps that save, and collections, are left out.",
                "A change of speed: each step is compared with those around it.",
                *(("Larger batches: step time does not follow their size.",) if is_known else ()),
            ),
            remedies=remedies,
            tries=tries,
            estimate=estimate,
            how=f"Steps above {self.ratio:g} times the median of the steps around them: their time less that "
            "median, divided by the time of all steps. The phase is the one that has grown most in them.",
        )


def _evidence(slow: _SlowSteps, interval: int | None, phase: str | None, part: float) -> tuple[Evidence, ...]:
    count, usual = int(slow.is_slow.sum()), float(np.median(slow.usual))
    each, left_out = float(slow.excess.sum()) / count, float(slow.known[slow.is_slow].sum())
    evidence = [
        Evidence("slow steps", f"{count:,}", f"{percent(count / len(slow.is_slow))} of all"),
        Evidence("a slow step", seconds(usual + each), f"a usual step takes {seconds(usual)}"),
        Evidence("steps between them", f"{interval:,}" if interval else "irregular"),
    ]
    if phase:
        evidence.append(Evidence(within(phase), percent(part), "of the time they lose"))
    if left_out:
        evidence.append(Evidence("left out", seconds(left_out), "checkpoints, garbage collection"))
    return tuple(evidence)


def _line(window: Window, rank: RankWindow, steps: Ints) -> SampledLine | None:
    """Returns the line at which a slow step was found blocked."""
    samples = [samples for samples in blocked_samples(window, rank.rank) if samples.step in steps]
    lines = samples[-1].lines_in(*PHASES) if samples else []
    return lines[0] if lines and lines[0].share >= MOST else None


def _phase(rank: RankWindow, slow: _SlowSteps) -> tuple[str | None, float]:
    """Returns the phase with most of the excess, and its part; None where no phase has half of it."""
    chosen = rank.where(STEP_SECONDS)
    parts = []
    for name in PHASES:
        key = phase_key(name)
        if name == "checkpoint" or key not in rank.columns:
            continue
        is_timed = rank.columns[key].finite[chosen]
        values, timed_slow = seconds_within(rank, name)[chosen], is_timed & slow.is_slow
        longer, usual = float(slow.excess[timed_slow].sum()), values[is_timed & ~slow.is_slow]
        if timed_slow.sum() >= 3 and longer > 0 and len(usual):
            parts.append((float((values[timed_slow] - np.median(usual)).sum()) / longer, name))
    part, phase = max(parts, default=(0.0, ""))
    return (phase, min(part, 1.0)) if part >= 0.5 else (None, 0.0)


def _interval(steps: Ints, excess: Floats) -> int | None:
    """Returns how many steps are between slow ones, except the least slow, if that is nearly constant."""
    main = steps[excess >= 0.5 * excess.mean()]
    gaps = np.diff(main)
    gaps = gaps[gaps > 1]
    if len(gaps) < 2:
        return None
    usual = float(np.median(gaps))
    is_regular = float((np.abs(gaps - usual) <= max(1.0, 0.05 * usual)).mean()) >= 0.8
    return round(usual) if is_regular else None


def _reason(rank: RankWindow, window: Window, slow: _SlowSteps, phase: str | None) -> str:
    """Returns what explains slow steps and is no finding of its own; empty if nothing does."""
    if _have_more_work(rank, slow):
        return "have larger batches"
    waiting = waiting_share(rank, window)
    if waiting >= CONTENTION * slow.share and slow.interval is None:
        return (
            f"cost {percent(slow.share)} of step time at odd times, and the training thread waits for a "
            f"processor {percent(waiting)} of the time"
        )
    return "wait for data, as most steps do" if phase == "data" and _waits_often(rank) else ""


def _have_more_work(rank: RankWindow, slow: _SlowSteps) -> bool:
    """Whether the batches of slow steps are larger, or step time follows the size of batches.

    Sizes are recorded in some steps only, and may be unknown for the slow ones.
    """
    key = rank.first_of(BATCH_SIZES)
    if key is None:
        return False
    is_slow = np.zeros(len(rank.steps), bool)
    is_slow[rank.where(STEP_SECONDS)] = slow.is_slow
    column = rank.columns[key]
    among_slow, others = column.values[column.finite & is_slow], column.values[column.finite & ~is_slow]
    if len(among_slow) >= 3 and len(others):
        return float(np.median(among_slow)) >= MORE_WORK * float(np.median(others))
    sizes, taken = rank.aligned(key, STEP_SECONDS)
    is_varying = len(sizes) >= 10 and np.ptp(sizes) > 0.05 * np.abs(np.median(sizes))
    return bool(is_varying) and float(np.corrcoef(sizes, taken)[0, 1]) >= FOLLOWS


def _idle(rank: RankWindow, window: Window, total: float) -> float:
    """Returns the share of time in which a GPU may have waited; 1 where no GPU is in use.

    The host runs ahead of a GPU until it reads a result: that step seems to take the time of many.
    """
    if DEVICE_STEP in rank.columns:
        (taken,) = rank.aligned(DEVICE_STEP)
        if len(taken) >= 20:
            return max(1 - float(np.median(taken)) * int(rank.where(STEP_SECONDS).sum()) / total, 0.0)
    if not any(figures.values.max() > 0 for figures in window.figures(GPU_MEMORY, rank.host, rank.rank)):
        return 1.0
    busy = [float(figures.values.mean()) for figures in window.figures(GPU_BUSY, rank.host)]
    return 1 - min(busy) if busy else 0.0


def _waits_often(rank: RankWindow) -> bool:
    """Whether steps wait for data in most blocks of them, which `input.exposed_wait` reports."""
    waited, taken = rank.aligned(DATA, STEP_SECONDS)
    shares = block_shares(waited, taken, block_edges(len(waited), 10, 5))
    return float(np.median(shares)) >= WAITS_OFTEN and float(np.quantile(shares, 0.25)) >= 0.5 * WAITS_OFTEN


def _advice(
    rank: RankWindow, window: Window, phase: str | None, estimate: Estimate
) -> tuple[tuple[Remedy, ...], tuple[str, ...]]:
    """Returns remedies, and the same as short hints."""
    libraries = window.libraries(rank.rank)
    if phase == "data":
        loader = loader_of(window, rank.rank) or {}
        workers = int(loader.get("num_workers") or 0)
        # Workers that stay alive already would not start faster.
        proposed = None if workers and loader.get("persistent_workers") else max(workers, 2)
        plan = LoaderPlan(workers, None, proposed, None, estimate)
        remedies = loader_remedies(plan, loader, libraries, has_gpu=False)
        return (*remedies, Remedy("Look for samples that take long.")), loader_tries(plan, loader)
    if phase in (None, "other"):
        text = "Print, log, plot and write files less often."
        return remedies_in(libraries, text, RARER), ("log less often",)
    remedy = ADVICE["forward" if phase == "backward" else phase]
    return (remedy,), ("fewer shapes" if remedy.code == ALIKE else f"look at {phase} of these steps",)
