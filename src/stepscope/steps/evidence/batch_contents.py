"""Reads a batch of any type: the number of its samples and tokens, and its tensors."""

from __future__ import annotations

import functools
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stepscope.steps.step_timer import StepTimer

SAMPLES, TOKENS, PADDING = "batch/samples", "batch/tokens", "batch/padding_ratio"

INPUT_IDS, MASK = "input_ids", "attention_mask"
"""The usual names of a text model's token tensor, and of the mask of the tokens that are not padding."""

MAX_COUNTED = 2**18
"""Padding is not counted in larger tensors."""

MIN_LENGTH = 16
"""Without a mask, padding is counted in rows of at least this length: shorter ones are rarely text."""

NUMBERS = "biuf"
"""The kinds of NumPy's types that are plain numbers."""

MAX_TENSORS = 16
MAX_DEPTH = 4

_SEQUENCES = (list, tuple)


@dataclass(frozen=True)
class BatchTensor:
    """One tensor or array of a batch: its path in the batch, shape, type and device."""

    place: str
    shape: tuple[int, ...]
    dtype: str
    device: str


class CurrentBatch:
    """The batch that the loop is working on, for the description of a failure.

    It is kept alive only while the loop's own iterator holds it. If the loop leaves in the middle of a batch,
    by `break` or an exception, only a description is kept.
    """

    def __init__(self, timer: StepTimer | None = None) -> None:
        self._timer = timer or StepTimer()
        self.micro_steps = 1
        """Number of batches in the current step."""
        self._left: list[BatchTensor] = []

    @property
    def held(self) -> Any:
        """The batch, from when the loop receives it until it is done with it."""
        return self._timer.held

    @held.setter
    def held(self, batch: Any) -> None:
        self._timer.held = batch

    def leave(self) -> None:
        """Releases the batch at the end of a pass, and keeps a description if the loop left in the middle."""
        held = self.held
        self._left = [] if held is None else describe_batch(held)
        self.held = None

    def described(self) -> list[BatchTensor]:
        """The tensors of the batch; empty if there is no batch."""
        return describe_batch(self.held) if self.held is not None else self._left


class BatchSize:
    """The samples, tokens and padding of the step that has just ended, from its last batch."""

    def __init__(self, batch: CurrentBatch) -> None:
        self._batch = batch

    def read(self, steps: int) -> Mapping[str, float]:
        """The samples, tokens and padding of the last step, without those that cannot be determined."""
        del steps
        batch = self._batch.held
        samples, tokens = count_samples(batch)
        counts = {SAMPLES: samples, TOKENS: tokens}
        micro_steps = self._batch.micro_steps
        values = {key: float(count * micro_steps) for key, count in counts.items() if count is not None}
        padding = padding_share(batch)
        return values if padding is None else {**values, PADDING: padding}

    def close(self) -> None:
        """Does nothing: reading needs no setup."""


def count_samples(batch: Any, depth: int = MAX_DEPTH) -> tuple[int | None, int | None]:
    """Samples and tokens of a batch; None for a number that cannot be determined.

    Samples are the first dimension of the first tensor. Tokens are the elements of `input_ids`, including
    padding, or of the first of two integer tensors of the same two-dimensional shape, as the inputs and
    targets of language models have.
    """
    if isinstance(batch, _SEQUENCES):
        return _count_in_sequence(batch, depth)
    if isinstance(batch, dict):
        return _count_in_mapping(batch, depth)
    shape = getattr(batch, "shape", None)
    if shape is not None:
        return (int(shape[0]) if len(shape) else None), None
    if isinstance(batch, Mapping):
        return _count_in_mapping(batch, depth)
    return _count_in_object(batch, depth)


def padding_share(batch: Any) -> float | None:
    """The share of a batch's tokens that is padding; None if it cannot be determined.

    It is counted in the attention mask, or as the value with which rows of tokens end and which occurs
    nowhere else. Only tensors on the host are read: reading another one would wait for the GPU.
    """
    inputs = batch[0] if isinstance(batch, _SEQUENCES) and batch else batch
    if not isinstance(inputs, Mapping):
        return _repeated_ends(_host_table(inputs))
    if MASK in inputs:
        return _zeros_in_mask(_host_table(inputs[MASK]))
    return _repeated_ends(_host_table(inputs.get(INPUT_IDS)))


def describe_batch(batch: Any) -> list[BatchTensor]:
    """The first tensors of a batch, at any depth."""
    tensors: list[BatchTensor] = []
    for place, tensor in _tensors(batch, "", MAX_DEPTH):
        shape = tuple(int(size) for size in tensor.shape)
        device = str(getattr(tensor, "device", "cpu"))
        tensors.append(BatchTensor(place, shape, _short(tensor.dtype), device))
        if len(tensors) == MAX_TENSORS:
            break
    return tensors


