"""What interfaces and InfiniBand ports carry, counted once."""

from __future__ import annotations

from pathlib import Path

import pytest

from stepscope.samplers.network import NetworkSampler
from stepscope.schema.sample import DeviceFacts
from tests.devices.written import HandClock, values_of, watched, write


def dev(**interfaces: int) -> dict[str, str]:
    """Interfaces that have received so many bytes, and sent twice as many."""
    lines = [
        f"  {name}: {count} {count // 10} 0 {count // 100} 0 0 0 0 {2 * count} {count // 5} 0 0 0 0 0 0\n"
        for name, count in interfaces.items()
    ]
    return {"net/dev": "Inter-|   Receive\n face |bytes\n" + "".join(lines)}


def port(received_words: int, failures: int = 0) -> dict[str, str]:
    counters = "class/infiniband/mlx5_0/ports/1/counters"
    return {
        f"{counters}/port_rcv_data": f"{received_words}\n",
        f"{counters}/port_xmit_data": "0\n",
        f"{counters}/port_rcv_packets": f"{received_words}\n",
        f"{counters}/link_downed": f"{failures}\n",
    }


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    return tmp_path / "proc"


def test_rates_of_each_interface_and_of_all_come_with_the_second_look(tmp_path: Path, proc: Path) -> None:
    clock = HandClock()
    network = NetworkSampler(_proc=proc, _sys=tmp_path, _now=clock)
    write(proc, dev(lo=50, eth0=1000, eth1=0))
    assert values_of(network.sample([])) == {}
    write(proc, dev(lo=99, eth0=3000, eth1=500))
    clock.now += 2
    samples = list(network.sample([]))
    assert values_of(samples, "eth0") == {
        "network/received_bytes_per_second": 1000.0,
        "network/received_packets_per_second": 100.0,
        "network/sent_bytes_per_second": 2000.0,
        "network/sent_packets_per_second": 200.0,
        "network/errors_per_second": 0.0,
        "network/drops_per_second": 10.0,
    }
    assert values_of(samples)["network/received_bytes_per_second"] == 1250.0
    assert values_of(samples, "lo") == {}


def test_an_interface_whose_counters_restart_has_no_negative_rate(tmp_path: Path, proc: Path) -> None:
    clock = HandClock()
    network = NetworkSampler(_proc=proc, _sys=tmp_path, _now=clock)
    for count in (4_000_000_000, 100):
        write(proc, dev(eth0=count))
        clock.now += 1
        values = values_of(network.sample([]))
    assert values == {"network/errors_per_second": 0.0}


def test_bytes_over_infiniband_are_counted_by_the_port_alone(tmp_path: Path, proc: Path) -> None:
    clock = HandClock()
    network = NetworkSampler(_proc=proc, _sys=tmp_path, _now=clock)
    write(tmp_path, {"class/net/ib0/type": "32\n", "class/net/eth0/type": "1\n"})
    for words, count in ((0, 0), (1000, 400)):
        write(tmp_path, port(words))
        write(proc, dev(ib0=count, eth0=count))
        clock.now += 1
        samples = list(network.sample([]))
    assert values_of(samples, "mlx5_0:1")["network/received_bytes_per_second"] == 4000.0
    assert values_of(samples, "ib0")["network/received_bytes_per_second"] == 400.0
    assert values_of(samples)["network/received_bytes_per_second"] == 4400.0


def test_packets_and_failures_of_a_port_are_read_at_intervals(tmp_path: Path, proc: Path) -> None:
    clock = HandClock()
    network = NetworkSampler(_proc=proc, _sys=tmp_path, _now=clock)
    readings = []
    for look in range(3):
        write(tmp_path, port(look * 1000, failures=look))
        readings.append(values_of(network.sample([]), "mlx5_0:1"))
        clock.now += 5
    assert "network/link_failures_total" not in readings[1]
    assert readings[2]["network/link_failures_total"] == 2
    assert readings[2]["network/received_packets_per_second"] == 200.0


def test_devices_are_introduced_once(tmp_path: Path, proc: Path) -> None:
    clock = HandClock()
    network = NetworkSampler(_proc=proc, _sys=tmp_path, _now=clock)
    write(tmp_path, {"class/net/eth0/speed": "1000\n", **port(0)})
    introduced = []
    for interfaces in (dev(eth0=0), dev(eth0=0), dev(eth0=0, eth1=0)):
        write(proc, interfaces)
        clock.now += 1
        introduced.append([reading for reading in network.sample([]) if isinstance(reading, DeviceFacts)])
    assert [[device.device for device in devices] for devices in introduced] == [
        ["eth0", "mlx5_0:1"],
        [],
        ["eth1"],
    ]
    assert introduced[0][0].fields == {"link_bytes_per_second": 1.25e8}


def test_a_machine_without_readable_files_yields_nothing(tmp_path: Path, proc: Path) -> None:
    network = NetworkSampler(_proc=proc, _sys=tmp_path, _now=HandClock())
    assert list(network.sample([watched(7)])) == []
