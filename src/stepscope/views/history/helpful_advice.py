"""Finds advice that helped in a project: a problem was gone in a later run, whose steps took less time."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING

from stepscope.analysis.regression import HIGH_CONFIDENCE, time_change
from stepscope.views.compare.compared_config import config_lines, shown
from stepscope.views.formatting import percent
from stepscope.views.history.run_record import PRECISION, are_similar
from stepscope.views.json_values import clean

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from stepscope.analysis.regression import Change
    from stepscope.views.history.run_record import RunRecord

RUN_NOISE = 0.03
"""The spread between equal runs that is assumed where there are too few of them to measure it."""

MIN_SAVING = 0.05
"""A smaller saving is not reported."""

MAX_EXCESS = 0.1
"""Steps that became shorter by more than a finding could explain, and this share, had another reason."""

MAX_CHANGES = 3
UNSET = "null"
"""A setting that was given as None is treated like one that was not given."""

IRRELEVANT = {
    "seed", "name", "run", "run_name", "run_id", "experiment", "experiment_name", "tags", "notes", "version",
    "output_dir", "out_dir", "save_dir", "log_dir", "logging_dir", "logdir", "checkpoint_dir", "output",
    "date", "time", "timestamp", "id",
}  # fmt: skip
"""The last part of the names of settings that say nothing about the work of a step."""


@dataclass(frozen=True)
class SettingChange:
    """A setting with its values in two runs; None where a run does not have it."""

    name: str
    before: str | None
    after: str | None

    def __str__(self) -> str:
        before, after = (
            "not set" if value is None else clean(value, 60) for value in (self.before, self.after)
        )
        return f"{self.name} {before} -> {after}"


@dataclass(frozen=True)
class HelpfulAdvice:
    """A problem that was fixed between two similar runs, and the time that this saved."""

    finding: str
    """The id of the problem."""
    title: str
    before_run: str
    """The id of the newest run with the problem."""
    before_name: str
    after_run: str
    after_name: str
    changes: tuple[SettingChange, ...]
    """The settings that differ: those that the advice names, if there are any."""
    change_ratio: float
    """How the step time changed: -0.38 for 38% less."""
    low_ratio: float
    high_ratio: float
    sentence: str


def advice_that_helped(records: Sequence[RunRecord]) -> tuple[HelpfulAdvice, ...]:
    """Returns the problems that were fixed in the runs of a project, the newest first.

    A problem was fixed if the runs before a run had it, the run itself was checked and does not, some setting
    differs, and the steps became shorter by more than noise, but not by more than the problem explains. The
    precision may differ: to change it is a usual advice.
    """
    helped = []
    for place, after in enumerate(records):
        earlier = [record for record in records[:place] if are_similar(record, after, but_for=(PRECISION,))]
        for finding in sorted({name for record in earlier for name in record.problems}):
            advice = _fixed(finding, earlier, after)
            helped += [] if advice is None else [advice]
    return tuple(reversed(helped))


def without_irrelevant(settings: Mapping[str, object]) -> set[str]:
    """Returns the names of the settings that may affect the time of a step."""
    return {name for name in settings if name.rpartition(".")[2].lower() not in IRRELEVANT}


def sentence_for(finding: str, helped: Collection[HelpfulAdvice], current: RunRecord) -> str:
    """Says what a fix of a problem saved in an earlier run; empty if none did, or the run has it already."""
    for advice in helped:
        has_it = all(_has(current, change) for change in advice.changes)
        if advice.finding == finding and advice.after_run != current.run and not has_it:
            saving = _saving(advice.change_ratio, advice.low_ratio, advice.high_ratio)
            fixed = f"In run {advice.after_name} of this project this was fixed by {listed(advice.changes)}"
            return f"{fixed}, which saved {saving} of the step time."
    return ""


def _has(record: RunRecord, change: SettingChange) -> bool:
    value = record.settings.get(change.name)
    return (None if value is None else shown(value)) == change.after


def _fixed(finding: str, earlier: Sequence[RunRecord], after: RunRecord) -> HelpfulAdvice | None:
    if not after.lacks(finding):
        return None
    checked = [record for record in reversed(earlier) if finding in record.problems or record.lacks(finding)]
    before = list(takewhile(lambda record: finding in record.problems, checked))
    if not before:
        return None
    change = time_change(
        after.seconds, [record.seconds for record in before], HIGH_CONFIDENCE, run_noise=RUN_NOISE
    )
    problem = before[0].problems[finding]
    if change is None or not _is_saving(change, problem.share):
        return None
    changes = _changes(before[0], after, problem.advice)
    if not changes:
        return None
    saving = _saving(change.ratio, change.low, change.high)
    return HelpfulAdvice(
        finding=finding,
        title=problem.title,
        before_run=before[0].run,
        before_name=before[0].name,
        after_run=after.run,
        after_name=after.name,
        changes=changes,
        change_ratio=change.ratio,
        low_ratio=change.low,
        high_ratio=change.high,
        sentence=f"{finding} after {listed(changes)}: step time -{saving}",
    )


def _is_saving(change: Change, explained: float) -> bool:
    return change.high < -MIN_SAVING and -change.high <= explained + MAX_EXCESS


def _changes(before: RunRecord, after: RunRecord, advice: str) -> tuple[SettingChange, ...]:
    """Returns the settings that differ; only those that the advice names, if it names any."""
    relevant = without_irrelevant({**before.settings, **after.settings})
    changes = [
        SettingChange(line.key, *(None if value == UNSET else value for value in line.values))
        for line in config_lines([before.settings, after.settings])
        if not line.same and line.key in relevant
    ]
    words = set(re.findall(r"\w+", advice))
    named = [change for change in changes if change.name.rpartition(".")[2] in words]
    return tuple(named or changes)


def listed(changes: Sequence[SettingChange]) -> str:
    """Names changes, three at most."""
    more = len(changes) - MAX_CHANGES
    others = f" and {more} other setting{'s' if more > 1 else ''}" if more > 0 else ""
    return ", ".join(map(str, changes[:MAX_CHANGES])) + others


def _saving(ratio: float, low: float, high: float) -> str:
    return f"{percent(-ratio)} ({percent(-high)} to {percent(-low)})"
