"""The tiles of throughput and step time: how fast and even the steps are, compared with the start."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from stepscope.analysis.change_points import warm_up_length
from stepscope.number_format import number
from stepscope.schema.keys import STEP_SECONDS
from stepscope.steps.evidence.batch_contents import SAMPLES, TOKENS
from stepscope.views.compare.compared_run import ComparedRun
from stepscope.views.formatting import comparison, duration, is_many_times, rate
from stepscope.views.json_values import clean, finites
from stepscope.views.overview.tile import Change, Tile, state_of_finding, unknown_tile
from stepscope.views.run_figures import SPARKS, spark_of
from stepscope.views.steps.workload import BATCH_SIZE, SAMPLES_PER_STEP

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from stepscope.views.overview.tile import State
    from stepscope.views.run_context import RunContext
    from stepscope.views.steps.step_values import StepValues

MAX_COMPARED = 200
"""Maximum number of steps at the start, after the warm-up, and at the end that are compared."""

MIN_COMPARED = 20
MIN_JUDGED = 20
"""With fewer steps the 95th percentile is not meaningful."""

SLOWDOWN, STRAGGLER = "step.creep", "dist.straggler"
"""The checks that judge whether steps slow down, and whether a rank is late."""

MAX_NOISE = 0.05
"""A smaller relative change is noise."""

MIN_UNEVEN_RATIO = 2.0
"""A 95th percentile of this many medians is a warning."""

MIN_LATE_RATIO = 0.1
"""A rank that is slower than the median of all ranks by this ratio is mentioned."""

NO_STEPS = "no steps are known"
TOO_FEW = "too few steps to judge"


def throughput_tile(context: RunContext) -> Tile:
    """Returns the tile of samples and tokens per second; steps per second if the batch size is not known."""
    steps_per_second, title = context.figures.steps_per_second, "Throughput"
    first = context.first_rank_seconds
    if first is None or not steps_per_second:
        if context.run.status == "stalled":
            return unknown_tile("throughput", title, "no steps at the moment")
        return unknown_tile("throughput", title, NO_STEPS if first is None else TOO_FEW)
    per_step = work_per_step(context)
    rates = [rate(steps_per_second * count, unit) for unit, count in per_step.items()]
    detail = [*rates[1:], *([_step_rate_text(steps_per_second)] if rates else [])]
    detail.append(f"p50 {duration(float(np.median(ComparedRun(context).seconds)))} a step")
    change = change_of(first)
    state, state_text = _change_state(change)
    slowdown = context.findings.get(SLOWDOWN)
    if slowdown is not None:
        state, state_text = state_of_finding(slowdown), clean(slowdown.get("headline"), 300)
    return Tile(
        "throughput",
        title,
        rates[0] if rates else _step_rate_text(steps_per_second),
        tuple(detail),
        state,
        state_text,
        _step_rate_spark(context),
        change,
        _chart(context),
    )


def step_time_tile(context: RunContext) -> Tile:
    """Returns the tile of median and tail of step times, with the slowest rank."""
    medians = {
        rank: float(np.median(_warm(seconds_of_rank)))
        for rank, seconds_of_rank in context.step_seconds.items()
        if len(seconds_of_rank)
    }
    first = context.first_rank_seconds
    if first is None:
        return unknown_tile("step_time", "Step time", NO_STEPS)
    seconds = ComparedRun(context).seconds
    p50, p95, p99 = np.percentile(seconds, [50, 95, 99]).tolist()
    detail = [f"p95 {duration(p95)} · p99 {duration(p99)}"]
    state: State = "ok"
    state_text = "even"
    if len(seconds) < MIN_JUDGED:
        detail, state, state_text = [], "unknown", TOO_FEW
    elif p95 > MIN_UNEVEN_RATIO * p50 > 0:
        state, state_text = "warn", f"uneven: p95 is {number(p95 / p50, 2)} × p50"
    if len(medians) > 1:
        worst = max(medians, key=lambda rank: medians[rank])
        middle = float(np.median(list(medians.values())))
        excess = medians[worst] / middle - 1 if middle > 0 else 0.0
        if excess >= MAX_NOISE:
            detail.append(
                f"slowest rank {worst}: {duration(medians[worst])} ({comparison(excess, 'slower', 'faster')})"
            )
        if excess > MIN_LATE_RATIO and state == "ok":
            state, state_text = (
                "none",
                f"rank {worst} is {comparison(excess, 'slower', 'faster')} than the median of all",
            )
    straggler = context.findings.get(STRAGGLER)
    if straggler is not None:
        state, state_text = state_of_finding(straggler), f"the others wait for rank {straggler.get('rank')}"
    return Tile(
        "step_time",
        "Step time",
        duration(p50),
        tuple(detail),
        state,
        state_text,
        _step_spark(context),
        None,
        _chart(context),
    )


def change_of(seconds: StepValues) -> Change | None:
    """Compares the speed of the last steps with the first ones after the warm-up; None for too few steps."""
    values = _warm(seconds)
    compared = min(MAX_COMPARED, len(values) // 2)
    if compared < MIN_COMPARED:
        return None
    before, now = float(np.median(values[:compared])), float(np.median(values[-compared:]))
    if before <= 0 or now <= 0:
        return None
    ratio = before / now - 1
    start = f"its first {compared} steps after warm-up"
    if abs(ratio) < MAX_NOISE:
        return Change(ratio, f"as fast as {start}")
    if ratio >= 1 and not is_many_times(ratio):
        return Change(ratio, f"{number(1 + ratio, 2)} times as fast as {start}")
    return Change(ratio, f"{comparison(ratio, 'faster', 'slower')} than {start}")


def _change_state(change: Change | None) -> tuple[State, str]:
    if change is None:
        return "unknown", "too few steps to compare with the start"
    # Whether slower steps are a problem is decided by the check for them.
    return ("none" if change.ratio <= -MAX_NOISE else "ok"), change.text


def work_per_step(context: RunContext) -> dict[str, float]:
    """Returns samples and tokens per step of all ranks together, as far as they are known."""
    per_step = {}
    for unit, keys in (("samples", (BATCH_SIZE, SAMPLES_PER_STEP, SAMPLES)), ("tokens", (TOKENS,))):
        key = next((candidate for candidate in keys if context.summaries.logged(candidate)), None)
        if key is None:
            continue
        ranks = [None] if key == SAMPLES_PER_STEP else context.summaries.ranks(key)
        means = []
        for rank in ranks:
            series = (
                context.summaries.by_first_rank(key) if rank is None else context.summaries.logged(key, rank)
            )
            values = sum(summary.finite for summary in series)
            means += [sum(summary.total for summary in series) / values] if values else []
        if sum(means) > 0:
            per_step[unit] = sum(means)
    return per_step


def _warm(seconds: StepValues) -> NDArray[np.float64]:
    return seconds.values[warm_up_length(seconds.values) :]


def _step_rate_text(steps_per_second: float) -> str:
    if steps_per_second >= 0.1:
        return rate(steps_per_second, "steps")
    return f"{duration(1 / steps_per_second)} a step"


def _chart(context: RunContext) -> str | None:
    return STEP_SECONDS if context.summaries.logged(STEP_SECONDS) else context.summaries.step_key()


def _step_spark(context: RunContext) -> tuple[float | None, ...]:
    if not context.summaries.logged(STEP_SECONDS):
        return ()
    rank = context.summaries.ranks(STEP_SECONDS)[0]
    return spark_of(context.run.buckets(STEP_SECONDS, SPARKS, rank=rank, device="", axis="step"))


def _step_rate_spark(context: RunContext) -> tuple[float | None, ...]:
    return finites(1 / seconds if seconds else None for seconds in _step_spark(context))
