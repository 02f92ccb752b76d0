"""Reads how the processors of the host are used: their time, their queue, their clocks."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from stepscope.devices.host.kernel_files import PROC, SYS, list_names, number_named, read_number, read_text

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_FIELDS = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
"""Guest time comes after these, and is a part of user and nice already."""


class ProcessorCounts(NamedTuple):
    """What /proc/stat tells of the host."""

    times: Mapping[str, float]
    """Time spent in each way since boot, in ticks, of all logical processors together."""
    context_switches: int | None
    interrupts: int | None
    runnable: int | None
    """Threads that run or could, at this moment."""
    blocked: int | None
    """Threads that wait for a disk and cannot be interrupted, at this moment."""
    logical: int


class Load(NamedTuple):
    """The usual number of threads that run or wait for a processor or a disk, over three spans of time."""

    one_minute: float
    five_minutes: float
    fifteen_minutes: float


class Clocks(NamedTuple):
    """How fast the processors run."""

    mean_hertz: float
    most_ratio: float | None
    """Of the fastest they could run; None where that is not told."""


def processor_counts(proc: Path = PROC) -> ProcessorCounts | None:
    """What the processors have done since boot; None where the system does not tell."""
    text = read_text(f"{proc}/stat")
    if text is None or not text.startswith("cpu "):
        return None
    return ProcessorCounts(
        times=_times(text[: text.index("\n")]),
        context_switches=number_named(text, "ctxt"),
        interrupts=number_named(text, "intr"),
        runnable=number_named(text, "procs_running"),
        blocked=number_named(text, "procs_blocked"),
        logical=text.count("\ncpu"),
    )


def core_times(proc: Path = PROC) -> dict[int, dict[str, float]]:
    """Time spent in each way by each logical processor, by its number, in ticks since boot."""
    times = {}
    for line in (read_text(f"{proc}/stat") or "").splitlines():
        if not line.startswith("cpu"):
            break
        number = line[3 : line.index(" ")]
        if number:
            times[int(number)] = _times(line)
    return times


def shares(rates: Mapping[str, float]) -> dict[str, float]:
    """The share of time spent in each way, from how fast each kind of time has grown.

    A kind that went back (time spent waiting for a disk does, by a tick) has no share, and the others
    are the shares of the rest.
    """
    total = sum(rates.values())
    return {name: rate / total for name, rate in rates.items()} if total > 0 else {}


def busy_share(rates: Mapping[str, float]) -> float | None:
    """The share of time in which a processor had something to do; waiting for a disk is none."""
    time_shares = shares(rates)
    return (
        max(1.0 - time_shares.get("idle", 0.0) - time_shares.get("iowait", 0.0), 0.0) if time_shares else None
    )


def load(proc: Path = PROC) -> Load | None:
    """The load averages; None where the system has none."""
    words = (read_text(f"{proc}/loadavg") or "").split()
    return Load(*map(float, words[:3])) if len(words) >= 3 else None


def clocks(sys: Path = SYS, proc: Path = PROC) -> Clocks | None:
    """How fast the processors run, on average over all of them; None where it is not told.

    A virtual machine usually does not know. Costs some microseconds for each processor.
    """
    folder = f"{sys}/devices/system/cpu/cpufreq"
    speeds, ratios = [], []
    for policy in list_names(folder):
        now = read_number(f"{folder}/{policy}/scaling_cur_freq")
        maximum = read_number(f"{folder}/{policy}/cpuinfo_max_freq")
        if now is not None:
            speeds.append(now * 1e3)
            if maximum:
                ratios.append(now / maximum)
    if speeds:
        return Clocks(_mean(speeds), _mean(ratios) if len(ratios) == len(speeds) else None)
    return _clocks_measured_by_the_processor(proc)


def _clocks_measured_by_the_processor(proc: Path) -> Clocks | None:
    text = read_text(f"{proc}/cpuinfo") or ""
    if " aperfmperf" not in text:  # without it, what is told is the nominal speed, whatever the real one
        return None
    speeds = [float(line.partition(":")[2]) * 1e6 for line in text.splitlines() if line.startswith("cpu MHz")]
    return Clocks(_mean(speeds), None) if speeds else None


def _times(line: str) -> dict[str, float]:
    return dict(zip(_FIELDS, map(float, line.split()[1:]), strict=False))


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)
