"""Watches the machine for the runs on it: decides what is polled how often, and whose the figures are."""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING

import numpy as np

from stepscope.agent.feeds import Feeds
from stepscope.agent.own_cost import OwnCost
from stepscope.agent.sampling import Sampling
from stepscope.config.plain import from_dict
from stepscope.errors import StepscopeError
from stepscope.exporters.base import Table
from stepscope.schema.record import Event
from stepscope.schema.run import LIVE
from stepscope.schema.sample import DeviceFacts, Notice, Sample, Watched
from stepscope.schema.series import Source

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from stepscope.agent.sampling import Taken
    from stepscope.config.sections import Settings
    from stepscope.schema.run import Process
    from stepscope.store.base import Store

KEEP_EVERY_S = 1.0
"""Figures are kept this often: a transaction waits for the disk."""

MOST_UNKEPT = 10_000
"""Polls that wait for a store that cannot be written; beyond it the oldest go."""

Part = tuple[str, str, str]
"""Run, segment and host."""


class Watching:
    """Samples on behalf of all runs of a store that are live on this host."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        sampling: Sampling | None = None,
        feeds: Feeds | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store, self._settings, self._now = store, settings, now
        self._feeds = feeds or Feeds({})
        self._sampling = sampling or Sampling()
        self._own_cost = OwnCost(now)
        self._parts: dict[Part, list[Watched]] = {}
        self._wishes: list[Settings] = []
        self._unkept: deque[Taken] = deque(maxlen=MOST_UNKEPT)
        self._news: dict[str, DeviceFacts | Notice] = {}
        self._told: dict[Part, dict[str, DeviceFacts | Notice]] = {}
        self._sources: dict[Part, set[Source]] = {}
        self._kept_at = float("-inf")

    def look_after(self, processes: Iterable[Process]) -> None:
        """Follows the runs that come and go; `processes` are those of this host that may still write."""
        roots = [one for one in processes if one.status in LIVE and one.role != "worker"]
        parts = _parts(roots)
        if parts == self._parts:
            return
        gone = self._parts.keys() - parts.keys()
        if gone:
            self._keep(ended=gone)
        self._parts = parts
        self._wishes = [_wish(one, self._settings) for one in roots]
        watched = tuple(one for members in parts.values() for one in members)
        self._sampling.direct(self._intervals(), watched)

    def keep(self) -> None:
        """Puts what was read into the store, now and then."""
        if self._parts and self._now() - self._kept_at >= KEEP_EVERY_S:
            self._keep()

    def close(self) -> None:
        """Ends all sampling and keeps what was read last."""
        if self._parts:
            self._keep(ended=self._parts.keys())
        self._sampling.close()

    def _intervals(self) -> dict[str, float]:
        """How often each sampler is polled: as often as any of the runs wishes."""
        found: dict[str, float] = {}
        for name in self._sampling.names if self._parts else ():
            wishes = [wish for settings in self._wishes if (wish := settings.sampler(name)).enabled]
            if not wishes:
                continue
            try:
                usual_s = self._sampling.usual_interval(name, wishes[0].options)
            except StepscopeError as error:
                self._news[f"{name}: options"] = Notice(f"{name}: options", str(error))
                continue
            found[name] = min(usual_s if wish.interval_s is None else wish.interval_s for wish in wishes)
        return found

    def _keep(self, ended: Collection[Part] = ()) -> None:
        self._kept_at = self._now()
        self._unkept.extend(self._sampling.collect())
        self._unkept.extend(self._own_cost.read(self._sampling.costs()))
        tables = list(self._sorted().tables())
        with self._store.transaction():
            for one in tables:
                self._sources.setdefault(_part(one.source), set()).add(one.source)
                self._store.append(one.source, one.keys, one.steps, one.times_ns, one.values)
            told = {part: self._tell_news(part) for part in self._parts}
            for source in [one for part in ended for one in self._sources.get(part, ())]:
                self._store.seal(source)
        self._unkept.clear()
        self._told = {part: news for part, news in told.items() if part not in ended}
        for part in ended:
            self._sources.pop(part, None)
        for one in tables:
            self._feeds.note(one)
        self._feeds.pass_on()

    def _sorted(self) -> _Rows:
        """What was read as rows of the runs it belongs to; news are taken out of it."""
        rows = _Rows()
        for taken in self._unkept:
            for reading in taken.readings:
                if isinstance(reading, Sample):
                    rows.add(taken.time_ns, reading, self._owners(reading))
                else:
                    self._news[_subject(reading)] = reading
                    if isinstance(reading, DeviceFacts):
                        self._feeds.describe(reading)
        return rows

    def _owners(self, sample: Sample) -> list[Source]:
        """Whose a sample is: its owner's, or that of every run on the host."""
        found = []
        for run_id, segment, host in self._parts:
            if sample.owner is None:
                found.append(Source(run_id, segment, None, host, sample.device, "seconds"))
            elif (sample.owner.run_id, sample.owner.segment) == (run_id, segment):
                found.append(Source(run_id, segment, sample.owner.rank, host, sample.device, "seconds"))
        return found

    def _tell_news(self, part: Part) -> dict[str, DeviceFacts | Notice]:
        """Tells a run what it has not been told yet; returns all it knows then."""
        run_id, segment, host = part
        told = self._told.get(part, {})
        for subject, news in self._news.items():
            if told.get(subject) == news:
                continue
            if isinstance(news, Notice):
                kind, fields = "notice", {"host": host, "text": news.text}
            else:
                kind, fields = "device", {"host": host, "device": news.device, **news.fields}
            self._store.put_event(run_id, Event(kind, time.time_ns(), None, None, segment, fields))
        return dict(self._news)


