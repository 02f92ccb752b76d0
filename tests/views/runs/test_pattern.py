"""Regular expressions of filters: they match as elsewhere, in any alphabet, and none takes long."""

from __future__ import annotations

import re
import warnings

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from stepscope.views.runs.pattern import MAX_CHARACTERS, PatternError, compile_pattern


@pytest.mark.parametrize(
    ("expression", "matching", "other"),
    [
        ("abc", "xabcx", "ab"),
        ("^run-[0-9]+$", "run-12", "run-12b"),
        (r"\d{2,3}-\w+", "12-ab", "1-ab"),
        ("a|b|", "", None),
        ("(ab)+c", "ababc", "aab"),
        ("[^a-c]z", "dz", "az"),
        ("a.c", "a\nc", "ac"),
        (r"a\.c", "a.c", "abc"),
        ("[]-]", "]", "a"),
        ("x{2}", "xx", "x"),
        ("(?:a|b)?c$", "ac", "ca"),
        (r"[\d_]+\s", "1_ ", "1_"),
        (r"\D\W\S", "a-b", "1-b"),
        (r"^\w+$", "größe_七", "größe-七"),
        (r"^[\w-]+$", "größe-七", "größe 七"),
        (r"^[\\w]$", "\\", "é"),
        (r"^\d\s\W$", "٣\u2003–", "x y"),
        (r"\bv\d\b", "net v3", "net v33"),
        (r"^\w{100}$", "é" * 100, "é" * 99),
    ],
)
def test_an_expression_matches(expression: str, matching: str, other: str | None) -> None:
    pattern = compile_pattern(expression)
    assert pattern.is_in(matching)
    assert other is None or not pattern.is_in(other)


def test_case_matters_unless_it_is_ignored() -> None:
    assert not compile_pattern("Run").is_in("run")
    assert compile_pattern("R[A-Z]n", ignores_case=True).is_in("xrUNx")
    assert not compile_pattern("^[^r]", ignores_case=True).is_in("Run")
    assert not compile_pattern(r"^\D", ignores_case=True).is_in("1")


@pytest.mark.parametrize(
    ("expression", "at"),
    [
        ("(a", 0),
        ("a)", 0),
        ("[a", 0),
        ("*a", 0),
        ("ab**", 2),
        ("a{3,1}", 1),
        ("b(?=a)", 1),
        (r"a\q", 1),
        (r"(a)\1", 3),
        ("\\", 0),
        ("[b-a]", 1),
        ("(" * 30, 0),
        ("a{1001}", 1),
        ("\ud800", 0),
        ("x" * (MAX_CHARACTERS + 1), 0),
    ],
)
def test_an_error_has_a_position(expression: str, at: int) -> None:
    with pytest.raises(PatternError) as caught:
        compile_pattern(expression)
    assert caught.value.at == at


@pytest.mark.parametrize(
    "expression", ["(a*)*b", "(a|a)*b", "(a+)+$b", "a?" * 60 + "a" * 60 + "b", "(.*)(.*)(.*)(.*)[ab]c"]
)
def test_no_expression_takes_long(expression: str) -> None:
    """Each of these would keep a backtracking matcher busy for hours."""
    assert not compile_pattern(expression).is_in("a" * 1000)


def test_a_pattern_that_is_too_large_is_refused() -> None:
    with pytest.raises(PatternError, match="too large"):
        compile_pattern(r"(\w{100}){10}")
    with pytest.raises(PatternError, match="more than 1,000 times"):
        compile_pattern("((a{100}){100}){100}")


@given(st.text("ab1-(|)*+?.[]^${}\\dws,2", max_size=10), st.text("abAB1-_ ", max_size=10), st.booleans())
def test_patterns_agree_with_the_standard_library(expression: str, text: str, ignores_case: bool) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            theirs = re.compile(expression, re.DOTALL | (re.IGNORECASE if ignores_case else re.NOFLAG))
        except (re.error, OverflowError):
            theirs = None
    try:
        ours = compile_pattern(expression, ignores_case=ignores_case)
    except PatternError:
        return
    assume(theirs is not None and "{," not in expression)  # here `{,2}` is text
    # `$` elsewhere also matches before a line break at the end; here a text has none.
    assert ours.is_in(text) == (theirs.search(text) is not None)
