"""Tells whether a training computes in float16, and what to use instead."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stepscope.schema.window import RankWindow, Window

SETUP_EVENT = "census"
"""The kind of event that records number formats and autocast."""

SKIPPED = ("optimizer_skipped", "gradient_step_skipped")
"""Keys of steps that a loss scaler skipped."""

BF16 = {
    "torch": """\
with torch.autocast("cuda", dtype=torch.bfloat16):  # has the range of float32, and needs no scaler
    loss = loss_of(model(x), y)""",
    "lightning": 'trainer = Trainer(precision="bf16-mixed")',
    "transformers": "arguments = TrainingArguments(..., bf16=True)",
}
"""Code for the 16-bit numbers that do not overflow, by library."""


def is_half(rank: RankWindow, window: Window) -> bool:
    """Whether float16 is used: by autocast, for parameters, or, if that is unknown, with a loss scaler."""
    setup = window.events_of(SETUP_EVENT, rank.rank)
    if not setup:
        return any(key in rank.columns for key in SKIPPED)
    fields = setup[-1].fields
    dtypes = fields.get("parameter_dtypes")
    is_stored = isinstance(dtypes, dict) and "float16" in dtypes
    return is_stored or str(fields.get("autocast", "")).endswith((" float16", "cuda"))
