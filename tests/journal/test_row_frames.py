"""Rows are packed to the same bytes in C and in Python."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepscope.journal.layout import row_length
from stepscope.journal.packing import row_frames, row_frames_in_python
from tests.packaging.compiler import can_compile

int64 = st.integers(-(2**63), 2**63 - 1)


@st.composite
def many_rows(draw: st.DrawFn) -> list[tuple[int | float, ...]]:
    keys = draw(st.integers(1, 5))
    return draw(st.lists(st.tuples(int64, int64, *[st.floats()] * keys), max_size=20))


@pytest.mark.skipif(not can_compile(), reason="there is no compiler here, or no headers of Python")
def test_it_is_compiled() -> None:
    assert row_frames is not row_frames_in_python, "`make setup` compiles it"


@given(st.integers(0, 2**64 - 1), many_rows(), st.integers(0, 2**31))
def test_the_bytes_are_the_same(head: int, rows: list[tuple[int | float, ...]], first: int) -> None:
    fields = len(rows[0]) if rows else 3
    packed = b"".join(struct.pack(f"<qq{fields - 2}d", *row) for row in rows)
    sequences = list(range(first, first + len(rows)))
    frames = row_frames(head, packed, fields, sequences)
    assert frames == row_frames_in_python(head, packed, fields, sequences)
    assert len(frames) == len(rows) * row_length(fields - 2)


@pytest.mark.parametrize("make", [row_frames, row_frames_in_python])
@pytest.mark.parametrize(
    ("packed", "fields"), [(bytes(8), 3), (bytes(48), 3), ("row", 3), (bytes(24), -1), (b"", 3)], ids=str
)
def test_values_that_are_not_a_row_are_refused(make: Any, packed: Any, fields: int) -> None:
    with pytest.raises((TypeError, ValueError)):
        make(1, packed, fields, [1])
