"""What a model's profile tells."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from stepscope.profiling.plain import Described

if TYPE_CHECKING:
    from stepscope.profiling.model.flops import Flops
    from stepscope.profiling.model.model_memory import Footprint
    from stepscope.profiling.model.timings import Timings


@dataclass(frozen=True)
class BatchProfile(Described):
    """A model at one batch size."""

    batch_size: int
    latency: Timings
    """Of a forward pass, from the call to the last result."""
    samples_per_second: float
    peak_tensor_bytes: int | None
    """The most that tensors took at once in a forward pass, besides model and inputs."""
    resident_growth_bytes: int | None
    """How much the process grew, as the system sees it; None where it does not tell."""
    flops_per_second: float | None
    """Counted operations against the time they took."""


@dataclass(frozen=True)
class Consistency(Described):
    """Whether a model gives the same answer to the same input."""

    repeats: int
    identical: bool
    """To the last bit, in every repeat."""
    max_difference: float | None
    """The largest difference between two answers; None where they hold no finite number."""
    latency_variation_ratio: float
    """Standard deviation of the latency against its mean."""


@dataclass(frozen=True)
class ModelProfile(Described):
    """A model's figures in inference."""

    model: str
    device: str
    torch_version: str
    footprint: Footprint
    flops: Flops
    batches: tuple[BatchProfile, ...]
    failed: dict[int, str]
    """Batch sizes that memory did not suffice for, and what was said."""
    consistency: Consistency
    method: str
