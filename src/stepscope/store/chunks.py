"""Packs columns of numbers without loss: every float64 is restored bit for bit."""

from __future__ import annotations

import struct
import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import zstandard

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Floats = NDArray[np.float64]

# A packed column is one byte that names the packing, then its bytes. Numbers below are on disk: add only.
CONSTANT, RANGE, DELTA, DOUBLE, DOUBLE_DELTA, SINGLE, WHOLE = range(7)

_LEVEL = 3
_TRIAL_ROWS = 512
_RANGE = struct.Struct("<qq")
_MAX_WHOLE = 2.0**53

_MAX_ROWS = 1 << 20


class _Contexts(threading.local):
    """One pair for each thread: a context that two threads share crashes the process."""

    def __init__(self) -> None:
        self.compress = zstandard.ZstdCompressor(level=_LEVEL, write_checksum=True).compress
        self.decompress = zstandard.ZstdDecompressor().decompress


_zstd = _Contexts()


def pack_ints(values: Ints) -> bytes:
    """Packs integers; a constant stride, as steps have, takes 17 bytes for any length."""
    if len(values) == 0:
        return bytes([RANGE]) + _RANGE.pack(0, 0)
    deltas = np.diff(values)
    if len(deltas) == 0 or (deltas == deltas[0]).all():
        stride = int(deltas[0]) if len(deltas) else 0
        return bytes([RANGE]) + _RANGE.pack(int(values[0]), stride)
    return bytes([DELTA]) + _shuffle(_deltas(values))


def unpack_ints(data: bytes, count: int) -> Ints:
    """Unpacks what `pack_ints` packed; raises ValueError or ZstdError where it is damaged."""
    _check_count(count)
    if data[0] == RANGE:
        start, stride = _RANGE.unpack_from(data, 1)
        values: Ints = start + stride * np.arange(count, dtype=np.int64)
        return values
    return _undo_deltas(_unshuffle(data, "<i8", count))


def pack_floats(values: Floats) -> bytes:
    """Packs float64 with the smallest encoding that keeps every bit."""
    values = np.ascontiguousarray(values)
    bits = values.view(np.int64)
    if len(bits) and (bits == bits[0]).all():
        return bytes([CONSTANT]) + values[:1].tobytes()
    whole = _as_whole(values, bits)
    if whole is not None:
        return bytes([WHOLE]) + _shuffle(_deltas(whole))
    with np.errstate(over="ignore", invalid="ignore"):
        singles = values.astype(np.float32)
    if (singles.astype(np.float64).view(np.int64) == bits).all():
        return bytes([SINGLE]) + _shuffle(singles)
    trial = bits[:_TRIAL_ROWS]
    if len(_shuffle(_deltas(trial))) < len(_shuffle(trial)):
        return bytes([DOUBLE_DELTA]) + _shuffle(_deltas(bits))
    return bytes([DOUBLE]) + _shuffle(values)


def unpack_floats(data: bytes, count: int) -> Floats:
    """Unpacks what `pack_floats` packed; raises ValueError or ZstdError where it is damaged."""
    _check_count(count)
    return _UNPACKERS[data[0]](data, count)


def _check_count(count: int) -> None:
    """Raises ValueError for a length no block has, before memory is allocated for a damaged file."""
    if not 0 <= count <= _MAX_ROWS:
        raise ValueError(f"a packed column cannot hold {count} numbers")


def _as_whole(values: Floats, bits: Ints) -> Ints | None:
    with np.errstate(invalid="ignore"):
        if not (np.abs(values) < _MAX_WHOLE).all():
            return None
        whole = values.astype(np.int64)
    # Compared as bits, since -0.0 equals 0.0 and must not become it.
    return whole if (whole.astype(np.float64).view(np.int64) == bits).all() else None


def _deltas(values: Ints) -> Ints:
    """Differences with wrap-around, so that they can always be undone."""
    unsigned = values.view(np.uint64)
    deltas = np.empty_like(unsigned)
    deltas[:1] = unsigned[:1]
    np.subtract(unsigned[1:], unsigned[:-1], out=deltas[1:])
    return deltas.view(np.int64)


def _undo_deltas(deltas: Ints) -> Ints:
    return np.cumsum(deltas.view(np.uint64), dtype=np.uint64).view(np.int64)


def _shuffle(values: NDArray[np.generic]) -> bytes:
    """Groups all first bytes, then all second bytes, and compresses them: similar bytes compress well."""
    planes = values.view(np.uint8).reshape(len(values), values.itemsize).T
    return _zstd.compress(np.ascontiguousarray(planes).tobytes())


def _unshuffle(data: bytes, kind: str, count: int) -> NDArray[Any]:
    width = np.dtype(kind).itemsize
    packed = data[1:]
    if zstandard.frame_content_size(packed) != width * count:
        raise ValueError(f"a packed column does not hold {count} numbers")
    planes = np.frombuffer(_zstd.decompress(packed), np.uint8).reshape(width, count)
    return np.ascontiguousarray(planes.T).reshape(-1).view(kind)


def _unpack_constant(data: bytes, count: int) -> Floats:
    # Repeated as bits: a NaN's payload would not survive arithmetic on some processors.
    return np.repeat(np.frombuffer(data, "<i8", 1, 1), count).view(np.float64)


_UNPACKERS: dict[int, Callable[[bytes, int], Floats]] = {
    CONSTANT: _unpack_constant,
    WHOLE: lambda data, count: _undo_deltas(_unshuffle(data, "<i8", count)).astype(np.float64),
    SINGLE: lambda data, count: _unshuffle(data, "<f4", count).astype(np.float64),
    DOUBLE: lambda data, count: _unshuffle(data, "<f8", count),
    DOUBLE_DELTA: lambda data, count: _undo_deltas(_unshuffle(data, "<i8", count)).view(np.float64),
}
