"""Takes journal files apart into frames, to know which rows a damage hits, and forges frames."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from stepscope.journal import layout


@dataclass(frozen=True)
class Frame:
    """Where one frame of a journal file begins and ends, and what it carries."""

    start: int
    end: int
    kind: int
    step: int | None
    """The step of a row, None for other kinds."""

    @property
    def carries_data(self) -> bool:
        """Whether the frame is counted when it is lost."""
        return self.kind in layout.CARRY_DATA

    def touches(self, start: int, end: int) -> bool:
        """Whether a stretch of bytes overlaps it."""
        return self.start < end and start < self.end


def frames_of(data: bytes) -> list[Frame]:
    """All frames of an undamaged journal file."""
    frames, at = [], layout.HEADER_BYTES
    while at + layout.MIN_FRAME <= len(data):
        marker, units, kind_and_set = layout.HEAD.unpack_from(data, at)
        if marker != layout.MARKER:
            break
        kind = kind_and_set >> 28
        step = int.from_bytes(data[at + 16 : at + 24], "little", signed=True) if kind == layout.ROW else None
        frames.append(Frame(at, at + units * 8, kind, step))
        at += units * 8
    return frames


def used_bytes(data: bytes) -> int:
    """How far a journal file is written; the rest is reserved space."""
    return frames_of(data)[-1].end


def with_frame(data: bytes, at: int, forged: bytes) -> bytes:
    """A file with a frame put in between two others, and the committed length that goes with it."""
    committed = int.from_bytes(data[8:16], "little")
    longer = bytearray(data[:at] + forged + data[at:])
    if committed:
        longer[8:16] = (committed + len(forged)).to_bytes(8, "little")
    return bytes(longer)


def forged_json(kind: int, value: object, sequence: int) -> bytes:
    """A frame with a valid checksum around any JSON value, or around raw bytes."""
    payload = value if isinstance(value, bytes) else json.dumps(value).encode()
    return layout.frame(kind, payload, sequence)


def opening_of(path: Path) -> dict:
    """What the process of a journal file said of itself."""
    data = path.read_bytes()
    for frame in frames_of(data):
        if frame.kind == layout.OPEN:
            return json.loads(data[frame.start + layout.HEAD.size : frame.end - layout.TRAILER.size])
    raise ValueError(f"{path} has no opening")
