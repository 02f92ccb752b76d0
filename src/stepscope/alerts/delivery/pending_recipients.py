"""Remembers whom a notice has not reached yet, so that trying again does not tell the others twice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Sequence

Target = TypeVar("Target")

MAX_NOTICES = 64
"""As many may be waiting for another attempt at once; of older ones everybody is told again."""


class PendingRecipients(Generic[Target]):
    """The targets of a channel, and which of them each notice still has to reach."""

    def __init__(self, everybody: Sequence[Target]) -> None:
        self._everybody = list(everybody)
        self._left: dict[str, list[Target]] = {}

    def by(self, notice_id: str) -> list[Target]:
        """Those a notice has not reached; everybody where it was never tried."""
        return self._left.get(notice_id, self._everybody)

    def keep(self, notice_id: str, left: Sequence[Target]) -> None:
        """Takes note of whom an attempt has not reached; a notice that reached all is forgotten."""
        self._left.pop(notice_id, None)
        if left:
            self._left[notice_id] = list(left)
        if len(self._left) > MAX_NOTICES:
            del self._left[next(iter(self._left))]