def _count_in_sequence(batch: Sequence[Any], depth: int) -> tuple[int | None, int | None]:
    if not batch or depth == 0:
        return None, None
    first = batch[0]
    shape = getattr(first, "shape", None)
    if shape is None:
        if _is_list_of_samples(batch):
            return len(first), None
        return count_samples(first, depth - 1)
    if not len(shape):
        return len(batch), None  # scalars that were not stacked
    tokens = None
    if len(shape) == 2 and len(batch) > 1 and _is_integer(first.dtype):
        targets = batch[1]
        if getattr(targets, "shape", None) == shape and _is_integer(targets.dtype):
            tokens = int(shape[0]) * int(shape[1])
    return int(shape[0]), tokens


def _host_table(tensor: Any) -> Any:
    """The array of a two-dimensional tensor of numbers on the host that is not large; None for any other."""
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    if numpy is None or not (type(tensor) is numpy.ndarray or (torch and isinstance(tensor, torch.Tensor))):
        return None  # a table of another library
    try:
        if len(tensor.shape) != 2 or not 0 < tensor.shape[0] * tensor.shape[1] <= MAX_COUNTED:
            return None
        if str(getattr(tensor, "device", "cpu")) != "cpu":
            return None
        array = tensor.detach().numpy() if hasattr(tensor, "detach") else tensor
    except (RuntimeError, TypeError):  # of a type that NumPy lacks, nested, or without values
        return None
    return array if array.dtype.kind in NUMBERS else None


def _zeros_in_mask(mask: Any) -> float | None:
    if mask is None or mask.min() < 0 or mask.max() != 1:
        return None  # not a mask of zeros and ones
    return float((mask == 0).mean())


def _repeated_ends(tokens: Any) -> float | None:
    if tokens is None or not _is_integer(tokens.dtype) or tokens.shape[1] < MIN_LENGTH:
        return None
    [(value, _)] = Counter(tokens[:, -1].tolist()).most_common(1)
    is_value = tokens == value
    # The first other value from the end; a row may consist of padding only.
    ends = (~is_value[:, ::-1]).argmax(axis=1) + is_value.all(axis=1) * tokens.shape[1]
    if ends.min() == ends.max() or int(ends.sum()) != int(is_value.sum()):
        return None
    return float(ends.sum() / tokens.size)


def _is_list_of_samples(batch: Sequence[Any]) -> bool:
    """Whether a batch consists of parallel lists, such as images of different sizes and their boxes."""
    lengths = {len(part) if isinstance(part, list | tuple) else None for part in batch}
    return len(batch) > 1 and len(lengths) == 1 and None not in lengths


@functools.lru_cache(maxsize=64)
def _is_integer(dtype: Any) -> bool:
    return _short(dtype) in ("int64", "int32", "uint16")


def _count_in_mapping(batch: Mapping[Any, Any], depth: int) -> tuple[int | None, int | None]:
    ids = batch.get(INPUT_IDS)
    shape = getattr(ids, "shape", None)
    if shape is not None and len(shape):
        tokens = 1
        for size in shape:
            tokens *= int(size)
        return int(shape[0]) if len(shape) > 1 else 1, tokens
    return _first_counted(batch.values(), depth)


def _count_in_object(batch: Any, depth: int) -> tuple[int | None, int | None]:
    """Counts in the fields of an object, such as a dataclass."""
    if isinstance(batch, str | bytes):
        return None, None
    fields = getattr(batch, "__dict__", None)
    return _count_in_mapping(fields, depth) if fields else (None, None)


def _first_counted(parts: Iterable[Any], depth: int) -> tuple[int | None, int | None]:
    for part in parts:
        shape = getattr(part, "shape", None)
        if shape is not None and len(shape):
            return int(shape[0]), None
    for part in parts:
        if depth and isinstance(part, Mapping | list | tuple):
            samples, tokens = count_samples(part, depth - 1)
            if samples is not None:
                return samples, tokens
    return None, None


def _tensors(part: Any, place: str, depth: int) -> Iterator[tuple[str, Any]]:
    if hasattr(part, "shape") and hasattr(part, "dtype"):
        yield place, part
        return
    if depth == 0 or isinstance(part, str | bytes):
        return
    inner: Iterable[tuple[Any, Any]] = ()
    if isinstance(part, Mapping):
        inner = part.items()
    elif isinstance(part, list | tuple):
        inner = enumerate(part[:MAX_TENSORS])
    elif hasattr(part, "__dict__"):
        inner = vars(part).items()
    for name, value in inner:
        yield from _tensors(value, f"{place}.{name}" if place else str(name), depth - 1)


def _short(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")
