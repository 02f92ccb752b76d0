"""Conditions of alert rules and filters of runs read the same numbers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepscope.alerts.conditions.expression import parse
from stepscope.schema.notation import DURATIONS, PERCENT, SIZES, number_in
from stepscope.views.runs.filter_terms import number_of

KINDS = {
    **dict.fromkeys(DURATIONS, "length"),
    **dict.fromkeys(SIZES, "size"),
    **dict.fromkeys(PERCENT, "share"),
}
NUMBERS = st.sampled_from(["0", "1", "7", "0.3", ".25", "12.", "1e3", "2.5E-4", "1234.567", "99"])


@given(NUMBERS, st.sampled_from(sorted(KINDS)))
def test_a_number_with_a_unit_means_the_same_in_both(number: str, unit: str) -> None:
    assert parse(f"x > {number}{unit}").right.value == number_of(f"{number}{unit}", KINDS[unit])


@given(st.lists(st.tuples(NUMBERS, st.sampled_from(sorted(DURATIONS))), min_size=2, max_size=4))
def test_a_duration_of_several_parts_means_the_same_in_both(parts: list[tuple[str, str]]) -> None:
    text = "".join(number + unit for number, unit in parts)
    assert parse(f"age(x) > {text}").right.value == number_of(text, "length")
    assert number_in(text, DURATIONS) == pytest.approx(
        sum(number_in("".join(part), DURATIONS) for part in parts)
    )


@pytest.mark.parametrize("text", ["", "s", "5", "1h 30m", "5GiB", "1h30", "-1h", "9e999h", "٣s"])
def test_anything_else_is_not_a_duration(text: str) -> None:
    with pytest.raises(ValueError, match="is not a number|is too large"):
        number_in(text, DURATIONS)
