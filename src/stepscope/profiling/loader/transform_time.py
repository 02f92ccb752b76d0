"""Measures what a dataset's transforms take of loading a sample."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from stepscope.profiling.loader.loader_profile import TransformTime
from stepscope.profiling.loader.sample_items import NotByNumber, timed_items
from stepscope.profiling.model.timings import timings_of

if TYPE_CHECKING:
    from stepscope.profiling.model.timings import Clock

ATTRIBUTES = ("transform", "transforms", "target_transform")
MAX_NESTED = 8
METHOD = "samples asked for one by one in this process, with the transforms of a copy of the dataset timed"


def transform_time(dataset: Any, items: int, clock: Clock) -> TransformTime:
    """Times samples, and the transforms inside them."""
    stopwatch = _Stopwatch(clock)
    whole: list[float] = []
    inside: list[float] = []
    try:
        watched = _watched(dataset, stopwatch)
    except (TypeError, copy.Error) as error:
        return TransformTime(None, None, f"not measured: the dataset cannot be copied ({error})")
    try:
        for _, seconds in timed_items(watched, items, clock):
            whole.append(seconds)
            inside.append(stopwatch.seconds)
            stopwatch.seconds = 0.0
    except NotByNumber as error:
        return TransformTime(None, None, f"not measured: {error}")
    if not whole:
        return TransformTime(None, None, "not measured: there is no sample")
    if not stopwatch.is_used:
        return TransformTime(None, timings_of(whole), f"{METHOD}; it has none that was called")
    return TransformTime(timings_of(inside), timings_of(whole), METHOD)


class _Stopwatch:
    """Adds up the time inside transforms; one inside another counts once."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.seconds = 0.0
        self.is_used = self._is_running = False

    def run(self, transform: Any, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """Calls a transform and times it."""
        if self._is_running:
            return transform(*arguments, **named)
        self.is_used = self._is_running = True
        before = self._clock()
        try:
            return transform(*arguments, **named)
        finally:
            self.seconds += self._clock() - before
            self._is_running = False


class _Timed:
    """A transform that is timed, and in all else the one it stands for."""

    def __init__(self, transform: Any, stopwatch: _Stopwatch) -> None:
        self._transform, self._stopwatch = transform, stopwatch

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return self._stopwatch.run(self._transform, arguments, named)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transform, name)


def _watched(dataset: Any, stopwatch: _Stopwatch, depth: int = 0) -> Any:
    """A copy of a dataset, and of the one it wraps, whose transforms are timed; the user's is not touched."""
    watched = copy.copy(dataset)
    attributes = getattr(watched, "__dict__", {})
    for name in ATTRIBUTES:
        if callable(attributes.get(name)):
            attributes[name] = _Timed(attributes[name], stopwatch)
    if "dataset" in attributes and depth < MAX_NESTED:
        attributes["dataset"] = _watched(attributes["dataset"], stopwatch, depth + 1)
    return watched
