"""Detects a GPU that is slowed down by heat or lack of power."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

import numpy as np

from stepscope.analysis.gpu.gpu_readings import GPU_EVENT, GPU_KEYS, gpus_of
from stepscope.analysis.wording import number, percent
from stepscope.config.bounds import Range
from stepscope.detectors.base import MachineDetector, TooLittleEvidence
from stepscope.schema.finding import Chart, Estimate, Evidence, Finding, Remedy, severity_of

if TYPE_CHECKING:
    from stepscope.analysis.gpu.gpu_readings import Gpu
    from stepscope.schema.finding import Severity
    from stepscope.schema.window import RankWindow, Window

CLOCK, TEMPERATURE, POWER = "gpu/sm_clock_hertz", "gpu/temperature_celsius", "gpu/power_watts"
REASONS = {
    "gpu/throttled_hardware_thermal": "the chip is too hot",
    "gpu/throttled_hardware_slowdown": "of heat or low power",
    "gpu/throttled_power_brake": "the machine's power supply is at its limit",
    "gpu/throttled_software_thermal": "the chip or its memory is hot",
}
"""The worst first. The power cap is not among them: a GPU at full load reaches it."""

MIN_READINGS = 10
MIN_THROTTLED = 3

COOLING = Remedy(
    "Check the cooling: fans, air filters, the temperature of the room, neighbours that blow hot air.",
    "nvidia-smi -q -d TEMPERATURE,PERFORMANCE,POWER",
)
LESS_POWER = Remedy(
    "Lower the power limit until the throttling stops. A steady lower clock is often faster than one that "
    "jumps.",
    "nvidia-smi -i 0 -pl 500                    # watts; as root",
)
OTHER_MACHINE = Remedy("Move the run to another machine, and report this one.")


@dataclass(frozen=True)
class Throttled(MachineDetector):
    """Counts readings at which the driver or the hardware had reduced the clocks of a GPU."""

    id: ClassVar[str] = "hw.throttle"
    title: ClassVar[str] = "A GPU is slowed down by heat or lack of power"
    sentence: ClassVar[str] = "in a share of the readings during steps, a GPU is throttled for heat or power"
    requires: ClassVar[tuple[tuple[str, ...], ...]] = (tuple(REASONS),)
    reads: ClassVar[tuple[str, ...]] = (CLOCK, TEMPERATURE, POWER, *GPU_KEYS)
    events: ClassVar[tuple[str, ...]] = (GPU_EVENT,)

    share: Annotated[float, Range(0.001, 1)] = 0.01
    """Minimum share of readings at which a GPU is throttled."""

    def examine(self, rank: RankWindow, window: Window) -> Finding | str:
        """Examines each GPU, and reports the one that is throttled most."""
        shares = []
        for gpu in gpus_of(window):
            for key in REASONS:
                values = gpu.figures[key].values if key in gpu.figures else np.empty(0)
                throttled = values > 0
                if len(values) >= MIN_READINGS:
                    enough = throttled.sum() >= MIN_THROTTLED
                    shares.append((float(throttled.mean()) if enough else 0.0, key, gpu))
        if not shares:
            return TooLittleEvidence(f"Needs at least {MIN_READINGS} readings of a GPU.")
        share, key, gpu = max(shares, key=lambda part: part[0])
        if share < self.share:
            return f"GPUs are throttled for heat or power in {percent(share)} of the readings."
        return self._finding(rank, window, gpu, key, share)

    def _finding(self, rank: RankWindow, window: Window, gpu: Gpu, key: str, share: float) -> Finding:
        lost = share * _slower(gpu, key)
        throttled = gpu.figures[key].values > 0
        readings = [
            Evidence(label, f"{number(float(np.median(values[throttled])), 3)} {unit}", "while throttled")
            for source, label, unit, scale in (
                (TEMPERATURE, "temperature", "°C", 1.0),
                (POWER, "power", "W", 1.0),
                (CLOCK, "clock", "MHz", 1e-6),
            )
            if source in gpu.figures
            for values in [gpu.at_times_of(source, key) * scale]
        ]
        return Finding(
            id=self.id,
            title=self.title,
            headline=f"{gpu.name} is throttled {percent(share)} of the time because {REASONS[key]}.",
            detail="It runs with lower clocks than it could. In a run on several GPUs, all others wait for "
            "it at every step.",
            severity=_severity(key, share, lost),
            confidence=min(0.95, 0.6 + 0.02 * int(throttled.sum())),
            share=lost or None,
            first_step=int(rank.steps[0]),
            last_step=int(rank.steps[-1]),
            first_time=float(rank.times[0]),
            last_time=float(rank.times[-1]),
            rank=gpu.rank if len(window.ranks) > 1 else None,
            device=gpu.device,
            evidence=(
                Evidence("throttled", percent(share), f"{throttled.sum()} of {len(throttled)} readings"),
                *readings,
            ),
            chart=Chart((key, *(name for name in (CLOCK, TEMPERATURE) if name in gpu.figures))),
            ruled_out=("The power limit: a GPU at full load reaches it, and that is not counted.",),
            remedies=(COOLING, LESS_POWER, OTHER_MACHINE),
            tries=("better cooling", "a lower power limit", "another machine"),
            estimate=Estimate(0.5 * lost, lost, min(1.5 * lost, 1.0), "the time of the run")
            if lost
            else None,
            how="The driver gives the reasons for reduced clocks at each reading. The lost time is the share "
            "of readings, times how much lower the clock is at them than at others with a busy GPU.",
            refs=("https://docs.nvidia.com/deploy/nvml-api/group__nvmlClocksEventReasons.html",),
        )


def _slower(gpu: Gpu, key: str) -> float:
    """By what share the clock is lower while throttled; 0 where there is nothing to compare with."""
    if CLOCK not in gpu.figures:
        return 0.0
    clocks, throttled, busy = gpu.at_times_of(CLOCK, key), gpu.figures[key].values > 0, gpu.is_busy(key)
    free = clocks[busy & ~throttled]
    if len(free) < MIN_THROTTLED:
        return 0.0
    return max(1 - float(np.median(clocks[throttled])) / float(np.median(free)), 0.0)


def _severity(key: str, share: float, lost: float) -> Severity:
    """How much it matters; hardware that protects itself is more than a slow clock."""
    if not key.endswith("software_thermal") and share >= 0.1:
        return "warning"
    return "notice" if severity_of(lost) == "info" else severity_of(lost)
