"""Says in a short text how far a client has come in a run, so that it can go on after any interruption.

The text holds how many points of each series it has: series that are logged together have the same number,
and stand in it as one group. It means the same to every server of the store, also after a restart.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

LONGEST = 6000
"""A cursor beyond this many bytes would not fit into a header; its client reads anew instead."""


@dataclass(frozen=True)
class Position:
    """How far somebody has come in a run."""

    counts: Mapping[int, int]
    """Points of each series, by its number in the store."""
    event_id: int
    """The newest event."""
    at_ms: int
    """When that was."""
    documents: int = 0
    """Differs where alerts or findings do."""


def written(run_id: str, position: Position) -> str:
    """The position as text."""
    numbers = [position.at_ms, position.event_id, position.documents]
    end = 0
    for first, length, count in _groups(position.counts):
        numbers += [first - end, length, count]
        end = first + length
    packed = _mark(run_id) + b"".join(map(_varint, numbers))
    if len(packed) > LONGEST:
        packed = _mark(run_id)
    return base64.urlsafe_b64encode(packed).decode().rstrip("=")


def read(run_id: str, text: str) -> Position | None:
    """The position a text stands for; None for a text of another run, another store or nobody's."""
    try:
        packed = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (ValueError, binascii.Error):
        return None
    if packed[:4] != _mark(run_id) or len(packed) > LONGEST:
        return None
    numbers = list(_numbers(packed[4:]))
    if len(numbers) < 3 or len(numbers) % 3:
        return None
    counts: dict[int, int] = {}
    end = 0
    for at in range(3, len(numbers), 3):
        first, length, count = end + numbers[at], numbers[at + 1], numbers[at + 2]
        if length > 1_000_000 - len(counts):  # nobody has so many series
            return None
        end = first + length
        counts.update(dict.fromkeys(range(first, end), count))
    return Position(counts, numbers[1], numbers[0], numbers[2])


def _mark(run_id: str) -> bytes:
    return zlib.crc32(run_id.encode("utf-8", "surrogatepass")).to_bytes(4, "little")


def _groups(counts: Mapping[int, int]) -> Iterator[tuple[int, int, int]]:
    """First number, how many follow each other, and the points they all have."""
    first = length = held = 0
    for number in sorted(counts):
        if length and number == first + length and counts[number] == held:
            length += 1
            continue
        if length:
            yield first, length, held
        first, length, held = number, 1, counts[number]
    if length:
        yield first, length, held


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
