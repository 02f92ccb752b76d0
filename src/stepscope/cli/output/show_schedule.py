"""Formats the effect of each phase of a learning-rate schedule."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from stepscope.cli.output import text
from stepscope.cli.output.table import Column, table
from stepscope.views.schedule.schedule import LIKELY

if TYPE_CHECKING:
    from stepscope.views.schedule.schedule import Schedule, SchedulePhase

COLUMNS = [
    Column("PHASE", elastic=True),
    Column("STEP", right=True),
    Column("RATE"),
    Column("LOSS"),
    Column("NOISE", right=True),
    Column("GAIN/1,000", right=True),
]


def schedule_lines(schedule: Schedule, width: int) -> list[str]:
    """The name of the schedule, then a table row and a sentence for each phase."""
    if schedule.why:
        return textwrap.wrap(schedule.why, width)
    heading, *rows = table(COLUMNS, [_cells(phase) for phase in schedule.phases], width)
    lines = [*textwrap.wrap(_summary(schedule), width), heading]
    for row, phase in zip(rows, schedule.phases, strict=True):
        lines += [row, *(f"  {line}" for line in textwrap.wrap(phase.verdict, width - 2))]
    for note in schedule.notes:
        lines += [text.paint(line, "faint") for line in textwrap.wrap(note, width)]
    return lines


def _summary(schedule: Schedule) -> str:
    last = schedule.phases[-1].last_step
    improvement, is_likely = schedule.improvement, (schedule.confidence or 0.0) >= LIKELY
    if improvement is None:
        return f"{schedule.name}, to step {last:,}"
    change = f"{schedule.loss_key} {'fell' if improvement > 0 else 'rose'} by {abs(improvement):.3g}"
    if not is_likely:
        change = f"{schedule.loss_key} did not change by more than noise"
    return text.safe(f"{schedule.name}; to step {last:,}, {change}")


def _cells(phase: SchedulePhase) -> list[str]:
    return [
        phase.label,
        f"{phase.first_step:,}",
        _ends(f"{phase.first_rate:.2g}", f"{phase.last_rate:.2g}"),
        _ends(_number(phase.loss_before), _number(phase.loss_after)),
        "-" if phase.noise is None else f"{phase.noise:.2g}",
        _number(phase.per_thousand_steps),
    ]


def _ends(first: str, last: str) -> str:
    return first if first == last else f"{first} -> {last}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"
