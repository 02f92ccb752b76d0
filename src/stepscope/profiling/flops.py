"""Counts the floating-point operations of a model's forward pass."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from stepscope.profiling.plain import Described

if TYPE_CHECKING:
    from stepscope.profiling.inputs import Batch

METHOD = (
    "torch.utils.flop_counter on one forward pass: matrix products, convolutions and attention, a "
    "multiplication with its addition as two; all other operators count as nothing"
)


@dataclass(frozen=True)
class Flops(Described):
    """Floating-point operations of a forward pass."""

    per_sample: int | None
    """None where they could not be counted."""
    by_operator: dict[str, int] = field(default_factory=dict)
    """For each sample, the largest first."""
    samples: int = 0
    """How many samples were fed to count them."""
    method: str = METHOD


def flops_of(torch: Any, model: Any, batch: Batch) -> Flops:
    """Counts one forward pass over a batch."""
    from torch.utils.flop_counter import FlopCounterMode  # lazy: torch is an extra

    counter = FlopCounterMode(display=False)
    try:
        with counter:
            batch.fed_to(model)
    except (NotImplementedError, TypeError, torch.jit.Error) as error:
        # Modules that are compiled or made of packed weights cannot be watched operator by operator.
        return Flops(None, method=f"not counted: {error}")
    counted = counter.get_flop_counts().get("Global", {})
    ordered = sorted(counted.items(), key=lambda item: -item[1])
    by_operator = {str(operator): int(count) // batch.size for operator, count in ordered}
    return Flops(counter.get_total_flops() // batch.size, by_operator, batch.size)
