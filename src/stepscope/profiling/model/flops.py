"""Counts the floating-point operations of a model's forward and backward pass."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from stepscope.profiling.model.flop_formulas import formulas, why_unknown
from stepscope.profiling.plain_data import Described

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stepscope.profiling.model.inputs import Batch

METHOD = (
    "torch.utils.flop_counter on one forward pass, completed for fused attention and recurrent layers: "
    "matrix products, convolutions, attention and recurrent layers, a multiplication with its addition as "
    "two; all other operators count as nothing"
)
BACKWARD_METHOD = (
    "the same on the gradients of all outputs for all parameters that need one, in evaluation mode; what is "
    "computed again on the way back counts"
)
NOT_ASKED = "not counted: call flops(backward=True)"


@dataclass(frozen=True)
class Flops(Described):
    """Floating-point operations of a forward pass, and of a backward pass if requested."""

    per_sample: int | None
    """None if they could not be counted."""
    by_operator: dict[str, int] = field(default_factory=dict)
    """Per sample, the largest first."""
    samples: int = 0
    """Number of samples in the counted pass."""
    method: str = METHOD
    """How they were counted, or why they were not."""
    backward_per_sample: int | None = None
    backward_by_operator: dict[str, int] = field(default_factory=dict)
    backward_method: str = NOT_ASKED


def flops_of(torch: Any, model: Any, batch: Batch, *, backward: bool = False) -> Flops:
    """Counts one forward pass over a batch, and the backward pass with `backward`."""
    # A compiled model is counted as eager code.
    model = getattr(model, "_orig_mod", model)
    forward_count = _counted(torch, batch.size, lambda: batch.fed_to(model))
    if not backward:
        return Flops(forward_count.total, forward_count.by_operator, batch.size, forward_count.why or METHOD)
    _make_differentiable(torch, model)
    with torch.enable_grad():
        try:
            outputs = _needing_gradients(torch, batch.fed_to(model))
            parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
            back = _counted(torch, batch.size, lambda: _run_backward(torch, outputs, parameters))
        except RuntimeError as error:
            # Out of memory for the gradients, or a part of the model has none.
            back = _Count(None, {}, f"not counted: {_first_line(error)}")
    return Flops(
        forward_count.total,
        forward_count.by_operator,
        batch.size,
        forward_count.why or METHOD,
        back.total,
        back.by_operator,
        back.why or BACKWARD_METHOD,
    )


@dataclass(frozen=True)
class _Count:
    total: int | None
    by_operator: dict[str, int]
    why: str = ""
    """Why it could not be counted; empty if it was."""


def _counted(torch: Any, samples: int, work: Any) -> _Count:
    """Counts the operations of a function per sample."""
    from torch.utils.flop_counter import FlopCounterMode  # lazy: torch is an extra

    counter = FlopCounterMode(display=False, custom_mapping=formulas(torch))
    unknown: list[str] = []
    try:
        # The counter is the inner mode: operators it decomposes are seen as their parts.
        with _eager(torch), _watching(counter.flop_registry, unknown), counter:
            work()
    except (NotImplementedError, TypeError, torch.jit.Error) as error:
        # Script modules and modules with packed weights cannot be traced operator by operator.
        return _Count(None, {}, f"not counted: {_first_line(error)}")
    counts = counter.get_flop_counts().get("Global", {})
    ordered = sorted(counts.items(), key=lambda item: -item[1])
    by_operator = {str(operator): int(count) // samples for operator, count in ordered}
    if unknown:
        return _Count(None, by_operator, f"not counted: {'; '.join(unknown)}")
    return _Count(counter.get_total_flops() // samples, by_operator)


def _watching(registry: Any, unknown: list[str]) -> Any:
    """A mode that collects the operators that cannot be counted."""
    from torch.utils._python_dispatch import TorchDispatchMode  # lazy: torch is an extra

    class Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch's own is untyped
        def __torch_dispatch__(self, operator: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            packet = getattr(operator, "overloadpacket", operator)
            why = why_unknown(str(packet), args, has_formula=packet in registry)
            if why is not None and why not in unknown:
                unknown.append(why)
            return operator(*args, **(kwargs or {}))

    return Watch()  # type: ignore[no-untyped-call]


@contextlib.contextmanager
def _eager(torch: Any) -> Iterator[None]:
    """Runs compiled parts eagerly: nothing can be counted inside a compiled graph."""
    set_stance = getattr(torch.compiler, "set_stance", None)
    with contextlib.nullcontext() if set_stance is None else set_stance("force_eager"):
        yield


def _make_differentiable(torch: Any, model: Any) -> None:
    """Puts recurrent layers into training mode: cuDNN's have no gradients in evaluation mode.

    The caller, which has put the model into evaluation mode, restores the modes.
    """
    for part in model.modules():
        if isinstance(part, torch.nn.RNNBase):
            part.training = True


def _needing_gradients(torch: Any, outputs: Any) -> list[Any]:
    """The tensors among a model's outputs that require gradients."""
    if isinstance(outputs, torch.Tensor):
        return [outputs] if outputs.requires_grad else []
    parts = outputs.values() if hasattr(outputs, "values") else outputs
    if not isinstance(outputs, dict | list | tuple):
        return []
    return [tensor for part in parts for tensor in _needing_gradients(torch, part)]


def _run_backward(torch: Any, outputs: list[Any], parameters: list[Any]) -> None:
    if not outputs or not parameters:
        return  # frozen, or without parameters: there is no backward pass
    # Not backward(): that would change the gradients of a training, and call its hooks.
    gradients = [torch.ones_like(output) for output in outputs]
    torch.autograd.grad(outputs, parameters, gradients, allow_unused=True)


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
