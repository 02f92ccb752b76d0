"""Detects attention over long sequences that computes the whole matrix of weights on a GPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from stepscope.analysis.gpu.float32_math import SETUP_EVENT, newest_setup
from stepscope.analysis.gpu.gpu_load import DEVICE_STEP, LOAD_EVENTS, LOAD_KEYS, load_of
from stepscope.analysis.wording import percent
from stepscope.config.bounds import Range
from stepscope.detectors.base import Detector, TooLittleEvidence
from stepscope.schema.finding import Chart, Estimate, Evidence, Finding, Remedy

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stepscope.analysis.gpu.gpu_load import GpuLoad
    from stepscope.schema.window import RankWindow, Window

ATTENTION_EVENT = "attention"

SWITCHES = {
    "flash_attention": "enable_flash_sdp",
    "memory_efficient_attention": "enable_mem_efficient_sdp",
    "cudnn_attention": "enable_cudnn_sdp",
}
"""Fused kernels by their name in the setup, and the functions that switch them on."""

USE_FUSED = Remedy(
    "Use PyTorch's fused attention: it never stores the matrix of weights.",
    "out = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)\n"
    '# Transformers: AutoModel.from_pretrained(..., attn_implementation="sdpa")',
    "PyTorch",
)
CHANGE_INPUTS = Remedy(
    "Give the fused kernels what they accept: bfloat16 or float16, `is_causal` instead of a mask, head sizes "
    "up to 256. PyTorch says what it refuses within this context.",
    "with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.FLASH_ATTENTION):\n    model(x)",
    "PyTorch",
)
GAIN = Estimate(0.0, 0.1, 0.5)
"""Shares of the forward and backward pass: what attention takes of them depends on the model."""


@dataclass(frozen=True)
class AttentionFallback(Detector):
    """Reads what calls of attention chose in a few sampled steps, and whether the GPU limits the steps."""

    id: ClassVar[str] = "cfg.attention_fallback"
    title: ClassVar[str] = "Attention is not computed by a fused kernel"
    sentence: ClassVar[str] = (
        "the GPU limits the steps, and attention over long sequences was computed by hand or by PyTorch's "
        "math kernel in sampled steps"
    )
    requires: ClassVar[tuple[tuple[str, ...], ...]] = ((DEVICE_STEP,),)
    reads: ClassVar[tuple[str, ...]] = LOAD_KEYS
    events: ClassVar[tuple[str, ...]] = (SETUP_EVENT, ATTENTION_EVENT, *LOAD_EVENTS)
    min_steps: ClassVar[int] = 8
    for_each_rank: ClassVar[bool] = False
    is_optional: ClassVar[bool] = True

    length: Annotated[int, Range(128)] = 512
    """Minimum length of the sequences."""

    def examine(self, rank: RankWindow, window: Window) -> Finding | str:
        """Checks the observed calls, then whether the GPU limits the steps."""
        observed = window.events_of(ATTENTION_EVENT, rank.rank)
        calls: Mapping[str, Any] = (
            observed[-1].fields if observed else {"unknown": "no steps were observed for it"}
        )
        if "unknown" in calls:
            return TooLittleEvidence(f"Cannot tell how attention is computed: {calls['unknown']}.")
        if not calls["math"] + calls["by_hand"]:
            return f"No attention without a fused kernel was seen in {calls['steps']} sampled steps."
        if calls["length"] < self.length:
            return f"Sequences have at most {calls['length']} elements; threshold: {self.length}."
        load = load_of(rank, window)
        if load is None:
            return TooLittleEvidence("Needs more steps that were timed on the GPU.")
        if not load.limits_steps:
            return f"The GPU does not limit the steps ({load.behind:.0%} of a step behind the host)."
        return self._finding(rank, newest_setup(window, rank.rank) or {}, calls, load)

    def _finding(
        self, rank: RankWindow, setup: Mapping[str, Any], calls: Mapping[str, Any], load: GpuLoad
    ) -> Finding:
        is_by_hand = calls["by_hand"] >= calls["math"]
        how = "by hand, with a softmax" if is_by_hand else "by PyTorch's math kernel"
        off = [name for name in SWITCHES if setup.get(name) is False]
        first, last = int(rank.steps[0]), int(rank.steps[-1])
        return Finding(
            id=self.id,
            title=self.title,
            headline=f"Attention over {calls['length']:,} elements is computed {how}, not by a fused kernel.",
            detail=_why(calls, off, is_by_hand=is_by_hand),
            severity="notice",
            confidence=0.8,
            share=round(GAIN.likely * load.compute, 3),
            first_step=first,
            last_step=last,
            first_time=float(rank.times[0]),
            last_time=float(rank.times[-1]),
            evidence=(
                Evidence(
                    "calls without a fused kernel",
                    f"{calls['math'] + calls['by_hand']}",
                    f"in {calls['steps']} steps",
                ),
                Evidence("calls with one", f"{calls['fused']}", f"in {calls['steps']} steps"),
                Evidence(
                    "forward and backward pass", percent(load.compute), "of the step on the GPU's clock"
                ),
                *load.evidence,
            ),
            chart=Chart((DEVICE_STEP,), first, last),
            ruled_out=("Waits for data or the host: the GPU has work all the time.",),
            remedies=_remedies(off, is_by_hand=is_by_hand),
            tries=("scaled_dot_product_attention",) if is_by_hand else ("a fused attention kernel",),
            estimate=Estimate(0.0, round(GAIN.likely * load.compute, 3), round(GAIN.high * load.compute, 3)),
            how="Calls on the GPU with gradients were counted in a few steps, and the kernel was read that "
            "PyTorch chooses for them. Which part of the passes attention takes is not measured.",
            refs=(
                "https://pytorch.org/docs/stable/generated/torch.nn.functional.scaled_dot_product_attention.html",
            ),
        )


def _why(calls: Mapping[str, Any], off: list[str], *, is_by_hand: bool) -> str:
    stored = (
        "The matrix of weights has a row and a column for each element; it is written to memory and read."
    )
    if is_by_hand:
        return f"{stored} A fused kernel keeps it in the registers of the GPU."
    if len(off) == len(SWITCHES):
        return f"{stored} All fused kernels are switched off."
    known = [f"inputs are {calls['dtype']}"] if "dtype" in calls else []
    known += ["a mask is passed"] if calls.get("has_mask") else []
    return f"{stored} Fused kernels refuse these inputs{': ' + ' and '.join(known) if known else ''}."


def _remedies(off: list[str], *, is_by_hand: bool) -> tuple[Remedy, ...]:
    if is_by_hand:
        return (USE_FUSED,)
    code = "\n".join(f"torch.backends.cuda.{SWITCHES[name]}(True)" for name in off)
    return (*((Remedy("Switch the fused kernels on.", code, "PyTorch"),) if off else ()), CHANGE_INPUTS)
