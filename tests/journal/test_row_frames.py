"""Rows are packed to the same bytes in C and in Python."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
    sequences = list(range(first, first + len(rows)))
    assert row_frames(head, rows, sequences) == row_frames_in_python(head, rows, sequences)


@pytest.mark.parametrize(
    "rows", [[(1, 2, "x")], [(1, 2, 3.0), (1, 2)], [(2**70, 1, 1.0)], [(1, 2, 3.0)] * 2, ["row"]], ids=str
)
def test_what_is_no_row_is_refused(rows: list[tuple[int | float, ...]]) -> None:
    with pytest.raises((TypeError, ValueError, OverflowError, SystemError, struct.error)):
        row_frames(1, rows, [1])
