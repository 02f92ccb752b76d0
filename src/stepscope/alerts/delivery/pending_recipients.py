"""Tracks which recipients a notice has not reached yet, so that a retry does not notify others twice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Sequence

Target = TypeVar("Target")

MAX_NOTICES = 64
"""Maximum number of notices that are tracked; a retry of an older one goes to all recipients again."""


class PendingRecipients(Generic[Target]):
    """The recipients of a channel, and which of them each notice still has to reach."""

    def __init__(self, recipients: Sequence[Target]) -> None:
        self._recipients = list(recipients)
        self._pending: dict[str, list[Target]] = {}

    def of(self, notice_id: str) -> list[Target]:
        """Returns the recipients that a notice has not reached; all if it was never tried."""
        return self._pending.get(notice_id, self._recipients)

    def update(self, notice_id: str, pending: Sequence[Target]) -> None:
        """Stores which recipients an attempt has not reached; forgets a notice that reached all."""
        self._pending.pop(notice_id, None)
        if pending:
            self._pending[notice_id] = list(pending)
        if len(self._pending) > MAX_NOTICES:
            del self._pending[next(iter(self._pending))]
