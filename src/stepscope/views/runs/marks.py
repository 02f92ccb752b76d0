"""The protocol for what people add to runs: names, tags, notes, colours, opinions on findings."""

from __future__ import annotations

from typing import Protocol

from stepscope.store.mark_store import Feedback, Note

__all__ = ["Feedback", "Marks", "NoMarks", "Note"]


class Marks(Protocol):
    """What people added to runs; each call must be quick, because lists make it for every run."""

    def name(self, run_id: str) -> str | None:
        """Returns the name that replaces the run's own; None if there is none."""

    def tags(self, run_id: str) -> tuple[str, ...]:
        """Returns its tags."""

    def archived(self, run_id: str) -> bool:
        """Returns whether it is archived."""

    def notes(self, run_id: str) -> tuple[Note, ...]:
        """Returns its notes, oldest first."""

    def colour(self, run_id: str) -> str | None:
        """Returns its chosen colour; None if there is none."""

    def muted(self, run_id: str, project: str) -> frozenset[str]:
        """Returns the findings that are muted in a run or in its project, by id or key."""

    def feedback(self, project: str) -> tuple[Feedback, ...]:
        """Returns the opinions on findings in a project."""


class NoMarks:
    """Marks of runs to which nothing was added."""

    def name(self, run_id: str) -> str | None:
        """Returns None."""
        del run_id
        return None

    def tags(self, run_id: str) -> tuple[str, ...]:
        """Returns no tags."""
        del run_id
        return ()

    def archived(self, run_id: str) -> bool:
        """Returns False."""
        del run_id
        return False

    def notes(self, run_id: str) -> tuple[Note, ...]:
        """Returns no notes."""
        del run_id
        return ()

    def colour(self, run_id: str) -> str | None:
        """Returns None."""
        del run_id
        return None

    def muted(self, run_id: str, project: str) -> frozenset[str]:
        """Returns no findings."""
        del run_id, project
        return frozenset()

    def feedback(self, project: str) -> tuple[Feedback, ...]:
        """Returns no opinions."""
        del project
        return ()
