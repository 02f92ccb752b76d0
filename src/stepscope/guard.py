"""Contains our own failures: says each once, goes on, and never raises into training unless asked to."""

from __future__ import annotations

from typing import Any

from stepscope.errors import RecorderError


class Guard:
    """Where failures of the recorder end."""

    def __init__(self, *, strict: bool) -> None:
        self._strict = strict
        self._said: set[str] = set()

    def complain(self, topic: str, message: str, error: Exception | None = None) -> None:
        """Says something once for each topic; with strict, raises it instead."""
        if self._strict:
            raise RecorderError(message) from error
        if topic not in self._said:
            self._said.add(topic)
            self.tell(message)

    def tell(self, message: str) -> None:
        """Says something every time: for what happens seldom and is not this process's fault."""
        _logger().warning(message)


def _logger() -> Any:
    import logging  # lazy: most runs have nothing to say

    return logging.getLogger("stepscope")
