"""What people add to runs: names, tags, notes, colours; seen here through a protocol alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Note:
    """Something a person wrote down about a moment of a run."""

    id: int
    run_id: str
    step: int | None
    time: float | None
    """The moment it is about, in seconds since the epoch; None where it is about a step, or the whole run."""
    text: str
    made: float


class Marks(Protocol):
    """What people have said of runs; each answer must be quick, as lists ask for every run."""

    def name(self, run_id: str) -> str | None:
        """The name somebody gave it in place of its own."""

    def tags(self, run_id: str) -> tuple[str, ...]:
        """Its tags."""

    def archived(self, run_id: str) -> bool:
        """Whether it was put aside."""

    def notes(self, run_id: str) -> tuple[Note, ...]:
        """What was written down about it, oldest first."""

    def colour(self, run_id: str) -> str | None:
        """The colour somebody chose for it."""

    def muted(self, run_id: str) -> frozenset[str]:
        """The findings nobody wants to be told of, by id or key."""


class NoMarks:
    """Nobody has said anything."""

    def name(self, run_id: str) -> str | None:
        """None."""
        del run_id
        return None

    def tags(self, run_id: str) -> tuple[str, ...]:
        """None."""
        del run_id
        return ()

    def archived(self, run_id: str) -> bool:
        """It was not."""
        del run_id
        return False

    def notes(self, run_id: str) -> tuple[Note, ...]:
        """None."""
        del run_id
        return ()

    def colour(self, run_id: str) -> str | None:
        """None."""
        del run_id
        return None

    def muted(self, run_id: str) -> frozenset[str]:
        """None."""
        del run_id
        return frozenset()
