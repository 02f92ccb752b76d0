"""Aggregates columns into buckets whose edges are multiples of a power of two, and merges such buckets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from stepscope.schema.series import Buckets
from stepscope.store.chunks import pack_floats, pack_ints, unpack_floats, unpack_ints

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Floats = NDArray[np.float64]

NODE_BUCKETS = 64
"""The approximate number of buckets of a node of the pyramid, whatever it covers."""

FAN_OUT = 16
"""How many nodes of one level make one of the next."""


@dataclass(frozen=True)
class Rollup:
    """Buckets of several columns that share an axis; a column is the last index of the float arrays."""

    exponent: int
    """The bucket width is two to this power."""
    index: Ints
    """The start of each bucket as a multiple of the width, ascending."""
    count: Ints
    last_ns: Ints
    minimum: Floats
    maximum: Floats
    total: Floats
    last: Floats
    nonfinite: Ints


def exponent_for(low: int, high: int, buckets: int) -> int:
    """The exponent of the smallest width (a power of two) that covers low to high in at most `buckets`.

    There is always an edge at zero, so a range on both sides of it takes at least two buckets.
    """
    buckets = max(buckets, 2 if low < 0 <= high else 1)
    exponent = 0
    while (high >> exponent) - (low >> exponent) + 1 > buckets:
        exponent += 1
    return exponent


def roll_up(x: Ints, times: Ints, values: Floats, exponent: int) -> Rollup:
    """Aggregates raw rows; `values` has a row for each x. The last value is the one logged last."""
    index = x >> exponent
    if (index[1:] < index[:-1]).any():
        order = np.argsort(index, kind="stable")
        index, times, values = index[order], times[order], values[order]
    starts, ends = _groups(index)
    finite = np.isfinite(values)
    is_all_finite = finite.all()
    return Rollup(
        exponent=exponent,
        index=index[starts],
        count=ends - starts,
        last_ns=times[ends - 1],
        minimum=_finite(np.minimum.reduceat(_without(values, finite, np.inf, is_all_finite), starts)),
        maximum=_finite(np.maximum.reduceat(_without(values, finite, -np.inf, is_all_finite), starts)),
        total=_sums(_without(values, finite, 0.0, is_all_finite), starts),
        last=values[ends - 1],
        nonfinite=np.add.reduceat((~finite).astype(np.int64), starts),
    )


def merge(parts: Sequence[Rollup], exponent: int) -> Rollup:
    """Merges buckets of the same columns into buckets at least as wide as the widest of them."""
    index = np.concatenate([part.index >> (exponent - part.exponent) for part in parts])
    last_ns = np.concatenate([part.last_ns for part in parts])
    order = np.lexsort((last_ns, index))
    starts, ends = _groups(index[order])

    def joined(name: str) -> NDArray[np.float64]:
        return np.concatenate([getattr(part, name) for part in parts])[order]

    return Rollup(
        exponent=exponent,
        index=index[order][starts],
        count=np.add.reduceat(joined("count"), starts).astype(np.int64),
        last_ns=last_ns[order][ends - 1],
        minimum=np.fmin.reduceat(joined("minimum"), starts),
        maximum=np.fmax.reduceat(joined("maximum"), starts),
        total=_sums(joined("total"), starts),
        last=joined("last")[ends - 1],
        nonfinite=np.add.reduceat(joined("nonfinite"), starts).astype(np.int64),
    )


def as_buckets(rollup: Rollup | None, exponent: int) -> Buckets:
    """Converts the only column of a rollup into buckets for a reader."""
    if rollup is None:
        ints, floats = np.empty(0, np.int64), np.empty(0)
        return Buckets(1 << exponent, ints, ints, floats, floats, floats, floats, ints, floats)
    finite = rollup.count - rollup.nonfinite[:, 0]
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = np.where(finite > 0, rollup.total[:, 0] / finite, np.nan)
    return Buckets(
        width=1 << exponent,
        starts=rollup.index << exponent,
        count=rollup.count,
        minimum=rollup.minimum[:, 0],
        maximum=rollup.maximum[:, 0],
        mean=mean,
        last=rollup.last[:, 0],
        nonfinite=rollup.nonfinite[:, 0],
        times=rollup.last_ns / 1e9,
    )


def pack_axis(rollup: Rollup) -> list[bytes]:
    """Packs what all columns share: index, count, time of the last point."""
    return [pack_ints(rollup.index), pack_ints(rollup.count), pack_ints(rollup.last_ns)]


def pack_column(rollup: Rollup, column: int) -> bytes:
    """Packs one column of a rollup."""
    extremes = np.concatenate([rollup.minimum[:, column], rollup.maximum[:, column], rollup.last[:, column]])
    parts = [
        pack_floats(extremes),
        pack_floats(rollup.total[:, column]),
        pack_ints(rollup.nonfinite[:, column]),
    ]
    return b"".join(len(part).to_bytes(4, "little") + part for part in parts)


def unpack_column(exponent: int, buckets: int, axis: Sequence[bytes], data: bytes) -> Rollup:
    """Unpacks one column as a rollup."""
    parts, at = [], 0
    for _ in range(3):
        size = int.from_bytes(data[at : at + 4], "little")
        parts.append(data[at + 4 : at + 4 + size])
        at += 4 + size
    minimum, maximum, last = unpack_floats(parts[0], 3 * buckets).reshape(3, buckets, 1)
    index, count, last_ns = (unpack_ints(part, buckets) for part in axis)
    return Rollup(
        exponent=exponent,
        index=index,
        count=count,
        last_ns=last_ns,
        minimum=minimum,
        maximum=maximum,
        total=unpack_floats(parts[1], buckets).reshape(buckets, 1),
        last=last,
        nonfinite=unpack_ints(parts[2], buckets).reshape(buckets, 1),
    )


def join_columns(columns: Sequence[Rollup]) -> Rollup:
    """Joins columns with the same axis into one rollup."""
    first = columns[0]
    joined = {
        name: np.concatenate([getattr(column, name) for column in columns], axis=1)
        for name in ("minimum", "maximum", "total", "last", "nonfinite")
    }
    return Rollup(first.exponent, first.index, first.count, first.last_ns, **joined)


def _groups(index: Ints) -> tuple[Ints, Ints]:
    starts = np.flatnonzero(np.r_[True, index[1:] != index[:-1]])
    return starts, np.r_[starts[1:], len(index)]


def _sums(values: Floats, starts: Ints) -> Floats:
    # A sum beyond the range of float64 is infinite; a warning would appear in the user's output.
    with np.errstate(over="ignore", invalid="ignore"):
        return np.add.reduceat(values, starts)


def _without(
    values: Floats, finite: NDArray[np.bool_], replacement: float, is_all_finite: np.bool_
) -> Floats:
    return values if is_all_finite else np.where(finite, values, replacement)


def _finite(extremes: Floats) -> Floats:
    """A bucket without any finite value has no extreme: NaN, which merging ignores."""
    return np.where(np.isfinite(extremes), extremes, np.nan)