class _Rows:
    """Samples sorted into tables, one for each source and set of keys."""

    def __init__(self) -> None:
        self._tables: dict[tuple[Source, tuple[str, ...]], list[tuple[int, list[float]]]] = {}

    def add(self, time_ns: int, sample: Sample, sources: Sequence[Source]) -> None:
        """Adds a row for each source."""
        if sample.values:
            row = (time_ns, list(sample.values.values()))
            for source in sources:
                self._tables.setdefault((source, tuple(sample.values)), []).append(row)

    def tables(self) -> Iterator[Table]:
        """The tables, their rows in the order read."""
        for (source, keys), rows in self._tables.items():
            times_ns = np.array([time_ns for time_ns, _ in rows], np.int64)
            values = np.array([values for _, values in rows], np.float64)
            yield Table(source, keys, np.zeros(len(rows), np.int64), times_ns, values)


def _parts(processes: Iterable[Process]) -> dict[Part, list[Watched]]:
    roots: dict[Part, list[Process]] = {}
    for process in processes:
        roots.setdefault((process.run_id, process.segment, process.host), []).append(process)
    found = {}
    for part, members in roots.items():
        # A launcher's tree holds its ranks: it is watched only where no rank speaks for itself.
        ranks = [one for one in members if one.role == "rank"]
        launchers = [one for one in members if one.role == "launcher"]
        found[part] = [
            Watched(one.run_id, one.segment, one.rank, one.pid, one.role) for one in ranks or launchers
        ]
    return found


def _wish(process: Process, settings: Settings) -> Settings:
    """What a run asked to have polled; the agent's own settings where it did not say."""
    wished = process.facts.get("samplers")
    if wished is None:
        return settings
    try:
        return from_dict({"samplers": wished})
    except (AttributeError, TypeError, KeyError):
        return settings  # written by a stepscope with other settings than ours


def _part(source: Source) -> Part:
    return source.run_id, source.segment, source.host


def _subject(news: DeviceFacts | Notice) -> str:
    return news.subject if isinstance(news, Notice) else f"device {news.device}"
