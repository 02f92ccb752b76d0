"""The byte layout of a journal file: header, frames, checksums, version.

Header, 64 bytes, little-endian:

====== ======= ==============================================================
offset size    meaning
====== ======= ==============================================================
0      8       magic ``STEPJRNL``
8      8       committed length: every byte before it is complete; 0: the file's size
16     8       committed count: frames that carry data, before that length; 0: not known
24     4       version
28     1       1 once the writer will add nothing more to this file
29     1       1 once the agent asks the writer to continue in a new file
30     1       1 once the store has every record of this file; the agent deletes it next
31     1       0
32     8       file id, random: the store keeps offsets by it, names may be reused
40     8       wall clock minus monotonic clock in ns, when the process began
48     8       numbers below the count that no frame has, not even a ``VOID``: there was no room for one
56     4       CRC-32 of magic, version, file id and clock; 0: written by a version that had none
60     4       how far the store has this file, in units of eight bytes; only marked while the agent is behind
====== ======= ==============================================================

A frame is a multiple of eight bytes, so consecutive rows of one key set are one array:

====== ======= ==============================================================
offset size    meaning
====== ======= ==============================================================
0      2       marker, to find the next frame after damage
2      2       length of the frame in units of eight bytes
4      4       kind in the top four bits, key-set id in the rest
8      ...     payload
-8     4       CRC-32 of all before it, started with the sequence number
-4     4       sequence number of this frame among those that carry data
====== ======= ==============================================================

Payloads: ``KEYS`` a JSON list of names; ``ROW`` monotonic time in ns, step, one float64 a key;
``EVENT``, ``OPEN`` and ``END`` a JSON object; ``ARRAY`` the length of a JSON object, that object, raw
bytes; ``PAD`` nothing; ``VOID`` nothing either, in place of a frame that was written to the next file with a
number of that file. JSON is padded with blanks.

Every ``KEYS`` is written three times: before the first row that needs it, shortly after that row, and, once
the file is complete, at its end, which may lie after unused zeros.

An ``EVENT`` has its origin in place of the key-set id: 1 stepscope's own, with its fields beside `kind`,
`step` and `time`; 2 the user's, with the fields in a separate object, so that no name a user chooses can be
mistaken for one of ours; 0 unknown, written by a version that did not distinguish them.
"""

from __future__ import annotations

import json
import math
import struct
from typing import Any, Final
from zlib import crc32

from stepscope.errors import JournalError

MAGIC: Final = b"STEPJRNL"
VERSION: Final = 1

HEADER: Final = struct.Struct("<8sQQIBBHQqQI4x")
HEADER_BYTES: Final = 64
COMMITTED: Final = slice(8, 24)
COUNT_AT: Final = 16
UNUSED_NUMBERS: Final = slice(48, 56)
CLOSED_AT: Final = 28
RETIRE_AT: Final = 29
STORED_AT: Final = 30
STORED_SO_FAR: Final = slice(60, 64)
FILE_ID: Final = slice(32, 40)

MARKER: Final = 0xA55C
MARKER_BYTES: Final = MARKER.to_bytes(2, "little")
HEAD: Final = struct.Struct("<HHI")
HEAD_WORD: Final = struct.Struct("<Q")
TRAILER: Final = struct.Struct("<II")
JSON_LENGTH: Final = struct.Struct("<Q")
MIN_FRAME: Final = HEAD.size + TRAILER.size
MAX_FRAME: Final = 0xFFFF * 8

KEYS, ROW, EVENT, ARRAY, OPEN, END, PAD, VOID = range(1, 9)
CARRY_DATA: Final = frozenset({ROW, EVENT, ARRAY, OPEN, END})
_NUMBERED: Final = CARRY_DATA | {VOID}
OF_UNKNOWN, OF_STEPSCOPE, OF_USER = range(3)
"""The origin of an event."""
NO_SEQUENCE: Final = 0xFFFFFFFF

PAD_BYTES: Final = 64
NAMES_BYTES: Final = 4096
"""Room at the end of a file for the names of its key sets, once more."""
MAX_INTEGER_BITS: Final = 4096
"""Python itself refuses to parse much longer integers."""


CLOCK_BASE: Final = "clock_base_ns"
"""The field of an opening that repeats the clock of the header."""
PREVIOUS: Final = "previous_file"
"""The field of an opening with the id of the previous file in the same folder; None in the first."""


def header_checksum(fields: tuple[Any, ...]) -> int:
    """The checksum of the constant part of a header, from its unpacked fields; never 0."""
    return crc32(struct.pack("<8sIQq", fields[0], fields[3], fields[7], fields[8])) or 1


def head_word(kind: int, length: int, set_id: int = 0) -> int:
    """The first eight bytes of a frame as one number."""
    return MARKER | (length // 8) << 16 | (kind << 28 | set_id) << 32


def row_struct(keys: int) -> struct.Struct:
    """Packs head, time, step and values of a row; the trailer follows."""
    return struct.Struct(f"<Qqq{keys}d")


def row_length(keys: int) -> int:
    """Bytes of a whole row frame."""
    return HEAD_WORD.size + 16 + 8 * keys + TRAILER.size


def frame(kind: int, payload: bytes, sequence: int = NO_SEQUENCE, set_id: int = 0) -> bytes:
    """Packs any frame except a row, which the writer packs itself."""
    padded = payload + b" " * (-len(payload) % 8)
    length = MIN_FRAME + len(padded)
    if length > MAX_FRAME:
        raise JournalError(
            f"A record of {length} bytes does not fit into the journal; at most {MAX_FRAME} bytes can "
            "be recorded at once. Log less of it."
        )
    body = HEAD_WORD.pack(head_word(kind, length, set_id)) + padded
    return body + TRAILER.pack(crc32(body, sequence), sequence)


def to_json(value: Any) -> bytes:
    """Packs a value as strict JSON; values that JSON does not know, including NaN, become text."""
    try:
        return json.dumps(value, separators=(",", ":"), default=str, allow_nan=False).encode()
    except (TypeError, ValueError):
        return json.dumps(json_safe(value), separators=(",", ":"), default=str).encode()


def json_safe(value: Any) -> Any:
    """The same value, with everything as text that JSON or a database cannot store."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, dict):
        return {clean(key): json_safe(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [json_safe(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, int) and value.bit_length() > MAX_INTEGER_BITS:
        return f"an integer of {value.bit_length()} bits"
    return value


def numbering(frames: bytes) -> tuple[int, int]:
    """The next sequence number after these frames, and how many numbers below it no frame has."""
    at = count = 0
    following = 0
    while at + MIN_FRAME <= len(frames):
        marker, units, kind_and_set = HEAD.unpack_from(frames, at)
        if marker != MARKER or units * 8 < MIN_FRAME or at + units * 8 > len(frames):
            break
        at += units * 8
        if kind_and_set >> 28 in _NUMBERED:
            _, sequence = TRAILER.unpack_from(frames, at - TRAILER.size)
            count += 1
            following = max(following, sequence + 1)
    return following, following - count


def clean(text: object) -> str:
    """Converts any key to text that every file and database can store; a lone surrogate is escaped."""
    return str(text).encode("utf-8", "backslashreplace").decode("utf-8")


def array_payload(fields: dict[str, Any], raw: bytes) -> bytes:
    """Packs an array's description and its bytes."""
    described = to_json(fields)
    return JSON_LENGTH.pack(len(described)) + described + raw
