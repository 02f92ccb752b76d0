"""Detects products of float32 matrices that may not use the TF32 format of the GPU."""

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
from stepscope.analysis.remedies import remedies_in
from stepscope.analysis.wording import percent
from stepscope.config.bounds import Range
from stepscope.detectors.base import Detector, TooLittleEvidence
from stepscope.schema.finding import Chart, Evidence, Finding, Remedy, severity_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stepscope.analysis.gpu.gpu_load import GpuLoad
    from stepscope.schema.window import RankWindow, Window

TF32 = {
    "torch": 'torch.set_float32_matmul_precision("high")     # before the first step',
    "lightning": 'torch.set_float32_matmul_precision("high")     # before trainer.fit',
    "transformers": "arguments = TrainingArguments(..., tf32=True)",
}
OVERRIDDEN = Remedy(
    "Start the training without the variable: it disables TF32 whatever the program sets.",
    "unset NVIDIA_TF32_OVERRIDE",
)
NUMERICS = Remedy(
    "Compare the losses of a few hundred steps: TF32 has the range of float32, and 10 bits of mantissa "
    "instead of 23."
)


@dataclass(frozen=True)
class Tf32Off(Detector):
    """Reads number formats from the setup, and how busy the GPU is from its clock and readings."""

    id: ClassVar[str] = "prec.tf32_off"
    title: ClassVar[str] = "Matrix products do not use TF32"
    sentence: ClassVar[str] = (
        "the GPU limits the steps and has tensor cores for TF32, the model is computed in float32, and "
        "products of matrices may not use TF32"
    )
    requires: ClassVar[tuple[tuple[str, ...], ...]] = ((DEVICE_STEP,),)
    reads: ClassVar[tuple[str, ...]] = LOAD_KEYS
    events: ClassVar[tuple[str, ...]] = (SETUP_EVENT, *LOAD_EVENTS)
    min_steps: ClassVar[int] = 8
    for_each_rank: ClassVar[bool] = False
    is_optional: ClassVar[bool] = True

    matrix_share: Annotated[float, Range(0, 1)] = 0.5
    """Minimum share of the parameters in linear layers if convolutions may use TF32."""

    def examine(self, rank: RankWindow, window: Window) -> Finding | str:
        """Checks the newest setup, then whether the GPU limits the steps."""
        setup = newest_setup(window, rank.rank)
        if setup is None or "autocast" not in setup or has_tf32(setup) is None:
            return TooLittleEvidence(NEEDS_SETUP)
        peaks = peaks_of(gpu_name(setup))
        if has_tf32(setup) or not is_float32(setup):
            return "Products use TF32, or another format than float32."
        if peaks is None or peaks.tf32 <= 1:
            return "TF32 is not known to be faster on this GPU."
        load = load_of(rank, window)
        if load is None:
            return TooLittleEvidence("Needs more steps that were timed on the GPU.")
        if not load.limits_steps:
            return f"The GPU does not limit the steps ({load.behind:.0%} of a step behind the host)."
        return self._contradiction(setup, load, window.libraries(rank.rank)) or self._finding(
            rank, window, setup, load, peaks.tf32
        )

    def _contradiction(self, setup: Mapping[str, Any], load: GpuLoad, libraries: set[str]) -> str | None:
        """Returns what speaks against slow products."""
        if load.tensor_active is not None:
            is_idle = load.tensor_active < TENSOR_CORES_IDLE
            return None if is_idle else f"Tensor cores are active {percent(load.tensor_active)} of the time."
        if may_cast_inside(setup, libraries):
            return TooLittleEvidence(
                "A library may compute in another format, which the setup does not show."
            )
        matrices = matrix_share(setup)
        if setup.get("tf32_cudnn") and matrices is not None and matrices < self.matrix_share:
            return f"Linear layers have {percent(matrices)} of the parameters; convolutions may use TF32."
        return None

    def _finding(
        self, rank: RankWindow, window: Window, setup: Mapping[str, Any], load: GpuLoad, ratio: float
    ) -> Finding:
        estimate, name = gain(load, ratio), gpu_name(setup)
        is_overridden = (setup.get("environment") or {}).get("NVIDIA_TF32_OVERRIDE") == "0"
        is_sure = load.tensor_active is not None or matrix_share(setup) is not None
        setting = "NVIDIA_TF32_OVERRIDE=0" if is_overridden else "allow_tf32 is off, which is the default"
        first, last = int(rank.steps[0]), int(rank.steps[-1])
        return Finding(
            id=self.id,
            title=self.title,
            headline=f"Matrix products run in plain float32 on the {name}: TF32 is up to {ratio:g}× as fast.",
            detail="The GPU limits the steps, parameters are float32, autocast is off, and TF32 is not "
            "allowed. With TF32, inputs of products are rounded and sums stay float32.",
            severity=severity_of(estimate.likely) if is_sure else "notice",
            confidence=0.9 if load.tensor_active is not None else 0.75 if is_sure else 0.6,
            share=estimate.likely,
            first_step=first,
            last_step=last,
            first_time=float(rank.times[0]),
            last_time=float(rank.times[-1]),
            evidence=(
                Evidence("TF32", "not allowed", setting),
                Evidence("parameters", "float32", "autocast is off"),
                Evidence(
                    "forward and backward pass", percent(load.compute), "of the step on the GPU's clock"
                ),
                *load.evidence,
            ),
            chart=Chart((DEVICE_STEP,), first, last),
            ruled_out=(
                "Waits for data or the host: the GPU has work all the time.",
                *(
                    ("Another number format inside the model: the tensor cores are idle.",)
                    if load.tensor_active is not None
                    else ()
                ),
            ),
            remedies=(
                *(
                    (OVERRIDDEN,)
                    if is_overridden
                    else remedies_in(window.libraries(rank.rank), "Allow TF32.", TF32)
                ),
                NUMERICS,
            ),
            tries=("unset NVIDIA_TF32_OVERRIDE" if is_overridden else "allow TF32",),
            estimate=estimate,
            how=gain_method(load, ratio),
            refs=(
                "https://pytorch.org/docs/stable/notes/cuda.html#tensorfloat-32-tf32-on-ampere-and-later-devices",
            ),
        )
