"""Detects another program that uses the GPU of a run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

import numpy as np

from stepscope.analysis.gpu.gpu_readings import GPU_EVENT, GPU_KEYS, OWN_MEMORY, UTILIZATION, gpus_of
from stepscope.analysis.wording import percent
from stepscope.config.bounds import Range
from stepscope.detectors.base import MachineDetector, TooLittleEvidence
from stepscope.number_format import size
from stepscope.schema.finding import Chart, Estimate, Evidence, Finding, Remedy, severity_of

if TYPE_CHECKING:
    from stepscope.analysis.gpu.gpu_readings import Gpu
    from stepscope.schema.window import Floats, RankWindow, Window

COUNT, USED, TOTAL = "gpu/process_count", "gpu/memory_used_bytes", "gpu/memory_total_bytes"
OWN_UTILIZATION = "gpu/process_utilization_ratio"
MIN_READINGS = 10

ADVICE = (
    Remedy(
        "See which programs use the GPU; a notebook or a crashed run may still hold it.",
        "nvidia-smi --query-compute-apps=pid,used_memory,name --format=csv",
    ),
    Remedy(
        "Choose a GPU that nobody uses, or ask the scheduler for a whole one.",
        "CUDA_VISIBLE_DEVICES=1 python train.py",
    ),
)


@dataclass(frozen=True)
class ForeignProcess(MachineDetector):
    """Compares the memory in use on a GPU with that of the run's own processes."""

    id: ClassVar[str] = "gpu.foreign"
    title: ClassVar[str] = "Another program uses the GPU"
    sentence: ClassVar[str] = (
        "in most readings, a process that is not of the run holds a share of the memory of its GPU"
    )
    requires: ClassVar[tuple[tuple[str, ...], ...]] = ((OWN_MEMORY,), (COUNT,), (USED,), (TOTAL,))
    reads: ClassVar[tuple[str, ...]] = (OWN_UTILIZATION, *GPU_KEYS)
    events: ClassVar[tuple[str, ...]] = (GPU_EVENT,)

    share: Annotated[float, Range(0.001, 1)] = 0.05
    """Minimum share of the memory of the GPU that others hold."""

    readings: Annotated[float, Range(0.01, 1)] = 0.5
    """Minimum share of the readings at which they do."""

    def examine(self, rank: RankWindow, window: Window) -> Finding | str:
        """Examines each GPU of the run, and reports the one of which others hold most."""
        known = [gpu for gpu in gpus_of(window) if gpu.own and gpu.figures.keys() >= {COUNT, USED, TOTAL}]
        known = [gpu for gpu in known if len(gpu.figures[USED].values) >= MIN_READINGS]
        if not known:
            return TooLittleEvidence(
                f"Needs at least {MIN_READINGS} readings of the GPU and of its processes."
            )
        held = {gpu.device: self._held(gpu) for gpu in known}
        gpu = max(known, key=lambda gpu: held[gpu.device])
        if held[gpu.device] < self.share:
            return "No other program holds much memory of the GPUs."
        return self._finding(rank, window, gpu, held[gpu.device])

    def _held(self, gpu: Gpu) -> float:
        """The share of memory that other processes hold; 0 where that is not usual."""
        foreign = _foreign_bytes(gpu) / (gpu.newest(TOTAL) or np.inf)
        # Some memory belongs to no process, so the number of processes must say the same.
        is_shared = gpu.at_times_of(COUNT, USED) > len(gpu.own)
        usual = float(((foreign >= self.share) & is_shared).mean()) >= self.readings
        return float(np.median(foreign[is_shared])) if usual else 0.0

    def _finding(self, rank: RankWindow, window: Window, gpu: Gpu, held: float) -> Finding:
        taken = _foreign_utilization(gpu, window)
        others = int(np.median(gpu.figures[COUNT].values)) - len(gpu.own)
        use = "" if taken is None else f" and computes {percent(taken)} of the time"
        lost = taken or 0.0
        return Finding(
            id=self.id,
            title=self.title,
            headline=f"Another program holds {percent(held)} of the memory of {gpu.name}{use}.",
            detail="While both have work, the GPU switches between them and each is slower. The memory that "
            "the other holds is not there for larger batches.",
            severity="notice" if severity_of(lost) == "info" else severity_of(lost),
            confidence=0.85 if taken else 0.7,
            share=taken,
            first_step=int(rank.steps[0]),
            last_step=int(rank.steps[-1]),
            first_time=float(rank.times[0]),
            last_time=float(rank.times[-1]),
            rank=gpu.rank if len(window.ranks) > 1 else None,
            device=gpu.device,
            evidence=(
                Evidence("memory of others", size(float(np.median(_foreign_bytes(gpu)))), percent(held)),
                Evidence("processes", f"{others + len(gpu.own)}", f"{len(gpu.own)} of this run"),
                *([] if taken is None else [Evidence("computing of others", percent(taken))]),
            ),
            chart=Chart((UTILIZATION, USED, OWN_MEMORY)),
            ruled_out=("Processes that the run has started: their memory counts as its own.",),
            remedies=ADVICE,
            tries=("end the other program", "another GPU"),
            estimate=Estimate(0.0, 0.5 * lost, lost, "the time of the run") if lost else None,
            how="The driver gives the memory and the processes of the GPU; the memory of the run's processes "
            "is subtracted.",
            refs=("https://docs.nvidia.com/deploy/mps/index.html",),
        )


def _foreign_bytes(gpu: Gpu) -> Floats:
    """The memory that is not of the run, at each reading."""
    used = gpu.figures[USED]
    own = sum(np.interp(used.times, figures.times, figures.values) for figures in gpu.own)
    foreign: Floats = used.values - own
    return foreign


def _foreign_utilization(gpu: Gpu, window: Window) -> float | None:
    """The share of time in which only kernels of others ran, at least; None where it is not known."""
    own = [
        figures
        for figures in window.machine
        if figures.key == OWN_UTILIZATION and figures.device == gpu.device and len(figures.values)
    ]
    if not own or UTILIZATION not in gpu.figures:
        return None
    everything = float(np.mean(gpu.figures[UTILIZATION].values))
    return max(everything - sum(float(np.mean(figures.values)) for figures in own), 0.0)
