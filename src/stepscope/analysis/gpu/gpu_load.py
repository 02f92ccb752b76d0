"""Tells how busy the GPU of a rank is, from its lag behind the host and from its own readings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from stepscope.analysis.gpu.gpu_readings import GPU_EVENT, GPU_KEYS, UTILIZATION, gpus_of
from stepscope.analysis.phase_shares import device_shares
from stepscope.analysis.steady import SHORTEST_S
from stepscope.schema.finding import Evidence
from stepscope.schema.keys import PHASES, RANK_WAIT_SECONDS, device_key

if TYPE_CHECKING:
    from stepscope.schema.window import Floats, RankWindow, Window

LAGS = {phase: f"lag/{phase}_seconds" for phase in PHASES}
"""How far the GPU is behind the host at the end of each phase."""

DEVICE_STEP = device_key("step")
SM_ACTIVE, TENSOR_ACTIVE, DRAM_ACTIVE = (
    "gpu/sm_active_ratio",
    "gpu/tensor_active_ratio",
    "gpu/dram_active_ratio",
)
POWER, POWER_LIMIT = "gpu/power_watts", "gpu/power_limit_watts"
LOAD_KEYS = (
    *LAGS.values(),
    *GPU_KEYS,
    SM_ACTIVE,
    TENSOR_ACTIVE,
    DRAM_ACTIVE,
    POWER,
    POWER_LIMIT,
    RANK_WAIT_SECONDS,
)
"""Keys that a detector must read for `load_of` to work."""

LOAD_EVENTS = (GPU_EVENT,)

MIN_STEPS = 8
"""Minimum number of steady steps that were timed on the GPU."""

MIN_READINGS = 5

BEHIND = 0.5
"""The GPU limits the steps if it is behind the host by this share of a step, or more."""

FULL, ALMOST_ALWAYS, MUCH_POWER = 0.8, 0.9, 0.6
"""It also does if so many of its compute units are active; or, where this is not read, if kernels run for
this share of the time and draw this share of the highest power: small kernels draw little."""

IDLE = 0.7
"""A GPU with a lower utilization does not limit the steps, whatever the lag."""


@dataclass(frozen=True)
class GpuLoad:
    """How busy the GPU of a rank is in steady steps."""

    steps: int
    """How many were timed on the GPU."""
    step_s: float
    """Their median time."""
    behind: float
    """How far the GPU is behind the host at most in a median step, as a share of its time, at most 1."""
    compute: float
    """Share of the time in the forward and backward pass, without waits for other ranks."""
    utilization: float | None
    sm_active: float | None
    tensor_active: float | None
    dram_active: float | None
    power: float | None
    """Share of the highest power. Readings are medians, and None where they are not known."""

    @property
    def limits_steps(self) -> bool:
        """Whether the steps take as long as the GPU computes; the host would be faster."""
        if self.utilization is not None and self.utilization < IDLE:
            return False
        if self.behind >= BEHIND:
            return True
        if self.sm_active is not None:
            return self.sm_active >= FULL
        if self.utilization is None or self.power is None:
            return False
        return self.utilization >= ALMOST_ALWAYS and self.power >= MUCH_POWER

    @property
    def evidence(self) -> tuple[Evidence, ...]:
        """The lag and the readings that are known."""
        readings = (
            ("GPU utilization", self.utilization, "share of time with a kernel"),
            ("compute units active", self.sm_active, ""),
            ("tensor cores active", self.tensor_active, ""),
            ("power", self.power, "of the limit"),
        )
        return (
            Evidence("GPU behind the host", f"{self.behind:.0%}", f"of a step, {self.steps:,} steps timed"),
            *(Evidence(label, f"{value:.0%}", note) for label, value, note in readings if value is not None),
        )


def load_of(rank: RankWindow, window: Window) -> GpuLoad | None:
    """Returns how busy the GPU of a rank is; None if too few steps were timed on it."""
    if DEVICE_STEP not in rank.columns:
        return None
    lags = [key for key in LAGS.values() if key in rank.columns]
    chosen = rank.where(DEVICE_STEP) & (rank.columns[DEVICE_STEP].values > SHORTEST_S)
    taken = rank.columns[DEVICE_STEP].values[chosen]
    if len(taken) < MIN_STEPS or not lags:
        return None
    most = np.nanmax(np.stack([np.nan_to_num(rank.columns[key].values[chosen]) for key in lags]), axis=0)
    shares = device_shares(rank)
    compute = shares.get("forward", 0.0) + shares.get("backward", 0.0) - _wait_share(rank, taken, chosen)
    readings = {key: median_reading(rank, window, key) for key in LOAD_KEYS if key.startswith("gpu/")}
    power, limit = readings[POWER], readings[POWER_LIMIT]
    return GpuLoad(
        steps=len(taken),
        step_s=float(np.median(taken)),
        behind=float(np.median(np.minimum(most / taken, 1.0))),
        compute=max(compute, 0.0),
        utilization=readings[UTILIZATION],
        sm_active=readings[SM_ACTIVE],
        tensor_active=readings[TENSOR_ACTIVE],
        dram_active=readings[DRAM_ACTIVE],
        power=power / limit if power is not None and limit else None,
    )


def median_reading(rank: RankWindow, window: Window, key: str) -> float | None:
    """Returns the median reading of the rank's GPU; None if it is not known, or which GPU is the rank's."""
    gpus = [gpu for gpu in gpus_of(window) if key in gpu.figures]
    own = [gpu for gpu in gpus if gpu.rank == rank.rank] or gpus
    if len(own) != 1 or len(own[0].figures[key].values) < (1 if key == POWER_LIMIT else MIN_READINGS):
        return None
    return float(np.median(own[0].figures[key].values))


def _wait_share(rank: RankWindow, taken: Floats, chosen: np.ndarray) -> float:
    """Returns the share of the time in which the backward pass waits for other ranks."""
    if RANK_WAIT_SECONDS not in rank.columns:
        return 0.0
    waits = np.nan_to_num(rank.columns[RANK_WAIT_SECONDS].values[chosen])
    return float(waits.sum() / taken.sum())
