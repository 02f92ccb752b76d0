"""Detects convolutions of fixed size for which cuDNN does not look for the fastest algorithm."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np

from stepscope.analysis.gpu.convolutions import CONVOLUTIONS, convolution_share
from stepscope.analysis.gpu.float32_math import NEEDS_SETUP, SETUP_EVENT, newest_setup
from stepscope.analysis.gpu.gpu_load import DEVICE_STEP, LOAD_EVENTS, LOAD_KEYS, load_of
from stepscope.analysis.remedies import remedies_in
from stepscope.analysis.wording import percent
from stepscope.config.bounds import Range
from stepscope.detectors.base import Detector, TooLittleEvidence
from stepscope.schema.finding import Chart, Estimate, Evidence, Finding

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stepscope.analysis.gpu.gpu_load import GpuLoad
    from stepscope.schema.window import RankWindow, Window

SAMPLES = "batch/samples"
MIN_BATCHES = 5

SAVED = (0.0, 0.02, 0.1)
"""Shares of the forward and backward pass that another algorithm saves: at least, usually, at most."""

BENCHMARK = {
    "torch": "torch.backends.cudnn.benchmark = True      # before the first step",
    "lightning": "trainer = Trainer(benchmark=True)",
}


@dataclass(frozen=True)
class CudnnBenchmark(Detector):
    """Reads the switches of cuDNN from the setup, the sizes of batches, and how busy the GPU is."""

    id: ClassVar[str] = "cfg.cudnn_benchmark"
    title: ClassVar[str] = "cuDNN does not look for the fastest convolutions"
    sentence: ClassVar[str] = (
        "the GPU limits the steps, most parameters are weights of convolutions, batches have one size, and "
        "neither `cudnn.benchmark` nor a deterministic mode is on"
    )
    requires: ClassVar[tuple[tuple[str, ...], ...]] = ((DEVICE_STEP,), (SAMPLES,))
    reads: ClassVar[tuple[str, ...]] = LOAD_KEYS
    events: ClassVar[tuple[str, ...]] = (SETUP_EVENT, *LOAD_EVENTS)
    min_steps: ClassVar[int] = 0
    for_each_rank: ClassVar[bool] = False
    is_optional: ClassVar[bool] = True

    convolutions: Annotated[float, Range(0, 1)] = 0.5
    """Minimum share of the parameters in convolutions."""

    same_size: Annotated[float, Range(0.5, 1)] = 0.9
    """Minimum share of the batches that have the usual size; the last one of an epoch may be smaller."""

    def examine(self, rank: RankWindow, window: Window) -> Finding | str:
        """Checks the newest setup and the sizes of batches, then whether the GPU limits the steps."""
        setup = newest_setup(window, rank.rank)
        sizes = rank.aligned(SAMPLES)[0] if SAMPLES in rank.columns else np.empty(0)
        load = load_of(rank, window)
        if setup is None or "layers" not in setup or load is None or len(sizes) < MIN_BATCHES:
            return TooLittleEvidence(
                f"{NEEDS_SETUP} Also needs steps timed on the GPU, and sizes of batches."
            )
        share = convolution_share(setup, CONVOLUTIONS)
        if share < self.convolutions:
            return f"Convolutions have {percent(share)} of the parameters."
        if not _is_off(setup):
            return "cuDNN looks for the fastest algorithms, or must not choose."
        usual = float(np.median(sizes))
        if (sizes == usual).mean() < self.same_size:
            return "Batches have several sizes: a search for each would cost more than it saves."
        if not load.limits_steps:
            return f"The GPU does not limit the steps ({load.behind:.0%} of a step behind the host)."
        return self._finding(rank, window, load, share, usual)

    def _finding(
        self, rank: RankWindow, window: Window, load: GpuLoad, share: float, usual: float
    ) -> Finding:
        low, likely, high = (round(load.compute * part, 3) for part in SAVED)
        first, last = int(rank.steps[0]), int(rank.steps[-1])
        text = "Let cuDNN measure its algorithms once for each size. If images differ in size, leave it off."
        return Finding(
            id=self.id,
            title=self.title,
            headline=f"Batches always have {usual:,.0f} samples, and cuDNN does not look for the fastest "
            "convolutions.",
            detail="Without `cudnn.benchmark` a heuristic chooses the algorithm. It is often the fastest "
            "one.",
            severity="info",
            confidence=0.5,
            share=likely,
            first_step=first,
            last_step=last,
            first_time=float(rank.times[0]),
            last_time=float(rank.times[-1]),
            evidence=(
                Evidence("cudnn.benchmark", "off", "which is the default"),
                Evidence("convolutions", percent(share), "of the parameters"),
                *load.evidence,
            ),
            chart=Chart((DEVICE_STEP,), first, last),
            ruled_out=("Batches of several sizes, for each of which cuDNN would search again.",),
            remedies=remedies_in(window.libraries(rank.rank), text, BENCHMARK),
            tries=("cudnn.benchmark = True",),
            estimate=Estimate(low, likely, high),
            how="Time of the forward and backward pass on the GPU, times 0 to 10%, which is assumed. The "
            "sizes of images are not recorded.",
            refs=("https://pytorch.org/docs/stable/backends.html#torch.backends.cudnn.benchmark",),
        )


def _is_off(setup: Mapping[str, Any]) -> bool:
    """Whether cuDNN may choose an algorithm, and does not search for the fastest."""
    is_fixed = setup.get("cudnn_deterministic") or setup.get("deterministic_algorithms")
    is_used = setup.get("cudnn_enabled", True) and not setup.get("compiled")
    return setup.get("cudnn_benchmark") is False and not is_fixed and bool(is_used)
