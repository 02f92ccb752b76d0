"""Detects a GPU that waits for the host to start its kernels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

import numpy as np

from stepscope.analysis.gpu.gpu_load import DEVICE_STEP, LAGS, LOAD_EVENTS, LOAD_KEYS, MIN_STEPS, load_of
from stepscope.analysis.phase_shares import device_shares
from stepscope.analysis.remedies import remedies_in
from stepscope.analysis.wording import percent, seconds
from stepscope.config.bounds import Range
from stepscope.detectors.base import Detector, TooLittleEvidence
from stepscope.schema.finding import Chart, Estimate, Evidence, Finding, Remedy, severity_of

if TYPE_CHECKING:
    from stepscope.analysis.gpu.gpu_load import GpuLoad
    from stepscope.schema.window import RankWindow, Window

SETUP_EVENT = "census"
CPU_RATIO = "host/cpu_ratio"
WORK = ("forward", "backward", "optimizer")
"""The phases in which the host does little else than start kernels."""

COMPILE = {
    "torch": 'model = torch.compile(model, mode="reduce-overhead")     # CUDA graphs; needs fixed shapes',
    "lightning": 'self.model = torch.compile(self.model, mode="reduce-overhead")     # in configure_model',
    "transformers": 'arguments = TrainingArguments(..., torch_compile_mode="reduce-overhead")',
}
LARGER = Remedy(
    "Use larger batches if memory allows: as many kernels then do more work. Adapt the learning rate."
)
FEWER = Remedy(
    "Start fewer kernels: a fused optimizer, fused attention, whole tensors instead of loops over their "
    "parts."
)


@dataclass(frozen=True)
class LaunchBound(Detector):
    """Compares the clocks of host and GPU at the ends of phases, and reads how busy GPU and host are."""

    id: ClassVar[str] = "gpu.launch_bound"
    title: ClassVar[str] = "The GPU waits for the host to start kernels"
    sentence: ClassVar[str] = (
        "at the end of the forward and backward pass and of the optimizer the GPU is never behind the "
        "host, these take most of the step, the training thread is busy, and the GPU is not"
    )
    requires: ClassVar[tuple[tuple[str, ...], ...]] = ((DEVICE_STEP,), (LAGS["forward"], LAGS["backward"]))
    reads: ClassVar[tuple[str, ...]] = (*LOAD_KEYS, CPU_RATIO)
    events: ClassVar[tuple[str, ...]] = (SETUP_EVENT, *LOAD_EVENTS)
    min_steps: ClassVar[int] = MIN_STEPS
    for_each_rank: ClassVar[bool] = False
    is_optional: ClassVar[bool] = True
    explains: ClassVar[tuple[str, ...]] = ("mem.headroom",)

    behind: Annotated[float, Range(0, 1)] = 0.03
    """Maximum lag of the GPU, as a share of the step; a lag of less than 200 µs always counts as none."""

    agreement: Annotated[float, Range(0.5, 1)] = 0.7
    """Minimum share of timed steps in which that is so at the end of all three phases."""

    work: Annotated[float, Range(0, 1)] = 0.5
    """Minimum share of the step in these phases."""

    busy_host: Annotated[float, Range(0, 1)] = 0.8
    """Minimum share of the time that the training thread is on a processor, and does not wait."""

    idle: Annotated[float, Range(0, 1)] = 0.1
    """Minimum share of the time in which no kernel runs."""

    def examine(self, rank: RankWindow, window: Window) -> Finding | str:
        """Compares the clocks, then looks for what contradicts it."""
        load = load_of(rank, window)
        if load is None or load.utilization is None or CPU_RATIO not in rank.columns:
            return TooLittleEvidence(
                f"Needs steps timed on the GPU, its readings, and {CPU_RATIO}: a lag alone does not tell "
                "that it is idle."
            )
        agreeing, idle = self._agreeing(rank), 1 - load.utilization
        if agreeing < self.agreement:
            return f"The GPU is behind the host in {percent(1 - agreeing)} of the timed steps: it has work."
        shares = device_shares(rank)
        work = sum(shares.get(phase, 0.0) for phase in WORK)
        if work < self.work:
            return f"Forward and backward pass and the optimizer take only {percent(work)} of the step."
        if idle < self.idle or load.limits_steps:
            return f"No kernel runs only {percent(idle)} of the time."
        setups = window.events_of(SETUP_EVENT, rank.rank)
        setup = setups[-1].fields if setups else {}
        on_cpu = float(np.nanmedian(rank.columns[CPU_RATIO].values))
        if on_cpu < self.busy_host or (setup.get("environment") or {}).get("CUDA_LAUNCH_BLOCKING") == "1":
            return f"The host waits: the training thread runs {percent(on_cpu)} of the time."
        estimate = Estimate(0.0, round(min(idle, work) / 2, 3), round(min(idle, work), 3))
        evidence = (
            Evidence("GPU has caught up", percent(agreeing), "of the timed steps, at the end of each phase"),
            Evidence("training thread runs", percent(on_cpu), "of the time"),
            *load.evidence,
        )
        compile_it = remedies_in(window.libraries(rank.rank), "Compile the model, with CUDA graphs.", COMPILE)
        remedies = (*(() if setup.get("compiled") else compile_it), LARGER, FEWER)
        return self._finding(rank, load, evidence, remedies, estimate)

    def _agreeing(self, rank: RankWindow) -> float:
        """Returns in which share of timed steps the GPU has caught up at the end of each phase of work."""
        keys = [LAGS[phase] for phase in WORK if LAGS[phase] in rank.columns]
        chosen = rank.where(DEVICE_STEP, *keys)
        if not chosen.any():
            return 0.0
        limits = np.maximum(self.behind * rank.columns[DEVICE_STEP].values[chosen], 2e-4)
        has_caught_up = [rank.columns[key].values[chosen] <= limits for key in keys]
        return float(np.all(has_caught_up, axis=0).mean())

    def _finding(
        self,
        rank: RankWindow,
        load: GpuLoad,
        evidence: tuple[Evidence, ...],
        remedies: tuple[Remedy, ...],
        estimate: Estimate,
    ) -> Finding:
        first, last = int(rank.steps[0]), int(rank.steps[-1])
        return Finding(
            id=self.id,
            title=self.title,
            headline=f"The GPU is idle {percent(1 - (load.utilization or 0.0))} of the time because the host "
            "starts kernels more slowly than the GPU computes them.",
            detail=f"In a step of {seconds(load.step_s)} the GPU has finished as soon as the host has "
            "started its kernels. A faster GPU, or fewer bits, would not make the steps shorter.",
            severity=severity_of(estimate.likely),
            confidence=0.8,
            share=estimate.likely,
            first_step=first,
            last_step=last,
            first_time=float(rank.times[0]),
            last_time=float(rank.times[-1]),
            evidence=evidence,
            chart=Chart((LAGS["forward"], LAGS["backward"], DEVICE_STEP), first, last),
            ruled_out=(
                "Waits for data: the forward and backward pass and the optimizer take most of the step.",
                "A host that waits for something else: the training thread is on a processor.",
            ),
            remedies=remedies,
            tries=("torch.compile", "larger batches"),
            estimate=estimate,
            how="The step cannot become shorter than the time in which kernels run, which the driver "
            "reports: the "
            "estimate is from nothing to all of the idle time, at most the share of these phases.",
            refs=("https://pytorch.org/docs/stable/notes/cuda.html#cuda-graphs",),
        )
