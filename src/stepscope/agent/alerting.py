"""The alerts of an agent: the rules of its runs, the engine that evaluates them, the delivery of notices."""

from __future__ import annotations

import logging
import time
from dataclasses import fields
from typing import TYPE_CHECKING

from stepscope.alerts.defaults import default_rules, rules_of
from stepscope.alerts.delivery import Delivery, channels_of
from stepscope.alerts.engine import Engine, Routing
from stepscope.alerts.quiet_hours import QuietHours
from stepscope.alerts.silences import Silences
from stepscope.config.sections import Alerts
from stepscope.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from stepscope.alerts.rule import Rule
    from stepscope.channels.base import Channel
    from stepscope.config.sections import Settings
    from stepscope.schema.run import Process
    from stepscope.store.base import Store

log = logging.getLogger("stepscope.agent")


class Alerting:
    """Looks at all runs once a round, and sees to what was posted."""

    def __init__(
        self,
        folder: Path,
        store: Store,
        settings: Settings,
        now_ns: Callable[[], int] = time.time_ns,
        channels: dict[str, Channel] | None = None,
    ) -> None:
        self._settings = settings
        self._delivery = Delivery(
            store, channels_of(settings.alerts) if channels is None else channels, now_ns
        )
        routing = Routing(
            self._delivery.names,
            Silences(folder),
            _quiet_hours(settings.alerts),
            settings.alerts.link or "",
        )
        self.engine = Engine(store, self._rules_of, routing, now_ns)

    @property
    def is_waiting(self) -> bool:
        """Whether a notice has yet to arrive."""
        return self._delivery.is_waiting

    def tick(self) -> None:
        """One round; never waits."""
        self.engine.tick()
        if self.engine.has_posted:
            self.engine.has_posted = False
            self._delivery.has_news = True
        self._delivery.tick()

    def close(self) -> None:
        """Lets go of the channels."""
        self._delivery.close()

    def _rules_of(self, process: Process) -> list[Rule]:
        # The agent may have been started by another run, with other settings.
        said = process.facts.get("alerts")
        known = {one.name for one in fields(Alerts)}
        chosen = self._settings.alerts
        if isinstance(said, dict):
            chosen = Alerts(**{name: value for name, value in said.items() if name in known})
        try:
            return rules_of(chosen)
        except ConfigError as error:
            log.warning("The rules of %s are left out, but for the usual ones: %s", process.name, error)
            return default_rules(chosen.disabled)


def _quiet_hours(settings: Alerts) -> QuietHours | None:
    if settings.quiet_hours is None:
        return None
    try:
        return QuietHours.parse(settings.quiet_hours)
    except ConfigError as error:
        log.warning("%s There are no quiet hours.", error)
        return None
