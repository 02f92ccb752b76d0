"""What the figures were measured on."""

import datetime
import os
import platform
import shlex
import sys
from pathlib import Path

Facts = dict[str, str | int | float]


def gather() -> Facts:
    """Describe the machine, the interpreter and the command."""
    return {
        "date": datetime.datetime.now(tz=datetime.timezone.utc).isoformat(timespec="seconds"),
        "command": shlex.join(["python", "-m", "benchmarks", *sys.argv[1:]]),
        "cpu": _cpu_model(),
        "cores": os.cpu_count() or 0,
        "load_before": os.getloadavg()[0],
        "memory_gb": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 10**9,
        "kernel": platform.release(),
        "python": platform.python_version(),
    }


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()
