"""Reads the counters of the host's network interfaces."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from stepscope.devices.host.kernel_files import SYS, drop_none, read_number, read_text, read_word
from stepscope.procfs import PROC

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

_VIRTUAL = ("br-", "cali", "cni", "docker", "dummy", "flannel", "ifb", "lxc", "tunl", "veth", "virbr", "vnet")
"""Prefixes of virtual interfaces of container engines and bridges; their bytes also pass a real interface."""

_OVER_INFINIBAND = 32
"""The type of an interface whose bytes an InfiniBand port counts too."""


def interface_counts(proc: Path = PROC) -> dict[str, dict[str, float]]:
    """Counters of every interface since it came up, by name."""
    interfaces = {}
    for line in (read_text(f"{proc}/net/dev") or "").splitlines():
        name, colon, numbers = line.partition(":")
        counts = [float(word) for word in numbers.split()] if colon else []
        if len(counts) >= 12:
            interfaces[name.strip()] = {
                "received_bytes": counts[0],
                "received_packets": counts[1],
                "sent_bytes": counts[8],
                "sent_packets": counts[9],
                "errors": counts[2] + counts[10],
                "drops": counts[3] + counts[11],
            }
    return interfaces


def real_interfaces(names: Collection[str], sys: Path = SYS) -> list[str]:
    """The hardware interfaces; in a container, which has none, the others."""
    outside = sorted(name for name in names if name != "lo")
    hardware = [name for name in outside if os.path.lexists(f"{sys}/class/net/{name}/device")]
    return hardware or [name for name in outside if not name.startswith(_VIRTUAL)] or outside


def is_over_infiniband(name: str, sys: Path = SYS) -> bool:
    """Whether the bytes of an interface are counted by an InfiniBand port too."""
    return read_number(f"{sys}/class/net/{name}/type") == _OVER_INFINIBAND


def interface_facts(name: str, sys: Path = SYS) -> Mapping[str, Any]:
    """Constant properties of an interface; unknown ones are left out."""
    folder = f"{sys}/class/net/{name}"
    megabits = read_number(f"{folder}/speed")
    return drop_none(
        {
            # A link that is down, or a virtual one, reports -1.
            "link_bytes_per_second": megabits * 1e6 / 8 if megabits is not None and megabits > 0 else None,
            "mtu_bytes": read_number(f"{folder}/mtu"),
            "state": read_word(f"{folder}/operstate"),
        }
    )
