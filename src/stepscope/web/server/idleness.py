"""Decides when a server that was started with a run may end: nothing trains, and nobody looks."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from stepscope.errors import StepscopeError
from stepscope.schema.run import LIVE

if TYPE_CHECKING:
    from collections.abc import Callable

    from stepscope.web.app_state import AppState

LINGER_S = 900.0
"""How long it stays after the last run has ended and the last look at the page."""


class Idleness:
    """Watches for how long a server has had nothing to do."""

    def __init__(
        self, site: AppState, asked_at: Callable[[], float], now: Callable[[], float] = time.monotonic
    ) -> None:
        self._site, self._asked_at, self._now = site, asked_at, now
        self._busy_at = now()

    def is_over(self) -> bool:
        """Whether it has lasted long enough to end."""
        now = self._now()
        if self._site.feed.client_count or self._is_training():
            self._busy_at = now
        return now - max(self._busy_at, self._asked_at()) > LINGER_S

    def _is_training(self) -> bool:
        try:
            with self._site.readers.open() as opened:
                return any(run.status in LIVE for run in opened.runs.runs())
        except StepscopeError:  # a store nobody can read keeps nobody waiting
            return False
