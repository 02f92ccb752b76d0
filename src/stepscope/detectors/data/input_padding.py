"""Detects batches that consist of padding to a large part."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

import numpy as np

from stepscope.analysis.phase_shares import device_shares, median_shares, phase_shares
from stepscope.analysis.remedies import remedies_in
from stepscope.analysis.wording import number, percent
from stepscope.config.bounds import Range
from stepscope.detectors.base import Detector, TooLittleEvidence
from stepscope.schema.finding import NOTICE, Chart, Estimate, Evidence, Finding, Remedy, severity_of
from stepscope.schema.keys import STEP_SECONDS

if TYPE_CHECKING:
    from stepscope.schema.window import RankWindow, Window

PADDING, TOKENS = "batch/padding_ratio", "batch/tokens"

VARIES, MIN_FOLLOWS, MANY = 0.1, 0.2, 20
"""Where the size of batches varies by this share, step time must follow it: with this correlation, in this
many steps."""

LIKELY = 0.7
"""The part of the model's time for padding that is likely saved: small batches use a processor less well."""

DYNAMIC = """\
def collate(samples):
    ids = [torch.tensor(sample["input_ids"]) for sample in samples]
    return torch.nn.utils.rnn.pad_sequence(ids, batch_first=True)   # to the longest of this batch
loader = DataLoader(dataset, batch_size=64, collate_fn=collate)"""
GROUPED = """\
order = sorted(range(len(dataset)), key=lambda index: len(dataset[index]["input_ids"]))
batches = [order[start : start + 64] for start in range(0, len(order), 64)]
random.shuffle(batches)
loader = DataLoader(dataset, batch_sampler=batches, collate_fn=collate)"""


@dataclass(frozen=True)
class Padding(Detector):
    """Compares the padding of batches with the time of the model's passes."""

    id: ClassVar[str] = "input.padding"
    title: ClassVar[str] = "The model computes on padding"
    sentence: ClassVar[str] = (
        "a large share of the tokens of batches is padding, and the passes of the model take much of the "
        "step; if the size of batches varies, step time must follow it"
    )
    requires: ClassVar[tuple[tuple[str, ...], ...]] = ((PADDING,), (STEP_SECONDS,))
    reads: ClassVar[tuple[str, ...]] = (TOKENS,)
    min_steps: ClassVar[int] = 3
    in_steady_state: ClassVar[bool] = False
    is_optional: ClassVar[bool] = True

    share: Annotated[float, Range(0.01, 1)] = 0.2
    """Minimum share of tokens that is padding."""

    def examine(self, rank: RankWindow, window: Window) -> Finding | str:
        """Takes the mean over the batches that were counted."""
        (padding,) = rank.aligned(PADDING, steady=False)
        share = float(padding.mean())
        measured = f"{percent(share)} of tokens are padding"
        if share < self.share:
            return f"{measured}; threshold: {percent(self.share)}."
        varies, follows = _sizes(rank)
        if varies and follows < MIN_FOLLOWS:
            return f"{measured}, but step time does not follow the size of batches."
        shares = device_shares(rank) or phase_shares(rank, steady=False)
        if "forward" not in shares:
            shares = median_shares(rank)
        if "forward" not in shares:
            return TooLittleEvidence(f"{measured}, but too few steps were timed by phase.")
        in_model = min(shares.get("forward", 0.0) + shares.get("backward", 0.0), 1.0)
        likely = LIKELY * share * in_model
        if likely < NOTICE:
            return f"{measured}, but the model's passes take only {percent(in_model)} of the step."
        return self._finding(rank, window, in_model, varies=varies)

    def _finding(self, rank: RankWindow, window: Window, in_model: float, *, varies: bool) -> Finding:
        (padding,) = rank.aligned(PADDING, steady=False)
        share, libraries = float(padding.mean()), window.libraries(rank.rank)
        chosen = rank.where(PADDING, steady=False)
        steps, times = rank.steps[chosen], rank.times[chosen]
        gain = share * in_model
        tokens = float(rank.aligned(TOKENS)[0].mean()) if TOKENS in rank.columns else None
        shorter = remedies_in(
            libraries,
            "Pad each batch to its longest sample, not to a fixed length.",
            {
                "torch": DYNAMIC,
                "transformers": "trainer = Trainer(..., data_collator=DataCollatorWithPadding(tokenizer))",
            },
        )
        grouped = remedies_in(
            libraries,
            "Put samples of about the same length into a batch.",
            {
                "torch": GROUPED,
                "transformers": "arguments = TrainingArguments(..., group_by_length=True)",
            },
        )
        return Finding(
            id=self.id,
            title=self.title,
            headline=f"{percent(share)} of the tokens in a batch are padding, on which the model computes.",
            detail="The time of the passes grows with the padded length. "
            + (
                "Batches have different lengths, so samples of very different length are put together."
                if varies
                else "All batches have the same length, however short their samples are."
            ),
            severity=severity_of(LIKELY * gain),
            confidence=min(0.9, (0.8 if varies else 0.6) + 0.005 * len(padding)),
            share=gain,
            first_step=int(steps[0]),
            last_step=int(steps[-1]),
            first_time=float(times[0]),
            last_time=float(times[-1]),
            rank=rank.rank if len(window.ranks) > 1 else None,
            evidence=(
                Evidence("padding", percent(share), f"of tokens, in {len(padding):,} batches"),
                *(
                    ()
                    if tokens is None
                    else (
                        Evidence(
                            "tokens in a step",
                            number(tokens, 3),
                            f"{number(tokens * (1 - share), 3)} without padding",
                        ),
                    )
                ),
                Evidence("model's passes", percent(in_model), "of the step"),
            ),
            chart=Chart((PADDING, STEP_SECONDS), int(steps[0]), int(steps[-1])),
            ruled_out=(
                *(("Steps that do not depend on the size of batches: they follow it.",) if varies else ()),
                f"A few batches with much padding: the median is {percent(float(np.median(padding)))}.",
            ),
            remedies=(
                *(grouped if varies else (*shorter, *grouped)),
                Remedy("Or pack several short samples into one row, with a mask that separates them."),
            ),
            tries=(*(() if varies else ("pad to the longest sample",)), "group samples by length"),
            estimate=Estimate(0.3 * gain, LIKELY * gain, gain),
            how="Padding is counted in the attention mask, or as the value with which rows of tokens end, in "
            "sampled batches. Gain: its share of the time of the forward and backward pass. A model that "
            "skips padding gains less.",
        )


def _sizes(rank: RankWindow) -> tuple[bool, float]:
    """Returns whether the size of batches varies, and its correlation with step time; 1 with few steps."""
    if TOKENS not in rank.columns:
        return False, 1.0
    tokens, taken = rank.aligned(TOKENS, STEP_SECONDS)
    if len(tokens) < MANY or float(np.quantile(tokens, 0.9)) < (1 + VARIES) * float(np.quantile(tokens, 0.1)):
        return False, 1.0
    # Ranks, because a few slow steps must not hide it.
    order = [np.argsort(np.argsort(values)).astype(np.float64) for values in (tokens, taken)]
    return True, float(np.corrcoef(order[0], order[1])[0, 1])
