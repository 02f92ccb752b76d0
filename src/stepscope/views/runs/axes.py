"""What charts of a run need: its segments, and the x axes they can have."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from stepscope.schema.run import Status  # noqa: TC001 - the schema of the API reads it

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

CountAxis = Literal["epoch", "samples", "tokens"]
AxisName = Literal["step", CountAxis, "active", "process", "wall"]

AXIS_KEYS: dict[CountAxis, tuple[str, ...]] = {
    "epoch": ("epoch", "train/epoch"),
    "samples": ("samples_total", "samples", "samples_seen", "train/samples"),
    "tokens": ("tokens_total", "tokens", "tokens_seen", "num_input_tokens_seen", "train/tokens"),
}
"""Common names of the series that count these, the most common first."""

NO_SERIES: dict[CountAxis, str] = {
    "epoch": "No epoch was logged. Give epoch=... to log_training_step.",
    "samples": "This axis needs the metric samples_total: log the samples seen so far.",
    "tokens": "This axis needs the metric tokens_total: log the tokens seen so far.",
}

TIME_AXES: tuple[AxisName, ...] = ("active", "process", "wall")


@dataclass(frozen=True)
class Segment:
    """One start of a run."""

    id: str
    status: Status
    reason: str
    started: float
    ended: float | None
    first_step: int | None
    last_step: int | None


@dataclass(frozen=True)
class AxisChoice:
    """An x axis a chart can have."""

    name: AxisName
    key: str | None = None
    """The series that maps steps to it; None if none is needed."""
    why_not: str | None = None
    """Why it cannot be chosen; None if it can."""


@dataclass(frozen=True)
class SharedAxes:
    """What charts of several runs need."""

    segments: tuple[tuple[Segment, ...], ...] = ()
    """The segments of each run."""
    axes: tuple[AxisChoice, ...] = ()
    """The x axes that all of them have."""


def axes_of(step_keys: Collection[str]) -> tuple[AxisChoice, ...]:
    """Returns the x axes of a run that logged these keys."""
    counted = []
    for name, candidates in AXIS_KEYS.items():
        key = next((candidate for candidate in candidates if candidate in step_keys), None)
        counted.append(AxisChoice(name, key, NO_SERIES[name] if key is None else None))
    return (AxisChoice("step"), *counted, *map(AxisChoice, TIME_AXES))


def common_axes(axes_by_run: Iterable[tuple[AxisChoice, ...]]) -> tuple[AxisChoice, ...]:
    """Returns the x axes of several runs together; one that not all of them have cannot be chosen."""
    return tuple(_common_axis(choices) for choices in zip(*axes_by_run, strict=True))


def _common_axis(choices: tuple[AxisChoice, ...]) -> AxisChoice:
    first, missing = choices[0], sum(choice.why_not is not None for choice in choices)
    if missing:
        who = "No run" if missing == len(choices) else f"{missing} of {len(choices)} runs"
        verb = "logged a" if missing == len(choices) else "logged no"
        return replace(first, key=None, why_not=f"{who} {verb} count of {first.name}.")
    if len({choice.key for choice in choices}) > 1:
        return replace(first, key=None, why_not=f"The runs count {first.name} under different names.")
    return first
