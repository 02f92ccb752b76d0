"""Detects convolutions in 16 bits whose tensors are in the slower memory format."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

from stepscope.analysis.gpu.convolutions import convolution_share
from stepscope.analysis.gpu.float32_math import NEEDS_SETUP, SETUP_EVENT, gpu_name, newest_setup, peaks_of
from stepscope.analysis.gpu.gpu_load import DEVICE_STEP, LOAD_EVENTS, LOAD_KEYS, load_of
from stepscope.analysis.wording import percent
from stepscope.config.bounds import Range
from stepscope.detectors.base import Detector, TooLittleEvidence
from stepscope.schema.finding import Chart, Estimate, Evidence, Finding, Remedy, severity_of

if TYPE_CHECKING:
    from stepscope.analysis.gpu.gpu_load import GpuLoad
    from stepscope.schema.window import RankWindow, Window

HALF = ("cuda float16", "cuda bfloat16")
"""Autocast modes in which tensor cores compute convolutions, with channels last."""

SAVED = (0.0, 0.1, 0.25)
"""Shares of the forward and backward pass that the format saves: at least, usually, at most. PyTorch's
documentation names 8 to 35% more samples in a second for networks of convolutions with mixed precision."""

FORMAT = Remedy(
    "Store the model and its inputs with channels last. The values are the same.",
    "model = model.to(memory_format=torch.channels_last)\n"
    "x = x.to(device, memory_format=torch.channels_last, non_blocking=True)",
    "PyTorch",
)


@dataclass(frozen=True)
class ChannelsLast(Detector):
    """Reads the memory format of the weights from the setup, and how busy the GPU is."""

    id: ClassVar[str] = "cfg.channels_last"
    title: ClassVar[str] = "Convolutions use the slower memory format"
    sentence: ClassVar[str] = (
        "the GPU limits the steps, most parameters are weights of convolutions, autocast computes them in 16 "
        "bits, and they are not stored with channels last"
    )
    requires: ClassVar[tuple[tuple[str, ...], ...]] = ((DEVICE_STEP,),)
    reads: ClassVar[tuple[str, ...]] = LOAD_KEYS
    events: ClassVar[tuple[str, ...]] = (SETUP_EVENT, *LOAD_EVENTS)
    min_steps: ClassVar[int] = 8
    for_each_rank: ClassVar[bool] = False
    is_optional: ClassVar[bool] = True

    convolutions: Annotated[float, Range(0, 1)] = 0.5
    """Minimum share of the parameters in two-dimensional convolutions."""

    def examine(self, rank: RankWindow, window: Window) -> Finding | str:
        """Checks the newest setup, then whether the GPU limits the steps."""
        setup = newest_setup(window, rank.rank)
        if setup is None or "layers" not in setup:
            return TooLittleEvidence(NEEDS_SETUP)
        share = convolution_share(setup, ("Conv2d",))
        if share < self.convolutions or setup.get("channels_last") is not False:
            return f"Convolutions have {percent(share)} of the parameters, or are stored with channels last."
        if setup.get("compiled") or setup.get("autocast") not in HALF or peaks_of(gpu_name(setup)) is None:
            return "The model is compiled, or its convolutions are not known to be faster with channels last."
        load = load_of(rank, window)
        if load is None:
            return TooLittleEvidence("Needs more steps that were timed on the GPU.")
        if not load.limits_steps:
            return f"The GPU does not limit the steps ({load.behind:.0%} of a step behind the host)."
        return self._finding(rank, load, share, str(setup["autocast"]))

    def _finding(self, rank: RankWindow, load: GpuLoad, share: float, autocast: str) -> Finding:
        low, likely, high = (round(load.compute * part, 3) for part in SAVED)
        first, last = int(rank.steps[0]), int(rank.steps[-1])
        return Finding(
            id=self.id,
            title=self.title,
            headline=f"Convolutions with {percent(share)} of the parameters are computed in 16 bits, but not "
            "stored with channels last.",
            detail="Tensor cores read channels last. With channels first, cuDNN converts the tensors "
            "before and after a convolution, or chooses a slower kernel.",
            # What it saves depends on the layers, and is not measured.
            severity="info" if severity_of(likely) == "info" else "notice",
            confidence=0.6,
            share=likely,
            first_step=first,
            last_step=last,
            first_time=float(rank.times[0]),
            last_time=float(rank.times[-1]),
            evidence=(
                Evidence("weights of convolutions", "channels first", f"{percent(share)} of the parameters"),
                Evidence("autocast", autocast.removeprefix("cuda ")),
                *load.evidence,
            ),
            chart=Chart((DEVICE_STEP,), first, last),
            ruled_out=("Waits for data or the host: the GPU has work all the time.",),
            remedies=(FORMAT,),
            tries=("memory_format=torch.channels_last",),
            estimate=Estimate(low, likely, high),
            how="Time of the forward and backward pass on the GPU, times 0 to 25%: what others have "
            "measured. It is not measured in this run, so compare the time of a step.",
            refs=("https://pytorch.org/tutorials/intermediate/memory_format_tutorial.html",),
        )
