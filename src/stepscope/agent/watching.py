"""Watches the machine for the runs on it: decides what is polled how often, and whose the figures are."""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from stepscope.agent.ingest.feeds import Feeds
from stepscope.agent.own_cost import OwnCost
from stepscope.agent.sampling import Sampling
from stepscope.config.plain import from_dict
from stepscope.config.sections import Settings
from stepscope.errors import StepscopeError
from stepscope.exporters.base import Table
from stepscope.schema.record import Event
from stepscope.schema.run import LIVE
from stepscope.schema.sample import DeviceFacts, Notice, Sample, Watched
from stepscope.schema.series import Source

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

    from stepscope.agent.sampling import Taken
    from stepscope.schema.run import Process
    from stepscope.store.base import Store

KEEP_EVERY_S = 1.0
"""Figures are kept this often: a transaction waits for the disk."""

KEEP_EVERY_S_PER_RUN = 0.3
"""With more than three live runs they are kept less often, unless somebody waits: it costs the same then."""

MAX_KEEP_EVERY_S = 15.0

PASS_ON_EVERY_S = 1.0
"""Alert rules and exporters get figures this often, however many runs there are."""

MAX_UNKEPT = 10_000
"""Polls that wait for a store that cannot be written; beyond it the oldest go."""

Part = tuple[str, str, str]
"""Run, segment and host."""


