"""The newest figures of hosts and their devices, and the counters that are summed up from rates."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from stepscope.prometheus.families import RATE_KEYS, THROTTLE_KEY_START

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stepscope.exporters.base import Table

MAX_GAP_NS = 120 * 10**9
"""After a longer pause without samples nothing is added to a counter: what happened in it is unknown."""
MAX_AGE_NS = 120 * 10**9
"""A figure that was read longer ago is not served: the GPU, or the sampler, no longer answers."""


@dataclass
class DeviceState:
    """The figures of one device, or of the host itself."""

    facts: Mapping[str, Any] = field(default_factory=dict)
    figures: dict[str, float] = field(default_factory=dict)
    """The newest value of each key; for rates and flags, the sum over time since the first sample."""
    read_ns: dict[str, int] = field(default_factory=dict)
    """When each key was last read."""

    def take(self, key: str, time_ns: int, value: float) -> None:
        """Takes a value; each comes once for every live run, and counts once."""
        before_ns = self.read_ns.get(key)
        if before_ns is not None and time_ns <= before_ns:
            return
        self.read_ns[key] = time_ns
        if key not in RATE_KEYS and not key.startswith(THROTTLE_KEY_START):
            self.figures[key] = value
            return
        total = self.figures.get(key, 0.0)
        passed_ns = 0 if before_ns is None else time_ns - before_ns
        is_countable = passed_ns <= MAX_GAP_NS and 0 <= value < float("inf")
        self.figures[key] = total + value * passed_ns / 1e9 if is_countable else total

    def current(self, now_ns: int) -> dict[str, float]:
        """The figures that were read recently."""
        return {key: value for key, value in self.figures.items() if now_ns - self.read_ns[key] <= MAX_AGE_NS}


class MachineState:
    """All hosts, by name, and their devices; the host itself is the device with an empty name."""

    def __init__(self, keys: frozenset[str]) -> None:
        self._keys = keys
        self._facts: dict[str, Mapping[str, Any]] = {}
        self.devices: dict[tuple[str, str], DeviceState] = {}

    def take(self, table: Table) -> None:
        """Takes samples of a host or a device."""
        places = [(key, place) for place, key in enumerate(table.keys) if self._is_served(key)]
        if not places:
            return
        device = self.device(table.source.host, table.source.device)
        for time_ns, row in zip(table.times_ns.tolist(), table.values.tolist(), strict=True):
            for key, place in places:
                device.take(key, time_ns, row[place])

    def describe(self, device: str, facts: Mapping[str, Any]) -> None:
        """Takes the facts of a device."""
        self._facts[device] = facts
        for (_, name), state in self.devices.items():
            if name == device:
                state.facts = facts

    def device(self, host: str, name: str) -> DeviceState:
        """A device, which is added where it is new."""
        known = self.devices.get((host, name))
        if known is None:
            known = self.devices[host, name] = DeviceState(self._facts.get(name, {}))
        return known

    def gpu_index(self, host: str, device: str) -> str:
        """The index of a GPU in the order of its driver; empty where it is not known."""
        state = self.devices.get((host, device))
        index = None if state is None else state.facts.get("index")
        return "" if index is None else str(index)

    def drop_silent(self, now_ns: int) -> None:
        """Removes devices that nothing was read from for a long time."""
        for place, state in list(self.devices.items()):
            if all(now_ns - read_ns > 10 * MAX_AGE_NS for read_ns in state.read_ns.values()):
                del self.devices[place]

    def _is_served(self, key: str) -> bool:
        return key in self._keys or key.startswith(THROTTLE_KEY_START)
