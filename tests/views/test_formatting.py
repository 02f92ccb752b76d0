"""Formatted figures, and values that are safe for JSON."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepscope.number_format import number
from stepscope.views.formatting import (
    between,
    comparison,
    duration,
    percent,
    quantity,
    rate,
    signed_percent,
    size,
)
from stepscope.views.json_values import clean, finite, json_tree
from stepscope.views.runs.marks import Marks, NoMarks


@pytest.mark.parametrize(
    ("value", "unit", "shown"),
    [
        (0.0, "seconds", "0 ms"), (0.00064, "seconds", "640 µs"), (0.0312, "seconds", "31.2 ms"),
        (4.2, "seconds", "4.2 s"), (185, "seconds", "3 min 05 s"), (4320, "seconds", "1 h 12 min"),
        (183_600, "seconds", "2 d 03 h"), (-3.0, "seconds", "-3 s"), (512, "bytes", "512 B"),
        (1536, "bytes", "1.5 KiB"), (80.3 * 2**30, "bytes", "80.3 GiB"), (2.0**50, "bytes", "1024 TiB"),
        (-1024, "bytes", "-1 KiB"), (1e6, "bytes/s", "977 KiB/s"), (0.0512, "ratio", "5.1%"),
        (0.42, "ratio", "42%"), (0.0, "ratio", "0%"), (31.0, "%", "31%"), (85.0, "celsius", "85 °C"),
        (12_345.678, "", "12,350"), (0.000123456, "", "1.23e-4"),
        (4.0, "/s", "4 /s"), (1e20, "", "1e20"),
    ],
)  # fmt: skip
def test_a_number_is_formatted_for_its_unit(value: float, unit: str, shown: str) -> None:
    assert quantity(value, unit) == shown


def test_changes_have_a_sign() -> None:
    assert [signed_percent(value) for value in (0.5, -0.05, 0.0)] == ["+50%", "-5.0%", "0%"]


@pytest.mark.parametrize(
    ("ratio", "said"),
    [
        (1186.36, "1,187 times slower"), (75.34, "76.3 times slower"), (9.0, "10 times slower"),
        (8.9, "890% slower"), (0.12, "12% slower"), (-0.12, "12% faster"), (-0.9, "10 times faster"),
        (-1 + 1 / 1187, "1,187 times faster"), (-1.0, "100% faster"),
    ],
)  # fmt: skip
def test_a_change_of_ten_times_or_more_is_a_factor(ratio: float, said: str) -> None:
    assert comparison(ratio, "slower", "faster") == said


def test_a_rate_has_no_exponent() -> None:
    assert [rate(value, "steps") for value in (134_217.7, 4.0, 1563.2)] == [
        "134,000 steps/s", "4 steps/s", "1,560 steps/s",
    ]  # fmt: skip


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_any_finite_number_can_be_formatted(value: float) -> None:
    for word in (duration, size, percent, number):
        assert word(value)


@pytest.mark.slow
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_any_value_becomes_valid_json(value: object) -> None:
    json.dumps(json_tree(value), allow_nan=False, ensure_ascii=False).encode("utf-8")


def test_text_is_cut_and_lone_surrogates_are_replaced() -> None:
    assert clean("a\ud800b") == "a?b"
    assert clean("x" * 50, 10) == "x" * 9 + "…"
    assert (finite(float("nan")), finite(None), finite(2)) == (None, None, 2.0)


def test_runs_without_marks_have_no_names_tags_or_notes() -> None:
    marks: Marks = NoMarks()
    said = (
        marks.name("a"),
        marks.tags("a"),
        marks.archived("a"),
        marks.notes("a"),
        marks.colour("a"),
        marks.muted("a", "demo"),
    )
    assert said == (None, (), False, (), None, frozenset())


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.0312, "31.2 ms"),
        (0.99999, "1 s"),
        (59.97, "1 min 00 s"),
        (185, "3 min 05 s"),
        (4320, "1 h 12 min"),
        (183600, "2 d 03 h"),
    ],
)
def test_a_duration_has_two_units_at_most(seconds, words):
    assert duration(seconds) == words


@pytest.mark.parametrize(
    ("count", "words"),
    [(0, "0 B"), (1023, "1023 B"), (12_345, "12.1 KiB"), (1023 * 2**30, "1023 GiB"), (5 * 2**40, "5 TiB")],
)
def test_a_size_has_a_fitting_unit(count, words):
    assert size(count) == words


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [
        ("30 ms", "33 ms", "30 to 33 ms"),
        ("30 ms", "30 ms", "30 ms"),
        ("900 µs", "1.2 ms", "900 µs to 1.2 ms"),
        ("1 d 03 h", "3 d 11 h", "1 d 03 h to 3 d 11 h"),
        ("0.39", "0.43", "0.39 to 0.43"),
    ],
)
def test_a_range_has_its_unit_once(low: str, high: str, text: str) -> None:
    assert between(low, high) == text
