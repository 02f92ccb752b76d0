"""Chooses how the values of a row are packed, by the types in the first row of its key set."""

from __future__ import annotations

import functools
import struct
from typing import TYPE_CHECKING, Any
from zlib import crc32

from stepscope.errors import ValuesOnDevice
from stepscope.journal import layout

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from stepscope.journal.segment import KeySet

_packers: dict[int, Callable[..., bytes]] = {}


def key_set(metrics: Mapping[Any, Any], set_id: int) -> KeySet:
    """Chooses how rows are packed by the types of the first: a key that was a tensor once stays one."""
    count = len(metrics)
    pack = _packers.get(count)
    if pack is None:
        pack = _packers[count] = layout.row_struct(count).pack
    if any(getattr(value, "is_cuda", False) is True for value in metrics.values()):
        pack = functools.partial(_pack_unless_on_device, pack)
    elif any(_has_item(value) for value in metrics.values()):
        pack = functools.partial(_pack_items, pack)
    return pack, layout.head_word(layout.ROW, layout.row_length(count), set_id)


def unpacked_rows(rows: bytes, keys: int) -> list[tuple[Any, ...]]:
    """Unpacks consecutive rows: the time, the step, and a value for each key of each row."""
    return list(struct.iter_unpack(f"<qq{keys}d", rows))


def row_frames_in_python(head: int, rows: bytes, fields: int, sequences: list[int]) -> bytes:
    """Makes consecutive frames of packed rows of one key set, each with its number."""
    if len(rows) != 8 * fields * len(sequences):
        raise ValueError(f"{len(rows)} bytes are not {len(sequences)} rows of {fields} fields")
    frames, first = [], layout.HEAD_WORD.pack(head)
    for at, sequence in zip(range(0, len(rows), 8 * fields), sequences, strict=True):
        packed = first + rows[at : at + 8 * fields]
        frames.append(packed + layout.TRAILER.pack(crc32(packed, sequence), sequence))
    return b"".join(frames)


if TYPE_CHECKING:
    row_frames = row_frames_in_python
else:
    try:
        from stepscope.journal import _row_frames

        row_frames = _row_frames.row_frames
    except ImportError:
        row_frames = row_frames_in_python


def _pack_items(pack: Callable[..., bytes], *fields: Any) -> bytes:
    """Packs arrays and tensors of one element by `item()`, which avoids the warning of a conversion."""
    return pack(*(field.item() if _has_item(field) else field for field in fields))


def _pack_unless_on_device(pack: Callable[..., bytes], *fields: Any) -> bytes:
    """Packs values in host memory; refuses values on a GPU, which the caller converts and passes again."""
    if any(getattr(field, "is_cuda", False) is True for field in fields):
        raise ValuesOnDevice("these numbers are on a GPU")
    return _pack_items(pack, *fields)


def _has_item(value: object) -> bool:
    return not isinstance(value, float) and hasattr(value, "item")
