"""Records machine metrics for the runs on a host: what is polled how often, and which run each belongs to."""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from stepscope.agent.ingest.feeds import Feeds
from stepscope.agent.own_cost import OwnCost
from stepscope.agent.sampling import SamplerPool
from stepscope.config.sections import Settings, from_dict
from stepscope.errors import StepscopeError
from stepscope.exporters.base import Table
from stepscope.schema.record import Event
from stepscope.schema.run import LIVE
from stepscope.schema.sample import DeviceFacts, Notice, Sample, Watched
from stepscope.schema.series import Source

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

    from stepscope.agent.sampling import SamplerReadings
    from stepscope.schema.run import Process
    from stepscope.store.base import Store

STORE_EVERY_S = 1.0
"""How often readings are stored: a transaction waits for the disk."""

STORE_EVERY_S_PER_RUN = 0.3
"""With more than three live runs readings are stored less often, at the same cost, unless a reader waits."""

MAX_STORE_EVERY_S = 15.0

DELIVER_EVERY_S = 1.0
"""How often alert rules and exporters get readings, however many runs there are."""

MAX_UNSTORED = 10_000
"""Readings that are kept while the store cannot be written; beyond it the oldest are dropped."""

RunPart = tuple[str, str, str]
"""Run, segment and host."""


