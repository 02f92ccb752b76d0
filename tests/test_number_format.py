"""Numbers as people read them: by one table of examples, which the page's own tests read as well."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from stepscope.number_format import number

EXAMPLES = json.loads(
    (Path(__file__).parents[1] / "ui" / "tests" / "format" / "numbers.json").read_text(encoding="utf-8")
)


@pytest.mark.parametrize(("value", "text"), EXAMPLES["four_digits"])
def test_a_number_is_written_as_the_page_writes_it(value: float, text: str) -> None:
    assert number(value) == text


@pytest.mark.parametrize(("value", "text"), EXAMPLES["three_digits"])
def test_a_number_is_rounded_to_the_digits_asked_for(value: float, text: str) -> None:
    assert number(value, 3) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (math.nan, "NaN"),
        (math.inf, "∞"),
        (-math.inf, "-∞"),
        (-3.25, "-3.25"),
        (-0.0, "0"),
        (5e-324, "4.94e-324"),
    ],
)
def test_what_is_not_finite_is_named_and_signs_are_kept(value: float, text: str) -> None:
    assert number(value) == text
