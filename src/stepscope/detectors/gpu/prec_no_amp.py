"""Detects a model that is computed in float32 on a GPU that is faster with 16 bits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from stepscope.analysis.gpu.float32_math import (
    NEEDS_SETUP,
    SETUP_EVENT,
    TENSOR_CORES_IDLE,
    gain,
    gain_method,
    gpu_name,
    has_tf32,
    is_float32,
    matrix_share,
    may_cast_inside,
    newest_setup,
    peaks_of,
)
from stepscope.analysis.gpu.gpu_load import DEVICE_STEP, LOAD_EVENTS, LOAD_KEYS, load_of
from stepscope.analysis.gpu.half_precision import BF16
from stepscope.analysis.remedies import remedies_in
from stepscope.analysis.wording import percent
from stepscope.config.bounds import Range
from stepscope.detectors.base import Detector, TooLittleEvidence
from stepscope.schema.finding import Chart, Evidence, Finding, Remedy, severity_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stepscope.analysis.gpu.float32_math import Peaks
    from stepscope.analysis.gpu.gpu_load import GpuLoad
    from stepscope.schema.window import RankWindow, Window

MAINLY = 0.9
"""Where linear layers have this share of the parameters, convolutions do not keep the tensor cores busy."""

NUMERICS = Remedy(
    "Compare the losses of a few hundred steps: bfloat16 has the range of float32, and 7 bits of mantissa "
    "instead of 23. Autocast keeps parameters, sums and sensitive operations in float32."
)


@dataclass(frozen=True)
class NoMixedPrecision(Detector):
    """Reads number formats from the setup, and how busy the GPU is from its clock and readings."""

    id: ClassVar[str] = "prec.no_amp"
    title: ClassVar[str] = "The model is computed in float32"
    sentence: ClassVar[str] = (
        "the GPU limits the steps and has tensor cores for bfloat16, parameters are float32, and autocast "
        "is off"
    )
    requires: ClassVar[tuple[tuple[str, ...], ...]] = ((DEVICE_STEP,),)
    reads: ClassVar[tuple[str, ...]] = LOAD_KEYS
    events: ClassVar[tuple[str, ...]] = (SETUP_EVENT, *LOAD_EVENTS)
    min_steps: ClassVar[int] = 8
    for_each_rank: ClassVar[bool] = False
    is_optional: ClassVar[bool] = True

    parameters: Annotated[int, Range(0)] = 1_000_000
    """Minimum number of parameters: the kernels of smaller models are rarely limited by arithmetic."""

    def examine(self, rank: RankWindow, window: Window) -> Finding | str:
        """Checks the newest setup, then whether the GPU limits the steps."""
        setup = newest_setup(window, rank.rank)
        if setup is None or "autocast" not in setup:
            return TooLittleEvidence(NEEDS_SETUP)
        if not is_float32(setup):
            return f"Parameters or autocast use other formats than float32 ({setup['autocast']})."
        count, peaks = int(setup.get("parameters", 0)), peaks_of(gpu_name(setup))
        if count < self.parameters or peaks is None:
            return f"16 bits are not known to be faster for {count:,} parameters on this GPU."
        load = load_of(rank, window)
        if load is None:
            return TooLittleEvidence("Needs more steps that were timed on the GPU.")
        if not load.limits_steps:
            return f"The GPU does not limit the steps ({load.behind:.0%} of a step behind the host)."
        return _contradiction(setup, load, window.libraries(rank.rank)) or self._finding(
            rank, window, setup, load, peaks
        )

    def _finding(
        self, rank: RankWindow, window: Window, setup: Mapping[str, Any], load: GpuLoad, peaks: Peaks
    ) -> Finding:
        ratio = peaks.bf16 / peaks.tf32
        estimate, name = gain(load, ratio), gpu_name(setup)
        over = "TF32" if peaks.tf32 > 1 else "float32"
        # What TF32 saves is another finding, and easier to have.
        is_second = has_tf32(setup) is False and peaks.tf32 > 1
        severity = severity_of(estimate.likely)
        first, last = int(rank.steps[0]), int(rank.steps[-1])
        return Finding(
            id=self.id,
            title=self.title,
            headline=f"The model is computed in float32 on the {name}: bfloat16 is up to {ratio:g}× as "
            f"fast as {over}.",
            detail="The GPU limits the steps, parameters are float32, and autocast is off."
            + (" The estimate is what bfloat16 saves after TF32 is allowed." if is_second else ""),
            severity="notice" if is_second and severity == "warning" else severity,
            confidence=0.8 if load.tensor_active is not None else 0.65,
            share=estimate.likely,
            first_step=first,
            last_step=last,
            first_time=float(rank.times[0]),
            last_time=float(rank.times[-1]),
            evidence=(
                Evidence("parameters", "float32", f"{int(setup['parameters']):,}"),
                Evidence("autocast", "off", "when the forward pass began"),
                Evidence(
                    "forward and backward pass", percent(load.compute), "of the step on the GPU's clock"
                ),
                *load.evidence,
            ),
            chart=Chart((DEVICE_STEP,), first, last),
            ruled_out=("Waits for data or the host: the GPU has work all the time.",),
            remedies=(
                *remedies_in(
                    window.libraries(rank.rank), "Compute in bfloat16, without a loss scaler.", BF16
                ),
                NUMERICS,
            ),
            tries=("autocast with bfloat16",),
            estimate=estimate,
            how=gain_method(load, ratio),
            refs=("https://pytorch.org/docs/stable/amp.html",),
        )


def _contradiction(setup: Mapping[str, Any], load: GpuLoad, libraries: set[str]) -> str | None:
    """Returns what speaks against float32: busy tensor cores, if TF32 does not explain them."""
    is_idle = load.tensor_active is not None and load.tensor_active < TENSOR_CORES_IDLE
    matrices = matrix_share(setup)
    has_convolutions = matrices is not None and matrices < MAINLY
    uses_tf32 = has_tf32(setup) or (setup.get("tf32_cudnn") and has_convolutions)
    if load.tensor_active is not None and not is_idle and not uses_tf32:
        return f"Tensor cores are active {percent(load.tensor_active)} of the time."
    if may_cast_inside(setup, libraries) and not is_idle:
        return TooLittleEvidence("A library may compute in another format, which the setup does not show.")
    return None
