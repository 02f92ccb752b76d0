"""GPUs that replay readings, invented or recorded, for demos and tests on machines without a GPU.

A recording is a file of JSON lines, one reading each: `{"at_s": 1.0, "facts": {…}, "reading": {…}}`, with the
fields of GpuFacts and GpuReading. Unknown figures are omitted. `"reading": null` is a GPU that did not
answer.
"""

from __future__ import annotations

import bisect
import json
import math
import time
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from stepscope.devices.gpu import Gpu, GpuFacts, GpuLost, GpuProcess, GpuReading

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    Play = Callable[[float], GpuReading | None]
    """The reading of a GPU some seconds after its creation; None while it is off the bus."""
    from collections.abc import Callable, Iterable

GIB = 1 << 30


class ScriptedGpu(Gpu):
    """Returns one reading after another and then repeats the last; or calls a function of the time.

    None instead of a reading is a GPU that has fallen off the bus; it comes back with the next reading.
    """

    def __init__(
        self,
        facts: GpuFacts,
        play: Sequence[GpuReading | None] | Play,
        *,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.facts = facts
        self._play = play
        self._now, self._began = now, now()
        self._reads = 0
        self._missing: set[str] = set()

    def lose(self, *figures: str) -> None:
        """Stops reporting these figures."""
        self._missing.update(figures)

    def restore(self, *figures: str) -> None:
        """Reports these figures again."""
        self._missing.difference_update(figures)

    def read(self, *, thorough: bool) -> GpuReading:
        """The next reading; it is complete, thorough or not."""
        del thorough
        reading = self._next_reading()
        self._reads += 1
        if reading is None:
            raise GpuLost("GPU is lost")
        return replace(reading, **dict.fromkeys(self._missing))

    def absent(self) -> frozenset[str]:
        """The figures it does not report."""
        return frozenset(self._missing)

    def _next_reading(self) -> GpuReading | None:
        if callable(self._play):
            return self._play(self._now() - self._began)
        return self._play[min(self._reads, len(self._play) - 1)]


def h200(index: int) -> GpuFacts:
    """The facts of a GPU of an HGX H200, with this index."""
    return GpuFacts(
        uuid=f"GPU-{index:08x}-5c0b-e5c0-be00-57e95c09e000",
        index=index,
        name="NVIDIA H200",
        vendor="NVIDIA",
        driver="580.95.05",
        pci_bus_id=f"00000000:{0x18 + 0x10 * index:02X}:00.0",
        memory_total_bytes=141 * GIB,
        power_limit_watts=700.0,
    )


def working(facts: GpuFacts, pid: int | None = None) -> Play:
    """A training GPU: busy with short dips, warming up over the first minutes."""

    def play(seconds: float) -> GpuReading:
        wave = math.sin(seconds / 7 + facts.index)
        busy = 0.95 + 0.04 * wave
        warm = 1 - math.exp(-seconds / 90)
        used = round(0.72 * (facts.memory_total_bytes or 0))
        return replace(
            _idle_reading(facts, seconds),
            utilization_ratio=round(busy, 2),
            memory_utilization_ratio=round(busy * 0.6, 2),
            memory_used_bytes=used,
            temperature_celsius=round(34 + 30 * warm + 2 * wave),
            memory_temperature_celsius=round(42 + 34 * warm + 2 * wave),
            power_watts=round(560 + 60 * wave, 1),
            energy_joules_total=round(560 * seconds - 420 * (math.cos(seconds / 7 + facts.index) - 1), 1),
            sm_clock_hertz=1.98e9 - 3e7 * round(2 + 2 * wave),
            throttle_reasons=frozenset({"power_cap"}) if wave > 0.9 else frozenset(),
            sm_active_ratio=round(busy * 0.9, 3),
            sm_occupancy_ratio=round(busy * 0.4, 3),
            tensor_active_ratio=round(busy * 0.55, 3),
            dram_active_ratio=round(busy * 0.5, 3),
            processes=None if pid is None else (GpuProcess(pid, used, round(busy, 2)),),
        )

    return play


def idle(facts: GpuFacts) -> Play:
    """An idle GPU."""
    return lambda seconds: _idle_reading(facts, seconds)


def scripted_host(
    count: int = 8, *, idle_gpus: Collection[int] = (), now: Callable[[], float] = time.monotonic
) -> list[ScriptedGpu]:
    """`count` training GPUs, except some idle ones."""
    plays = ((facts, idle if facts.index in idle_gpus else working) for facts in map(h200, range(count)))
    return [ScriptedGpu(facts, play(facts), now=now) for facts, play in plays]


def _idle_reading(facts: GpuFacts, seconds: float) -> GpuReading:
    return GpuReading(
        utilization_ratio=0.0,
        memory_utilization_ratio=0.0,
        memory_used_bytes=4 << 20,
        memory_total_bytes=facts.memory_total_bytes,
        temperature_celsius=29.0,
        memory_temperature_celsius=33.0,
        power_watts=76.0,
        power_limit_watts=facts.power_limit_watts,
        energy_joules_total=round(76 * seconds, 1),
        sm_clock_hertz=345e6,
        memory_clock_hertz=3.201e9,
        throttle_reasons=frozenset(),
        ecc_corrected_total=0,
        ecc_uncorrected_total=0,
        pcie_generation=5,
        pcie_generation_most=5,
        pcie_width=16,
        pcie_width_most=16,
        pcie_replays_total=0,
        sm_active_ratio=0.0,
        sm_occupancy_ratio=0.0,
        tensor_active_ratio=0.0,
        dram_active_ratio=0.0,
        processes=(),
    )


def to_line(at_s: float, facts: GpuFacts, reading: GpuReading | None) -> str:
    """One reading as a line of JSON, without the line break."""
    written = None if reading is None else _known(asdict(reading))
    return json.dumps({"at_s": at_s, "facts": _known(asdict(facts)), "reading": written}, default=sorted)


def play_lines(lines: Iterable[str], now: Callable[[], float] = time.monotonic) -> list[ScriptedGpu]:
    """The GPUs of a recording; each replays its readings in time since the first line."""
    recorded: dict[GpuFacts, list[tuple[float, GpuReading | None]]] = {}
    for line in filter(str.strip, lines):
        written = json.loads(line)
        facts = GpuFacts(**written["facts"])
        recorded.setdefault(facts, []).append((written["at_s"], _reading(written["reading"])))
    began = min((readings[0][0] for readings in recorded.values()), default=0.0)
    return [ScriptedGpu(facts, _player(readings, began), now=now) for facts, readings in recorded.items()]


def _known(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _reading(written: dict[str, Any] | None) -> GpuReading | None:
    if written is None:
        return None
    fields = dict(written)
    if "throttle_reasons" in fields:
        fields["throttle_reasons"] = frozenset(fields["throttle_reasons"])
    if "processes" in fields:
        fields["processes"] = tuple(GpuProcess(**process) for process in fields["processes"])
    return GpuReading(**fields)


def _player(
    readings: list[tuple[float, GpuReading | None]], began: float
) -> Callable[[float], GpuReading | None]:
    """The last reading at or before a time; before the first one, the first."""
    times = [at_s - began for at_s, _ in readings]
    return lambda seconds: readings[max(0, bisect.bisect_right(times, seconds) - 1)][1]
