"""Polls the watched processes, their data loader workers, and all their descendants."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from stepscope.devices.host.kernel_files import drop_none
from stepscope.devices.interval import Interval
from stepscope.devices.process.memory_detail import MemoryDetail
from stepscope.devices.process.process_tree import ProcessTrees, Tree
from stepscope.devices.process.processes import (
    ProcessFiles,
    ProcessKey,
    ProcessState,
    input_output_counts,
    main_thread_counts,
    open_files,
    queued_seconds,
)
from stepscope.devices.rates import Rates
from stepscope.errors import ConfigError
from stepscope.procfs import PROC
from stepscope.samplers.base import Sampler
from stepscope.schema.sample import Metric, Sample

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from stepscope.devices.process.processes import MemoryShares
    from stepscope.schema.sample import Watched

OPEN_FILES_EVERY_S = 10.0

_RATES = {
    "major_faults": "process/major_faults_per_second",
    "read_bytes": "process/read_bytes_per_second",
    "write_bytes": "process/write_bytes_per_second",
    "reads": "process/reads_per_second",
    "writes": "process/writes_per_second",
    "disk_read_bytes": "process/disk_read_bytes_per_second",
    "disk_write_bytes": "process/disk_write_bytes_per_second",
    "voluntary_switches": "process/voluntary_switches_per_second",
    "involuntary_switches": "process/involuntary_switches_per_second",
}
_INHERITED = ("read_bytes", "write_bytes", "reads", "writes", "disk_read_bytes", "disk_write_bytes")


class ProcessesSampler(Sampler):
    """Each watched process as the device without a name, its loader workers as `loader-0`, `loader-1`, ...

    When a worker ends, as at the end of an epoch, its name goes to the next one.
    """

    metrics = (
        Metric(
            "process/cpu_ratio",
            "Processor time used as a share of the time that passed; 1 is one whole core.",
        ),
        Metric("process/cpu_user_seconds_total", "Processor time used in the program since it began."),
        Metric("process/cpu_system_seconds_total", "Processor time used in the kernel since it began."),
        Metric("process/rss_bytes", "Memory in use, including all memory shared with other processes."),
        Metric("process/uss_bytes", "Memory that no other process shares: what would be free if it ended."),
        Metric("process/pss_bytes", "Memory in use, with shared memory divided among the processes."),
        Metric("process/threads", "Threads it has."),
        Metric("process/usable_cores", "Logical processors its first thread may run on."),
        Metric("process/open_files", "Open files, sockets and pipes."),
        Metric(
            "process/queued_ratio",
            "Share of time in which its first thread was ready and waited for a processor.",
        ),
        Metric(
            "process/voluntary_switches_per_second", "Times its first thread stopped to wait for something."
        ),
        Metric(
            "process/involuntary_switches_per_second",
            "Times its first thread was preempted by another.",
        ),
        Metric("process/major_faults_per_second", "Pages it waited for until they were read from a disk."),
        Metric("process/read_bytes_per_second", "Bytes it read, from cached files, disks and pipes."),
        Metric("process/write_bytes_per_second", "Bytes it wrote, to cached files, disks and pipes."),
        Metric("process/reads_per_second", "Calls to read."),
        Metric("process/writes_per_second", "Calls to write."),
        Metric("process/disk_read_bytes_per_second", "Bytes that were read from a disk for it."),
        Metric("process/disk_write_bytes_per_second", "Bytes it wrote that go to a disk."),
        Metric("tree/cpu_ratio", "Processor time of the process and its descendants; 1 is one whole core."),
        Metric(
            "tree/rss_bytes",
            "Memory of the process and its descendants; shared memory counts several times.",
        ),
        Metric("tree/pss_bytes", "Memory of the process and its descendants; shared memory counts once."),
        Metric("tree/processes", "The process and its descendants."),
        Metric("tree/threads", "Threads of the process and its descendants."),
    )

    def __init__(
        self,
        memory_detail_every_s: float = 10.0,
        *,
        _proc: Path = PROC,
        _now: Callable[[], float] = time.monotonic,
        _cpu_seconds: Callable[[], float] = time.thread_time,
    ) -> None:
        if not isinstance(memory_detail_every_s, (int, float)) or memory_detail_every_s <= 0:
            raise ConfigError(
                f"samplers.processes.memory_detail_every_s is {memory_detail_every_s!r}; "
                "it must be a number of seconds above 0."
            )
        self._proc = str(_proc)
        self._files = ProcessFiles(_proc)
        self._trees = ProcessTrees(_proc, _now, self._files)
        self._detail = MemoryDetail(memory_detail_every_s, _proc, _now, _cpu_seconds)
        self._rates: Rates[ProcessKey] = Rates(_now)
        self._files_interval = Interval(OPEN_FILES_EVERY_S, _now)

    def sample(self, watched: Sequence[Watched]) -> Iterator[Sample]:
        """Reads every watched process that is alive, with its descendants."""
        trees = self._trees.read(watched)
        self._files.keep_only({state.key.pid for tree in trees for state in tree.members})
        usable: dict[ProcessKey, int | None] = {}
        counts = {state.key: _time_counts(state) for tree in trees for state in tree.members}
        for tree in trees:
            for key in tree.loaders:
                counts[key] |= input_output_counts(key.pid, self._files)
            counts[tree.root.key] |= self._root_counts(tree.root.key, usable)
        rates = self._rates.since_last(counts)
        fresh = self._detail.read_due(counts.keys())
        counts_files = self._files_interval.is_due()
        for tree in trees:
            yield _root_sample(tree, rates, usable[tree.root.key])
            yield from _loader_samples(tree, rates)
            yield from self._memory_samples(tree, fresh)
            if counts_files and (files := open_files(tree.root.key.pid, self._proc)) is not None:
                yield Sample({"process/open_files": files}, owner=tree.owner)

    def close(self) -> None:
        """Closes the files of the processes."""
        self._files.close()

    def _root_counts(self, key: ProcessKey, usable: dict[ProcessKey, int | None]) -> dict[str, float]:
        switches, usable[key] = main_thread_counts(key.pid, self._files)
        queued = drop_none({"queued_seconds": queued_seconds(key.pid, self._files)})
        return {**input_output_counts(key.pid, self._files), **switches, **queued}

    def _memory_samples(self, tree: Tree, fresh: Mapping[ProcessKey, MemoryShares]) -> Iterator[Sample]:
        """Memory of the tree that was read in this sample; the sum only when every member has been read."""
        for key, device in {tree.root.key: "", **tree.loaders}.items():
            if key in fresh:
                shares = fresh[key]
                values = {"process/uss_bytes": shares.uss_bytes, "process/pss_bytes": shares.pss_bytes}
                yield Sample(values, device, tree.owner)
        known = [self._detail.known(state.key) for state in tree.members]
        sizes = [shares.pss_bytes for shares in known if shares is not None]
        if len(sizes) == len(known) and any(state.key in fresh for state in tree.members):
            yield Sample({"tree/pss_bytes": sum(sizes)}, owner=tree.owner)


def _time_counts(state: ProcessState) -> dict[str, float]:
    return {
        "cpu_seconds": state.user_seconds + state.system_seconds,
        "major_faults": float(state.major_faults),
        "inherited_faults": float(state.inherited_faults),
    }


def _own_values(state: ProcessState, rates: Mapping[str, float]) -> dict[str, float]:
    if rates.get("inherited_faults"):
        # A child has ended, and its lifetime counters were added: workers would cause a spike each epoch.
        rates = {name: rate for name, rate in rates.items() if name not in _INHERITED}
    return drop_none(
        {
            "process/cpu_ratio": rates.get("cpu_seconds"),
            "process/rss_bytes": state.rss_bytes,
            **{key: rates.get(name) for name, key in _RATES.items()},
        }
    )


def _root_sample(
    tree: Tree, rates: Mapping[ProcessKey, Mapping[str, float]], usable_cores: int | None
) -> Sample:
    own = rates.get(tree.root.key, {})
    busy = [
        rate["cpu_seconds"] for state in tree.members if "cpu_seconds" in (rate := rates.get(state.key, {}))
    ]
    queued = own.get("queued_seconds")
    values = {
        "process/cpu_user_seconds_total": tree.root.user_seconds,
        "process/cpu_system_seconds_total": tree.root.system_seconds,
        "process/threads": tree.root.threads,
        "process/usable_cores": usable_cores,
        "process/queued_ratio": None if queued is None else min(queued, 1.0),
        "tree/cpu_ratio": sum(busy) if busy else None,
        "tree/rss_bytes": sum(state.rss_bytes for state in tree.members),
        "tree/processes": len(tree.members),
        "tree/threads": sum(state.threads for state in tree.members),
    }
    return Sample({**_own_values(tree.root, own), **drop_none(values)}, owner=tree.owner)


def _loader_samples(tree: Tree, rates: Mapping[ProcessKey, Mapping[str, float]]) -> Iterator[Sample]:
    for state in tree.members:
        if state.key in tree.loaders:
            values = _own_values(state, rates.get(state.key, {}))
            yield Sample(values, tree.loaders[state.key], tree.owner)
