"""The filter language of the run list; all terms of a filter must match.

`resnet status:running gpu_util<50 config.batch_size>=64 started>-2d -tag:old /^exp-[0-9]+/`

Numbers, units, quotes and comparisons are those of alert conditions (`schema.notation`). The rest differs: in
a search box an unquoted word is a text to look for and a minus excludes; conditions have metrics and sums.
"""

from __future__ import annotations

import difflib
import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stepscope.schema.notation import COMPARISONS, NotationError
from stepscope.schema.run import STATUSES
from stepscope.views.runs.filter_terms import Term, moment_of, number_of, terms_of
from stepscope.views.runs.pattern import PatternError, compile_pattern

if TYPE_CHECKING:
    from collections.abc import Callable

    from stepscope.views.json_values import Scalar
    from stepscope.views.runs.filter_terms import Moment
    from stepscope.views.runs.run_rows import RunRow

    Test = Callable[[RunRow, float], bool]
    """Whether a row matches, at a time in seconds since the epoch."""

TEXTS = ("name", "id", "project", "status", "reason", "tag", "host", "verdict", "attention", "loss_key")
CONFIG = "config."

FIGURES: dict[str, tuple[str, Callable[[RunRow], float | None]]] = {
    "steps": ("count", lambda row: row.step),
    "total_steps": ("count", lambda row: row.total_steps),
    "steps_per_second": ("count", lambda row: row.steps_per_second),
    "loss": ("count", lambda row: row.loss_last),
    "best_loss": ("count", lambda row: row.loss_best),
    "data_wait": ("share", lambda row: row.data_wait_ratio),
    "gpu_util": ("share", lambda row: row.gpu_mean_ratio),
    "gpu_worst": ("share", lambda row: row.gpu_worst_ratio),
    "memory": ("size", lambda row: row.peak_memory_bytes),
    "alerts": ("count", lambda row: row.open_alerts),
    "ranks": ("count", lambda row: row.ranks),
    "hosts": ("count", lambda row: len(row.hosts)),
    "segments": ("count", lambda row: row.segments),
    "duration": ("length", lambda row: row.duration_s),
    "eta": ("length", lambda row: row.eta_s),
}
"""Numeric columns by name: the format of their values, and how to read them from a row."""

OTHER_NAMES = {
    "step": "steps", "speed": "steps_per_second", "loss_last": "loss", "loss_best": "best_loss",
    "data_wait_ratio": "data_wait", "gpu": "gpu_util", "gpu_mean_ratio": "gpu_util",
    "gpu_worst_ratio": "gpu_worst", "peak_memory": "memory", "peak_memory_bytes": "memory",
    "open_alerts": "alerts", "duration_s": "duration", "eta_s": "eta", "tags": "tag",
}  # fmt: skip

MOMENTS: dict[str, Callable[[RunRow], float | None]] = {
    "started": lambda row: row.started,
    "ended": lambda row: row.ended,
    "last_seen": lambda row: row.last_seen,
}


@dataclass(frozen=True)
class Filter:
    """A parsed filter."""

    text: str
    tests: tuple[Test, ...]

    def matches(self, row: RunRow, now_ns: int) -> bool:
        """Returns whether all terms match a row."""
        return all(test(row, now_ns / 1e9) for test in self.tests)


def parse(text: str) -> Filter:
    """Parses a filter; an empty one matches everything. Raises NotationError where it is wrong."""
    return Filter(text, tuple(_test(term) for term in terms_of(text)))


def names() -> list[str]:
    """Returns all names a term may begin with, for completion."""
    return sorted({*TEXTS, *FIGURES, *MOMENTS, CONFIG})


def _test(term: Term) -> Test:
    test = _included_test(term)
    if not term.is_excluded:
        return test
    return lambda row, now: not test(row, now)


def _included_test(term: Term) -> Test:
    if term.is_pattern:
        return _pattern(term)
    if not term.name:
        word = term.value.casefold()
        return lambda row, _: word in row.name.casefold()
    if term.name.startswith(CONFIG) and len(term.name) > len(CONFIG):
        return _config(term)
    name = OTHER_NAMES.get(term.name.lower(), term.name.lower())
    if name in TEXTS:
        return _text(term, name)
    if name in MOMENTS:
        return _moment(term, MOMENTS[name])
    if name in FIGURES:
        return _figure(term, *FIGURES[name])
    raise term.mistake(_unknown(term.name))


def _pattern(term: Term) -> Test:
    try:
        pattern = compile_pattern(term.value, ignores_case="i" in term.flags)
    except PatternError as error:
        at = min(term.begin + term.is_excluded + 1 + error.at, term.end - 1)
        raise NotationError(str(error), at, term.end) from None
    return lambda row, _: pattern.is_in(row.name)


