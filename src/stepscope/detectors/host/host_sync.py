"""Detects a phase in which the host waits for the GPU at every step, so that the GPU is idle afterwards."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, NamedTuple

import numpy as np

from stepscope.analysis.gpu.gpu_load import DEVICE_STEP, LAGS, LOAD_EVENTS, LOAD_KEYS, MIN_STEPS, load_of
from stepscope.analysis.gpu.half_precision import SKIPPED, is_half
from stepscope.analysis.stack_samples import line_in
from stepscope.analysis.wording import percent, seconds
from stepscope.config.bounds import Range
from stepscope.detectors.base import Detector, TooLittleEvidence
from stepscope.schema.finding import Chart, Estimate, Evidence, Finding, Remedy, severity_of
from stepscope.schema.keys import STACKS_EVENT, phase_key

if TYPE_CHECKING:
    from stepscope.analysis.gpu.gpu_load import GpuLoad
    from stepscope.analysis.stack_samples import SampledLine
    from stepscope.schema.window import RankWindow, Window

SETUP_EVENT = "census"

ORDER = ("forward", "backward", "optimizer", "other")
"""Phases in which a wait is looked for, with the one before; those for data and copies are other checks."""

PLACES = {
    "forward": "in the forward pass",
    "backward": "in the backward pass",
    "optimizer": "in the optimizer's step",
    "other": "in the loop, outside the model and the optimizer",
}

LOG_LESS = Remedy(
    "Read values of the GPU rarely. Sum losses on the GPU, and read the sum when it is logged.",
    "total += loss.detach()                     # stays on the GPU\n"
    "if step % 50 == 0:\n"
    "    print(total.item() / 50)\n"
    "    total.zero_()",
    "PyTorch",
)
LOG_TENSOR = Remedy(
    "Log the tensor itself: it is copied without waiting.",
    "monitor.log_training_step(loss=loss)       # instead of loss.item()",
    "PyTorch",
)
IN_MODEL = Remedy(
    "Keep decisions on the GPU: `torch.where` instead of `if tensor`, sizes as Python numbers, no "
    "`nonzero` or index by a mask where a product does."
)
FIND = Remedy(
    "Find the line: PyTorch warns at each operation that waits for the GPU.",
    'torch.cuda.set_sync_debug_mode("warn")',
    "PyTorch",
)


LEFT = 0.2
"""The most that remains of a lag that has collapsed."""

WAITED = 0.7
"""The lag explains at least this share of the host's time in the phase: it waited, and did not work."""


class _Collapse(NamedTuple):
    """A phase that the GPU enters behind the host, and leaves with it."""

    phase: str
    before_s: float
    """Median lag at the end of the phase before it."""
    after_s: float
    share: float
    """Share of timed steps in which the lag collapses there."""


