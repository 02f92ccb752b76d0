"""A cursor holds the exact position of a client in few characters, and no text makes it fail."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepscope.web.live import cursor
from stepscope.web.live.cursor import Position

COUNTS = st.dictionaries(st.integers(1, 10**6), st.integers(0, 10**12), max_size=60)


@given(COUNTS, st.integers(0, 10**9), st.integers(0, 10**14), st.integers(0, 2**32 - 1), st.text(max_size=20))
def test_a_position_comes_back_as_it_was(counts, event_id: int, at_ms: int, mark: int, run_id: str) -> None:
    position = Position(counts, event_id, at_ms, mark)
    text = cursor.encode(run_id, position)
    assert cursor.decode(run_id, text) == position
    assert set(text) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")


@given(st.text(max_size=200))
def test_any_text_is_a_position_or_none(text: str) -> None:
    position = cursor.decode("run", text)
    assert position is None or isinstance(position, Position)


@given(st.binary(max_size=60))
def test_any_bytes_behind_the_right_mark_are_a_position_or_none(raw: bytes) -> None:
    packed = cursor._checksum("run") + raw
    position = cursor.decode("run", base64.urlsafe_b64encode(packed).decode().rstrip("="))
    assert position is None or len(position.counts) <= 1_000_000


def test_series_that_are_logged_together_take_the_room_of_one() -> None:
    many = dict.fromkeys(range(1, 1001), 12_345) | dict.fromkeys(range(1001, 1101), 77)
    assert len(cursor.encode("run", Position(many, 3, 1_760_000_000_000))) < 40


def test_a_cursor_of_another_run_is_none_of_this_one() -> None:
    assert cursor.decode("b", cursor.encode("a", Position({1: 2}, 3, 4))) is None


def test_too_many_different_counts_make_a_cursor_that_cannot_be_resumed() -> None:
    text = cursor.encode("run", Position({number * 2: number for number in range(20_000)}, 0, 0))
    assert len(text) < 10
    assert cursor.decode("run", text) is None


@pytest.mark.parametrize("text", ["", "t1", "....", "AAAA" * 5000])
def test_text_that_is_not_a_cursor_gives_none(text: str) -> None:
    assert cursor.decode("run", text) is None
