"""Helpers that write runs to a real store for the tests of views."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from stepscope.reading import Run, Runs
from stepscope.schema.record import Event
from stepscope.schema.run import Process
from stepscope.schema.series import Source
from stepscope.store.base import OpenAlert
from stepscope.store.sqlite import SqliteReader, SqliteStore

NS = 10**9
BEGUN_S = 1_760_000_000
BEGUN_NS = BEGUN_S * NS
RUN = "mnist-0badcafe"
PHASES = ("data", "transfer", "forward", "backward", "optimizer", "checkpoint", "eval", "other")


def at(seconds: float) -> int:
    """Returns the time so many seconds after the start, in nanoseconds."""
    return BEGUN_NS + int(seconds * NS)


class Made:
    """Writes runs to a store; each is read when it is requested."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.store = SqliteStore(folder / "store.sqlite")

    def process(self, run: str = RUN, *, end: float | None = 100.0, **fields: Any) -> None:
        """Writes a process that finished after `end` seconds, or is running if that is None."""
        over = {"status": "running", "ended_ns": None, "last_ns": at(100)}
        if end is not None:
            over = {"status": "finished", "ended_ns": at(end), "last_ns": at(end)}
        usual = {
            "run_id": run, "name": run.rpartition("-")[0], "project": "demo", "segment": "a1", "rank": 0,
            "host": "node1", "pid": 100, "role": "rank", "started_ns": BEGUN_NS, **over,
        }  # fmt: skip
        with self.store.transaction():
            self.store.put_process(Process(**{**usual, **fields}))

    def log(
        self,
        columns: dict[str, Any],
        steps: Sequence[int] | np.ndarray | None = None,
        *,
        run: str = RUN,
        rank: int = 0,
        segment: str = "a1",
        host: str = "node1",
        begin: float = 0.0,
        every: float = 1.0,
        seal: bool = False,
    ) -> None:
        """Writes what a rank logged: a column for each key, a row every `every` seconds."""
        count = max(np.size(column) for column in columns.values())
        steps = np.arange(count) if steps is None else np.asarray(steps, np.int64)
        values = np.column_stack(
            [
                np.broadcast_to(np.asarray(values_of_key, float), len(steps))
                for values_of_key in columns.values()
            ]
        )
        times = BEGUN_NS + ((begin + (1 + np.arange(len(steps))) * every) * NS).astype(np.int64)
        source = Source(run, segment, rank, host)
        with self.store.transaction():
            self.store.append(source, list(columns), steps, times, values)
            if seal:
                self.store.seal(source)

    def read(
        self,
        columns: dict[str, Any],
        count: int = 100,
        *,
        run: str = RUN,
        device: str = "",
        host: str = "node1",
        rank: int | None = None,
        segment: str = "a1",
        begin: float = 0.0,
    ) -> None:
        """Writes what was sampled on a host, once a second."""
        values = np.column_stack(
            [np.broadcast_to(np.asarray(column, float), count) for column in columns.values()]
        )
        times = BEGUN_NS + ((begin + np.arange(count)) * NS).astype(np.int64)
        source = Source(run, segment, rank, host, device, "seconds")
        with self.store.transaction():
            self.store.append(source, list(columns), np.zeros(count, np.int64), times, values)

    def event(
        self, kind: str, seconds: float = 1.0, step: int | None = None, run: str = RUN, **fields: Any
    ) -> None:
        """Writes an event."""
        segment, rank = fields.pop("segment", "a1"), fields.pop("rank", None)
        with self.store.transaction():
            self.store.put_event(run, Event(kind, at(seconds), step, rank, segment, fields))

    def gpu(self, index: int, *, host: str = "node1", run: str = RUN, name: str = "NVIDIA H200") -> str:
        """Writes the facts of a GPU and returns its UUID."""
        uuid = f"GPU-{host}-{index}"
        facts = {"uuid": uuid, "index": index, "name": name, "vendor": "NVIDIA", "driver": "550.1"}
        self.event("device", run=run, host=host, device=uuid, memory_total_bytes=80 * 2**30, **facts)
        return uuid

    def alert(
        self, rule: str, *, run: str = RUN, fired: float = 10, resolved: float | None = None, **fields: Any
    ) -> int:
        """Writes an alert."""
        message, severity = fields.pop("message", "It is wrong."), fields.pop("severity", "warning")
        with self.store.transaction():
            number = self.store.alert_book.fire(OpenAlert(run, rule, severity, message, at(fired), fields))
            if resolved is not None:
                self.store.alert_book.resolve(number, at(resolved))
        return number

    def finding(self, name: str, severity: str = "warning", *, run: str = RUN, **fields: Any) -> None:
        """Writes a finding."""
        usual = {
            "id": name, "key": name, "title": name, "headline": f"{name} it is", "severity": severity,
            "confidence": 0.9, "share": 0.3, "open": True, "muted": False, "first_step": 10, "last_step": 90,
            "first_time": float(BEGUN_S), "last_time": float(BEGUN_S + 50), "tries": ["more workers"],
        }  # fmt: skip
        with self.store.transaction():
            self.store.put_finding(run, {**usual, **fields}, at(50))

    def runs(self) -> Runs:
        """Returns all runs."""
        return Runs(SqliteReader(self.folder / "store.sqlite"), self.folder)

    def run(self, name: str = RUN) -> Run:
        """Returns one run."""
        return self.runs().run(name)

    def close(self) -> None:
        self.store.close()


class OwnMarks:
    """Marks given by a test."""

    def __init__(self, **marks: Any) -> None:
        self.marks = marks

    def name(self, run_id: str) -> str | None:
        return self.marks.get("names", {}).get(run_id)

    def tags(self, run_id: str) -> tuple[str, ...]:
        return self.marks.get("tags", {}).get(run_id, ())

    def archived(self, run_id: str) -> bool:
        return run_id in self.marks.get("archived", ())

    def notes(self, run_id: str) -> tuple:
        return self.marks.get("notes", ())

    def colour(self, run_id: str) -> str | None:
        return self.marks.get("colour")

    def muted(self, run_id: str, project: str) -> frozenset[str]:
        return frozenset(self.marks.get("muted", ()))


def as_json(view: Any) -> Any:
    """Encodes a view as strict JSON in UTF-8, and decodes it again."""
    text = json.dumps(dataclasses.asdict(view), allow_nan=False, ensure_ascii=False)
    return json.loads(text.encode("utf-8"))


def trained(made: Made, steps: int = 100, *, rank: int = 0, run: str = RUN, **spent: Any) -> None:
    """Writes steps with all phases, of 10 ms each unless given."""
    phases = {f"phase/{name}_seconds": np.broadcast_to(spent.get(name, 0.0), steps) for name in PHASES}
    for name in ("forward", "backward"):
        if name not in spent:
            phases[f"phase/{name}_seconds"] = np.full(steps, 0.005)
    made.log(
        {**phases, "step_seconds": sum(phases.values())}, np.arange(steps), run=run, rank=rank, every=0.01
    )
