"""The figures of the hosts over a run: the most important keys, one line for each device."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

import numpy as np

from stepscope.views.export.run_json import extremes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stepscope.reading import Run
    from stepscope.schema.series import Buckets

HEADLINES = (
    "gpu/utilization_ratio",
    "gpu/sm_active_ratio",
    "gpu/memory_used_bytes",
    "gpu/temperature_celsius",
    "gpu/power_watts",
    "cpu/utilization_ratio",
    "cpu/iowait_ratio",
    "memory/used_bytes",
    "process/cpu_ratio",
    "process/rss_bytes",
    "tree/cpu_ratio",
    "tree/rss_bytes",
    "disk/read_bytes_per_second",
    "network/received_bytes_per_second",
)


@dataclass(frozen=True)
class MachineFigure:
    """One figure over a whole run: of a device, or of a rank or the host."""

    key: str
    rank: int | None
    host: str
    device: str
    label: str
    """A short name of its source: gpu 0, loader-1, rank 0; empty for the host."""
    points: int
    mean: float | None
    minimum: float | None
    maximum: float | None
    buckets: Buckets


def machine_figures(run: Run, pattern: str | None, buckets_shown: int) -> Iterator[MachineFigure]:
    """Yields the headline keys, or all keys that match a pattern, for each device."""
    gpu_labels = _gpu_labels(run)
    series: dict[tuple[str, int | None, str, str], None] = {}
    for source, keys in run.sources().items():
        if source.axis == "seconds":
            series.update(dict.fromkeys((key, source.rank, source.host, source.device) for key in keys))
    several_hosts = len({host for _, _, host, _ in series}) > 1
    for key in [key for key in _ordered(series) if _is_chosen(key, pattern)]:
        for _, rank, host, device in sorted(
            (series_id for series_id in series if series_id[0] == key), key=_place_order(gpu_labels)
        ):
            buckets = run.buckets(key, buckets_shown, rank=rank, host=host, device=device, axis="seconds")
            minimum, maximum = extremes(buckets)
            label = gpu_labels.get(device, device) or ("" if rank is None else f"rank {rank}")
            if several_hosts:
                label = f"{host} {label}".strip()
            counted = int(buckets.count.sum() - buckets.nonfinite.sum())
            total = float(np.nansum(buckets.mean * (buckets.count - buckets.nonfinite)))
            mean = total / counted if counted else None
            points = int(buckets.count.sum())
            yield MachineFigure(key, rank, host, device, label, points, mean, minimum, maximum, buckets)


def described(figure: MachineFigure) -> dict[str, Any]:
    """Returns a figure as `--json` prints it."""
    return {
        "key": figure.key,
        "rank": figure.rank,
        "host": figure.host,
        "device": figure.device,
        "label": figure.label,
        "points": figure.points,
        "mean": figure.mean,
        "min": figure.minimum,
        "max": figure.maximum,
    }


def _gpu_labels(run: Run) -> dict[str, str]:
    """Returns the labels of GPUs by UUID."""
    labels = {}
    for event in run.own_events("device"):
        if "index" in event.fields:
            labels[str(event.fields["device"])] = f"gpu {event.fields['index']}"
    return labels


def _ordered(series: dict[tuple[str, int | None, str, str], None]) -> list[str]:
    keys = dict.fromkeys(key for key, *_ in series)
    first = [key for key in HEADLINES if key in keys]
    return [*first, *sorted(keys.keys() - set(first))]


def _is_chosen(key: str, pattern: str | None) -> bool:
    if pattern is None:
        return key in HEADLINES
    glob = pattern if any(sign in pattern for sign in "*?[") else f"*{pattern}*"
    return fnmatchcase(key, glob)


def _place_order(gpu_labels: dict[str, str]) -> Any:
    def sort_key(series_id: tuple[str, int | None, str, str]) -> tuple[object, ...]:
        _, rank, host, device = series_id
        name = gpu_labels.get(device, device)
        head, _, number = name.rpartition(" " if name.startswith("gpu ") else "-")
        ordinal = int(number) if number.isdecimal() else 0
        return host, -1 if rank is None else rank, head, ordinal, name

    return sort_key
