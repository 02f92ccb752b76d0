"""The small files of the kernel read whole, or as nothing."""

from __future__ import annotations

from pathlib import Path

from stepscope.devices.host.kernel_files import (
    drop_none,
    list_names,
    named_numbers,
    number_named,
    read_number,
    read_text,
    read_word,
)
from tests.devices.written import write


def test_what_is_not_there_or_no_file_reads_as_nothing(tmp_path: Path) -> None:
    assert read_text(tmp_path / "missing") is None
    assert read_text(tmp_path) is None
    assert read_word(tmp_path / "missing") is None
    assert read_number(tmp_path / "missing") is None
    assert list_names(tmp_path / "missing") == []


def test_a_file_longer_than_one_read_comes_whole(tmp_path: Path) -> None:
    write(tmp_path, {"long": "x" * 200_000})
    assert read_text(tmp_path / "long") == "x" * 200_000


def test_a_word_in_place_of_a_number_is_not_a_number(tmp_path: Path) -> None:
    write(tmp_path, {"limit": "max\n", "number": "-12\n", "empty": "\n"})
    assert read_number(tmp_path / "limit") is None
    assert read_number(tmp_path / "number") == -12
    assert read_word(tmp_path / "limit") == "max"
    assert read_word(tmp_path / "empty") is None


def test_numbers_are_found_by_their_whole_name_alone() -> None:
    text = "SwapCached: 7 kB\nCached: 5 kB\nCachedLater: 6 kB\nflags none\n"
    assert named_numbers(text) == {"SwapCached": 7, "Cached": 5, "CachedLater": 6}
    assert number_named(text, "Cached:") == 5
    assert number_named(text, "SwapCached:") == 7
    assert number_named(text, "Swap") is None
    assert number_named(text, "flags") is None


def test_fields_without_a_value_are_left_out_and_zero_is_a_value() -> None:
    assert drop_none({"a": 0, "b": None, "c": 2}) == {"a": 0, "c": 2}
