"""Names metrics for other programs: those of users stay, those of the machine become `system/...`."""

from __future__ import annotations

import posixpath
import re
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from stepscope.schema.series import Source

MAX_MLFLOW_NAME = 250
FORBIDDEN_BY_WANDB = re.compile(r"[/\\#?%:]")
"""What W&B allows in no name of a project."""
_FORBIDDEN_BY_MLFLOW = re.compile(r"[^/\w.\- :]")

MLFLOW_HOST_NAMES = {
    "cpu/utilization_ratio": ("cpu_utilization_percentage", 100.0),
    "memory/used_bytes": ("system_memory_usage_megabytes", 1e-6),
    "memory/used_ratio": ("system_memory_usage_percentage", 100.0),
    "network/received_bytes_per_second": ("network_receive_megabytes_per_second", 1e-6),
    "network/sent_bytes_per_second": ("network_transmit_megabytes_per_second", 1e-6),
}
"""Machine metrics that MLflow shows, with its names and the factor that converts the unit."""
MLFLOW_DISK_NAMES = {
    "disk/used_ratio": ("disk_usage_percentage", 100.0),
    "disk/free_bytes": ("disk_available_megabytes", 1e-6),
}
"""Of a file system, whose path follows the name; that of `/` has the name alone."""
MLFLOW_GPU_NAMES = {
    "gpu/utilization_ratio": ("utilization_percentage", 100.0),
    "gpu/memory_used_ratio": ("memory_usage_percentage", 100.0),
    "gpu/memory_used_bytes": ("memory_usage_megabytes", 1e-6),
    "gpu/power_watts": ("power_usage_watts", 1.0),
}


@dataclass(frozen=True)
class MetricName:
    """What a metric is called elsewhere, and the factor that converts its unit."""

    name: str
    factor: float = 1.0


def plain_name(source: Source, key: str, gpu: int | None) -> MetricName:
    """Names a metric: `loss`, `rank1/loss`, `system/gpu0/util_percent`; `gpu` is the index of its GPU."""
    if source.axis == "step":
        return MetricName(f"{source.device}/{key}" if source.device else key)
    group, _, figure = key.rpartition("/")
    factor = 1.0
    if figure.endswith("_ratio"):
        figure, factor = f"{figure.removesuffix('_ratio')}_percent", 100.0
    figure = {"utilization_percent": "util_percent"}.get(figure, figure)
    if gpu is not None:
        group = f"gpu{gpu}"
    elif source.device:
        group = f"{group}/{source.device.strip('/') or 'root'}"
    return MetricName("/".join(part for part in ("system", group, figure) if part), factor)


def mlflow_name(source: Source, key: str, gpu: int | None) -> MetricName | None:
    """Names a metric for MLflow; None for a machine metric that MLflow does not show."""
    if source.axis == "step":
        return MetricName(plain_name(source, key, gpu).name)
    known = None
    if gpu is not None and key in MLFLOW_GPU_NAMES:
        figure, factor = MLFLOW_GPU_NAMES[key]
        known = f"gpu_{gpu}_{figure}", factor
    elif source.device and key in MLFLOW_DISK_NAMES:
        figure, factor = MLFLOW_DISK_NAMES[key]
        known = figure + source.device.rstrip("/").replace("/", "_"), factor
    elif not source.device:
        known = MLFLOW_HOST_NAMES.get(key)
    return None if known is None else MetricName(f"system/{known[0]}", known[1])


def accepted_by_mlflow(name: str) -> str:
    """Returns a name without what MLflow refuses: odd characters, empty parts, more than 250 characters."""
    parts = _FORBIDDEN_BY_MLFLOW.sub("_", name).split("/")
    accepted = posixpath.join(*(part if part.strip(".") else "_" * max(len(part), 1) for part in parts))
    if len(accepted) > MAX_MLFLOW_NAME:
        return f"{accepted[: MAX_MLFLOW_NAME - 9]}_{_digest(name)}"
    return accepted


def accepted_by_any(name: str) -> str:
    """Returns a name that is not empty."""
    return name or "_"


class MetricNames:
    """The names of the metrics of one start. No two metrics share a name."""

    def __init__(
        self,
        name_of: Callable[[Source, str, int | None], MetricName | None],
        gpu_indexes: Mapping[str, int],
        accepted: Callable[[str], str] = accepted_by_any,
        prefix: str = "",
        reserved: Collection[str] = (),
    ) -> None:
        """Names that are `reserved` belong to the exporter itself: a metric of that name gets a suffix."""
        self._prefix = prefix
        self._name_of, self._gpu_indexes, self._accepted = name_of, gpu_indexes, accepted
        self._names: dict[tuple[object, ...], MetricName | None] = {}
        self._taken = set(reserved)
        self._host: str | None = None

    def of(self, source: Source, key: str) -> MetricName | None:
        """The name of a metric; None for one that is not exported."""
        host = source.host if source.rank is None else ""
        identity = (source.rank, host, source.device, source.axis, key)
        if identity not in self._names:
            known = self._name_of(source, key, self._gpu_indexes.get(source.device))
            name = None if known is None else MetricName(self._free(source, known.name), known.factor)
            self._names[identity] = name
        return self._names[identity]

    def of_array(self, rank: int, key: str) -> str:
        """The name of an array."""
        identity = (rank, "array", key)
        if identity not in self._names:
            name = f"rank{rank}/{key}" if rank else key
            self._names[identity] = MetricName(self._unique(name, identity))
        known = self._names[identity]
        return "" if known is None else known.name

    def _free(self, source: Source, name: str) -> str:
        if source.rank is None:
            self._host = source.host if self._host is None else self._host
            name = name if source.host == self._host else f"{source.host}/{name}"
        elif source.rank:
            name = f"rank{source.rank}/{name}"
        return self._unique(name, (source.rank, source.host, source.device, source.axis, name))

    def _unique(self, name: str, identity: tuple[object, ...]) -> str:
        accepted = self._accepted(f"{self._prefix}{name}")
        if accepted in self._taken:
            accepted = self._accepted(f"{accepted}_{_digest(repr(identity))}")
        self._taken.add(accepted)
        return accepted


def _digest(text: str) -> str:
    return f"{zlib.crc32(text.encode('utf-8', 'surrogatepass')):08x}"
