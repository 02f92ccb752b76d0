"""Plays a week of a machine's figures into a store: the agent's memory must not grow, the disk little.

    python -m benchmarks.machine_week [--days 7] [--gpus 1]

Readings are invented; all that keeps them is the agent's own. Time is simulated, one look a second.
"""

import argparse
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import psutil

from stepscope import plugins
from stepscope.agent.machine_monitor import MachineMonitor
from stepscope.agent.sampling import Cost, SamplerPool, SamplerReadings
from stepscope.devices.gpu_metrics import figures_of
from stepscope.devices.scripted import scripted_host
from stepscope.samplers.base import Sampler
from stepscope.schema.run import Process
from stepscope.schema.sample import Sample, Watched
from stepscope.store.sqlite import SqliteStore

DAY_S = 86_400
CORES = 2
BEGUN_NS = 1_760_000_000_000_000_000


class Simulated(SamplerPool):
    """Gives the readings of the next second each time it is asked."""

    def __init__(self, gpus: int) -> None:
        super().__init__([])
        self.seconds = 0
        kinds = [plugins.load("samplers", name, Sampler) for name in ("cpu", "memory", "disk", "network")]  # type: ignore[type-abstract]
        self._keys = [[metric.key for metric in kind.metrics] for kind in kinds]
        self._gpus = scripted_host(gpus, now=lambda: float(self.seconds))

    def configure(self, intervals: Mapping[str, float], watched: Sequence[Watched]) -> None:
        """Nothing is polled: readings come with the next second."""

    def collect(self) -> Iterator[SamplerReadings]:
        """A second's readings."""
        wave = (self.seconds * 7919 % 1000) / 1000
        samples = [Sample(figures_of(gpu.read(thorough=True)), gpu.facts.uuid) for gpu in self._gpus]
        samples += [Sample(dict.fromkeys(keys, wave)) for keys in self._keys]
        samples += [Sample({"process/rss_bytes": 1e9 * wave}, f"loader-{at}") for at in range(4)]
        if self.seconds % 5 == 0:
            samples += [Sample({"cpu/core_utilization_ratio": wave}, f"cpu-{at}") for at in range(CORES)]
        yield SamplerReadings("simulated", BEGUN_NS + self.seconds * 10**9, samples)

    def costs(self) -> dict[str, Cost]:
        """Nothing: it is not measured here."""
        return {}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--days", type=float, default=7.0)
    parser.add_argument("--gpus", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        play(Path(folder), int(options.days * DAY_S), options.gpus)


def play(folder: Path, seconds: int, gpus: int) -> None:
    """Keep every second and print memory and disk at each tenth of the way."""
    store = SqliteStore(folder / "store.sqlite")
    sampling = Simulated(gpus)
    monitor = MachineMonitor(store, sampling, now=lambda: float(sampling.seconds))
    process = Process("week", "week", "p", "s", 0, "host", 1, "rank", BEGUN_NS)
    with store.transaction():
        store.put_process(process)
    monitor.update_processes([process])
    own = psutil.Process()
    began = time.process_time()
    for at in range(seconds):
        sampling.seconds = at
        monitor.flush()
        if at and at % max(seconds // 10, 1) == 0:
            spent = (time.process_time() - began) / at
            print(
                f"day {at / DAY_S:4.1f}  memory {own.memory_info().rss / 1e6:6.1f} MB"
                f"  store {store.bytes_used() / 1e6:7.1f} MB  {spent * 1e3:.2f} ms of CPU a second",
                flush=True,
            )
    monitor.close()
    store.close()


if __name__ == "__main__":
    main()
