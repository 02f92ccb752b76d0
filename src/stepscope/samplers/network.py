"""Polls the traffic of network interfaces and InfiniBand ports."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from stepscope.devices.host import infiniband
from stepscope.devices.host.kernel_files import SYS
from stepscope.devices.host.networks import (
    interface_counts,
    interface_facts,
    is_over_infiniband,
    real_interfaces,
)
from stepscope.devices.interval import Interval
from stepscope.devices.rates import Rates
from stepscope.procfs import PROC
from stepscope.samplers.base import Sampler
from stepscope.schema.sample import DeviceFacts, Metric, Sample

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from stepscope.schema.sample import Reading, Watched

DEVICES_EVERY_S = 60.0
ERRORS_EVERY_S = 10.0


class NetworkSampler(Sampler):
    """Each interface and each InfiniBand port, and all of them together as the device without a name.

    A port is named after its adapter, as in `mlx5_0:1`.
    """

    metrics = (
        Metric("network/received_bytes_per_second", "Bytes an interface or port, or all of them, received."),
        Metric("network/sent_bytes_per_second", "Bytes an interface or port, or all of them, sent."),
        Metric(
            "network/received_packets_per_second",
            "Packets an interface or port, or all interfaces, received.",
        ),
        Metric("network/sent_packets_per_second", "Packets an interface or port, or all interfaces, sent."),
        Metric("network/errors_per_second", "Packets with errors, in or out."),
        Metric("network/drops_per_second", "Packets that were dropped because buffers were full, in or out."),
        Metric("network/link_failures_total", "Times the link of an InfiniBand port went down."),
    )

    def __init__(
        self, *, _proc: Path = PROC, _sys: Path = SYS, _now: Callable[[], float] = time.monotonic
    ) -> None:
        self._proc, self._sys = _proc, _sys
        self._interface_rates: Rates[str] = Rates(_now)
        self._port_rates: Rates[str] = Rates(_now)
        self._error_rates: Rates[str] = Rates(_now)
        self._devices_interval, self._errors_interval = (
            Interval(DEVICES_EVERY_S, _now),
            Interval(ERRORS_EVERY_S, _now),
        )
        self._names: frozenset[str] = frozenset()
        self._interfaces: list[str] = []
        self._counted_by_ports: set[str] = set()
        self._ports: dict[str, str] = {}

    def sample(self, watched: Sequence[Watched]) -> Iterator[Reading]:
        """Reads all interfaces and ports."""
        counts = interface_counts(self._proc)
        yield from self._new_devices(frozenset(counts))
        rates = self._interface_rates.since_last({name: counts[name] for name in self._interfaces})
        traffic = {name: infiniband.traffic(folder) for name, folder in self._ports.items()}
        ports = self._port_rates.since_last(traffic)
        for name, device_rates in {**rates, **ports}.items():
            if device_rates:
                yield Sample(_values(device_rates), name)
        total = _total(
            {
                **{
                    name: device_rates
                    for name, device_rates in rates.items()
                    if name not in self._counted_by_ports
                },
                **ports,
            }
        )
        if total:
            yield Sample(total)
        if self._ports and self._errors_interval.is_due():
            yield from self._error_samples()

    def _new_devices(self, names: frozenset[str]) -> Iterator[DeviceFacts]:
        """Lists interfaces and ports again when an interface was added or removed, and at intervals."""
        if not (self._devices_interval.is_due() or names != self._names):
            return
        before = {*self._interfaces, *self._ports}
        self._names, self._ports = names, infiniband.ports(self._sys)
        self._interfaces = real_interfaces(names, self._sys)
        self._counted_by_ports = {
            name for name in self._interfaces if self._ports and is_over_infiniband(name, self._sys)
        }
        for name in self._interfaces:
            if name not in before:
                yield DeviceFacts(name, interface_facts(name, self._sys))
        for name, folder in self._ports.items():
            if name not in before:
                yield DeviceFacts(name, infiniband.port_facts(folder))

    def _error_samples(self) -> Iterator[Sample]:
        counts = {name: infiniband.error_counts(folder) for name, folder in self._ports.items()}
        for name, rates in self._error_rates.since_last(counts).items():
            failures = counts[name].get("link_failures")
            values = _values({kind: rate for kind, rate in rates.items() if kind != "link_failures"})
            values |= {} if failures is None else {"network/link_failures_total": failures}
            if values:
                yield Sample(values, name)


def _values(rates: Mapping[str, float]) -> dict[str, float]:
    return {f"network/{name}_per_second": rate for name, rate in rates.items()}


def _total(rates: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    total: dict[str, float] = {}
    for device_rates in rates.values():
        for name, rate in device_rates.items():
            total[name] = total.get(name, 0.0) + rate
    return _values(total)
