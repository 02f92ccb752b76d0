"""Stores silences and acknowledgements of alerts, in a file of its own.

The store has one writer, the agent, but people silence alerts from anywhere. So they write to this file, and
the agent reads it.
"""

from __future__ import annotations

import secrets
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from stepscope.alerts.shared_file import SharedFile

if TYPE_CHECKING:
    from pathlib import Path

    from stepscope.alerts.shared_file import Mark

NAME = "silences.json"

MAX_SILENCE_S = 366 * 86_400
"""A silence for longer is a mistake: a rule that is never wanted is switched off in the settings."""


@dataclass(frozen=True)
class Silence:
    """Mutes rules of runs for a while; `rule` and `run` are names or patterns."""

    id: str
    rule: str
    run: str
    until_ns: int
    reason: str
    made_ns: int

    def covers(self, rule: str, runs: tuple[str, ...], now_ns: int) -> bool:
        """Whether it applies now to a rule of a run; `runs` are its name and its id."""
        has_run = any(fnmatchcase(name, self.run) for name in runs)
        return now_ns < self.until_ns and fnmatchcase(rule, self.rule) and has_run


@dataclass(frozen=True)
class SilenceState:
    """The content of the file: silences and acknowledged alerts."""

    silences: tuple[Silence, ...] = ()
    acknowledged: frozenset[int] = frozenset()
    """Ids of acknowledged alerts: they get no reminders."""

    def silence_for(self, rule: str, runs: tuple[str, ...], now_ns: int) -> Silence | None:
        """Returns the first silence that applies."""
        return next((silence for silence in self.silences if silence.covers(rule, runs, now_ns)), None)


class Silences:
    """Reads and changes the file; reads it again only when it has changed."""

    def __init__(self, folder: Path) -> None:
        self._file = SharedFile(folder / NAME)
        self._read_at: Mark | None = None
        self._state = SilenceState()

    def read(self) -> SilenceState:
        """Returns the current content; a file that cannot be read counts as empty."""
        mark = self._file.mark()
        if mark is None:
            self._read_at, self._state = None, SilenceState()
        elif mark != self._read_at:
            self._read_at = mark
            document = self._load()
            silences = tuple(Silence(**fields) for fields in document["silences"])
            self._state = SilenceState(silences, frozenset(document["acknowledged"]))
        return self._state

    def silence(self, rule: str, run: str, *, now_ns: int, until_ns: int, reason: str = "") -> Silence:
        """Adds a silence, and removes those that have ended."""
        silence = Silence(secrets.token_hex(4), rule, run, until_ns, reason, now_ns)
        with self._file.changing(self._load) as document:
            kept = [fields for fields in document["silences"] if fields["until_ns"] > now_ns]
            document["silences"] = [*kept, asdict(silence)]
        return silence

    def end_silence(self, silence_id: str) -> bool:
        """Removes a silence; returns False if there is none of that id."""
        with self._file.changing(self._load) as document:
            kept = [fields for fields in document["silences"] if fields["id"] != silence_id]
            is_removed = len(kept) < len(document["silences"])
            document["silences"] = kept
        return is_removed

    def acknowledge(self, alert_id: int) -> None:
        """Acknowledges an alert."""
        with self._file.changing(self._load) as document:
            document["acknowledged"] = sorted({*document["acknowledged"], alert_id})

    def _load(self) -> dict[str, Any]:
        try:
            document = self._file.read()
            silences = [asdict(Silence(**fields)) for fields in document["silences"]]
            acknowledged = [int(alert_id) for alert_id in document["acknowledged"]]
        except (OSError, ValueError, TypeError, KeyError):
            return {"silences": [], "acknowledged": []}
        return {"silences": silences, "acknowledged": acknowledged}
