"""Polls the usage of the host's processors, and whether a control group throttles a training."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from stepscope.devices.host.cgroup import CpuLimit, Groups, cpu_counts, cpu_limits, memory_limits
from stepscope.devices.host.kernel_files import SYS, drop_none
from stepscope.devices.host.pressure import Pressure
from stepscope.devices.host.processor import (
    ProcessorCounts,
    busy_share,
    clocks,
    load,
    processor_counts,
    processor_facts,
    shares,
)
from stepscope.devices.interval import Interval
from stepscope.devices.rates import HostRates, Rates
from stepscope.procfs import PROC
from stepscope.samplers.base import Sampler
from stepscope.schema.sample import DeviceFacts, Metric, Sample

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from stepscope.devices.host.cgroup import Group
    from stepscope.schema.sample import Reading, Watched

CLOCKS_EVERY_S = 5.0
FACTS_EVERY_S = 300.0


class CpuSampler(Sampler):
    """The processors as a whole.

    Limits and throttling of a control group belong to the host when the agent is in the same group, else to
    the process whose group it is.
    """

    metrics = (
        Metric(
            "cpu/utilization_ratio", "Share of processor time that was neither idle nor waiting for a disk."
        ),
        Metric("cpu/user_ratio", "Share of processor time spent in programs."),
        Metric("cpu/system_ratio", "Share of processor time spent in the kernel, interrupts included."),
        Metric("cpu/iowait_ratio", "Share of processor time that was idle while a thread waited for a disk."),
        Metric("cpu/steal_ratio", "Share of processor time the hypervisor gave to other machines."),
        Metric("cpu/load_1m", "Threads that ran or waited for a processor or a disk, over the last minute."),
        Metric("cpu/load_5m", "The same over the last five minutes."),
        Metric("cpu/load_15m", "The same over the last fifteen minutes."),
        Metric("cpu/load_per_core_ratio", "Load of the last minute for each logical processor."),
        Metric("cpu/runnable_threads", "Threads that ran or were ready to run, at the time of the sample."),
        Metric("cpu/blocked_threads", "Threads that waited for a disk, at the time of the sample."),
        Metric("cpu/context_switches_per_second", "Changes of processors from one thread to another."),
        Metric("cpu/interrupts_per_second", "Interrupts the processors served."),
        Metric("cpu/frequency_hertz", "Clock of the processors, on average over all of them."),
        Metric("cpu/frequency_ratio", "That clock as a share of the highest they can run at."),
        Metric("cpu/pressure_some_ratio", "Share of time in which some thread had to wait for a processor."),
        Metric(
            "cpu/cgroup_limit_cores", "Processors the control group may keep busy: the tightest limit on it."
        ),
        Metric("cpu/cgroup_used_cores", "Processors kept busy in the control group that sets this limit."),
        Metric(
            "cpu/cgroup_throttled_ratio",
            "Time the control group was throttled because its quota was used up, as a share of the time that "
            "passed; it adds up over processors and may exceed 1.",
        ),
        Metric("cpu/cgroup_throttled_periods_ratio", "Share of the quota's periods in which it was used up."),
    )

    def __init__(
        self, *, _proc: Path = PROC, _sys: Path = SYS, _now: Callable[[], float] = time.monotonic
    ) -> None:
        self._proc, self._sys = _proc, _sys
        self._times, self._events = HostRates(_now), HostRates(_now)
        self._pressure = Pressure("cpu", _proc, _now)
        self._groups = Groups("cpu", _proc, _now)
        self._memory_groups = Groups("memory", _proc, _now)
        self._group_rates: Rates[str] = Rates(_now)
        self._clocks_interval, self._facts_interval = (
            Interval(CLOCKS_EVERY_S, _now),
            Interval(FACTS_EVERY_S, _now),
        )
        self._facts: DeviceFacts | None = None

    def sample(self, watched: Sequence[Watched]) -> Iterator[Reading]:
        """Reads the processors, and the control group of every watched process."""
        counts = processor_counts(self._proc)
        values = {} if counts is None else {**self._usage(counts), **self._queue(counts)}
        if values:
            yield Sample(values)
        if self._clocks_interval.is_due() and (now := clocks(self._sys, self._proc)) is not None:
            yield Sample(
                drop_none({"cpu/frequency_hertz": now.mean_hertz, "cpu/frequency_ratio": now.most_ratio})
            )
        yield from self._group_samples(watched)
        if self._facts_interval.is_due():
            yield from self._changed_facts()

    def _usage(self, counts: ProcessorCounts) -> dict[str, float]:
        rates = self._times.since_last(counts.times)
        share = shares(rates)
        if not share:
            return {}
        user = share.get("user", 0.0) + share.get("nice", 0.0)
        system = share.get("system", 0.0) + share.get("irq", 0.0) + share.get("softirq", 0.0)
        return drop_none(
            {
                "cpu/utilization_ratio": busy_share(rates),
                "cpu/user_ratio": user,
                "cpu/system_ratio": system,
                "cpu/iowait_ratio": share.get("iowait"),
                "cpu/steal_ratio": share.get("steal"),
            }
        )

    def _queue(self, counts: ProcessorCounts) -> dict[str, float]:
        events = drop_none({"switches": counts.context_switches, "interrupts": counts.interrupts})
        rates = self._events.since_last(events)
        average = load(self._proc)
        return drop_none(
            {
                "cpu/load_1m": average and average.one_minute,
                "cpu/load_5m": average and average.five_minutes,
                "cpu/load_15m": average and average.fifteen_minutes,
                "cpu/load_per_core_ratio": average and average.one_minute / max(counts.logical, 1),
                "cpu/runnable_threads": counts.runnable,
                "cpu/blocked_threads": counts.blocked,
                "cpu/context_switches_per_second": rates.get("switches"),
                "cpu/interrupts_per_second": rates.get("interrupts"),
                "cpu/pressure_some_ratio": self._pressure.since_last().get("some"),
            }
        )

    def _group_samples(self, watched: Sequence[Watched]) -> Iterator[Sample]:
        groups = [(owner, group, cpu_limits(group)) for owner, group in self._groups.by_owner(watched)]
        counts = {
            level: cpu_counts(level, group.version)
            for _, group, limits in groups
            for level in _accounted_levels(group, limits)
        }
        rates = self._group_rates.since_last(counts)
        for owner, group, limits in groups:
            values = _group_values(
                limits, [rates.get(level, {}) for level in _accounted_levels(group, limits)]
            )
            if values:
                yield Sample(values, owner=owner)

    def _changed_facts(self) -> Iterator[DeviceFacts]:
        cores = [limit.cores for _, group in self._groups.by_owner(()) for limit in cpu_limits(group)]
        memory = [
            limit.limit_bytes
            for _, group in self._memory_groups.by_owner(())
            for limit in memory_limits(group)
        ]
        limits = {
            "cgroup_limit_cores": min(cores, default=None),
            "cgroup_limit_bytes": min(memory, default=None),
        }
        facts = DeviceFacts("cpu", {**processor_facts(self._proc, self._sys), **drop_none(limits)})
        if facts.fields and facts != self._facts:
            self._facts = facts
            yield facts


def _accounted_levels(group: Group, limits: Sequence[CpuLimit]) -> list[str]:
    """The folders to read for a group: those that set a limit, the tightest first; else its own."""
    return [limit.level for limit in limits] or [group.levels[0]]


def _group_values(limits: Sequence[CpuLimit], rates: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The metrics of a group; throttling by any of its limits counts, and the worst is reported."""
    throttled = [rate["throttled_seconds"] for rate in rates if "throttled_seconds" in rate]
    periods = [
        min(rate["throttled_periods"] / rate["periods"], 1.0)
        for rate in rates
        if rate.get("periods") and "throttled_periods" in rate
    ]
    return drop_none(
        {
            "cpu/cgroup_limit_cores": limits[0].cores if limits else None,
            "cpu/cgroup_used_cores": rates[0].get("used_seconds"),
            "cpu/cgroup_throttled_ratio": max(throttled) if limits and throttled else None,
            "cpu/cgroup_throttled_periods_ratio": max(periods) if limits and periods else None,
        }
    )
