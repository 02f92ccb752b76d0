"""Decides which channels a notice uses, when it is silenced, and which page it links to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stepscope.alerts.delivery.quiet_hours import QuietHours
    from stepscope.alerts.rule import Rule
    from stepscope.alerts.run_watch import RunWatch
    from stepscope.alerts.silences import Silences
    from stepscope.schema.alert import AlertDetail


@dataclass(frozen=True)
class Routing:
    """The channels, silences, quiet hours and page address of a run."""

    channels: tuple[str, ...]
    silences: Silences
    quiet_hours: QuietHours | None = None
    link: str = ""
    """Address of the web page; empty if none is served."""

    def is_silenced(self, run: RunWatch, rule: Rule, now_ns: int) -> bool:
        """Whether notices about a rule are suppressed now, by a silence or by quiet hours."""
        if self.silences.read().silence_for(rule.name, (run.name, run.run_id), now_ns) is not None:
            return True
        is_quiet = self.quiet_hours is not None and self.quiet_hours.contain(now_ns)
        return is_quiet and rule.severity != "critical"

    def link_to(self, run_id: str, alerts: Sequence[AlertDetail] = ()) -> str:
        """Returns the address of a run's page; if all alerts are about one metric, of its charts."""
        if not self.link:
            return ""
        page = f"{self.link.rstrip('/')}/run/{quote(run_id, safe='')}"
        keys = {alert.key for alert in alerts}
        if len(keys) != 1 or "" in keys:
            return page
        tab = "metrics" if any(alert.step is not None for alert in alerts) else "system"
        return f"{page}/{tab}?q={quote(keys.pop(), safe='')}"
