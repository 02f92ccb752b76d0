"""The events of a run that are marked below its charts: epochs, checkpoints, alerts, resumes, notes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from stepscope.alerts.defaults import THROTTLE_REASONS
from stepscope.schema.keys import (
    ANOTHER_TRAINING_EVENT,
    CHECKS_EVENT,
    EXPORTER_EVENT,
    STACKS_EVENT,
    phase_key,
)
from stepscope.views.formatting import duration
from stepscope.views.json_values import clean
from stepscope.views.machine.gpu_names import label_of
from stepscope.views.steps.step_values import step_values

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from stepscope.schema.record import Event
    from stepscope.views.alerts.alert_rows import AlertRow
    from stepscope.views.run_context import RunContext

MAX_PER_KIND = 200
"""Maximum number of marks of one kind; a larger number is thinned out evenly, and all are counted."""

MAX_GAP_S = 10.0
"""Two periods of throttling with a shorter gap between them are shown as one."""

SETUP_KINDS = {"config", "total_steps"}
"""Kinds of events with which a training script describes its set-up."""

NOT_MARKED = {
    "alert_condition", "alert_rule", ANOTHER_TRAINING_EVENT, "attention", "census", CHECKS_EVENT, "config",
    "console", "device", EXPORTER_EVENT, "failure", "loader", "notice", "params", "replicas", STACKS_EVENT,
    "text", "total_steps",
}  # fmt: skip
"""Kinds of events that are not shown as marks."""

PHASE_MARKS = {"checkpoint": "checkpoint", "eval": "evaluation"}


@dataclass(frozen=True)
class EventMark:
    """An event on the time line of a run: a moment or a time span."""

    kind: str
    time: float
    step: int | None
    end_time: float | None
    rank: int | None
    label: str
    detail: str


@dataclass(frozen=True)
class EventMarks:
    """The marks of a run, oldest first, and the number of events of each kind."""

    marks: tuple[EventMark, ...]
    counts: dict[str, int]


@dataclass(frozen=True)
class _KindMarks:
    """Marks of one kind, possibly thinned out, and the number of all of them."""

    kind: str
    total: int
    marks: Sequence[EventMark]


def event_marks(context: RunContext, alerts: Sequence[AlertRow]) -> EventMarks:
    """Returns the marks of a run."""
    groups = [
        *_from_events(context),
        *_epochs(context),
        *_phases(context),
        *_by_kind(_resumes(context)),
        *_by_kind(_notes(context)),
    ]
    groups += [*_by_kind(_from_alert(alert) for alert in alerts), *_by_kind(_throttled(context))]
    counts: dict[str, int] = {}
    kinds: dict[str, list[EventMark]] = {}
    for group in groups:
        counts[group.kind] = counts.get(group.kind, 0) + group.total
        kinds.setdefault(group.kind, []).extend(group.marks)
    shown: list[EventMark] = []
    for marks in kinds.values():
        marks.sort(key=lambda mark: mark.time)
        shown += [marks[index] for index in _spread_indices(len(marks))]
    return EventMarks(tuple(sorted(shown, key=lambda mark: mark.time)), counts)


def _spread_indices(count: int) -> list[int]:
    """Returns the indices to show: all, or the maximum number spread evenly from first to last."""
    if count <= MAX_PER_KIND:
        return list(range(count))
    return [round(index) for index in np.linspace(0, count - 1, MAX_PER_KIND).tolist()]


def _by_kind(marks: Iterable[EventMark]) -> list[_KindMarks]:
    """Groups marks by kind; for marks that are never numerous."""
    kinds: dict[str, list[EventMark]] = {}
    for mark in marks:
        kinds.setdefault(mark.kind, []).append(mark)
    return [_KindMarks(kind, len(marks_of_kind), marks_of_kind) for kind, marks_of_kind in kinds.items()]


def _from_events(context: RunContext) -> Iterator[_KindMarks]:
    for events in context.events.values():
        shown = [event for event in events if is_marked(event)]
        marks = [mark_of(shown[index]) for index in _spread_indices(len(shown))]
        if marks:
            yield _KindMarks(marks[0].kind, len(shown), marks)


def is_marked(event: Event) -> bool:
    """Returns whether an event is shown as a mark; most events of the training script are."""
    return event.kind not in (SETUP_KINDS if event.by_user else NOT_MARKED)


def mark_of(event: Event) -> EventMark:
    """Returns the mark of a recorded event."""
    fields = {name: value for name, value in event.fields.items() if event.by_user or name != "kind"}
    kind = clean(event.kind, 100)
    label = kind.replace("_", " ")
    if event.kind == "epoch" and "epoch" in fields:
        label = f"epoch {clean(fields['epoch'], 40)}"
    return EventMark(kind, event.time, event.step, None, event.rank, label, _detail(fields))


def _detail(fields: dict[str, Any]) -> str:
    """Lists the single values of an event; nested values are left out."""
    shown = [(name, value) for name, value in fields.items() if isinstance(value, str | int | float)]
    return clean(", ".join(f"{name} {clean(value, 200)}" for name, value in shown[:8]), 600)


def _epochs(context: RunContext) -> Iterator[_KindMarks]:
    """Marks where the logged epoch changes, unless epochs were recorded as events."""
    if "epoch" in context.events or not context.summaries.logged("epoch") or not context.ranks:
        return
    logged = step_values(context.run, "epoch", context.summaries.ranks("epoch")[0])
    whole = np.floor(logged.values)
    begins = np.flatnonzero(np.diff(whole) > 0) + 1
    marks = []
    for index in begins[_spread_indices(len(begins))].tolist():
        time, step = float(logged.times[index]), int(logged.steps[index])
        marks.append(EventMark("epoch", time, step, None, None, f"epoch {int(whole[index])}", ""))
    if marks:
        yield _KindMarks("epoch", len(begins), marks)


def _phases(context: RunContext) -> Iterator[_KindMarks]:
    """Marks timed checkpoints and evaluations that were not recorded as events."""
    for phase, kind in PHASE_MARKS.items():
        key = phase_key(phase)
        summaries = [summary for summary in context.summaries.by_first_rank(key) if summary.maximum]
        if kind in context.events or not summaries or not context.ranks:
            continue
        logged = step_values(context.run, key, summaries[0].source.rank)
        rank, timed = summaries[0].source.rank, np.flatnonzero(logged.values > 0)
        marks = []
        for index in timed[_spread_indices(len(timed))].tolist():
            seconds, end = float(logged.values[index]), float(logged.times[index])
            step = int(logged.steps[index])
            marks.append(EventMark(kind, end - seconds, step, end, rank, kind, duration(seconds)))
        if marks:
            yield _KindMarks(kind, len(timed), marks)


def _resumes(context: RunContext) -> Iterator[EventMark]:
    for previous, segment in zip(context.run.segments, context.run.segments[1:], strict=False):
        why = f"after it {previous.status}" + (f": {clean(previous.reason, 300)}" if previous.reason else "")
        yield EventMark("resume", segment.started_ns / 1e9, None, None, None, "resumed", why)


def _notes(context: RunContext) -> Iterator[EventMark]:
    for note in context.marks.notes(context.run.id):
        time = note.made if note.time is None else note.time
        yield EventMark("note", time, note.step, None, None, clean(note.text, 80), clean(note.text))


def _from_alert(alert: AlertRow) -> EventMark:
    return EventMark(
        "alert", alert.fired, alert.step, alert.resolved, alert.rank, alert.rule, clean(alert.message, 600)
    )


def _throttled(context: RunContext) -> list[EventMark]:
    """Marks when a GPU was throttled by heat or power supply; the power cap is normal under load."""
    marks = []
    hosts = {host for host, _ in context.own_gpus}
    for reason in THROTTLE_REASONS:
        key = f"gpu/throttled_{reason}"
        for summary in context.summaries.sampled(key):
            if not summary.maximum:
                continue
            source = summary.source
            points = context.run.series(
                key, source.rank, source.segment, source.host, source.device, axis="seconds"
            )
            host_device = (source.host, source.device)
            label = label_of(host_device, context.gpus, several_hosts=len(hosts) > 1)
            detail = reason.replace("_", " ")
            marks += [
                EventMark("throttling", begin, None, end, None, f"{label} throttled", detail)
                for begin, end in _spans(points.times[points.values > 0])
            ]
    return marks


def _spans(times: NDArray[np.float64]) -> list[tuple[float, float]]:
    if not len(times):
        return []
    cuts = np.flatnonzero(np.diff(times) > MAX_GAP_S)
    begins, ends = np.r_[0, cuts + 1], np.r_[cuts, len(times) - 1]
    return [(float(times[begin]), float(times[end])) for begin, end in zip(begins, ends, strict=True)]
