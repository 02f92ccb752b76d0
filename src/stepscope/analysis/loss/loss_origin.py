"""Where the first value that is not finite came from, in words and with the change to make there."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from stepscope.schema.finding import Evidence, Remedy

if TYPE_CHECKING:
    from stepscope.schema.window import RankWindow, Window

LOSS_EVENT = "loss_not_finite"

CLAMP = """\
x = x.clamp_min(1e-6)                      # what {operation} gets must not be zero or negative"""

DIVISOR = """\
ratio = a / (b + 1e-8)"""

BATCH = """\
assert torch.isfinite(x).all(), "this batch has NaN or infinite values\""""

_POSITIVE = frozenset({"log", "log2", "log10", "log1p", "sqrt", "rsqrt", "pow", "reciprocal"})
"""Operations that need numbers above zero."""

MAX_NAME = 200
"""Characters of a layer's name."""


@dataclass(frozen=True)
class LossOrigin:
    """Where the first value of a loss came from that is not finite, as the recorder found it."""

    cause: str
    operation: str
    layer: str
    after: str
    before: str
    batch: str
    """The tensors of the batch: shapes and number types."""

    def sentence(self) -> str:
        """Returns the place in words, for the end of a headline."""
        if self.cause == "batch":
            return "its batch has values that are not finite"
        if self.cause == "weights":
            return f"the weights of `{self.layer}` were not finite before this step"
        if self.cause == "loss":
            after = f" of `{self.after}`" if self.after else ""
            return f"the output{after} was finite, what is computed from it is not"
        return f"the first bad value came from `{self.operation}`{self._place()}"

    def remedies(self) -> list[Remedy]:
        """Returns what to change at that place."""
        if self.cause == "batch":
            text = "Check the data set for NaN and infinite values, and leave such samples out."
            return [Remedy(text, BATCH, "PyTorch")]
        if self.operation in _POSITIVE:
            text = f"Clamp what `{self.operation}` gets{self._place()}."
            return [Remedy(text, CLAMP.format(operation=self.operation), "PyTorch")]
        if self.operation == "div":
            return [Remedy(f"Add a small number to the divisor{self._place()}.", DIVISOR, "PyTorch")]
        return []

    def evidence(self, step: int) -> tuple[Evidence, ...]:
        """Returns which batch it was."""
        return (Evidence("batch", f"of step {step:,}", self.batch),)

    def _place(self) -> str:
        if self.layer:
            return f" in `{self.layer}`"
        if self.after and self.before:
            return f", between the layers `{self.after}` and `{self.before}`"
        if self.after or self.before:
            return f", after the layer `{self.after}`" if self.after else f", before `{self.before}`"
        return ""


def origin_in(window: Window, rank: RankWindow, step: int) -> LossOrigin | None:
    """Returns what the recorder found in the graph of the loss of a step, or of one right beside it."""
    for event in window.events_of(LOSS_EVENT, rank.rank):
        if event.step is not None and abs(event.step - step) <= 1 and not event.by_user:
            names = [field.name for field in fields(LossOrigin)]
            return LossOrigin(*(str(event.fields.get(name) or "")[:MAX_NAME] for name in names))
    return None
