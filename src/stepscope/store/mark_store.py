"""The interface of what people add to runs: names, tags, notes, colours, muted findings, page layouts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Note:
    """A note on a run, or on a moment or step of it."""

    id: int
    run_id: str
    step: int | None
    time: float | None
    """The moment it refers to, in seconds since the epoch; None if it refers to a step or the whole run."""
    text: str
    made: float


@dataclass(frozen=True)
class Mark:
    """What people have added to one run."""

    name: str | None = None
    tags: tuple[str, ...] = ()
    archived: bool = False
    colour: str | None = None
    muted: frozenset[str] = frozenset()


class MarkStore(ABC):
    """What people have added to the runs of a store; views read it as `views.runs.marks.Marks`."""

    changes: int = 0
    """Increases with every change, so that caches know when to read again."""

    @abstractmethod
    def of(self, run_id: str) -> Mark:
        """All marks of a run."""

    def name(self, run_id: str) -> str | None:
        """The name it was given on the page; None where it keeps its own."""
        return self.of(run_id).name

    def tags(self, run_id: str) -> tuple[str, ...]:
        """Its tags."""
        return self.of(run_id).tags

    def archived(self, run_id: str) -> bool:
        """Whether lists leave it out."""
        return self.of(run_id).archived

    def colour(self, run_id: str) -> str | None:
        """Its colour in charts; None where the page chooses."""
        return self.of(run_id).colour

    def muted(self, run_id: str) -> frozenset[str]:
        """The findings that are muted."""
        return self.of(run_id).muted

    @abstractmethod
    def notes(self, run_id: str) -> tuple[Note, ...]:
        """Its notes, oldest first."""

    @abstractmethod
    def layout(self, page: str) -> dict[str, Any]:
        """The saved layout of a page; empty where there is none."""

    @abstractmethod
    def change(self, run_id: str, **changes: Any) -> None:
        """Saves new values for any of name, tags, archived, colour, muted."""

    @abstractmethod
    def add_note(self, run_id: str, text: str, *, step: int | None, time: float | None, made: float) -> Note:
        """Saves a note."""

    @abstractmethod
    def remove_note(self, run_id: str, note_id: int) -> bool:
        """Deletes a note; False where the run has no note with that id."""

    @abstractmethod
    def set_layout(self, page: str, document: dict[str, Any]) -> None:
        """Saves the layout of a page."""

    @abstractmethod
    def close(self) -> None:
        """Closes the file."""
