"""Reads constant properties of the host's processors: model, number, governor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stepscope.devices.host.kernel_files import (
    PROC,
    SYS,
    drop_none,
    named_numbers,
    read_number,
    read_text,
    read_word,
)

if TYPE_CHECKING:
    from pathlib import Path


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
