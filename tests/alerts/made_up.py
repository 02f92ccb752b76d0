"""Runs that never took place: points of a training and of its machine, for rules to be judged by."""

import numpy as np

from stepscope.schema.series import Source

SECOND = 1_000_000_000
BEGAN = 1_700_000_000 * SECOND


def source(rank=0, host="node", device="", axis="step"):
    return Source("run", "s1", rank, host, device, axis)


def feed(history, key, values, *, every_s=1.0, begin_s=0.0, of=None, first_step=1):
    """Adds a series with a point every so often; gives the time of the last one."""
    values = np.asarray(values, dtype=np.float64)
    times = BEGAN + ((begin_s + every_s * np.arange(len(values))) * SECOND).astype(np.int64)
    of = of or source()
    steps = np.arange(first_step, first_step + len(values), dtype=np.int64)
    if of.axis == "seconds":
        steps = np.zeros(len(values), dtype=np.int64)
    history.add(of, [key], steps, times, values[:, None])
    return int(times[-1])


def gpu(number=0, host="node"):
    return source(None, host, f"GPU-{number}", "seconds")


def machine(host="node", device=""):
    return source(None, host, device, "seconds")
