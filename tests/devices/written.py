"""Folders of written files that stand in for /proc and /sys, and a clock set by hand."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from stepscope.schema.sample import Sample, Watched


class HandClock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def write(root: Path, files: Mapping[str, str]) -> None:
    """Writes files into a folder, replacing those that are there."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def watched(pid: int, rank: int = 0) -> Watched:
    return Watched("a-run", "seg1", rank, pid, "rank")


def stat_line(
    pid: int,
    name: str = "python",
    *,
    parent: int = 1,
    start: int = 100,
    state: str = "S",
    ticks: tuple[int, int] = (0, 0),
    threads: int = 1,
    rss_pages: int = 10,
    major_faults: int = 0,
    inherited_faults: int = 0,
) -> str:
    """The line of /proc/PID/stat."""
    fields = [state, parent, *[0] * 6, inherited_faults, major_faults, 0, *ticks, 0, 0, 20, 0, threads, 0]
    return f"{pid} ({name}) {' '.join(map(str, [*fields, start, 0, rss_pages]))} 0 0\n"


def process(proc: Path, pid: int, command: str = "python train.py", **fields: object) -> None:
    """Writes what is read of every process."""
    line = stat_line(pid, **fields)  # type: ignore[arg-type]
    write(proc, {f"{pid}/stat": line, f"{pid}/cmdline": command.replace(" ", "\0") + "\0"})


def values_of(samples: object, device: str = "", owner: Watched | None = None) -> dict[str, float]:
    """All figures of a device and owner together."""
    values: dict[str, float] = {}
    for reading in samples:  # type: ignore[attr-defined]
        if isinstance(reading, Sample) and (reading.device, reading.owner) == (device, owner):
            values |= reading.values
    return values
