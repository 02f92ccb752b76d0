"""Calls observers at the end of steps, each as often as it asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stepscope.guard import Guard


class Observer(Protocol):
    """Has values to record at the end of some steps."""

    due: int
    """Steps until the next call of `after_step`, which may increase it; `Observers` counts it down."""

    def after_step(self, step: int) -> Mapping[str, Any]:
        """Its values of the step that has just ended; called in the training thread, so it must be quick."""

    def close(self) -> None:
        """Undoes its setup."""


class Observers:
    """All observers of a training. Until the next one is due, steps are only counted."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self._observers: list[Observer] = []
        self._stride = 1
        self.left = 1
        """Steps until an observer is due (1: the next step); the caller counts it down."""

    def add(self, observer: Observer) -> None:
        """Adds an observer."""
        self._observers.append(observer)
        self.left = self._stride = 1

    def ask(self, step: int) -> dict[str, Any]:
        """The values of the observers that are due; one that fails is removed."""
        row: dict[str, Any] = {}
        for observer in tuple(self._observers):
            observer.due -= self._stride
            if observer.due > 0:
                continue
            observer.due = 1
            try:
                row.update(observer.after_step(step))
            except Exception as error:  # noqa: BLE001 - a failure of stepscope must not stop the training
                self._observers.remove(observer)
                observer.close()
                name = type(observer).__name__
                self._guard.complain("observer", f"{name} is switched off: {error!r}", error)
        self.left = self._stride = max(min((observer.due for observer in self._observers), default=1), 1)
        return row

    def close(self) -> None:
        """Closes all observers."""
        for observer in self._observers:
            observer.close()
        self._observers.clear()
