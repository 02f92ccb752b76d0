"""Compares a run with similar earlier runs of its project: step time, loss, and advice that helped."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from stepscope.analysis.regression import (
    HIGH_CONFIDENCE,
    MIN_RUNS,
    MIN_STEPS,
    time_change,
)
from stepscope.errors import StoreError
from stepscope.schema.run import LIVE
from stepscope.views.compare.compared_config import config_lines
from stepscope.views.formatting import between, comparison, duration, signed_percent
from stepscope.views.history.helpful_advice import (
    UNSET,
    HelpfulAdvice,
    SettingChange,
    advice_that_helped,
    listed,
    sentence_for,
    without_irrelevant,
)
from stepscope.views.history.loss_history import LossHistory, loss_history_of
from stepscope.views.history.run_record import RunRecord, are_similar, record_of
from stepscope.views.runs.run_rows import FigureCache

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from stepscope.analysis.diagnose import Diagnosis
    from stepscope.analysis.regression import Change
    from stepscope.reading import Run

MAX_RUNS = 16
"""The newest earlier runs of the project that are read."""

MIN_CHANGE = 0.05
"""A smaller difference of step times is not reported, however certain it is."""

MOST = 2 / 3
"""A value is the usual one if this share of the similar runs has it."""

Result = Literal["slower", "faster", "no clear difference", "unknown"]


@dataclass(frozen=True)
class EarlierRun:
    """A similar earlier run."""

    run: str
    name: str
    started: float
    step_s: float
    """The median time of its newest steps, without the warm-up."""
    samples_per_second: float | None
    """None if the batch size is not known."""
    loss: float | None
    """Its loss at the step where losses are compared; None if it is not known there."""


@dataclass(frozen=True)
class RunHistory:
    """How a run compares with similar earlier runs of its project."""

    result: Result
    """`unknown` for fewer than three similar runs, or too few steps."""
    sentence: str
    step_s: float | None
    """The median time of the newest steps, without the warm-up."""
    change_ratio: float | None
    """How much longer a step takes than in the earlier runs: 0.1 for 10%. None if that is unknown."""
    low_ratio: float | None
    high_ratio: float | None
    confidence: float
    """The probability with which the true change is between low and high."""
    samples_per_second: float | None
    """None if the batch size is not known."""
    runs: tuple[EarlierRun, ...]
    """The similar runs, the newest first."""
    earlier_runs: int
    """How many earlier runs of the project were read, similar or not."""
    differences: tuple[SettingChange, ...]
    """Settings with which a slower run differs: from most similar runs, or from the fastest one."""
    loss: LossHistory | None
    helped: tuple[HelpfulAdvice, ...]
    """Problems that were fixed in the project, and what that saved; the newest first."""
    unreadable: tuple[str, ...]
    """Why earlier runs could not be read; the run is compared with the others."""


@dataclass(frozen=True)
class ProjectHistory:
    """A run and the newest runs of its project before it, the oldest first."""

    current: RunRecord
    earlier: tuple[RunRecord, ...]
    answer: RunHistory

    def saved_before(self, finding: str) -> str:
        """Says what a fix of a problem saved in an earlier run of the project; empty if none did."""
        return sentence_for(finding, self.answer.helped, self.current)


def history_of(
    run: Run,
    runs: Iterable[Run],
    diagnosis: Diagnosis,
    cache: FigureCache | None = None,
    now_ns: int | None = None,
) -> ProjectHistory:
    """Reads the newest runs of a run's project that began before it, and compares the run with them.

    `runs` are all runs of the store. A `cache` keeps what was read of runs that have ended.
    """
    cache, now_ns = cache or FigureCache(), time.time_ns() if now_ns is None else now_ns
    before = [
        other
        for other in runs
        if other.project == run.project
        and other.status not in LIVE
        and (other.info.created_ns, other.id) < (run.info.created_ns, run.id)
    ]
    before.sort(key=lambda other: other.info.created_ns)
    current = record_of(run, diagnosis)
    earlier, unreadable = [], []
    for other in before[-MAX_RUNS:]:
        try:
            earlier.append(cache.record(other, now_ns))
        except StoreError as error:  # damaged, which must not hide this run
            unreadable.append(str(error))
    readers = {run.id: run, **{other.id: other for other in before}}
    return ProjectHistory(current, tuple(earlier), _compared(current, earlier, readers, unreadable))


def _compared(
    current: RunRecord, earlier: Sequence[RunRecord], runs: Mapping[str, Run], unreadable: list[str]
) -> RunHistory:
    similar = [
        record for record in earlier if len(record.seconds) >= MIN_STEPS and are_similar(record, current)
    ]
    change = None
    if len(similar) >= MIN_RUNS:
        change = time_change(current.seconds, [record.seconds for record in similar], HIGH_CONFIDENCE)
    result = _result(change)
    fastest: RunRecord | None = None
    differences: tuple[SettingChange, ...] = ()
    if result == "slower":
        differences = _differences(current, similar)
    elif result == "no clear difference":
        fastest, differences = _faster_with_other_settings(current, similar)
    loss, losses = loss_history_of(current, similar, runs, unreadable)
    step_s = float(np.median(current.seconds)) if len(current.seconds) else None
    return RunHistory(
        result=result,
        sentence=_sentence(current, similar, change, fastest, differences),
        step_s=step_s,
        change_ratio=None if change is None else change.ratio,
        low_ratio=None if change is None else change.low,
        high_ratio=None if change is None else change.high,
        confidence=HIGH_CONFIDENCE,
        samples_per_second=_throughput(current, step_s),
        runs=tuple(_earlier_run(record, losses.get(record.run)) for record in reversed(similar)),
        earlier_runs=len(earlier),
        differences=differences,
        loss=loss,
        helped=advice_that_helped([*earlier, current]),
        unreadable=tuple(dict.fromkeys(unreadable)),
    )


def _earlier_run(record: RunRecord, loss: float | None) -> EarlierRun:
    return EarlierRun(
        run=record.run,
        name=record.name,
        started=record.started,
        step_s=_step_s(record),
        samples_per_second=_throughput(record, _step_s(record)),
        loss=loss,
    )


def _throughput(record: RunRecord, step_s: float | None) -> float | None:
    """Returns the samples that all ranks train in a second; None if the batch size is not known."""
    batch, ranks = record.conditions.get("batch"), record.conditions.get("ranks")
    if not step_s or isinstance(batch, str) or not batch:
        return None
    return float(batch) * int(ranks or 1) / step_s


def _result(change: Change | None) -> Result:
    if change is None:
        return "unknown"
    if change.low > MIN_CHANGE:
        return "slower"
    return "faster" if change.high < -MIN_CHANGE else "no clear difference"


def _step_s(record: RunRecord) -> float:
    return float(np.median(record.seconds))


def _faster_with_other_settings(
    current: RunRecord, similar: Sequence[RunRecord]
) -> tuple[RunRecord | None, tuple[SettingChange, ...]]:
    """Returns the fastest run and its settings, if they differ and its steps took clearly less time."""
    fastest = min(similar, key=_step_s)
    differences = _differences(current, [fastest])
    change = time_change(current.seconds, [fastest.seconds], HIGH_CONFIDENCE, run_noise=MIN_CHANGE)
    is_faster = change is not None and change.low > MIN_CHANGE
    return (fastest, differences) if is_faster and differences else (None, ())


def _differences(current: RunRecord, similar: Sequence[RunRecord]) -> tuple[SettingChange, ...]:
    """Returns the settings in which a run differs from most of the others, and from none of them not."""
    lines = config_lines([current.settings, *(record.settings for record in similar)])
    relevant = without_irrelevant({line.key: None for line in lines})
    differences = []
    for line in lines:
        own, *others = (None if value == UNSET else value for value in line.values)
        usual, count = Counter(others).most_common(1)[0]
        if line.key in relevant and own not in others and count >= MOST * len(others):
            differences.append(SettingChange(line.key, usual, own))
    return tuple(differences)


def _sentence(
    current: RunRecord,
    similar: Sequence[RunRecord],
    change: Change | None,
    fastest: RunRecord | None,
    differences: Sequence[SettingChange],
) -> str:
    count = len(similar)
    if change is None:
        if count >= MIN_RUNS:
            return (
                f"{len(current.seconds):,} timed steps after the warm-up; {MIN_STEPS} are needed to compare."
            )
        return (
            f"{count} similar earlier run{'' if count == 1 else 's'} in this project; "
            f"{MIN_RUNS} are needed to compare."
        )
    times = [_step_s(record) for record in similar]
    taken = (
        f"Median step {duration(_step_s(current))}; {count} similar runs took "
        f"{between(duration(min(times)), duration(max(times)))} (newest: {similar[-1].name}): "
    )
    result = _result(change)
    if result == "no clear difference":
        is_outside = not min(times) * (1 - MIN_CHANGE) <= _step_s(current) <= max(times) * (1 + MIN_CHANGE)
        taken += "they differ too much among themselves to compare." if is_outside else f"{result}."
        if fastest is None:
            return taken
        faster = f"{fastest.name} was faster: {duration(_step_s(fastest))}"
        return f"{taken} {faster}. {_what_differs(differences)}"
    taken += f"{comparison(change.ratio, 'slower', 'faster')} ({_interval(change)})."
    if result == "faster":
        return taken
    return f"{taken} {_what_differs(differences)}"


def _what_differs(differences: Sequence[SettingChange]) -> str:
    return f"Settings that differ: {listed(differences)}." if differences else "No recorded setting differs."


def _interval(change: Change) -> str:
    return f"{signed_percent(change.low)} to {signed_percent(change.high)}"
