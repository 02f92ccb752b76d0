"""Reads the host's processors: constant properties, usage, run queue, clocks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from stepscope.devices.host.kernel_files import (
    SYS,
    drop_none,
    list_names,
    named_numbers,
    number_named,
    read_number,
    read_text,
    read_word,
)
from stepscope.procfs import PROC

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_FIELDS = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
"""Guest time follows these, and is included in user and nice."""


class ProcessorCounts(NamedTuple):
    """The counters of /proc/stat."""

    times: Mapping[str, float]
    """Time in each mode since boot, in ticks, of all logical processors together."""
    context_switches: int | None
    interrupts: int | None
    runnable: int | None
    """Threads that run or are ready to run now."""
    blocked: int | None
    """Threads in uninterruptible wait for a disk now."""
    logical: int


class Load(NamedTuple):
    """The load averages: threads that run or wait for a processor or a disk."""

    one_minute: float
    five_minutes: float
    fifteen_minutes: float


class Clocks(NamedTuple):
    """The clock frequency of the processors."""

    mean_hertz: float
    most_ratio: float | None
    """The share of their maximum frequency; None where that is unknown."""


def processor_counts(proc: Path = PROC) -> ProcessorCounts | None:
    """The counters of the processors since boot; None where the system does not report them."""
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
    """Time in each mode of each logical processor, by number, in ticks since boot."""
    times = {}
    for line in (read_text(f"{proc}/stat") or "").splitlines():
        if not line.startswith("cpu"):
            break
        number = line[3 : line.index(" ")]
        if number:
            times[int(number)] = _times(line)
    return times


def shares(rates: Mapping[str, float]) -> dict[str, float]:
    """The share of time in each mode, from the growth rates of the counters.

    A counter that decreased (iowait may, by a tick) has no share, and the others are the shares of the rest.
    """
    total = sum(rates.values())
    return {name: rate / total for name, rate in rates.items()} if total > 0 else {}


def busy_share(rates: Mapping[str, float]) -> float | None:
    """The share of time in which a processor was busy; waiting for a disk does not count."""
    time_shares = shares(rates)
    return (
        max(1.0 - time_shares.get("idle", 0.0) - time_shares.get("iowait", 0.0), 0.0) if time_shares else None
    )


def load(proc: Path = PROC) -> Load | None:
    """The load averages; None where the system has none."""
    words = (read_text(f"{proc}/loadavg") or "").split()
    return Load(*map(float, words[:3])) if len(words) >= 3 else None


def clocks(sys: Path = SYS, proc: Path = PROC) -> Clocks | None:
    """The mean clock frequency of all processors; None where it is unknown.

    A virtual machine usually does not report it. Costs some microseconds for each processor.
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
    if " aperfmperf" not in text:  # without it, the file has the nominal frequency
        return None
    speeds = [float(line.partition(":")[2]) * 1e6 for line in text.splitlines() if line.startswith("cpu MHz")]
    return Clocks(_mean(speeds), None) if speeds else None


def _times(line: str) -> dict[str, float]:
    return dict(zip(_FIELDS, map(float, line.split()[1:]), strict=False))


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def processor_facts(proc: Path = PROC, sys: Path = SYS) -> dict[str, Any]:
    """The processors of the host; unknown fields are left out.

    `threads` are the logical processors, `cores` the physical ones, `usable_threads` those this process may
    run on, `governor` the frequency governor.
    """
    text = read_text(f"{proc}/cpuinfo") or ""
    first = f"{sys}/devices/system/cpu/cpu0/cpufreq"
    max_kilohertz = read_number(f"{first}/cpuinfo_max_freq")
    memory_kibibytes = named_numbers(read_text(f"{proc}/meminfo")).get("MemTotal")
    return drop_none(
        {
            "model": _value(text, "model name") or _value(text, "Model"),
            "threads": sum(line.startswith("processor") for line in text.splitlines()) or None,
            "cores": _physical_cores(text),
            "usable_threads": usable_threads(read_text(f"{proc}/self/status") or ""),
            "frequency_max_hertz": max_kilohertz * 1e3 if max_kilohertz else None,
            "governor": read_word(f"{first}/scaling_governor"),
            "memory_total_bytes": memory_kibibytes * 1024 if memory_kibibytes else None,
        }
    )


def usable_threads(status: str) -> int | None:
    """The number of logical processors a process may run on, from the text of its status file."""
    mask = _value(status, "Cpus_allowed")
    return int(mask.replace(",", ""), 16).bit_count() if mask else None


def _physical_cores(text: str) -> int | None:
    """Counts cores: two threads of one core have the same core id and the same package."""
    cores = set()
    for block in text.split("\n\n"):
        core = _value(block, "core id")
        if core is not None:
            cores.add((_value(block, "physical id"), core))
    return len(cores) or None


def _value(text: str, name: str) -> str | None:
    """The value of the first line of this name, without parsing the whole text."""
    start = 0
    while (index := text.find(name, start)) >= 0:
        start = index + len(name)
        end = text.find("\n", start)
        between, colon, value = text[start : end if end >= 0 else None].partition(":")
        if (index == 0 or text[index - 1] == "\n") and colon and not between.strip():
            return value.strip() or None
    return None
