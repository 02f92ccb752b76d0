"""Says by which channels people are told, when not, and where to look."""

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
    """By which channels people are told, and when not."""

    channels: tuple[str, ...]
    silences: Silences
    quiet_hours: QuietHours | None = None
    link: str = ""
    """Address of the web page; empty where none is served."""

    def is_to_wait(self, run: RunWatch, rule: Rule, now_ns: int) -> bool:
        """Whether nobody is to be told of a rule for now."""
        if self.silences.read().silence_for(rule.name, (run.name, run.run_id), now_ns) is not None:
            return True
        is_quiet = self.quiet_hours is not None and self.quiet_hours.hold(now_ns)
        return is_quiet and rule.severity != "critical"

    def link_to(self, run_id: str, told: Sequence[AlertDetail] = ()) -> str:
        """The page of a run; where all is about one metric, the charts of that metric."""
        if not self.link:
            return ""
        page = f"{self.link.rstrip('/')}/run/{quote(run_id, safe='')}"
        keys = {one.key for one in told}
        if len(keys) != 1 or "" in keys:
            return page
        tab = "metrics" if any(one.step is not None for one in told) else "system"
        return f"{page}/{tab}?q={quote(keys.pop(), safe='')}"
