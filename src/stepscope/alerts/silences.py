"""Silences and acknowledgements: what people have said about alerts, in a file of its own.

The store has one writer, the agent; people silence alerts from anywhere. So they write here, and the agent
reads it.
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


@dataclass(frozen=True)
class Silence:
    """Rules and runs of which nobody is to be told for a while; both are names or patterns of them."""

    id: str
    rule: str
    run: str
    until_ns: int
    reason: str
    made_ns: int

    def covers(self, rule: str, runs: tuple[str, ...], now_ns: int) -> bool:
        """Whether it holds for a rule in a run, which has a name and an id."""
        is_of_run = any(fnmatchcase(name, self.run) for name in runs)
        return now_ns < self.until_ns and fnmatchcase(rule, self.rule) and is_of_run


@dataclass(frozen=True)
class Said:
    """All that people have said."""

    silences: tuple[Silence, ...] = ()
    acknowledged: frozenset[int] = frozenset()
    """Numbers of alerts that somebody looks after: there are no reminders."""

    def silence_for(self, rule: str, runs: tuple[str, ...], now_ns: int) -> Silence | None:
        """The first silence that holds."""
        return next((one for one in self.silences if one.covers(rule, runs, now_ns)), None)


class Silences:
    """The file, read again when it has changed."""

    def __init__(self, folder: Path) -> None:
        self._file = SharedFile(folder / NAME)
        self._read_at: Mark | None = None
        self._said = Said()

    def read(self) -> Said:
        """What holds now; what cannot be read is as if nothing had been said."""
        mark = self._file.mark()
        if mark is None:
            self._read_at, self._said = None, Said()
        elif mark != self._read_at:
            self._read_at = mark
            document = self._load()
            silences = tuple(Silence(**one) for one in document["silences"])
            self._said = Said(silences, frozenset(document["acknowledged"]))
        return self._said

    def silence(self, rule: str, run: str, *, now_ns: int, until_ns: int, reason: str = "") -> Silence:
        """Adds a silence; those that are over go."""
        made = Silence(secrets.token_hex(4), rule, run, until_ns, reason, now_ns)
        with self._file.changing(self._load) as document:
            kept = [one for one in document["silences"] if one["until_ns"] > now_ns]
            document["silences"] = [*kept, asdict(made)]
        return made

    def end_silence(self, silence_id: str) -> bool:
        """Takes a silence away; False where there is none of that id."""
        with self._file.changing(self._load) as document:
            kept = [one for one in document["silences"] if one["id"] != silence_id]
            was_there = len(kept) < len(document["silences"])
            document["silences"] = kept
        return was_there

    def acknowledge(self, alert_id: int) -> None:
        """Notes that somebody looks after an alert."""
        with self._file.changing(self._load) as document:
            document["acknowledged"] = sorted({*document["acknowledged"], alert_id})

    def _load(self) -> dict[str, Any]:
        try:
            document = self._file.read()
            silences = [asdict(Silence(**one)) for one in document["silences"]]
            return {"silences": silences, "acknowledged": [int(one) for one in document["acknowledged"]]}
        except (OSError, ValueError, TypeError, KeyError):
            return {"silences": [], "acknowledged": []}
