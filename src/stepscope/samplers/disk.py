"""Polls the I/O of the disks, and the free space where a run writes."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from stepscope.devices.host.disks import disk_counts, disk_facts, whole_disks
from stepscope.devices.host.kernel_files import SYS, drop_none
from stepscope.devices.host.mounts import mount_point, mounts, space
from stepscope.devices.host.pressure import Pressure
from stepscope.devices.interval import Interval
from stepscope.devices.rates import Rates
from stepscope.errors import ConfigError
from stepscope.procfs import PROC
from stepscope.samplers.base import Sampler
from stepscope.schema.sample import DeviceFacts, Metric, Sample

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from stepscope.schema.sample import Reading, Watched

SPACE_EVERY_S = 10.0
DISKS_EVERY_S = 60.0


class DiskSampler(Sampler):
    """Each disk separately, and all of them together as the device without a name.

    Also the file systems of the store, of the working directories of the watched processes, and of the
    `paths` in the settings: each is a device with the name of its mount point.
    """

    metrics = (
        Metric("disk/read_bytes_per_second", "Bytes read from a disk, or from all of them."),
        Metric("disk/write_bytes_per_second", "Bytes written to a disk, or to all of them."),
        Metric("disk/reads_per_second", "Read operations a disk, or all of them, completed."),
        Metric("disk/writes_per_second", "Write operations a disk, or all of them, completed."),
        Metric("disk/busy_ratio", "Share of time in which a disk was busy."),
        Metric("disk/wait_seconds", "Mean time of an operation, including the time in the queue."),
        Metric("disk/read_wait_seconds", "The same for reads alone."),
        Metric("disk/write_wait_seconds", "The same for writes alone."),
        Metric("disk/pressure_some_ratio", "Share of time in which some thread waited for a disk."),
        Metric("disk/pressure_full_ratio", "Share of time in which all threads waited for a disk."),
        Metric("disk/free_bytes", "Free space of a file system for ordinary users."),
        Metric("disk/total_bytes", "Size of a file system."),
        Metric("disk/used_ratio", "How full a file system is for ordinary users, as in `df`."),
    )

    def __init__(
        self,
        paths: Sequence[str] = (),
        *,
        _folder: Path | None = None,
        _proc: Path = PROC,
        _sys: Path = SYS,
        _now: Callable[[], float] = time.monotonic,
    ) -> None:
        if isinstance(paths, str):
            raise ConfigError(f"samplers.disk.paths is {paths!r}; it must be a list, such as [{paths!r}].")
        folders = [*paths, *([] if _folder is None else [str(_folder)])]
        self._paths = [os.path.realpath(folder) for folder in folders]
        self._proc, self._sys = _proc, _sys
        self._rates: Rates[str] = Rates(_now)
        self._pressure = Pressure("io", _proc, _now)
        self._space_interval, self._disks_interval = (
            Interval(SPACE_EVERY_S, _now),
            Interval(DISKS_EVERY_S, _now),
        )
        self._names: frozenset[str] = frozenset()
        self._disks: list[str] = []

    def sample(self, watched: Sequence[Watched]) -> Iterator[Reading]:
        """Reads all disks, and at intervals the free space of the file systems in use."""
        counts = disk_counts(self._proc)
        yield from self._new_disks(frozenset(counts))
        rates = self._rates.since_last({name: counts[name] for name in self._disks})
        yield from (
            Sample(_disk_values(disk_rates), name) for name, disk_rates in rates.items() if disk_rates
        )
        yield from (Sample(wait, name) for name, disk_rates in rates.items() for wait in _waits(disk_rates))
        total = {**_total_values(rates), **self._pressure_values()}
        if total:
            yield Sample(total)
        if self._space_interval.is_due():
            yield from self._space_samples(watched)

    def _new_disks(self, names: frozenset[str]) -> Iterator[DeviceFacts]:
        """Lists the disks again when a device was added or removed, and at intervals."""
        if self._disks_interval.is_due() or names != self._names:
            before, self._names, self._disks = self._disks, names, whole_disks(names, self._sys)
            for name in self._disks:
                if name not in before:
                    yield DeviceFacts(name, disk_facts(name, self._sys))

    def _pressure_values(self) -> dict[str, float]:
        stalled = self._pressure.since_last()
        return drop_none(
            {
                "disk/pressure_some_ratio": stalled.get("some"),
                "disk/pressure_full_ratio": stalled.get("full"),
            }
        )

    def _space_samples(self, watched: Sequence[Watched]) -> Iterator[Sample]:
        mounted = mounts(self._proc)
        folders = [*self._paths, *(_working_directory(process.pid, self._proc) for process in watched)]
        points = {mount_point(folder, mounted) for folder in folders if folder is not None}
        for point in sorted(point for point in points if point is not None):
            usage = space(point)
            if usage is not None:
                values = {
                    "disk/free_bytes": float(usage.free_bytes),
                    "disk/total_bytes": float(usage.total_bytes),
                    "disk/used_ratio": usage.used_ratio,
                }
                yield Sample(values, point)


def _working_directory(pid: int, proc: Path) -> str | None:
    try:
        return str((proc / str(pid) / "cwd").readlink())
    except OSError:
        return None


def _disk_values(rates: Mapping[str, float]) -> dict[str, float]:
    busy = rates.get("busy_seconds")
    return drop_none(
        {
            "disk/read_bytes_per_second": rates.get("read_bytes"),
            "disk/write_bytes_per_second": rates.get("write_bytes"),
            "disk/reads_per_second": rates.get("reads"),
            "disk/writes_per_second": rates.get("writes"),
            "disk/busy_ratio": None if busy is None else min(busy, 1.0),
        }
    )


def _waits(rates: Mapping[str, float]) -> Iterator[dict[str, float]]:
    """The mean time of an operation; each kind separately, since a disk may do none of it for a while."""
    kinds = {"disk/read_wait_seconds": ("read",), "disk/write_wait_seconds": ("write",)}
    for key, names in {"disk/wait_seconds": ("read", "write"), **kinds}.items():
        done = sum(rates.get(f"{name}s", 0.0) for name in names)
        if done and all(f"{name}_seconds" in rates for name in names):
            yield {key: sum(rates[f"{name}_seconds"] for name in names) / done}


def _total_values(rates: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    names = ("read_bytes", "write_bytes", "reads", "writes")
    return {
        f"disk/{name}_per_second": sum(disk_rates.get(name, 0.0) for disk_rates in rates.values())
        for name in names
        if rates
    }
