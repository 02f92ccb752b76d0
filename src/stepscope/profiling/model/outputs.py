"""Compares what two models, or one model twice, make of the same inputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from stepscope.profiling.plain import Described


@dataclass(frozen=True)
class Difference(Described):
    """How far outputs lie from the ones they should be; over the values that are finite in both."""

    max_abs: float
    relative_l2_ratio: float
    """Length of the difference against the length of what it should be."""
    cosine_similarity: float
    top1_agreement_ratio: float | None
    """Share of rows with the same largest value; None where outputs are no scores of classes."""
    nonfinite: int
    """Values that are NaN or infinite in the outputs compared."""
    values: int
    """How many values were compared."""


def tensors_in(output: Any) -> Iterator[Any]:
    """Every tensor of an output, however it is wrapped."""
    if hasattr(output, "index_select"):
        yield output
    elif isinstance(output, Mapping):
        for part in output.values():
            yield from tensors_in(part)
    elif isinstance(output, list | tuple):
        for part in output:
            yield from tensors_in(part)
    elif is_dataclass(output) and not isinstance(output, type):
        for field in fields(output):
            yield from tensors_in(getattr(output, field.name))


def are_identical(torch: Any, one: Any, other: Any) -> bool:
    """Whether two outputs agree to the last bit."""
    pairs = list(zip(tensors_in(one), tensors_in(other), strict=True))
    return all(
        first.shape == second.shape
        and first.dtype == second.dtype
        and torch.equal(_bits(torch, first), _bits(torch, second))
        for first, second in pairs
    )


def difference(torch: Any, wanted: Any, got: Any) -> Difference | None:
    """How far an output lies from another one; None where there is nothing to compare."""
    expected, actual = _flat(torch, wanted), _flat(torch, got)
    if expected.numel() == 0 or expected.shape != actual.shape:
        return None
    is_known = expected.isfinite() & actual.isfinite()
    nonfinite = int((~actual.isfinite()).sum())
    expected, actual = expected[is_known], actual[is_known]
    if expected.numel() == 0:
        return None
    apart = actual - expected
    length, other_length = expected.norm().item(), actual.norm().item()
    return Difference(
        max_abs=apart.abs().max().item(),
        relative_l2_ratio=apart.norm().item() / length if length else apart.norm().item(),
        cosine_similarity=_cosine(torch.dot(expected, actual).item(), length * other_length),
        top1_agreement_ratio=_top1_agreement(wanted, got),
        nonfinite=nonfinite,
        values=int(expected.numel()),
    )


def _cosine(product: float, lengths: float) -> float:
    return product / lengths if lengths else 1.0


def _top1_agreement(wanted: Any, got: Any) -> float | None:
    """Looks at the first output alone: the scores, where a model gives more."""
    first, second = next(tensors_in(wanted)), next(tensors_in(got))
    if first.ndim < 2 or first.shape[-1] < 2 or not first.is_floating_point():
        return None
    agree = first.float().argmax(dim=-1).cpu() == second.float().argmax(dim=-1).cpu()
    return float(agree.float().mean().item())


def _flat(torch: Any, output: Any) -> Any:
    """All values in a row, on the host and in double precision."""
    parts = [tensor.detach().cpu().to(torch.float64).reshape(-1) for tensor in tensors_in(output)]
    return torch.cat(parts) if parts else torch.empty(0, dtype=torch.float64)


def _bits(torch: Any, tensor: Any) -> Any:
    return tensor.detach().reshape(-1).contiguous().view(torch.uint8)
