"""Detects a GPU whose link to the machine is slower than it could be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

import numpy as np

from stepscope.analysis.gpu.gpu_readings import GPU_EVENT, GPU_KEYS, gpus_of
from stepscope.analysis.wording import percent
from stepscope.config.bounds import Range
from stepscope.detectors.base import MachineDetector, TooLittleEvidence
from stepscope.number_format import size
from stepscope.schema.finding import Chart, Evidence, Finding, Remedy

if TYPE_CHECKING:
    from collections.abc import Callable

    from stepscope.analysis.gpu.gpu_readings import Gpu
    from stepscope.schema.window import RankWindow, Window

GENERATION, WIDTH = "gpu/pcie_generation", "gpu/pcie_width"
MOST = {GENERATION: "gpu/pcie_generation_most", WIDTH: "gpu/pcie_width_most"}
RECEIVED, SENT, REPLAYS = (
    "gpu/pcie_received_bytes_per_second",
    "gpu/pcie_sent_bytes_per_second",
    "gpu/pcie_replays_total",
)
LANE_BYTES = {1: 0.25e9, 2: 0.5e9, 3: 0.985e9, 4: 1.969e9, 5: 3.938e9, 6: 7.563e9}
"""What a lane carries in a second in one direction, by generation."""

MIN_BUSY = 3
HEAVY_USE = 0.3
"""Traffic of this share of the link makes it likely that steps wait for it."""

ADVICE = (
    Remedy("Look whether the board sits properly, and in a slot with all lanes; a riser often has fewer."),
    Remedy(
        "Look at the settings of the BIOS for the speed of the slot, and at the log for errors of the link.",
        "nvidia-smi -q -d PERFORMANCE && sudo lspci -vv | grep -A40 NVIDIA | grep LnkSta",
    ),
    Remedy("Until then keep transfers few and large: pinned memory, and batches that stay on the GPU."),
)


@dataclass(frozen=True)
class SlowLink(MachineDetector):
    """Compares the speed of the link with the highest that board and slot allow, while the GPU is busy."""

    id: ClassVar[str] = "hw.pcie"
    title: ClassVar[str] = "A GPU's link to the machine is slower than it could be"
    sentence: ClassVar[str] = (
        "while a GPU is busy, its PCI Express link has fewer lanes or a lower generation than board and slot "
        "allow"
    )
    requires: ClassVar[tuple[tuple[str, ...], ...]] = ((GENERATION, WIDTH), tuple(MOST.values()))
    reads: ClassVar[tuple[str, ...]] = (RECEIVED, SENT, REPLAYS, *GPU_KEYS)
    events: ClassVar[tuple[str, ...]] = (GPU_EVENT,)

    share: Annotated[float, Range(0.01, 1)] = 0.8
    """Minimum share of readings of a busy GPU at which the link is slow."""

    def examine(self, rank: RankWindow, window: Window) -> Finding | str:
        """Examines each GPU, and reports the one with the slowest link."""
        checked = [(gpu, key) for gpu in gpus_of(window) for key in MOST if _is_known(gpu, key)]
        if not checked:
            return TooLittleEvidence(f"Needs at least {MIN_BUSY} readings of a busy GPU.")
        slow = [
            (_now(gpu, key) / _most(gpu, key), gpu)
            for gpu, key in checked
            if (gpu.figures[key].values < _most(gpu, key))[gpu.is_busy(key)].mean() >= self.share
        ]
        if not slow:
            return "The links of busy GPUs are as fast as board and slot allow."
        return self._finding(rank, window, min(slow, key=lambda pair: pair[0])[1])

    def _finding(self, rank: RankWindow, window: Window, gpu: Gpu) -> Finding:
        link, best = _link(gpu, _now), _link(gpu, _most)
        capacity = LANE_BYTES.get(int(_now(gpu, GENERATION)), 0.0) * _now(gpu, WIDTH)
        traffic = max(
            (float(np.median(gpu.figures[key].values)) for key in (RECEIVED, SENT) if key in gpu.figures),
            default=0.0,
        )
        use = traffic / capacity if capacity else 0.0
        return Finding(
            id=self.id,
            title=self.title,
            headline=f"The link of {gpu.name} runs at {link} although {best} is possible.",
            detail="Copies between the memory of the machine and the GPU take longer, and so does whatever "
            "waits for them: batches, checkpoints, gradients of GPUs without another link.",
            severity="warning" if use >= HEAVY_USE else "notice",
            confidence=0.9,
            first_step=int(rank.steps[0]),
            last_step=int(rank.steps[-1]),
            first_time=float(rank.times[0]),
            last_time=float(rank.times[-1]),
            rank=gpu.rank if len(window.ranks) > 1 else None,
            device=gpu.device,
            evidence=(
                Evidence("link", link, f"{best} is possible"),
                Evidence("traffic", f"{size(traffic)}/s", f"{percent(use)} of what the link carries"),
                *(
                    [Evidence("sent again", f"{gpu.rise(REPLAYS):,.0f} times", "during these steps")]
                    if REPLAYS in gpu.figures
                    else []
                ),
            ),
            chart=Chart(tuple(key for key in (WIDTH, GENERATION, RECEIVED) if key in gpu.figures)),
            ruled_out=("An idle GPU, which lowers its link to save power: only busy ones are looked at.",),
            remedies=ADVICE,
            tries=("another slot", "the speed of the slot in the BIOS", "fewer and larger transfers"),
            how="Generation and width of the link are read from the driver while the GPU is busy, and "
            "compared with the highest that it reports.",
            refs=("https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html",),
        )


def _is_known(gpu: Gpu, key: str) -> bool:
    has_both = key in gpu.figures and MOST[key] in gpu.figures
    return has_both and int(gpu.is_busy(key).sum()) >= MIN_BUSY and _most(gpu, key) > 0


def _now(gpu: Gpu, key: str) -> float:
    """The usual reading while the GPU is busy; 0 where there is none."""
    values = gpu.figures[key].values[gpu.is_busy(key)] if key in gpu.figures else np.empty(0)
    return float(np.median(values)) if len(values) else 0.0


def _most(gpu: Gpu, key: str) -> float:
    return gpu.newest(MOST[key]) or 0.0


def _link(gpu: Gpu, read: Callable[[Gpu, str], float]) -> str:
    """The link in words: generation 4 with 16 lanes."""
    return f"generation {read(gpu, GENERATION):.0f} with {read(gpu, WIDTH):.0f} lanes"
