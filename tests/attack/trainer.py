"""A training that tells its progress through shared memory, so that the count is right whenever it is killed.

Started as a script with one JSON argument; `tests.attack.training` starts it and reads the shared memory.
"""

import json
import mmap
import resource
import struct
import sys
import time
from pathlib import Path

PAGE = struct.Struct("<QQQdQ")
"""Rows whose log call has returned, phase reached, phase allowed, longest log call in s, rows asked for."""
MAX_MEMORY = 6 << 30
"""Whoever reads an endless file fails alone, and does not take the machine along; agents inherit it."""
PHASES = ("begun", "made", "started", "logging", "stopping", "stopped")


def value(step, salt=0.0):
    """The loss logged at a step."""
    return step * 0.37 + salt


def main():
    """Trains as the argument says."""
    resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY, MAX_MEMORY))
    task = json.loads(sys.argv[1])
    with Path(task["page"]).open("r+b") as file:
        page = mmap.mmap(file.fileno(), PAGE.size)
    numbers = memoryview(page)
    counts, longest = numbers[:24].cast("Q"), numbers[24:32].cast("d")
    asked = numbers[32:40].cast("Q")

    def reach(phase):
        counts[1] = PHASES.index(phase)
        while counts[2] < counts[1]:
            time.sleep(0.001)

    reach("begun")
    import stepscope  # after the first phase: a test may want the process before anything of ours has run

    monitor = stepscope.TrainingMonitor(task["settings"], run=task["run"], directory=task["folder"])
    reach("made")
    monitor.start_monitoring()
    reach("started")
    more = {f"metric{number:02}": number / 3 for number in range(task["keys"])}
    salt, burst, pause_s = task["salt"], task["burst"], task["pause_s"]
    step = 0
    while step < asked[0]:
        row = {"loss": value(step, salt), **more}
        before = time.perf_counter()
        monitor.log(row, step=step)
        took = time.perf_counter() - before
        step += 1
        counts[0] = step
        longest[0] = max(longest[0], took)
        if step == 1:
            reach("logging")
        if step % burst == 0:
            time.sleep(pause_s)
        if step == task["event_at"]:
            monitor.event("milestone", step=step, text="half of it")
    reach("stopping")
    monitor.stop_monitoring()
    reach("stopped")


if __name__ == "__main__":
    main()
