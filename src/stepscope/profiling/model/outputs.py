"""Compares the outputs of two models, or of one model called twice, for the same inputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from stepscope.profiling.plain_data import Described


@dataclass(frozen=True)
class Difference(Described):
    """The difference between outputs and the expected ones, over the values that are finite in both."""

    max_abs: float
    relative_l2_ratio: float
    """Norm of the difference divided by the norm of the expected output."""
    cosine_similarity: float
    top1_agreement_ratio: float | None
    """Share of rows with the same largest value; None if the outputs are not class scores."""
    nonfinite: int
    """Number of values that are NaN or infinite in the compared outputs."""
    values: int
    """Number of compared values."""


def tensors_in(output: Any) -> Iterator[Any]:
    """Yields all tensors of a nested output."""
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


def are_identical(torch: Any, first_output: Any, second_output: Any) -> bool:
    """Whether two outputs agree bit for bit."""
    pairs = list(zip(tensors_in(first_output), tensors_in(second_output), strict=True))
    return all(
        first.shape == second.shape
        and first.dtype == second.dtype
        and torch.equal(_bits(torch, first), _bits(torch, second))
        for first, second in pairs
    )


def difference(torch: Any, expected_output: Any, actual_output: Any) -> Difference | None:
    """The difference between two outputs; None if there is nothing to compare."""
    expected, actual = _flat(torch, expected_output), _flat(torch, actual_output)
    if expected.numel() == 0 or expected.shape != actual.shape:
        return None
    is_known = expected.isfinite() & actual.isfinite()
    nonfinite = int((~actual.isfinite()).sum())
    expected, actual = expected[is_known], actual[is_known]
    if expected.numel() == 0:
        return None
    error = actual - expected
    length, other_length = expected.norm().item(), actual.norm().item()
    return Difference(
        max_abs=error.abs().max().item(),
        relative_l2_ratio=error.norm().item() / length if length else error.norm().item(),
        cosine_similarity=_cosine(torch.dot(expected, actual).item(), length * other_length),
        top1_agreement_ratio=_top1_agreement(expected_output, actual_output),
        nonfinite=nonfinite,
        values=int(expected.numel()),
    )


def _cosine(product: float, lengths: float) -> float:
    return product / lengths if lengths else 1.0


def _top1_agreement(expected_output: Any, actual_output: Any) -> float | None:
    """Compares only the first output: the scores, if a model returns more."""
    first, second = next(tensors_in(expected_output)), next(tensors_in(actual_output))
    if first.ndim < 2 or first.shape[-1] < 2 or not first.is_floating_point():
        return None
    agree = first.float().argmax(dim=-1).cpu() == second.float().argmax(dim=-1).cpu()
    return float(agree.float().mean().item())


def _flat(torch: Any, output: Any) -> Any:
    """All values as one vector, on the host and in double precision."""
    parts = [tensor.detach().cpu().to(torch.float64).reshape(-1) for tensor in tensors_in(output)]
    return torch.cat(parts) if parts else torch.empty(0, dtype=torch.float64)


def _bits(torch: Any, tensor: Any) -> Any:
    return tensor.detach().reshape(-1).contiguous().view(torch.uint8)
