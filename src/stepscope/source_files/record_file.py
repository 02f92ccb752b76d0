"""Reads the records of a TFRecord file, and checks the checksum of each.

===== ==================================================
bytes meaning
===== ==================================================
8     length of the content, little-endian
4     checksum of the length
n     content
4     checksum of the content
===== ==================================================

A checksum is the CRC-32C, rotated, plus a constant. Python has no CRC-32C; 60 ns a byte are no loss, because
parsing a record of numbers takes longer.
"""

from __future__ import annotations

import os
import struct
from typing import TYPE_CHECKING, BinaryIO

from stepscope.source_files.source_folder import damaged

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MAX_RECORD = 4 << 20
"""Longer records are passed over unread: they hold pictures, audio or graphs."""

_LENGTH, _CHECKSUM = struct.Struct("<Q"), struct.Struct("<I")
_HEAD_BYTES = _LENGTH.size + _CHECKSUM.size
_MASK_DELTA = 0xA282EAD8
_POLYNOMIAL = 0x82F63B78


def records_of(file: BinaryIO, path: Path) -> Iterator[tuple[int, bytes | None]]:
    """The position and the content of each record; None for a last one that is cut off, as after a kill.

    The content is empty where a record is passed over unread. Raises SourceError for damage.
    """
    while True:
        at = file.tell()
        head = file.read(_HEAD_BYTES)
        if not head:
            return
        if len(head) < _HEAD_BYTES:
            yield at, None
            return
        _check(head[: _LENGTH.size], head[_LENGTH.size :], f"byte {at}", path)
        (length,) = _LENGTH.unpack_from(head)
        left = os.fstat(file.fileno()).st_size - file.tell()
        if length > left + (1 << 30):
            raise damaged(path, f"byte {at}", f"a record of {length:,} bytes where {max(left, 0):,} are left")
        if length + _CHECKSUM.size > left:
            yield at, None
            return
        if length > MAX_RECORD:
            file.seek(length + _CHECKSUM.size, os.SEEK_CUR)
            yield at, b""
            continue
        content = file.read(length)
        _check(content, file.read(_CHECKSUM.size), f"byte {at + _HEAD_BYTES}", path)
        if content:
            yield at, content


def crc32c(content: bytes) -> int:
    """The CRC-32C (Castagnoli) of some bytes."""
    crc, table = 0xFFFF_FFFF, _TABLE
    for byte in content:
        crc = table[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFF_FFFF


def masked_checksum(content: bytes) -> bytes:
    """The checksum as it is in the file."""
    crc = crc32c(content)
    return _CHECKSUM.pack(((crc >> 15 | crc << 17) + _MASK_DELTA) & 0xFFFF_FFFF)


def _check(content: bytes, checksum: bytes, place: str, path: Path) -> None:
    if masked_checksum(content) != checksum:
        raise damaged(path, place, "its checksum is wrong")


def _table() -> list[int]:
    table = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = crc >> 1 ^ (_POLYNOMIAL if crc & 1 else 0)
        table.append(crc)
    return table


_TABLE = _table()
