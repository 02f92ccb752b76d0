"""Splits a protobuf message into its fields.

Written by hand, because the libraries that know these messages are those of the other tools: importing
tensorboardX takes 1.7 s, wandb 0.3 s, and a machine on which old runs are read may have neither.
"""

from __future__ import annotations

import struct
from array import array
from typing import TYPE_CHECKING

from stepscope.source_files.cells import nanoseconds

if TYPE_CHECKING:
    from collections.abc import Iterator

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5

_DOUBLE, _FLOAT = struct.Struct("<d"), struct.Struct("<f")


def fields_of(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a message in order: the number of each, and an integer or its bytes.

    Raises ValueError where the bytes are not a message.
    """
    at, end = 0, len(message)
    while at < end:
        head, at = _varint(message, at)
        kind = head & 7
        if kind == VARINT:
            value, at = _varint(message, at)
            yield head >> 3, value
            continue
        if kind == BYTES:
            size, at = _varint(message, at)
        elif kind in (FIXED64, FIXED32):
            size = 8 if kind == FIXED64 else 4
        else:
            raise ValueError(f"a field of the unknown kind {kind}")
        if size > end - at:
            raise ValueError(f"a field of {size} bytes where {end - at} are left")
        yield head >> 3, message[at : at + size]
        at += size


def first(message: bytes, number: int) -> bytes:
    """The bytes of a field; empty where it is not there. The last one counts."""
    content = b""
    for field, value in fields_of(message):
        if field == number and isinstance(value, bytes):
            content = value
    return content


def text(message: bytes, number: int) -> str:
    """The text of a field; raises ValueError for one that is not UTF-8."""
    return first(message, number).decode()


def integer(message: bytes, number: int) -> int:
    """The integer of a field, which may be negative; 0 where it is not there."""
    packed_number = 0
    for field, value in fields_of(message):
        if field == number and isinstance(value, int):
            packed_number = value
    return signed(packed_number)


def packed(raw: bytes) -> array[int]:
    """The integers of a packed list."""
    numbers, at = array("Q"), 0
    while at < len(raw):
        number, at = _varint(raw, at)
        numbers.append(number)
    return numbers


def signed(value: int | bytes) -> int:
    """An int64 as it was packed."""
    number = _integer(value)
    return number - (1 << 64) if number >= 1 << 63 else number


def double(value: int | bytes) -> float:
    """A number of eight bytes."""
    return float(_DOUBLE.unpack(_bytes(value))[0])


def single(value: int | bytes) -> float:
    """A number of four bytes."""
    return float(_FLOAT.unpack(_bytes(value))[0])


def timestamp_ns(message: bytes) -> int:
    """A `google.protobuf.Timestamp` in ns since the epoch; 0 for an empty one.

    Raises ValueError for one that is not a time.
    """
    second, rest_ns = integer(message, 1), integer(message, 2)
    if not 0 <= rest_ns < 10**9:
        raise ValueError(f"a time with {rest_ns} ns beside its seconds, expected less than 1 s")
    return nanoseconds(second) + rest_ns


def _integer(value: int | bytes) -> int:
    if not isinstance(value, int):
        raise ValueError("a field of bytes where an integer belongs")  # noqa: TRY004 - damage, not a wrong call
    return value


def _bytes(value: int | bytes) -> bytes:
    if not isinstance(value, bytes):
        raise ValueError("an integer where a field of bytes belongs")  # noqa: TRY004 - damage, not a wrong call
    return value


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(message) or shift > 63:
            raise ValueError("an integer without an end")
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFF_FFFF_FFFF_FFFF, at
        shift += 7