class MachineMonitor:
    """Samples the machine for all runs of a store that are live on this host."""

    def __init__(
        self,
        store: Store,
        sampling: SamplerPool | None = None,
        feeds: Feeds | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store, self._now = store, now
        self._feeds = feeds or Feeds()
        self._sampling = sampling or SamplerPool()
        self._own_cost = OwnCost(now)
        self._parts: dict[RunPart, list[Watched]] = {}
        self._hosts: dict[tuple[str, str], list[str]] = {}
        """By run and segment."""
        self._requested: list[tuple[RunPart, Settings]] = []
        self._disabled: dict[RunPart, frozenset[str]] = {}
        """Samplers that a run has switched off, and that may be polled for other runs."""
        self._unstored: deque[SamplerReadings] = deque(maxlen=MAX_UNSTORED)
        self._announcements: dict[str, DeviceFacts | Notice] = {}
        self._own_announcements: dict[RunPart, dict[str, DeviceFacts | Notice]] = {}
        """Announcements that concern one run alone."""
        self._stored_announcements: dict[RunPart, dict[str, DeviceFacts | Notice]] = {}
        self._sources: dict[RunPart, set[Source]] = {}
        self._has_new_announcements = False
        """Whether there are facts or notices that are not in the store yet."""
        self._stored_at = self._delivered_at = float("-inf")

    def update_processes(self, processes: Iterable[Process]) -> None:
        """Updates which runs are live; `processes` are those of this host that may still write."""
        roots = [process for process in processes if process.status in LIVE and process.role != "worker"]
        parts = _parts(roots)
        if parts == self._parts:
            return
        if self._parts:
            # What was read so far belongs to the earlier runs, not to those that begin now.
            self._store_readings(ended=self._parts.keys() - parts.keys())
        self._parts = parts
        self._hosts = {}
        for run_id, segment, host in parts:
            self._hosts.setdefault((run_id, segment), []).append(host)
        self._requested = [
            ((process.run_id, process.segment, process.host), _requested_settings(process))
            for process in roots
        ]
        self._disabled = self._disabled_samplers()
        watched = tuple(process for members in parts.values() for process in members)
        self._sampling.configure(self._intervals(), watched)

    def flush(self, *, has_waiting_reader: bool = False) -> None:
        """Delivers readings to rules and exporters; stores them at intervals, soon if a reader waits."""
        if not self._parts:
            return
        now = self._now()
        if now - self._stored_at >= (
            STORE_EVERY_S if has_waiting_reader or self._has_new_announcements else self._store_every_s
        ):
            self._store_readings()
        elif now - self._delivered_at >= DELIVER_EVERY_S:
            self._deliver()

    @property
    def _store_every_s(self) -> float:
        return max(STORE_EVERY_S, min(STORE_EVERY_S_PER_RUN * len(self._parts), MAX_STORE_EVERY_S))

    def close(self) -> None:
        """Stops all sampling and stores what was read last."""
        if self._parts:
            self._store_readings(ended=self._parts.keys())
        self._sampling.close()

    def _intervals(self) -> dict[str, float]:
        """How often each sampler is polled: at the shortest interval that any run requests."""
        intervals: dict[str, float] = {}
        for name in self._sampling.names if self._parts else ():
            for part, settings in self._requested:
                requested = settings.sampler(name)
                if not requested.enabled:
                    continue
                try:
                    usual_s = self._sampling.usual_interval(name, requested.options)
                except StepscopeError as error:
                    # The options of one run are not valid; those of another may be.
                    notice = Notice(f"{name}: options", str(error))
                    self._own_announcements.setdefault(part, {})[notice.subject] = notice
                    continue
                interval_s = usual_s if requested.interval_s is None else requested.interval_s
                intervals[name] = min(interval_s, intervals.get(name, interval_s))
        return intervals

    def _disabled_samplers(self) -> dict[RunPart, frozenset[str]]:
        disabled: dict[RunPart, frozenset[str]] = {}
        for part, requested in self._requested:
            off = frozenset(name for name in self._sampling.names if not requested.sampler(name).enabled)
            disabled[part] = disabled.get(part, off) & off
        return disabled

    def _store_readings(self, ended: Collection[RunPart] = ()) -> None:
        self._stored_at = self._now()
        self._deliver()
        tables = list(self._tables(self._unstored))
        with self._store.transaction():
            for table in tables:
                self._sources.setdefault(_part(table.source), set()).add(table.source)
                self._store.append(table.source, table.keys, table.steps, table.times_ns, table.values)
            announced = {part: self._store_announcements(part) for part in self._parts}
            for source in [table for part in ended for table in self._sources.get(part, ())]:
                self._store.seal(source)
        self._unstored.clear()
        self._has_new_announcements = False
        self._stored_announcements = {
            part: announcements for part, announcements in announced.items() if part not in ended
        }
        for part in ended:
            self._sources.pop(part, None)
            self._own_announcements.pop(part, None)

    def _deliver(self) -> None:
        """Collects readings, and passes them to alert rules and exporters before they are stored."""
        self._delivered_at = self._now()
        new_polls = [*self._sampling.collect(), *self._own_cost.read(self._sampling.costs())]
        self._unstored.extend(new_polls)
        for announcement in [
            reading for poll in new_polls for reading in poll.readings if not isinstance(reading, Sample)
        ]:
            if self._announcements.get(_subject(announcement)) != announcement:
                self._announcements[_subject(announcement)] = announcement
                self._has_new_announcements = True
            if isinstance(announcement, DeviceFacts):
                self._feeds.describe(announcement)
        for table in self._tables(new_polls, self._feeds.has_consumer):
            self._feeds.add_rows(table)
        self._feeds.deliver()

    def _tables(
        self, polls: Iterable[SamplerReadings], is_used: Callable[[tuple[str, ...]], bool] = lambda _: True
    ) -> Iterator[Table]:
        """Readings as rows of the runs they belong to; what all runs share is assembled once."""
        groups: dict[_Group, list[tuple[int, list[float]]]] = {}
        used: dict[tuple[str, ...], bool] = {}
        for poll in polls:
            for sample in poll.readings:
                if isinstance(sample, Sample) and sample.values:
                    group = _Group(poll.sampler, _owner(sample), sample.device, tuple(sample.values))
                    groups.setdefault(group, []).append((poll.time_ns, list(sample.values.values())))
        for group, rows in groups.items():
            if group.keys not in used:
                used[group.keys] = is_used(group.keys)
            if used[group.keys]:
                times_ns = np.array([time_ns for time_ns, _ in rows], np.int64)
                values = np.array([values for _, values in rows], np.float64)
                steps = np.zeros(len(rows), np.int64)
                for source in self._sources_of(group):
                    yield Table(source, group.keys, steps, times_ns, values)

    def _sources_of(self, group: _Group) -> Iterator[Source]:
        """The sources of readings: their owner's, or those of every run on the host with the sampler on."""
        if group.owner is None:
            for part in self._parts:
                if group.sampler not in self._disabled.get(part, ()):
                    run_id, segment, host = part
                    yield Source(run_id, segment, None, host, group.device, "seconds")
            return
        run_id, segment, rank = group.owner
        for host in self._hosts.get((run_id, segment), ()):
            if group.sampler not in self._disabled.get((run_id, segment, host), ()):
                yield Source(run_id, segment, rank, host, group.device, "seconds")

    def _store_announcements(self, part: RunPart) -> dict[str, DeviceFacts | Notice]:
        """Stores the announcements a run does not have yet; returns all it has then."""
        run_id, segment, host = part
        stored = self._stored_announcements.get(part, {})
        announcements = self._announcements | self._own_announcements.get(part, {})
        for subject, announcement in announcements.items():
            if stored.get(subject) == announcement:
                continue
            if isinstance(announcement, Notice):
                kind, fields = "notice", {"host": host, "text": announcement.text}
            else:
                kind, fields = "device", {"host": host, "device": announcement.device, **announcement.fields}
            self._store.put_event(run_id, Event(kind, time.time_ns(), None, None, segment, fields))
        return announcements


class _Group(NamedTuple):
    """Metrics that are read together and form rows of one table."""

    sampler: str
    owner: tuple[str, str, int | None] | None
    """Run, segment and rank; None for metrics of the host."""
    device: str
    keys: tuple[str, ...]


def _owner(sample: Sample) -> tuple[str, str, int | None] | None:
    owner = sample.owner
    return None if owner is None else (owner.run_id, owner.segment, owner.rank)


def _parts(processes: Iterable[Process]) -> dict[RunPart, list[Watched]]:
    roots: dict[RunPart, list[Process]] = {}
    for process in processes:
        roots.setdefault((process.run_id, process.segment, process.host), []).append(process)
    watched = {}
    for part, members in roots.items():
        # A launcher's process tree contains its ranks: it is sampled only where no rank records.
        ranks = [process for process in members if process.role == "rank"]
        launchers = [process for process in members if process.role == "launcher"]
        watched[part] = [
            Watched(process.run_id, process.segment, process.rank, process.pid, process.role)
            for process in ranks or launchers
        ]
    return watched


def _requested_settings(process: Process) -> Settings:
    """The sampler settings a run has recorded; the defaults where it has none."""
    try:
        return from_dict({"samplers": process.facts.get("samplers") or {}})
    except (AttributeError, TypeError, KeyError):
        return Settings()  # written by a version with other settings


def _part(source: Source) -> RunPart:
    return source.run_id, source.segment, source.host


def _subject(announcement: DeviceFacts | Notice) -> str:
    return announcement.subject if isinstance(announcement, Notice) else f"device {announcement.device}"
