"""The moments of a run that are marked under its charts: epochs, checkpoints, alerts, resumes, notes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from stepscope.alerts.defaults import THROTTLE_REASONS
from stepscope.schema.keys import CHECKS_EVENT, phase_key
from stepscope.views.machine.gpu_names import label_of
from stepscope.views.plain import clean
from stepscope.views.steps.step_values import step_values
from stepscope.views.wording import duration

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from stepscope.schema.record import Event
    from stepscope.views.alerts.alert_rows import AlertRow
    from stepscope.views.run_context import RunContext

MAX_OF_A_KIND = 200
"""Of a kind with more, as of epochs of a second each, some all over the run are marked; all are counted."""

GAP_S = 10.0
"""Two spells of heat this near to each other are one."""

SETUP = {"config", "total_steps"}
"""What a training records of its set-up."""

NOT_MARKED = {
    "alert_condition", "alert_rule", "census", CHECKS_EVENT, "config", "console", "device", "failure",
    "loader", "notice", "params", "text", "total_steps",
}  # fmt: skip
"""What is kept as an event and is no moment people look for."""

PHASE_MARKS = {"checkpoint": "checkpoint", "eval": "evaluation"}


@dataclass(frozen=True)
class EventMark:
    """A moment, or a stretch of time."""

    kind: str
    time: float
    step: int | None
    end_time: float | None
    rank: int | None
    label: str
    detail: str


@dataclass(frozen=True)
class EventMarks:
    """What is marked of a run, oldest first, and how many of each kind there are."""

    marks: tuple[EventMark, ...]
    counts: dict[str, int]


@dataclass(frozen=True)
class _Some:
    """Some of the marks of a kind, and how many there are in all."""

    kind: str
    total: int
    marks: Sequence[EventMark]


def event_marks(context: RunContext, alerts: Sequence[AlertRow]) -> EventMarks:
    """The marks of a run."""
    found = [
        *_told(context),
        *_epochs(context),
        *_phases(context),
        *_every(_resumes(context)),
        *_every(_notes(context)),
    ]
    found += [*_every(_of_alert(alert) for alert in alerts), *_every(_throttled(context))]
    counts: dict[str, int] = {}
    kinds: dict[str, list[EventMark]] = {}
    for some in found:
        counts[some.kind] = counts.get(some.kind, 0) + some.total
        kinds.setdefault(some.kind, []).extend(some.marks)
    kept: list[EventMark] = []
    for marks in kinds.values():
        marks.sort(key=lambda one: one.time)
        kept += [marks[place] for place in _evenly(len(marks))]
    return EventMarks(tuple(sorted(kept, key=lambda one: one.time)), counts)


def _evenly(count: int) -> list[int]:
    """Which of so many are marked: all, or as many as may be, from the first to the last."""
    if count <= MAX_OF_A_KIND:
        return list(range(count))
    return [round(place) for place in np.linspace(0, count - 1, MAX_OF_A_KIND).tolist()]


def _every(marks: Iterable[EventMark]) -> list[_Some]:
    """Marks of which there are never many, by kind."""
    kinds: dict[str, list[EventMark]] = {}
    for mark in marks:
        kinds.setdefault(mark.kind, []).append(mark)
    return [_Some(kind, len(several), several) for kind, several in kinds.items()]


def _told(context: RunContext) -> Iterator[_Some]:
    for events in context.events.values():
        marked = [event for event in events if is_marked(event)]
        marks = [mark_of(marked[place]) for place in _evenly(len(marked))]
        if marks:
            yield _Some(marks[0].kind, len(marked), marks)


def is_marked(event: Event) -> bool:
    """Whether an event is a moment people look for; of those the training recorded, most are."""
    return event.kind not in (SETUP if event.by_user else NOT_MARKED)


def mark_of(event: Event) -> EventMark:
    """The mark of an event that somebody told."""
    fields = {name: value for name, value in event.fields.items() if event.by_user or name != "kind"}
    kind = clean(event.kind, 100)
    label = kind.replace("_", " ")
    if event.kind == "epoch" and "epoch" in fields:
        label = f"epoch {clean(fields['epoch'], 40)}"
    return EventMark(kind, event.time, event.step, None, event.rank, label, _detail(fields))


def _detail(fields: dict[str, Any]) -> str:
    """Single values of an event in a row; what is nested is for other pages."""
    shown = [(name, value) for name, value in fields.items() if isinstance(value, str | int | float)]
    return clean(", ".join(f"{name} {clean(value, 200)}" for name, value in shown[:8]), 600)


def _epochs(context: RunContext) -> Iterator[_Some]:
    """Where the epoch that was logged changes; nothing where epochs were told as events."""
    if "epoch" in context.events or not context.summaries.logged("epoch") or not context.ranks:
        return
    logged = step_values(context.run, "epoch", context.summaries.ranks("epoch")[0])
    whole = np.floor(logged.values)
    begins = np.flatnonzero(np.diff(whole) > 0) + 1
    marks = []
    for place in begins[_evenly(len(begins))].tolist():
        time, step = float(logged.times[place]), int(logged.steps[place])
        marks.append(EventMark("epoch", time, step, None, None, f"epoch {int(whole[place])}", ""))
    if marks:
        yield _Some("epoch", len(begins), marks)


def _phases(context: RunContext) -> Iterator[_Some]:
    """Checkpoints and evaluations that were timed and that nobody told as events."""
    for phase, kind in PHASE_MARKS.items():
        key = phase_key(phase)
        known = [one for one in context.summaries.by_first_rank(key) if one.maximum]
        if kind in context.events or not known or not context.ranks:
            continue
        logged = step_values(context.run, key, known[0].source.rank)
        rank, timed = known[0].source.rank, np.flatnonzero(logged.values > 0)
        marks = []
        for place in timed[_evenly(len(timed))].tolist():
            took, end = float(logged.values[place]), float(logged.times[place])
            step = int(logged.steps[place])
            marks.append(EventMark(kind, end - took, step, end, rank, kind, duration(took)))
        if marks:
            yield _Some(kind, len(timed), marks)


def _resumes(context: RunContext) -> Iterator[EventMark]:
    for before, part in zip(context.run.segments, context.run.segments[1:], strict=False):
        why = f"after it {before.status}" + (f": {clean(before.reason, 300)}" if before.reason else "")
        yield EventMark("resume", part.started_ns / 1e9, None, None, None, "resumed", why)


def _notes(context: RunContext) -> Iterator[EventMark]:
    for note in context.marks.notes(context.run.id):
        time = note.made if note.time is None else note.time
        yield EventMark("note", time, note.step, None, None, clean(note.text, 80), clean(note.text))


def _of_alert(alert: AlertRow) -> EventMark:
    return EventMark(
        "alert", alert.fired, alert.step, alert.resolved, alert.rank, alert.rule, clean(alert.message, 600)
    )


def _throttled(context: RunContext) -> list[EventMark]:
    """When a GPU was held down for heat or want of power; at its power limit it is so all day long."""
    found = []
    hosts = {host for host, _ in context.own_gpus}
    for reason in THROTTLE_REASONS:
        key = f"gpu/throttled_{reason}"
        for one in context.summaries.read(key):
            if not one.maximum:
                continue
            source = one.source
            points = context.run.series(
                key, source.rank, source.segment, source.host, source.device, axis="seconds"
            )
            place = (source.host, source.device)
            label = label_of(place, context.gpus, several_hosts=len(hosts) > 1)
            told = reason.replace("_", " ")
            found += [
                EventMark("throttling", begin, None, end, None, f"{label} held down", told)
                for begin, end in _spans(points.times[points.values > 0])
            ]
    return found


def _spans(times: NDArray[np.float64]) -> list[tuple[float, float]]:
    if not len(times):
        return []
    cuts = np.flatnonzero(np.diff(times) > GAP_S)
    begins, ends = np.r_[0, cuts + 1], np.r_[cuts, len(times) - 1]
    return [(float(times[begin]), float(times[end])) for begin, end in zip(begins, ends, strict=True)]
