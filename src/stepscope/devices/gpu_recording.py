"""Keeps readings of GPUs as JSON lines, and plays them back.

Each line is a reading in the words of GpuFacts and GpuReading: `{"at_s": 1.0, "facts": {…}, "reading": {…}}`.
A figure that is not known is left out; `"reading": null` is a GPU that did not answer.
"""

from __future__ import annotations

import bisect
import json
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from stepscope.devices.gpu import GpuFacts, GpuProcess, GpuReading
from stepscope.devices.scripted import ScriptedGpu

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


def to_line(at_s: float, facts: GpuFacts, reading: GpuReading | None) -> str:
    """One reading as a line without its end."""
    written = None if reading is None else _known(asdict(reading))
    return json.dumps({"at_s": at_s, "facts": _known(asdict(facts)), "reading": written}, default=sorted)


def play_lines(lines: Iterable[str], now: Callable[[], float] = time.monotonic) -> list[ScriptedGpu]:
    """The GPUs of a recording, each showing what it showed so many seconds after the first line."""
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
    """The last reading at or before a moment; before the first one, the first."""
    times = [at_s - began for at_s, _ in readings]
    return lambda seconds: readings[max(0, bisect.bisect_right(times, seconds) - 1)][1]
