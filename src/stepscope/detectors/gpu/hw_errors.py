"""Detects a GPU whose memory has errors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, NamedTuple

from stepscope.analysis.gpu.gpu_readings import GPU_EVENT, GPU_KEYS, gpus_of
from stepscope.config.bounds import Range
from stepscope.detectors.base import MachineDetector
from stepscope.schema.finding import SEVERITIES, Chart, Evidence, Finding, Remedy

if TYPE_CHECKING:
    from stepscope.analysis.gpu.gpu_readings import Gpu
    from stepscope.schema.finding import Severity
    from stepscope.schema.window import RankWindow, Window

UNCORRECTED, CORRECTED = "gpu/ecc_uncorrected_total", "gpu/ecc_corrected_total"
FAILED, REMAPPED = "gpu/remap_failed", "gpu/remapped_rows_total"
PENDING = ("gpu/remap_pending", "gpu/retire_pending")

SAVE_AND_LEAVE = Remedy(
    "Write a checkpoint now, check that it can be loaded, and move the run to another GPU.",
    "nvidia-smi -q -d ECC,ROW_REMAPPER,PAGE_RETIREMENT",
)
RESET = Remedy(
    "Reset the GPU when no process uses it: damaged memory is then replaced by spare memory.",
    "nvidia-smi --gpu-reset -i 0",
)
REPLACE = Remedy("Take the board out of service: it has no spare memory left.")


class _Trouble(NamedTuple):
    """What is wrong with a GPU, and what to do."""

    headline: str
    detail: str
    severity: Severity
    remedies: tuple[Remedy, ...]


@dataclass(frozen=True)
class MemoryErrors(MachineDetector):
    """Compares the error counters of each GPU with those at the beginning of the run."""

    id: ClassVar[str] = "hw.errors"
    title: ClassVar[str] = "The memory of a GPU has errors"
    sentence: ClassVar[str] = (
        "a GPU has had memory errors that could not be corrected since the run began, or damaged memory "
        "waits to be replaced or cannot be"
    )
    requires: ClassVar[tuple[tuple[str, ...], ...]] = ((UNCORRECTED, FAILED, *PENDING),)
    reads: ClassVar[tuple[str, ...]] = (CORRECTED, REMAPPED, *GPU_KEYS)
    courses: ClassVar[tuple[str, ...]] = (UNCORRECTED, FAILED, *PENDING, CORRECTED, REMAPPED)
    events: ClassVar[tuple[str, ...]] = (GPU_EVENT,)

    errors: Annotated[int, Range(1)] = 1
    """Minimum number of errors since the run began that could not be corrected."""

    def examine(self, rank: RankWindow, window: Window) -> Finding | str:
        """Examines each GPU, and reports the one that is worst."""
        troubles = [(trouble, gpu) for gpu in gpus_of(window) if (trouble := self._trouble(gpu)) is not None]
        if not troubles:
            return "No memory errors were counted that could not be corrected."
        trouble, gpu = min(troubles, key=lambda pair: SEVERITIES.index(pair[0].severity))
        return self._finding(rank, window, gpu, trouble)

    def _trouble(self, gpu: Gpu) -> _Trouble | None:
        if (errors := gpu.rise(UNCORRECTED)) >= self.errors:
            memory_errors = f"{errors:,.0f} memory errors" if errors > 1 else "a memory error"
            return _Trouble(
                f"{gpu.name} has had {memory_errors} in this run that could not be corrected.",
                "The process that used the memory is usually ended; what was computed may be wrong.",
                "critical",
                (SAVE_AND_LEAVE, RESET),
            )
        if gpu.newest(FAILED):
            return _Trouble(
                f"{gpu.name} has damaged memory that cannot be replaced.",
                "The next error in it ends the process that uses it.",
                "warning",
                (SAVE_AND_LEAVE, REPLACE),
            )
        if any(gpu.newest(key) for key in PENDING):
            return _Trouble(
                f"{gpu.name} has damaged memory, which is replaced when the GPU is reset.",
                "Until then it is not used.",
                "notice",
                (RESET,),
            )
        return None

    def _finding(self, rank: RankWindow, window: Window, gpu: Gpu, trouble: _Trouble) -> Finding:
        counters = {
            "errors not corrected": UNCORRECTED,
            "errors corrected": CORRECTED,
            "rows of memory replaced": REMAPPED,
        }
        return Finding(
            id=self.id,
            title=self.title,
            headline=trouble.headline,
            detail=trouble.detail,
            severity=trouble.severity,
            confidence=0.99,
            first_step=int(rank.steps[0]),
            last_step=int(rank.steps[-1]),
            first_time=float(rank.times[0]),
            last_time=float(rank.times[-1]),
            rank=gpu.rank if len(window.ranks) > 1 else None,
            device=gpu.device,
            evidence=tuple(
                Evidence(label, f"{gpu.newest(key) or 0:,.0f}", f"{gpu.rise(key):,.0f} since the run began")
                for label, key in counters.items()
                if key in gpu.figures
            ),
            chart=Chart(tuple(key for key in (UNCORRECTED, CORRECTED) if key in gpu.figures)),
            ruled_out=("Errors that were corrected: they cost nothing and change no result.",),
            remedies=trouble.remedies,
            tries=("a checkpoint now", "another GPU", "a reset of the GPU"),
            how="The driver counts memory errors; the counters of the first and the newest readings of the "
            "run are compared.",
            refs=("https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/index.html",),
        )