def _text(term: Term, name: str) -> Test:
    if term.sign not in (":", "=", "==", "!="):
        raise term.mistake(f"{name} is text: write {name}:{term.value}")
    values = [value.casefold() for value in term.value.split(",") if value]
    if not values:
        raise term.mistake("A value is missing at the end of this term.")
    if name == "status" and not set(values) <= set(STATUSES):
        raise term.mistake(f"There is no status {term.value!r}; there are {', '.join(STATUSES)}.")
    is_any = _TEXT_TESTS[name]
    if term.sign == "!=":
        return lambda row, _: not any(is_any(row, value) for value in values)
    return lambda row, _: any(is_any(row, value) for value in values)


def _is_verdict(row: RunRow, value: str) -> bool:
    """Matches the severity of a verdict, or words in its id or headline."""
    words = _hyphened(value)
    verdict_texts = (_hyphened(row.verdict.id), _hyphened(row.verdict.headline))
    severity = "unknown" if value == "none" else value
    return severity == row.verdict.severity or (bool(words) and any(words in text for text in verdict_texts))


def _is_attention(row: RunRow, value: str) -> bool:
    """Matches whether a run needs attention (`yes` or `no`), or words in the reason."""
    if value in ("yes", "no"):
        return (row.attention is not None) == (value == "yes")
    return row.attention is not None and value in row.attention.casefold()


def _hyphened(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.casefold()).strip("-")


_TEXT_TESTS: dict[str, Callable[[RunRow, str], bool]] = {
    "name": lambda row, value: value in row.name.casefold(),
    "id": lambda row, value: value == row.id.casefold(),
    "project": lambda row, value: value == row.project.casefold(),
    "status": lambda row, value: value == row.status,
    "reason": lambda row, value: value in row.reason.casefold(),
    "tag": lambda row, value: any(value == tag.casefold() for tag in row.tags),
    "host": lambda row, value: any(value in host.casefold() for host in row.hosts),
    "verdict": _is_verdict,
    "attention": _is_attention,
    "loss_key": lambda row, value: row.loss_key is not None and value in row.loss_key.casefold(),
}


def _figure(term: Term, kind: str, figure: Callable[[RunRow], float | None]) -> Test:
    try:
        threshold = number_of(term.value, kind)
    except ValueError as error:
        raise term.mistake(f"{term.name} is compared with {error}, not with {term.value!r}.") from None

    def test(row: RunRow, _: float) -> bool:
        value = figure(row)
        return value is not None and _compare(value, term.sign, threshold)

    return test


def _moment(term: Term, figure: Callable[[RunRow], float | None]) -> Test:
    try:
        moment = moment_of(term.value)
    except ValueError as error:
        raise term.mistake(f"{term.name} is compared with {error}, not with {term.value!r}.") from None

    def test(row: RunRow, now: float) -> bool:
        value = figure(row)
        return value is not None and _is_at(value, term.sign, moment, now)

    return test


def _is_at(value: float, sign: str, moment: Moment, now: float) -> bool:
    """Compares a time with a moment; any time within a day equals that day."""
    begin, end = moment.at(now)
    if end > begin:
        relation = -1.0 if value < begin else 1.0 if value >= end else 0.0
        return _compare(relation, sign, 0.0)
    return _compare(value, sign, begin)


def _config(term: Term) -> Test:
    name = term.name[len(CONFIG) :]
    try:
        number: float | None = number_of(term.value, "count")
    except ValueError:
        number = None
    if number is None and term.sign in ("<", "<=", ">", ">="):
        raise term.mistake(f"{term.name} is compared with a number, not with {term.value!r}.")

    def test(row: RunRow, _: float) -> bool:
        has_entry, value = _entry(row, name)
        return has_entry and _config_holds(value, term, number)

    return test


def _entry(row: RunRow, name: str) -> tuple[bool, Scalar]:
    """Returns an entry by its full name, or by the end of its name if only one entry ends so."""
    if name in row.config:
        return True, row.config[name]
    candidates = [value for key, value in row.config.items() if key.endswith(f".{name}")]
    return (True, candidates[0]) if len(candidates) == 1 else (False, None)


def _config_holds(value: Scalar, term: Term, number: float | None) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if is_number and number is not None:
        return _compare(float(value), term.sign, number)  # type: ignore[arg-type]  # it is a number
    wanted_text, entry_text = term.value.casefold(), "null" if value is None else str(value).casefold()
    if term.sign == ":":
        return wanted_text in entry_text
    if term.sign in ("=", "=="):
        return wanted_text == entry_text
    return wanted_text != entry_text if term.sign == "!=" else False


def _compare(left: float, sign: str, right: float) -> bool:
    """Compares two numbers; those that differ by rounding only are equal."""
    if math.isclose(left, right, rel_tol=1e-9):
        left = right
    return bool(COMPARISONS["==" if sign in (":", "=") else sign](left, right))


def _unknown(name: str) -> str:
    known = [*names(), *OTHER_NAMES]
    near = difflib.get_close_matches(name.lower()[:60], known, 1)
    if near:
        return f"There is no column {name[:60]!r}; did you mean {near[0]}?"
    return (
        f"There is no column {name[:60]!r}; write config.{name[:60]} for a configuration entry, "
        "and put a name that contains an operator in quotes."
    )