class Watching:
    """Samples on behalf of all runs of a store that are live on this host."""

    def __init__(
        self,
        store: Store,
        sampling: Sampling | None = None,
        feeds: Feeds | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store, self._now = store, now
        self._feeds = feeds or Feeds()
        self._sampling = sampling or Sampling()
        self._own_cost = OwnCost(now)
        self._parts: dict[Part, list[Watched]] = {}
        self._hosts: dict[tuple[str, str], list[str]] = {}
        """By run and segment."""
        self._wishes: list[tuple[Part, Settings]] = []
        self._declined: dict[Part, frozenset[str]] = {}
        """Samplers that a run has switched off, and that are polled for others all the same."""
        self._unkept: deque[Taken] = deque(maxlen=MAX_UNKEPT)
        self._news: dict[str, DeviceFacts | Notice] = {}
        self._own_news: dict[Part, dict[str, DeviceFacts | Notice]] = {}
        """What concerns one run alone."""
        self._told: dict[Part, dict[str, DeviceFacts | Notice]] = {}
        self._sources: dict[Part, set[Source]] = {}
        self._has_news = False
        """Whether there are facts or notices that the store does not have."""
        self._kept_at = self._passed_on_at = float("-inf")

    def look_after(self, processes: Iterable[Process]) -> None:
        """Follows the runs that come and go; `processes` are those of this host that may still write."""
        roots = [one for one in processes if one.status in LIVE and one.role != "worker"]
        parts = _parts(roots)
        if parts == self._parts:
            return
        if self._parts:
            # What was read so far belongs to the runs there were, not to those that begin now.
            self._keep(ended=self._parts.keys() - parts.keys())
        self._parts = parts
        self._hosts = {}
        for run_id, segment, host in parts:
            self._hosts.setdefault((run_id, segment), []).append(host)
        self._wishes = [((one.run_id, one.segment, one.host), _wish(one)) for one in roots]
        self._declined = self._declined_samplers()
        watched = tuple(one for members in parts.values() for one in members)
        self._sampling.direct(self._intervals(), watched)

    def keep(self, *, is_awaited: bool = False) -> None:
        """Hands on what was read, and puts it into the store now and then; soon where a reader waits."""
        if not self._parts:
            return
        now = self._now()
        if now - self._kept_at >= (KEEP_EVERY_S if is_awaited or self._has_news else self._keep_every_s):
            self._keep()
        elif now - self._passed_on_at >= PASS_ON_EVERY_S:
            self._pass_on()

    @property
    def _keep_every_s(self) -> float:
        return max(KEEP_EVERY_S, min(KEEP_EVERY_S_PER_RUN * len(self._parts), MAX_KEEP_EVERY_S))

    def close(self) -> None:
        """Ends all sampling and keeps what was read last."""
        if self._parts:
            self._keep(ended=self._parts.keys())
        self._sampling.close()

    def _intervals(self) -> dict[str, float]:
        """How often each sampler is polled: as often as any of the runs wishes."""
        found: dict[str, float] = {}
        for name in self._sampling.names if self._parts else ():
            for part, settings in self._wishes:
                wish = settings.sampler(name)
                if not wish.enabled:
                    continue
                try:
                    usual_s = self._sampling.usual_interval(name, wish.options)
                except StepscopeError as error:
                    # The options of one run are wrong; those of another may be right.
                    notice = Notice(f"{name}: options", str(error))
                    self._own_news.setdefault(part, {})[notice.subject] = notice
                    continue
                interval_s = usual_s if wish.interval_s is None else wish.interval_s
                found[name] = min(interval_s, found.get(name, interval_s))
        return found

    def _declined_samplers(self) -> dict[Part, frozenset[str]]:
        found: dict[Part, frozenset[str]] = {}
        for part, wish in self._wishes:
            off = frozenset(name for name in self._sampling.names if not wish.sampler(name).enabled)
            found[part] = found.get(part, off) & off
        return found

    def _keep(self, ended: Collection[Part] = ()) -> None:
        self._kept_at = self._now()
        self._pass_on()
        tables = list(self._tables(self._unkept))
        with self._store.transaction():
            for one in tables:
                self._sources.setdefault(_part(one.source), set()).add(one.source)
                self._store.append(one.source, one.keys, one.steps, one.times_ns, one.values)
            told = {part: self._tell_news(part) for part in self._parts}
            for source in [one for part in ended for one in self._sources.get(part, ())]:
                self._store.seal(source)
        self._unkept.clear()
        self._has_news = False
        self._told = {part: news for part, news in told.items() if part not in ended}
        for part in ended:
            self._sources.pop(part, None)
            self._own_news.pop(part, None)

    def _pass_on(self) -> None:
        """Takes what the samplers have read, and hands it to alert rules and exporters before it is kept."""
        self._passed_on_at = self._now()
        fresh = [*self._sampling.collect(), *self._own_cost.read(self._sampling.costs())]
        self._unkept.extend(fresh)
        for news in [one for taken in fresh for one in taken.readings if not isinstance(one, Sample)]:
            if self._news.get(_subject(news)) != news:
                self._news[_subject(news)] = news
                self._has_news = True
            if isinstance(news, DeviceFacts):
                self._feeds.describe(news)
        for table in self._tables(fresh, self._feeds.wants):
            self._feeds.note(table)
        self._feeds.pass_on()

    def _tables(
        self, several: Iterable[Taken], is_wanted: Callable[[tuple[str, ...]], bool] = lambda _: True
    ) -> Iterator[Table]:
        """What was read as rows of the runs it belongs to; what all runs share is put together once."""
        groups: dict[_Group, list[tuple[int, list[float]]]] = {}
        wanted: dict[tuple[str, ...], bool] = {}
        for taken in several:
            for sample in taken.readings:
                if isinstance(sample, Sample) and sample.values:
                    group = _Group(taken.sampler, _owner(sample), sample.device, tuple(sample.values))
                    groups.setdefault(group, []).append((taken.time_ns, list(sample.values.values())))
        for group, rows in groups.items():
            if group.keys not in wanted:
                wanted[group.keys] = is_wanted(group.keys)
            if wanted[group.keys]:
                times_ns = np.array([time_ns for time_ns, _ in rows], np.int64)
                values = np.array([values for _, values in rows], np.float64)
                steps = np.zeros(len(rows), np.int64)
                for source in self._sources_of(group):
                    yield Table(source, group.keys, steps, times_ns, values)

    def _sources_of(self, group: _Group) -> Iterator[Source]:
        """Whose figures they are: their owner's, or those of every run on the host that wants them."""
        if group.owner is None:
            for part in self._parts:
                if group.sampler not in self._declined.get(part, ()):
                    run_id, segment, host = part
                    yield Source(run_id, segment, None, host, group.device, "seconds")
            return
        run_id, segment, rank = group.owner
        for host in self._hosts.get((run_id, segment), ()):
            if group.sampler not in self._declined.get((run_id, segment, host), ()):
                yield Source(run_id, segment, rank, host, group.device, "seconds")

    def _tell_news(self, part: Part) -> dict[str, DeviceFacts | Notice]:
        """Tells a run what it has not been told yet; returns all it knows then."""
        run_id, segment, host = part
        told = self._told.get(part, {})
        every = self._news | self._own_news.get(part, {})
        for subject, news in every.items():
            if told.get(subject) == news:
                continue
            if isinstance(news, Notice):
                kind, fields = "notice", {"host": host, "text": news.text}
            else:
                kind, fields = "device", {"host": host, "device": news.device, **news.fields}
            self._store.put_event(run_id, Event(kind, time.time_ns(), None, None, segment, fields))
        return every


class _Group(NamedTuple):
    """Figures that are read together and make up rows of one table."""

    sampler: str
    owner: tuple[str, str, int | None] | None
    """Run, segment and rank; None for those of the host."""
    device: str
    keys: tuple[str, ...]


def _owner(sample: Sample) -> tuple[str, str, int | None] | None:
    owner = sample.owner
    return None if owner is None else (owner.run_id, owner.segment, owner.rank)


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


def _wish(process: Process) -> Settings:
    """What a run asked to have polled; the usual where it did not say."""
    try:
        return from_dict({"samplers": process.facts.get("samplers") or {}})
    except (AttributeError, TypeError, KeyError):
        return Settings()  # written by a stepscope with other settings than ours


def _part(source: Source) -> Part:
    return source.run_id, source.segment, source.host


def _subject(news: DeviceFacts | Notice) -> str:
    return news.subject if isinstance(news, Notice) else f"device {news.device}"