@dataclass(frozen=True)
class HiddenSync(Detector):
    """Compares how far the GPU is behind the host before and after each phase."""

    id: ClassVar[str] = "host.sync"
    title: ClassVar[str] = "The host waits for the GPU in every step"
    sentence: ClassVar[str] = (
        "in the same phase of most steps, the lag of the GPU collapses to zero, and the GPU is then idle "
        "for a share of the step"
    )
    requires: ClassVar[tuple[tuple[str, ...], ...]] = ((DEVICE_STEP,), tuple(LAGS.values()))
    reads: ClassVar[tuple[str, ...]] = (*LOAD_KEYS, *SKIPPED)
    events: ClassVar[tuple[str, ...]] = (SETUP_EVENT, STACKS_EVENT, *LOAD_EVENTS)
    min_steps: ClassVar[int] = MIN_STEPS
    for_each_rank: ClassVar[bool] = False
    is_optional: ClassVar[bool] = True

    collapse: Annotated[float, Range(0.01, 1)] = 0.1
    """Minimum lag before the phase, as a share of the step; after it, almost nothing remains."""

    agreement: Annotated[float, Range(0.5, 1)] = 0.5
    """Minimum share of timed steps in which it collapses in that phase."""

    share: Annotated[float, Range(0, 1)] = 0.02
    """Minimum share of the step that could be saved."""

    def examine(self, rank: RankWindow, window: Window) -> Finding | str:
        """Looks for the collapse, then computes what it costs."""
        load = load_of(rank, window)
        if load is None:
            return TooLittleEvidence("Needs more steps that were timed on the GPU.")
        collapses = [collapse for phase in ORDER if (collapse := self._collapse(rank, phase)) is not None]
        if not collapses:
            return "The lag of the GPU collapses in no phase."
        worst = max(collapses, key=lambda collapse: collapse.before_s)
        if worst.phase == "optimizer" and (is_half(rank, window) or rank.first_of(SKIPPED)):
            return "A loss scaler waits for the GPU in the optimizer's step, which it has to."
        if load.utilization is None:
            return TooLittleEvidence("Needs readings of the GPU: whether it is idle after the wait.")
        # Without the wait, a step takes as long as the host works or the GPU computes, whichever is longer.
        waited = min(worst.before_s / load.step_s, 1.0)
        saved = max(min(waited, 1 - load.utilization), 0.0)
        if saved < self.share:
            return (
                f"The host waits {PLACES[worst.phase]}, but the GPU is idle {percent(1 - load.utilization)}."
            )
        line = line_in(window, rank.rank, worst.phase, kind="sync") or line_in(window, rank.rank, worst.phase)
        return self._finding(rank, load, worst, saved, line)

    def _collapse(self, rank: RankWindow, phase: str) -> _Collapse | None:
        """Returns the collapse of the lag in a phase, if there is one in enough steps."""
        earlier = ORDER[: ORDER.index(phase)][::-1] or ("transfer", "data")
        before = next((LAGS[name] for name in earlier if LAGS[name] in rank.columns), None)
        if before is None or not rank.has(LAGS[phase], phase_key(phase)):
            return None
        lag, left, host, step = rank.aligned(before, LAGS[phase], phase_key(phase), DEVICE_STEP)
        # A host that starts many kernels is caught up with, too, but the lag is a small part of that time.
        collapses = (lag >= self.collapse * step) & (left <= LEFT * lag) & (lag >= WAITED * host)
        if len(lag) < MIN_STEPS or collapses.mean() < self.agreement:
            return None
        return _Collapse(
            phase,
            float(np.median(lag[collapses])),
            float(np.median(left[collapses])),
            float(collapses.mean()),
        )

    def _finding(
        self, rank: RankWindow, load: GpuLoad, worst: _Collapse, saved: float, line: SampledLine | None
    ) -> Finding:
        first, last = int(rank.steps[0]), int(rank.steps[-1])
        place = PLACES[worst.phase]
        before, after = seconds(worst.before_s), seconds(worst.after_s)
        return Finding(
            id=self.id,
            title=self.title,
            headline=f"The host waits for the GPU {place} of {percent(worst.share)} of the steps, and the "
            f"GPU is idle {percent(1 - (load.utilization or 0.0))} of the time.",
            detail="Something there needs a value of the GPU: `.item()`, `.cpu()`, `print`, a condition on "
            "a tensor. Until the host has started new kernels, the GPU has nothing to do.",
            severity=severity_of(saved / 2),
            confidence=round(min(0.9, 0.9 * worst.share), 2),
            share=saved / 2,
            first_step=first,
            last_step=last,
            first_time=float(rank.times[0]),
            last_time=float(rank.times[-1]),
            where="" if line is None else line.place,
            evidence=(
                *(() if line is None else (line.evidence(),)),
                Evidence("lag before", before, f"of a step of {seconds(load.step_s)}"),
                Evidence("lag after", after, f"in {percent(worst.share)} of {load.steps:,} timed steps"),
                *load.evidence,
            ),
            chart=Chart((*LAGS.values(), DEVICE_STEP), first, last),
            ruled_out=("A wait that costs nothing: the GPU is idle for a part of the step.",),
            remedies=(IN_MODEL, FIND)
            if worst.phase in ("forward", "backward")
            else (LOG_LESS, LOG_TENSOR, FIND),
            tries=("no .item() in every step",),
            estimate=Estimate(0.0, round(saved / 2, 3), round(saved, 3)),
            how="The lag is the time by which the GPU passes a boundary after the host. Without the wait, "
            "host and "
            "GPU work at the same time: at most the shorter of the wait and the idle time of the GPU is "
            "saved.",
            refs=("https://pytorch.org/docs/stable/notes/cuda.html#asynchronous-execution",),
        )
