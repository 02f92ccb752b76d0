"""Encodes a client's position in a run as a short text, so that it can continue after an interruption.

The text holds how many points of each series the client has: series that are logged together have the same
number, and are one group. It means the same to every server of the store, also after a restart.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

MAX_BYTES = 6000
"""A longer cursor would not fit into a header; its client reads everything again instead."""


@dataclass(frozen=True)
class Position:
    """What a client has of a run."""

    counts: Mapping[int, int]
    """Points of each series, by its number in the store."""
    event_id: int
    """The newest event."""
    at_ms: int
    """When the client had that."""
    documents: int = 0
    """A checksum of alerts and findings."""


def encode(run_id: str, position: Position) -> str:
    """Writes a position as text."""
    numbers = [position.at_ms, position.event_id, position.documents]
    end = 0
    for first, length, count in _groups(position.counts):
        numbers += [first - end, length, count]
        end = first + length
    packed = _checksum(run_id) + b"".join(map(_varint, numbers))
    if len(packed) > MAX_BYTES:
        packed = _checksum(run_id)
    return base64.urlsafe_b64encode(packed).decode().rstrip("=")


def decode(run_id: str, text: str) -> Position | None:
    """Reads a position from text; None for a text of another run, or one that is no cursor."""
    try:
        packed = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (ValueError, binascii.Error):
        return None
    if packed[:4] != _checksum(run_id) or len(packed) > MAX_BYTES:
        return None
    numbers = list(_numbers(packed[4:]))
    if len(numbers) < 3 or len(numbers) % 3:
        return None
    counts: dict[int, int] = {}
    end = 0
    for at in range(3, len(numbers), 3):
        first, length, count = end + numbers[at], numbers[at + 1], numbers[at + 2]
        if length > 1_000_000 - len(counts):  # no run has so many series
            return None
        end = first + length
        counts.update(dict.fromkeys(range(first, end), count))
    return Position(counts, numbers[1], numbers[0], numbers[2])


def _checksum(run_id: str) -> bytes:
    return zlib.crc32(run_id.encode("utf-8", "surrogatepass")).to_bytes(4, "little")


def _groups(counts: Mapping[int, int]) -> Iterator[tuple[int, int, int]]:
    """For each group: its first series, how many series follow each other, and the points of each."""
    first = length = points = 0
    for number in sorted(counts):
        if length and number == first + length and counts[number] == points:
            length += 1
            continue
        if length:
            yield first, length, points
        first, length, points = number, 1, counts[number]
    if length:
        yield first, length, points


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def _numbers(packed: bytes) -> Iterator[int]:
    number = shift = 0
    for byte in packed:
        number |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            yield number
            number = shift = 0
        elif shift > 63:
            return
