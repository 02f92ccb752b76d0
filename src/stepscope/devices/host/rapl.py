"""Energy counters of processors and memory (RAPL), which Intel and AMD both expose under powercap."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from stepscope.procfs import PROC

if TYPE_CHECKING:
    from collections.abc import Callable

POWERCAP = Path("/sys/class/powercap")

# The same counters also appear as intel-rapl-mmio:*; counting those too would double everything.
ZONES = "intel-rapl:*"

MAX_WATTS = 4_000.0
"""More than any package or its memory draws; a counter that implies more was reset."""

ALLOW_READING = f"sudo chmod a+r {POWERCAP}/{ZONES}/energy_uj"

Kind = Literal["package", "dram", "psys"]


class RaplUnavailable(Exception):
    """No energy counter of this host can be read; the message says why, and what to do."""


@dataclass(frozen=True)
class Zone:
    """One counter: a package, the memory of a package, or the whole board."""

    kind: Kind
    device: str
    """The package it belongs to, such as `package-0`; `psys` for the whole board."""
    folder: Path
    range_joules: float
    """The value at which the counter wraps to zero."""

    def read_joules(self) -> float:
        """The value of the counter; raises OSError where it may not be read."""
        return _number(self.folder / "energy_uj") / 1e6


class Meter:
    """The energy a zone has used since this object was created, across wraps of its counter."""

    def __init__(self, zone: Zone, clock: Callable[[], float] = time.monotonic) -> None:
        self.zone = zone
        self._clock = clock
        self._last_joules, self._read_at = zone.read_joules(), clock()
        self._joules = 0.0

    def joules(self) -> float:
        """Joules so far; raises OSError when the counter cannot be read."""
        counter_joules, now = self.zone.read_joules(), self._clock()
        used = counter_joules - self._last_joules
        if used < 0:
            used = self._used_since_zero(counter_joules, now - self._read_at)
        self._joules += used
        self._last_joules, self._read_at = counter_joules, now
        return self._joules

    def _used_since_zero(self, counter_joules: float, elapsed_s: float) -> float:
        """The energy after a counter decreased: it has wrapped, or was reset, as after the machine slept."""
        wrapped = self.zone.range_joules - self._last_joules + counter_joules
        return wrapped if 0 <= wrapped <= MAX_WATTS * max(elapsed_s, 1.0) else counter_joules


def find_zones(powercap: Path = POWERCAP, proc: Path = PROC) -> list[Zone]:
    """The counters of this host that can be read; raises RaplUnavailable when there is none."""
    folders = sorted(powercap.glob(ZONES))
    zones = [zone for folder in folders if (zone := _zone(folder)) is not None]
    if not zones:
        raise RaplUnavailable(_why_absent(proc))
    errors = {zone: _read_error(zone) for zone in zones}
    readable = [zone for zone, error in errors.items() if error is None]
    # Memory and board are in addition to the packages; alone they would look like the whole.
    if not any(zone.kind == "package" for zone in readable):
        raise RaplUnavailable(_why_unread([error for error in errors.values() if error is not None]))
    return readable


def _zone(folder: Path) -> Zone | None:
    """The zone of a folder; None for cores and graphics, which are part of their package."""
    try:
        name = (folder / "name").read_text().strip()
        range_joules = _number(folder / "max_energy_range_uj") / 1e6
        if name.startswith("package"):
            return Zone("package", name, folder, range_joules)
        if name == "psys":
            return Zone("psys", name, folder, range_joules)
        if name == "dram":
            return Zone("dram", (_parent(folder) / "name").read_text().strip(), folder, range_joules)
    except (OSError, ValueError):
        return None
    return None


def _parent(folder: Path) -> Path:
    """The parent zone: that of `intel-rapl:0:1` is `intel-rapl:0`."""
    return folder.with_name(folder.name.rpartition(":")[0])


def _number(path: Path) -> int:
    return int(path.read_text())


def _read_error(zone: Zone) -> Exception | None:
    try:
        zone.read_joules()
    except (OSError, ValueError) as error:
        return error
    return None


def _why_unread(errors: list[Exception]) -> str:
    if any(isinstance(error, PermissionError) for error in errors):
        return (
            "The processor's energy counters may be read by root alone (so since 2020, CVE-2020-8694); "
            f"the processor's energy is not recorded. Until the next boot this helps: {ALLOW_READING}"
        )
    reason = errors[0] if errors else "none of them is a processor's"
    return f"The energy counters in {POWERCAP} cannot be used ({reason}); no energy is recorded from them."


def _why_absent(proc: Path) -> str:
    try:
        virtual = "hypervisor" in (proc / "cpuinfo").read_text(errors="replace").split()
    except OSError:
        virtual = False
    if virtual:
        return (
            "This is a virtual machine whose host does not pass the processor's energy counters (RAPL) on; "
            "the processor's energy is not recorded."
        )
    return (
        f"There are no energy counters (RAPL) in {POWERCAP}; the processor's energy is not recorded. "
        "A container hides them, some processors have none, and elsewhere this may help: "
        "sudo modprobe intel_rapl_msr"
    )
