"""Asks those who have figures of their own at the end of steps, each as often as it wants."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stepscope.guard import Guard


class Observer(Protocol):
    """Something that has figures of its own at the end of some steps."""

    due: int
    """After so many further steps it is to be asked. Others count it down; asked, it may ask for a pause."""

    def after_step(self, step: int) -> Mapping[str, Any]:
        """Its figures of the step that has just ended; called in the training thread, so it must be quick."""

    def close(self) -> None:
        """Undoes what it did to be able to observe."""


class Observers:
    """All of them. Until the next one is due, steps are counted and nothing else."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self._observers: list[Observer] = []
        self._stride = 1
        self.left = 1
        """Steps until one is due, 1 for the very next; whoever ends steps counts it down."""

    def add(self, observer: Observer) -> None:
        """Asks one more."""
        self._observers.append(observer)
        self.left = self._stride = 1

    def ask(self, step: int) -> dict[str, Any]:
        """The figures of those that are due; one that fails is asked no more."""
        row: dict[str, Any] = {}
        for observer in tuple(self._observers):
            observer.due -= self._stride
            if observer.due > 0:
                continue
            observer.due = 1
            try:
                row.update(observer.after_step(step))
            except Exception as error:  # noqa: BLE001 - nothing of ours may stop a training
                self._observers.remove(observer)
                observer.close()
                self._guard.complain("observer", f"{type(observer).__name__} rests: {error!r}", error)
        self.left = self._stride = max(min((one.due for one in self._observers), default=1), 1)
        return row

    def close(self) -> None:
        """Has each undo what it did."""
        for observer in self._observers:
            observer.close()
        self._observers.clear()
