"""The interface of what people add: names, tags, notes, colours, opinions on findings, page layouts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Literal

Opinion = Literal["wrong", "not_wanted"]


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


@dataclass(frozen=True)
class Feedback:
    """A person's opinion on findings of one kind, which are muted in all runs of the project."""

    project: str
    finding: str
    """The id of the finding, such as `conv.spike`."""
    opinion: Opinion
    """`wrong` for a problem that the run does not have, `not_wanted` for one that need not be reported."""
    run_id: str
    """The run it was given for."""
    headline: str
    """What the finding said."""
    note: str
    """Why, in the person's own words."""
    made: float
    """When, in seconds since the epoch."""


class MarkStore(ABC):
    """What people have added to the runs of a store; views read it as `views.runs.marks.Marks`."""

    @property
    @abstractmethod
    def changes(self) -> int:
        """Increases with every change, also by another process, so that caches know when to read again."""

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

    def muted(self, run_id: str, project: str) -> frozenset[str]:
        """The findings that are muted in a run or in its project, by id or key."""
        return self.of(run_id).muted.union(given.finding for given in self.feedback(project))

    @abstractmethod
    def notes(self, run_id: str) -> tuple[Note, ...]:
        """Its notes, oldest first."""

    @abstractmethod
    def feedback(self, project: str) -> tuple[Feedback, ...]:
        """The opinions on findings in a project, ordered by the finding."""

    @abstractmethod
    def give_feedback(self, feedback: Feedback) -> None:
        """Saves an opinion; it replaces an earlier one on the same finding."""

    @abstractmethod
    def withdraw_feedback(self, project: str, finding: str) -> bool:
        """Deletes an opinion; False where there is none."""

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
