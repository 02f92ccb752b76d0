"""Finds the step and the time of a row of named values, as tables and JSON lines have them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stepscope.source_files.cells import number_in, step_in, time_in

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

STEPS = ("step", "_step", "global_step", "iteration", "iter")
TIMES = ("time_seconds", "time", "timestamp", "_timestamp", "wall_time", "wall time", "date")
EPOCHS = ("epoch",)


class RowClock:
    """Gives each row a step and a time: those in it, else the number of the row and the time of the file."""

    def __init__(self, start_ns: int) -> None:
        """`start_ns` is used where no row has a time, and as the start of times that count from it."""
        self._start_ns = self._time_ns = start_ns
        self._names: tuple[str, ...] | None = None
        self.step_name: str | None = None
        self.time_name: str | None = None
        self.epoch_name: str | None = None
        self.own_names: set[str | None] = set()
        """The names that are not metrics."""

    def use_names(self, names: Iterable[str]) -> None:
        """Finds the names that are not metrics among those of the next row."""
        known = tuple(names)
        if known == self._names:
            return
        self._names = known
        self.step_name = _first(known, STEPS)
        self.epoch_name = _first(known, EPOCHS)
        self.time_name = _first(known, TIMES)
        self.own_names = {self.step_name, self.time_name, *(name for name in known if name.lower() in TIMES)}

    def step_of(self, row: Mapping[str, Any], number: int) -> int:
        """The step of a row: its step, else its epoch where that is whole, else its number."""
        if self.step_name is not None and row.get(self.step_name) not in (None, ""):
            return step_in(row[self.step_name])
        if self.step_name is None and self.epoch_name is not None:
            epoch = number_in(row.get(self.epoch_name))
            if epoch is not None and epoch.is_integer():
                return step_in(epoch)
        return number

    def time_of(self, row: Mapping[str, Any]) -> int:
        """The time of a row: its own, else that of the row before."""
        value = None if self.time_name is None else row.get(self.time_name)
        if isinstance(value, str | int | float) and value != "":
            self._time_ns = time_in(value, self._start_ns)
        return self._time_ns


def _first(names: tuple[str, ...], wanted: tuple[str, ...]) -> str | None:
    by_lower = {name.lower(): name for name in reversed(names)}
    return next((by_lower[name] for name in wanted if name in by_lower), None)
