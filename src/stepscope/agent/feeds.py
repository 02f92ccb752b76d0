"""Hands what is kept on to the exporters that run along, after it is safe in the store."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from stepscope import plugins
from stepscope.errors import StepscopeError
from stepscope.exporters.base import Feed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from stepscope.config.sections import Settings
    from stepscope.exporters.base import Table
    from stepscope.schema.sample import DeviceFacts

log = logging.getLogger("stepscope.agent")

RETRY_S = 60.0


class Feeds:
    """The exporters of an agent. One that fails rests for a minute and takes nothing from the others."""

    def __init__(self, feeds: Mapping[str, Feed], now: Callable[[], float] = time.monotonic) -> None:
        self._feeds, self._now = feeds, now
        self._pending: list[Table] = []
        self._rests_until: dict[str, float] = {}

    def note(self, table: Table) -> None:
        """Remembers rows until they are safe."""
        if self._feeds:
            self._pending.append(table)

    def pass_on(self) -> None:
        """Hands over what was noted: it is safe now."""
        pending, self._pending = self._pending, []
        for name, feed in self._feeds.items():
            if pending and self._now() >= self._rests_until.get(name, float("-inf")):
                try:
                    for table in pending:
                        feed.take(table)
                except OSError as error:
                    log.warning("The exporter %s failed, and rests for a minute: %s", name, error)
                    self._rests_until[name] = self._now() + RETRY_S

    def describe(self, facts: DeviceFacts) -> None:
        """Tells all what a device is, before its figures come."""
        for feed in self._feeds.values():
            feed.describe(facts)

    def forget(self) -> None:
        """Drops what was noted: it was not kept, and will be told again."""
        self._pending = []

    def close(self) -> None:
        """Completes all of them."""
        for name, feed in self._feeds.items():
            try:
                feed.close()
            except OSError as error:
                log.warning("The exporter %s could not be completed: %s", name, error)


def feeds_of(settings: Settings) -> dict[str, Feed]:
    """The exporters the settings ask for; what is wrong with one is said in the log, and it is left out."""
    found: dict[str, Feed] = {}
    for name, options in settings.exporters.items():
        if not options.get("enabled", True):
            continue
        try:
            wanted = {option: value for option, value in options.items() if option != "enabled"}
            found[name] = plugins.make("exporters", name, Feed, wanted)  # type: ignore[type-abstract]  # only its members
        except (StepscopeError, OSError) as error:
            log.warning("The exporter %s is left out: %s", name, error)
    return found
