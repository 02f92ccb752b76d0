"""Keeps a failure of one part of the agent from ending the others."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from stepscope.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable

log = logging.getLogger("stepscope.agent")


class Containment:
    """Runs tasks, and logs the first failure of each: records matter more than what is made of them."""

    def __init__(self, consequence: str) -> None:
        """`consequence` ends the message of a failure, such as "alerts may be missing"."""
        self._consequence = consequence
        self._reported: set[str] = set()

    def run(self, task: str, act: Callable[[], None]) -> None:
        """Runs a task. Disk and database errors are raised: the agent retries the whole round."""
        try:
            act()
        except (OSError, StoreError):
            raise
        except Exception:
            if task not in self._reported:
                self._reported.add(task)
                log.exception("%s failed. The agent continues; %s.", task, self._consequence)
