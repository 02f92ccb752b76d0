"""Checks a condition: whether it can be parsed, which keys it reads, and whether it is true now."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from stepscope.alerts.conditions.evaluation import evaluate
from stepscope.alerts.conditions.expression import parse, unknown_metrics
from stepscope.alerts.conditions.run_history import LIMIT_POINTS, History
from stepscope.alerts.conditions.tree import Baseline
from stepscope.schema.notation import NotationError
from stepscope.schema.run import LIVE
from stepscope.schema.series import Selection
from stepscope.views.json_values import clean, finite

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stepscope.alerts.conditions.evaluation import Outcome
    from stepscope.alerts.conditions.tree import Expression
    from stepscope.reading import Run
    from stepscope.store.base import Reader

MAX_SERIES = 2000
MAX_POINTS = 10_000_000
"""A baseline with more points is not read for a check."""


@dataclass(frozen=True)
class Fault:
    """An error in a condition, and its position in characters from 0."""

    message: str
    begin: int
    end: int


@dataclass(frozen=True)
class RuleNow:
    """The result of a condition in a run: now, or at the end of an ended run."""

    run_id: str
    run: str
    live: bool
    is_true: bool | None
    """None if it is not known."""
    subjects: int
    """The number of ranks, hosts or devices for which it is evaluated."""
    true: int
    """The number of them for which it is true."""
    key: str
    value: float | None
    threshold: float | None
    rank: int | None
    device: str


@dataclass(frozen=True)
class RuleCheck:
    """The result of checking a condition."""

    ok: bool
    fault: Fault | None
    written: str
    """The condition as it was parsed."""
    keys: tuple[str, ...]
    doubts: tuple[str, ...]
    """Sentences on keys that the run does not have."""
    now: RuleNow | None


def check_rule(
    condition: str, reader: Reader | None = None, run: Run | None = None, now_ns: int = 0
) -> RuleCheck:
    """Parses a condition, and evaluates it in a run if one is given."""
    try:
        expression = parse(condition)
    except NotationError as error:
        fault = Fault(clean(error.message), error.begin, error.end)
        return RuleCheck(ok=False, fault=fault, written="", keys=(), doubts=(), now=None)
    keys = tuple(clean(key, 300) for key in expression.keys)
    if reader is None or run is None:
        return RuleCheck(ok=True, fault=None, written=clean(expression, 4000), keys=keys, doubts=(), now=None)
    known = {key for keys_of_source in reader.sources(run.id).values() for key in keys_of_source}
    return RuleCheck(
        ok=True,
        fault=None,
        written=clean(expression, 4000),
        keys=keys,
        doubts=tuple(clean(doubt, 500) for doubt in unknown_metrics(expression, known)),
        now=_now(expression, reader, run, now_ns),
    )


def _now(expression: Expression, reader: Reader, run: Run, now_ns: int) -> RuleNow:
    is_live = run.status in LIVE
    history = _history(expression, reader, run)
    outcomes = evaluate(expression, history, now_ns if is_live else run.info.last_ns, run.status)
    # True outcomes come first, then false ones, then unknown ones.
    outcomes.sort(key=lambda outcome: (not outcome.is_true, outcome.is_true is None, outcome.value is None))
    shown: Outcome | None = outcomes[0] if outcomes else None
    return RuleNow(
        run_id=run.id,
        run=clean(run.name, 300),
        live=is_live,
        is_true=None if shown is None else shown.is_true,
        subjects=len(outcomes),
        true=sum(outcome.is_true is True for outcome in outcomes),
        key="" if shown is None else clean(shown.key, 300),
        value=None if shown is None else finite(shown.value),
        threshold=None if shown is None else finite(shown.threshold),
        rank=None if shown is None else shown.rank,
        device="" if shown is None else clean(shown.device, 300),
    )


def _history(expression: Expression, reader: Reader, run: Run) -> History:
    """Returns the points a condition needs; whole series only for a baseline."""
    segment, reach = run.segments[-1].id, expression.reach()
    history = History(max_series=MAX_SERIES)
    history.widen(reach)
    from_start = {key for needed in _baselines(expression) for key in needed.keys}
    recent_keys = [key for key in reach if key not in from_start]
    rows = max([LIMIT_POINTS, *(needed.points for needed in reach.values())])
    for source, series in reader.newest(run.id, segment, recent_keys, rows).items() if recent_keys else ():
        for key, points in series.items():
            history.add(source, [key], points.steps, points.times_ns, points.values[:, None])
    if sum(needed.points for needed in reader.summaries(run.id, from_start)) > MAX_POINTS:
        return history  # the baseline is then unknown
    for source, keys in reader.sources(run.id).items() if from_start else ():
        for key in from_start.intersection(keys) if source.segment == segment else ():
            selection = Selection(run.id, key, segment, source.rank, source.host, source.device, source.axis)
            points = reader.points(selection)
            history.add(source, [key], points.steps, points.times_ns, points.values[:, None])
    return history


def _baselines(part: Expression) -> Iterator[Baseline]:
    if isinstance(part, Baseline):
        yield part
    for inner in part.parts:
        yield from _baselines(inner)
