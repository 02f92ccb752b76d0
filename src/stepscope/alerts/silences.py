"""Silences and acknowledgements: what people have said about alerts, in a file of its own.

The store has one writer, the agent; people silence alerts from anywhere. So they write here, and the agent
reads it.
"""

from __future__ import annotations

import fcntl
import json
import secrets
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from stepscope.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

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
        self._path = folder / NAME
        self._read_at: tuple[int, int] | None = None
        self._said = Said()

    def read(self) -> Said:
        """What holds now; what cannot be read is as if nothing had been said."""
        try:
            found = self._path.stat()
        except OSError:
            self._read_at, self._said = None, Said()
            return self._said
        mark = (found.st_mtime_ns, found.st_size)
        if mark != self._read_at:
            self._read_at = mark
            document = self._load()
            silences = tuple(Silence(**one) for one in document["silences"])
            self._said = Said(silences, frozenset(document["acknowledged"]))
        return self._said

    def silence(self, rule: str, run: str, *, now_ns: int, until_ns: int, reason: str = "") -> Silence:
        """Adds a silence; those that are over go."""
        made = Silence(secrets.token_hex(4), rule, run, until_ns, reason, now_ns)
        with self._changing() as document:
            kept = [one for one in document["silences"] if one["until_ns"] > now_ns]
            document["silences"] = [*kept, asdict(made)]
        return made

    def end_silence(self, silence_id: str) -> bool:
        """Takes a silence away; False where there is none of that id."""
        with self._changing() as document:
            kept = [one for one in document["silences"] if one["id"] != silence_id]
            was_there = len(kept) < len(document["silences"])
            document["silences"] = kept
        return was_there

    def acknowledge(self, alert_id: int) -> None:
        """Notes that somebody looks after an alert."""
        with self._changing() as document:
            document["acknowledged"] = sorted({*document["acknowledged"], alert_id})

    @contextmanager
    def _changing(self) -> Iterator[dict[str, Any]]:
        """Holds the file's lock from reading to writing; readers see the old content or the new."""
        try:
            with self._path.with_suffix(".lock").open("a") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                document = self._load()
                yield document
                fresh = self._path.with_suffix(".new")
                fresh.write_text(json.dumps(document, indent=1))
                fresh.replace(self._path)
        except OSError as error:
            raise StoreError(f"{self._path} cannot be written: {error.strerror}.") from error

    def _load(self) -> dict[str, Any]:
        try:
            document = json.loads(self._path.read_text())
            silences = [asdict(Silence(**one)) for one in document["silences"]]
            return {"silences": silences, "acknowledged": [int(one) for one in document["acknowledged"]]}
        except (OSError, ValueError, TypeError, KeyError):
            return {"silences": [], "acknowledged": []}
