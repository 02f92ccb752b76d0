"""The language of conditions: its syntax, its meaning, and its error messages."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepscope.alerts.conditions.expression import (
    FUNCTIONS,
    OVER_A_WINDOW,
    parse,
    parse_window,
    unknown_metrics,
)
from stepscope.alerts.conditions.tree import (
    Arithmetic,
    Baseline,
    Comparison,
    Logic,
    Name,
    Negative,
    Not,
    Number,
    Of,
    Reach,
    StatusIs,
    Window,
    Windowed,
)
from stepscope.errors import ConfigError
from stepscope.schema.run import STATUSES

KEYS = [
    "loss",
    "gpu/temperature_celsius",
    "val.loss",
    "or",
    "status",
    "top-1 acc",
    "a`b",
    "layer/0",
    "max",
    "é",
]


def error_for(text):
    with pytest.raises(ConfigError) as caught:
        parse(text)
    return str(caught.value)


def pointed_at(text):
    """What is said of a condition, and the part of it the caret is under."""
    said, line, caret = error_for(text).splitlines()
    return said, line[caret.index("^") :]


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("p50(step_seconds, 2m) > 1.5 * baseline", "median(step_seconds, 2m) > 1.5 * baseline(step_seconds)"),
        ("1.5 * baseline < avg(loss, 100 steps)", "1.5 * baseline(loss) < mean(loss, 100 points)"),
        ("not a>1 and b>2 or c>3", "not (a > 1) and b > 2 or c > 3"),
        ("not (a > 1 and b > 2)", "not (a > 1 and b > 2)"),
        ("a > 1 and (b > 2 or c > 3)", "a > 1 and (b > 2 or c > 3)"),
        ("a - (b - c) == -d", "a - (b - c) == -d"),
        ("(a + b) * c / (d / e) != 0", "(a + b) * c / (d / e) != 0"),
        ("`top-1 acc` < 90%", "`top-1 acc` < 0.9"),
        ("memory/used_bytes > 16GiB", "memory/used_bytes > 17179869184"),
        ("phase/data_seconds >= 2ms", "phase/data_seconds >= 0.002"),
        ("val.loss > 1e-3", "val.loss > 0.001"),
        ("loss|train/loss > 5", "loss|train/loss > 5"),
        ("'crashed' != status", 'status != "crashed"'),
        ("max(a, 2, -b) > min(c, 30s)", "max(a, 2, -b) > min(c, 30s)"),
        ("age(loss) > 90s and last(loss) > 1", "age(loss) > 90 and last(loss) > 1"),
        ("loss / 2 > 1 and loss /2 > 1 and (loss)/2 > 1", "loss / 2 > 1 and loss / 2 > 1 and loss / 2 > 1"),
        ("mean(x, 90s) > 0 and mean(x, 7200s) > 0", "mean(x, 90s) > 0 and mean(x, 2h) > 0"),
        ("mean(x, 1h30m) > 0 and age(x) > 1.5m30s", "mean(x, 90m) > 0 and age(x) > 120"),
        ("\n  loss\n  > 2\n", "loss > 2"),
        ("points > 5 and x > 2 or y > 3", "points > 5 and x > 2 or y > 3"),
    ],
)
def test_a_condition_has_one_written_form(text, canonical):
    assert str(parse(text)) == canonical
    assert parse(canonical) == parse(text)


def test_a_slash_between_name_characters_belongs_to_the_name():
    assert parse("phase/data_seconds > 1").keys == ("phase/data_seconds",)
    assert parse("data_seconds / step_seconds > 1").keys == ("data_seconds", "step_seconds")


@pytest.mark.parametrize(
    ("text", "problem", "where"),
    [
        ("loss >", "Expected a number, a metric name or a function, not the end.", ""),
        ("loss = 3", "'=' has no meaning here: write == to compare.", "= 3"),
        ("(loss > 3", "Expected a closing parenthesis, not the end.", ""),
        ("loss > 3)", "Expected and, or, or the end, not ')'.", ")"),
        ("meen(loss, 2m) > 1", "There is no function 'meen'; did you mean mean?", "meen(loss, 2m) > 1"),
        ("median(loss) > 1", "Expected a comma and a window, as in median(loss, 2m), not ')'.", ") > 1"),
        ("median(loss, 3) > 1", "Expected a window such as 2m or 100 points, not '3'.", "3) > 1"),
        ("mean(2, 3s) > 1", "Expected a metric name, not '2'.", "2, 3s) > 1"),
        ("abs(a, b) > 1", "abs takes one number.", "abs(a, b) > 1"),
        (
            "max(a) > 1",
            "max takes a metric and a window, as in max(loss, 2m), or several numbers.",
            "max(a) > 1",
        ),
        ("mean(a, 1.5 points) > 1", "A window must have 1 to 100,000 points.", "1.5 points) > 1"),
        ("mean(a, 8d) > 1", "A window must be longer than 0 and at most 604800s.", "8d) > 1"),
        ("mean(a, 1w1s) > 1", "A window must be longer than 0 and at most 604800s.", "1w1s) > 1"),
        ("a > 5 points", "A number of points is a window: the second argument of a function.", "5 points"),
        ("1 < x < 3", "Join two comparisons by and: 1 < x and x < 5.", "< 3"),
        ("a > 1 and b", "Expected a condition, not a number: compare it, as in loss > 2.", "b"),
        ("(a > 1) + 2 > 3", "Expected a number, not a condition.", "(a > 1) + 2 > 3"),
        ("loss > 9e999", "This number is too large.", "9e999"),
        ("loss > 9e999h1m", "This number is too large.", "9e999h1m"),
        ('status == "crashd"', "'crashd' is not a status; did you mean 'crashed'?", '"crashd"'),
        ("status == 3", "Expected status on one side and a text in quotes on the other, not '3'.", "3"),
        ("loss > `", "'`' has no meaning here: a name in backquotes needs a closing backquote.", "`"),
        (
            "baseline > 1",
            (
                "baseline without arguments needs exactly one metric on the other side of the "
                "comparison; name the metric, as in baseline(loss)."
            ),
            "baseline > 1",
        ),
    ],
)
def test_an_error_points_at_the_mistake_and_says_what_was_expected(text, problem, where):
    assert pointed_at(text) == (problem, where)


def test_a_division_without_spaces_is_explained():
    said, where = pointed_at("loss/2 > 1")
    assert where == "/2 > 1"
    assert "To divide, write loss / 2; if it is a name, put it in backquotes." in said
    assert parse("`loss/2` > 1").keys == ("loss/2",)


def test_an_error_for_an_unknown_unit_lists_the_units():
    said, where = pointed_at("memory/used_bytes > 5 Gib")
    assert where == "Gib"
    assert "GiB" in said


def test_an_unknown_metric_is_reported():
    known = ["phase/data_seconds", "step_seconds", "loss"]
    assert unknown_metrics(parse("loss > 1 and step_second > 2"), known) == [
        "There is no metric 'step_second'; did you mean 'step_seconds'?"
    ]
    [joined] = unknown_metrics(parse("phase/data_seconds/step_seconds > 0.5"), known)
    assert joined.endswith("to divide, put spaces around the slash: phase/data_seconds / step_seconds.")
    assert unknown_metrics(parse("loss|train/loss > 1"), known) == []


def test_a_long_condition_is_shown_around_its_mistake():
    text = "loss > 1 or " * 40 + "loss ? 1" + " or loss > 1" * 40
    _, where = pointed_at(text)
    assert where.startswith("? 1")
    assert all(len(line) < 100 for line in error_for(text).splitlines())


def test_what_is_too_long_or_too_deep_is_refused():
    assert "at most 2,000 characters" in error_for("x > 1" + " " * 2000)
    assert "nested at most 50 levels deep" in error_for("(" * 51 + "x > 1" + ")" * 51)
    assert "nested at most 50 levels deep" in error_for("-" * 60 + "x > 1")
    assert "nested at most 50 levels deep" in error_for("x" + " + x" * 60 + " > 1")
    assert parse("(" * 50 + "x > 1" + ")" * 50) == parse("x > 1")


def test_the_longest_window_of_each_metric_is_known():
    reach = parse("mean(a, 2m) > mean(a, 50 points) and a > baseline and delta(b|c, 500ms) > 0").reach()
    assert reach == {"a": Reach(120.0, 50), "b": Reach(0.5, 1), "c": Reach(0.5, 1)}


def test_a_window_can_be_parsed_separately():
    assert parse_window("100 steps") == Window(points=100)
    assert parse_window("1.5m") == Window(seconds=90.0)
    for wrong in ("", "5", "5 GiB", "2m 3s", "loss"):
        with pytest.raises(ConfigError):
            parse_window(wrong)


def test_equal_conditions_are_one_in_a_set():
    assert len({parse("loss>2"), parse("loss > 2.0"), parse("loss > 3")}) == 2


names = st.builds(
    Name, st.lists(st.sampled_from(KEYS) | st.text(min_size=1), min_size=1, max_size=3).map(tuple)
)
windows = st.builds(Window, seconds=st.floats(1e-9, 604800)) | st.builds(
    Window, points=st.integers(1, 100_000)
)
leaves = (
    st.builds(Number, st.floats(0, allow_infinity=False, allow_nan=False).map(abs))
    | names
    | st.builds(Windowed, st.sampled_from(OVER_A_WINDOW), names, windows)
    | st.builds(Windowed, st.sampled_from(["age", "last"]), names)
    | st.builds(Baseline, names)
)
numbers = st.recursive(
    leaves,
    lambda part: (
        st.builds(Negative, part)
        | st.builds(Arithmetic, st.sampled_from("+-*/"), part, part)
        | st.builds(Of, st.just("abs"), st.tuples(part))
        | st.builds(Of, st.sampled_from(["min", "max"]), st.lists(part, min_size=2, max_size=3).map(tuple))
    ),
    max_leaves=8,
)
truths = st.recursive(
    st.builds(Comparison, st.sampled_from(["<", "<=", ">", ">=", "==", "!="]), numbers, numbers)
    | st.builds(StatusIs, st.sampled_from(["==", "!="]), st.sampled_from(STATUSES)),
    lambda part: st.builds(Not, part) | st.builds(Logic, st.sampled_from(["and", "or"]), part, part),
    max_leaves=6,
)


@pytest.mark.slow
@given(truths)
def test_a_written_condition_parses_to_the_same_tree(tree):
    if len(str(tree)) <= 2000 and tree.depth <= 25:
        assert parse(str(tree)) == tree


SIGNS = [
    "(",
    ")",
    ",",
    "<",
    ">=",
    "==",
    "+",
    "-",
    "*",
    "/",
    "|",
    "1",
    "1e9",
    "90%",
    "3GiB",
    "2m",
    "`",
    "\x00",
]
WORDS = ["status", "baseline", "and", "or", "not", "`x y`", '"crashed"', "5 points", " "]
words = st.sampled_from([*FUNCTIONS, *KEYS[:3], *SIGNS, *WORDS])


@given(
    st.text(max_size=60)
    | st.lists(words, max_size=30).map(" ".join)
    | st.lists(words, max_size=30).map("".join)
)
def test_any_text_is_parsed_or_refused(text):
    try:
        tree = parse(text)
    except ConfigError:
        return
    assert parse(str(tree)) == tree
