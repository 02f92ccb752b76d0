"""Reads the counters of the host's InfiniBand and RoCE ports."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from stepscope.devices.host.kernel_files import SYS, drop_none, list_names, read_number, read_word

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

_WORD_BYTES = 4
"""Ports count data in words of four bytes."""

_RATE = re.compile(r"([\d.]+) Gb/sec")


def ports(sys: Path = SYS) -> dict[str, str]:
    """The folder of each port, by a name such as `mlx5_0:1`."""
    top = f"{sys}/class/infiniband"
    return {
        f"{adapter}:{port}": f"{top}/{adapter}/ports/{port}"
        for adapter in list_names(top)
        for port in list_names(f"{top}/{adapter}/ports")
    }


def traffic(folder: str) -> dict[str, float]:
    """Bytes a port has sent and received. Each counter queries the adapter, so only these are read often."""
    return _counts(
        folder,
        {"received_bytes": ("port_rcv_data", _WORD_BYTES), "sent_bytes": ("port_xmit_data", _WORD_BYTES)},
    )


def error_counts(folder: str) -> dict[str, float]:
    """Packets, drops and errors of a port, and how often its link went down."""
    counts = _counts(
        folder,
        {
            "received_packets": ("port_rcv_packets", 1),
            "sent_packets": ("port_xmit_packets", 1),
            "drops": ("port_xmit_discards", 1),
            "link_failures": ("link_downed", 1),
        },
    )
    errors = _counts(folder, {"received": ("port_rcv_errors", 1), "symbol": ("symbol_error", 1)})
    return {**counts, "errors": sum(errors.values())} if errors else counts


def port_facts(folder: str) -> Mapping[str, Any]:
    """Constant properties of a port; unknown ones are left out."""
    rate = _RATE.match(read_word(f"{folder}/rate") or "")
    return drop_none(
        {
            "link_bytes_per_second": float(rate[1]) * 1e9 / 8 if rate else None,
            "link_layer": read_word(f"{folder}/link_layer"),
            "state": read_word(f"{folder}/state"),
        }
    )


def _counts(folder: str, files: Mapping[str, tuple[str, int]]) -> dict[str, float]:
    read: Iterable[tuple[str, int | None, int]] = (
        (name, read_number(f"{folder}/counters/{file}"), unit) for name, (file, unit) in files.items()
    )
    return {name: float(count * unit) for name, count, unit in read if count is not None}
