"""The home page: live runs, what needs attention, the latest runs, and the hosts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from stepscope.analysis.verdict import rank_of
from stepscope.schema.run import LIVE
from stepscope.views.energy.attribution import known_gpus
from stepscope.views.json_values import clean, finite
from stepscope.views.machine.gpu_names import label_of
from stepscope.views.runs.attention import Attention, attention_of, may_need_attention
from stepscope.views.runs.run_rows import FigureCache, RunRow, run_row

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stepscope.devices.gpu import GpuFacts
    from stepscope.reading import Run, Runs
    from stepscope.store.base import SeriesSummary
    from stepscope.views.metrics.series_summaries import HostDevice
    from stepscope.views.runs.marks import Marks

MAX_RECENT = 10
MAX_ATTENTION = 1000
"""Maximum number of entries; there is one for each run, and the list of runs counts the same ones."""

MAX_LIVE_AGE_S = 30.0
"""A host without a reading for longer than this is not live."""

MAX_AGE_S = 86_400.0
"""A host without a reading for longer than this is not shown."""

MAX_RUNS = 20

_HOST_KEYS = ("cpu/utilization_ratio", "memory/used_bytes", "memory/total_bytes")
_GPU_KEYS = (
    "gpu/utilization_ratio",
    "gpu/memory_used_bytes",
    "gpu/memory_total_bytes",
    "gpu/temperature_celsius",
    "gpu/power_watts",
)


@dataclass(frozen=True)
class Home:
    """The contents of the home page."""

    running: tuple[RunRow, ...]
    attention: tuple[Attention, ...]
    recent: tuple[RunRow, ...]
    hosts: tuple[HostNow, ...]


def home_of(runs: Runs, marks: Marks, now_ns: int, cache: FigureCache | None = None) -> Home:
    """Returns the home page; archived runs are left out unless they are live."""
    cache = cache or FigureCache()
    all_runs = runs.runs()
    live = [run for run in all_runs if run.status in LIVE]
    ended = [run for run in all_runs if run.status not in LIVE and not marks.archived(run.id)]
    ended.sort(key=lambda run: run.info.ended_ns or run.info.last_ns)
    recent = ended[-MAX_RECENT:][::-1]
    # There may be thousands of runs: figures are read only of those that may need attention.
    candidates = [run for run in (*live, *ended) if may_need_attention(run, marks, now_ns)]
    cache.begin_list()
    needs = [
        attention_of(run, marks, cache.of(run, now_ns), now_ns, cache.diagnosis(run, now_ns))
        for run in candidates
    ]
    attention = [attention_needed for attention_needed in needs if attention_needed is not None]
    attention.sort(key=lambda attention_needed: (rank_of(attention_needed.severity), -attention_needed.since))
    return Home(
        running=tuple(run_row(run, marks, now_ns, cache) for run in reversed(live)),
        attention=tuple(attention[:MAX_ATTENTION]),
        recent=tuple(run_row(run, marks, now_ns, cache) for run in recent),
        hosts=hosts_now(all_runs, now_ns),
    )


@dataclass(frozen=True)
class GpuNow:
    """The last readings of a GPU; None for what it does not report."""

    device: str
    name: str
    """Its number and its model."""
    utilization_ratio: float | None
    memory_used_bytes: float | None
    memory_total_bytes: float | None
    temperature_celsius: float | None
    power_watts: float | None


@dataclass(frozen=True)
class HostNow:
    """The last readings of a host."""

    host: str
    live: bool
    last_seen: float
    cpu_ratio: float | None
    memory_used_bytes: float | None
    memory_total_bytes: float | None
    gpus: tuple[GpuNow, ...]
    runs: tuple[str, ...]
    """Ids of the runs that are live there."""


def hosts_now(runs: Sequence[Run], now_ns: int) -> tuple[HostNow, ...]:
    """Returns the hosts of the live runs and of the newest others, live hosts first."""
    live = [run for run in runs if run.status in LIVE]
    others = [run for run in reversed(runs) if run.status not in LIVE]
    facts: dict[HostDevice, GpuFacts] = {}
    newest: dict[tuple[str, str, str], SeriesSummary] = {}
    for run in [*live, *others][: max(MAX_RUNS, len(live))]:
        if run.info.last_ns < now_ns - MAX_AGE_S * 1e9 and run.status not in LIVE:
            continue
        readings = [
            summary
            for summary in run.summaries((*_HOST_KEYS, *_GPU_KEYS))
            if summary.source.axis == "seconds"
        ]
        if any(summary.source.device for summary in readings):
            facts = {**known_gpus(run), **facts}
        for summary in readings:
            series_id = (summary.source.host, summary.source.device, summary.key)
            if series_id not in newest or newest[series_id].last_ns < summary.last_ns:
                newest[series_id] = summary
    hosts = {host for host, _, _ in newest}
    rows = [_host(host, newest, facts, live, now_ns) for host in sorted(hosts)]
    return tuple(sorted(rows, key=lambda row: not row.live))


def _host(
    host: str,
    newest: dict[tuple[str, str, str], SeriesSummary],
    facts: dict[HostDevice, GpuFacts],
    live: Sequence[Run],
    now_ns: int,
) -> HostNow:
    last_ns = max(summary.last_ns for (name, _, _), summary in newest.items() if name == host)
    live_runs = [
        run.id for run in live if any(summary.host == host for summary in run.segments[-1].processes)
    ]
    cpu, used, total = (_last(newest.get((host, "", key))) for key in _HOST_KEYS)
    devices = sorted(
        {device for name, device, key in newest if name == host and device and key in _GPU_KEYS},
        key=lambda device: (facts[host, device].index if (host, device) in facts else 10**6, device),
    )
    return HostNow(
        host=clean(host, 300),
        live=now_ns - last_ns < MAX_LIVE_AGE_S * 1e9,
        last_seen=last_ns / 1e9,
        cpu_ratio=cpu,
        memory_used_bytes=used,
        memory_total_bytes=total,
        gpus=tuple(_gpu(host, device, newest, facts) for device in devices),
        runs=tuple(live_runs),
    )


def _gpu(
    host: str,
    device: str,
    newest: dict[tuple[str, str, str], SeriesSummary],
    facts: dict[HostDevice, GpuFacts],
) -> GpuNow:
    name = label_of((host, device), facts, several_hosts=False)
    known = facts.get((host, device))
    if known is not None:
        name = f"{name} {known.name}".strip()
    return GpuNow(
        clean(device, 200), clean(name, 300), *(_last(newest.get((host, device, key))) for key in _GPU_KEYS)
    )


def _last(summary: SeriesSummary | None) -> float | None:
    return None if summary is None else finite(summary.last)
