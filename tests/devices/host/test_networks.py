"""Interfaces that stand for hardware are read; bridges and tunnels only where there is nothing else."""

from __future__ import annotations

from pathlib import Path

from stepscope.devices.host import infiniband
from stepscope.devices.host.networks import (
    interface_counts,
    interface_facts,
    is_over_infiniband,
    real_interfaces,
)
from tests.devices.written import write

HEADING = """\
Inter-|   Receive                            |  Transmit
 face |bytes    packets errs drop fifo frame |bytes    packets errs drop fifo colls carrier compressed
"""


def test_counters_of_both_directions_are_separate(tmp_path: Path) -> None:
    write(tmp_path, {"net/dev": HEADING + "  eth0: 1000 10 1 2 0 0 0 0 3000 30 4 8 0 0 0 0\n"})
    assert interface_counts(tmp_path) == {
        "eth0": {
            "received_bytes": 1000.0,
            "received_packets": 10.0,
            "sent_bytes": 3000.0,
            "sent_packets": 30.0,
            "errors": 5.0,
            "drops": 10.0,
        }
    }
    assert interface_counts(tmp_path / "nowhere") == {}


def test_hardware_is_preferred(tmp_path: Path) -> None:
    write(tmp_path, {"class/net/ens5/device/vendor": "x", "class/net/eth0/type": "1\n"})
    assert real_interfaces(["lo", "eth0", "ens5", "docker0", "veth12"], tmp_path) == ["ens5"]


def test_a_container_has_the_interface_it_was_given(tmp_path: Path) -> None:
    assert real_interfaces(["lo", "eth0", "docker0", "br-5f", "ifb0"], tmp_path) == ["eth0"]


def test_a_bridge_is_better_than_nothing(tmp_path: Path) -> None:
    assert real_interfaces(["lo", "docker0", "veth12"], tmp_path) == ["docker0", "veth12"]
    assert real_interfaces(["lo"], tmp_path) == []


def test_a_link_with_an_unknown_speed_reports_none(tmp_path: Path) -> None:
    write(tmp_path, {"class/net/eth0/speed": "-1\n", "class/net/eth0/mtu": "1500\n"})
    write(tmp_path, {"class/net/eth1/speed": "10000\n", "class/net/eth1/operstate": "up\n"})
    assert interface_facts("eth0", tmp_path) == {"mtu_bytes": 1500}
    assert interface_facts("eth1", tmp_path) == {"link_bytes_per_second": 1.25e9, "state": "up"}


def test_an_interface_over_infiniband_is_known_by_its_type(tmp_path: Path) -> None:
    write(tmp_path, {"class/net/ib0/type": "32\n", "class/net/eth0/type": "1\n"})
    assert is_over_infiniband("ib0", tmp_path)
    assert not is_over_infiniband("eth0", tmp_path)


def test_a_port_counts_words_of_four_bytes(tmp_path: Path) -> None:
    port = "class/infiniband/mlx5_0/ports/1"
    write(
        tmp_path,
        {
            f"{port}/counters/port_rcv_data": "250\n",
            f"{port}/counters/port_xmit_data": "500\n",
            f"{port}/counters/port_rcv_packets": "3\n",
            f"{port}/counters/symbol_error": "2\n",
            f"{port}/counters/port_rcv_errors": "5\n",
            f"{port}/counters/link_downed": "1\n",
            f"{port}/rate": "400 Gb/sec (4X NDR)\n",
            f"{port}/link_layer": "InfiniBand\n",
        },
    )
    ports = infiniband.ports(tmp_path)
    assert list(ports) == ["mlx5_0:1"]
    assert infiniband.traffic(ports["mlx5_0:1"]) == {"received_bytes": 1000.0, "sent_bytes": 2000.0}
    assert infiniband.error_counts(ports["mlx5_0:1"]) == {
        "received_packets": 3.0,
        "link_failures": 1.0,
        "errors": 7.0,
    }
    assert infiniband.port_facts(ports["mlx5_0:1"]) == {
        "link_bytes_per_second": 5e10,
        "link_layer": "InfiniBand",
    }


def test_a_host_without_infiniband_has_no_ports(tmp_path: Path) -> None:
    assert infiniband.ports(tmp_path) == {}
    assert infiniband.error_counts(str(tmp_path)) == {}
