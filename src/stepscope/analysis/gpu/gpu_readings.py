"""The readings of the GPUs that a run uses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stepscope.schema.window import Flags, Floats, MachineFigures, Window

UTILIZATION = "gpu/utilization_ratio"
OWN_MEMORY = "gpu/process_memory_bytes"
GPU_KEYS = (UTILIZATION, OWN_MEMORY)
"""Keys that a detector must read for `gpus_of` to work."""

GPU_EVENT = "device"
"""The event that describes a device, with its index."""

BUSY = 0.5
"""A GPU is busy from this utilization on."""


@dataclass(frozen=True)
class Gpu:
    """A GPU of a run, and what was read of it during the steps."""

    device: str
    name: str
    """How texts call it: GPU 3."""
    rank: int | None
    """The rank that uses it, if only one does."""
    figures: Mapping[str, MachineFigures]
    """What was read of it, by key; not of single processes."""
    own: tuple[MachineFigures, ...]
    """The memory that each rank uses on it."""

    def newest(self, key: str) -> float | None:
        """The newest reading of a key."""
        return float(self.figures[key].values[-1]) if key in self.figures else None

    def rise(self, key: str) -> float:
        """By how much a counter has risen while it was read; one that fell began again."""
        values = self.figures[key].values if key in self.figures else np.zeros(1)
        return float(np.maximum(np.diff(values), 0).sum())

    def at_times_of(self, key: str, other: str) -> Floats:
        """Readings of a key at the times of another, which may be read at another pace."""
        times = self.figures[other].times
        known = self.figures[key]
        newest = np.clip(np.searchsorted(known.times, times, "right") - 1, 0, None)
        values: Floats = known.values[newest]
        return values

    def is_busy(self, key: str) -> Flags:
        """At which readings of a key the GPU was busy; all of them where its utilization is not known."""
        if UTILIZATION not in self.figures:
            return np.ones(len(self.figures[key].values), bool)
        busy: Flags = self.at_times_of(UTILIZATION, key) >= BUSY
        return busy


def gpus_of(window: Window) -> list[Gpu]:
    """The GPUs that the ranks use; all of their hosts where the driver does not tell processes apart."""
    hosts = {rank.host for rank in window.ranks}
    places = {
        (figures.host, figures.device)
        for figures in window.machine
        if figures.key.startswith("gpu/") and figures.device and figures.host in hosts
    }
    own: dict[tuple[str, str], list[MachineFigures]] = {}
    for figures in window.machine:
        if figures.key == OWN_MEMORY and figures.values.max() > 0:
            own.setdefault((figures.host, figures.device), []).append(figures)
    used = {place for place in places if place in own} or places
    indexes = {
        str(event.fields.get("device")): event.fields.get("index") for event in window.events_of(GPU_EVENT)
    }
    return [
        _gpu(window, place, indexes.get(place[1]), tuple(own.get(place, ())), has_hosts=len(hosts) > 1)
        for place in sorted(used)
    ]


def _gpu(
    window: Window,
    place: tuple[str, str],
    index: object,
    own: tuple[MachineFigures, ...],
    *,
    has_hosts: bool,
) -> Gpu:
    host, device = place
    name = f"GPU {device}" if index is None else f"GPU {index}"
    ranks = {figures.rank for figures in own}
    return Gpu(
        device,
        f"{name} of {host}" if has_hosts else name,
        ranks.pop() if len(ranks) == 1 else None,
        {
            figures.key: figures
            for figures in window.machine
            if (figures.host, figures.device) == place and figures.key != OWN_MEMORY
        },
        own,
    )
