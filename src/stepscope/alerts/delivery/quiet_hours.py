"""Hours of the day in which only critical alerts are sent."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timezone

from stepscope.errors import ConfigError

_FORM = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)\s*-\s*([01]?\d|2[0-3]):([0-5]\d)\s*(UTC)?")


@dataclass(frozen=True)
class QuietHours:
    """A range of minutes of the day; it may include midnight."""

    first: int
    last: int
    is_utc: bool = False

    @classmethod
    def parse(cls, text: str) -> QuietHours:
        """Reads `22:00-07:00`, in local time, or `22:00-07:00 UTC`."""
        match = _FORM.fullmatch(text.strip())
        if match is None:
            raise ConfigError(
                f"alerts.quiet_hours is {text!r}; it must be two times, such as 22:00-07:00 or "
                "22:00-07:00 UTC."
            )
        first_hour, first_minute, last_hour, last_minute, zone = match.groups()
        return cls(
            int(first_hour) * 60 + int(first_minute),
            int(last_hour) * 60 + int(last_minute),
            zone is not None,
        )

    def contain(self, now_ns: int) -> bool:
        """Whether a time is in the quiet hours."""
        moment = datetime.fromtimestamp(now_ns / 1e9, timezone.utc)
        local = moment if self.is_utc else moment.astimezone()
        minute = local.hour * 60 + local.minute
        if self.first <= self.last:
            return self.first <= minute < self.last
        return minute >= self.first or minute < self.last
