"""`SystemMonitor` and `monitor_resources`: the machine's figures as dictionaries, without a run."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any

from stepscope.agent.sampling import SamplerReadings
from stepscope.errors import RecorderError
from stepscope.guard import shown
from stepscope.recorder.values import as_number
from stepscope.samplers.cpu import CpuSampler
from stepscope.samplers.disk import DiskSampler
from stepscope.samplers.gpu import GpuSampler
from stepscope.samplers.memory import MemorySampler
from stepscope.samplers.network import NetworkSampler
from stepscope.views.machine.machine_now import MachineNow

if TYPE_CHECKING:
    from types import TracebackType

    from stepscope.samplers.base import Sampler
    from stepscope.views.machine.machine_now import GpuNow

log = logging.getLogger("stepscope")

MIB, GIB = 2**20, 2**30
FIRST_S = 0.1
"""Time between the two readings of a first call: rates and shares need two."""
MIN_INTERVAL_S, MAX_INTERVAL_S = 0.1, 600.0


class SystemMonitor:
    """Reads processors, memory, disks, networks and GPUs of this machine.

        with SystemMonitor(interval=0.5) as system:
            train()
        print(system.get_system_metrics()["cpu_percent"], system.get_summary()["memory_percent"])

    Without `start`, `get_system_metrics` reads once, which takes a tenth of a second the first time. What
    cannot be read is None.
    """

    def __init__(self, interval: float = 1.0, history_size: int = 300) -> None:
        self.interval = seconds_argument("interval", interval)
        if not isinstance(history_size, int) or isinstance(history_size, bool) or history_size < 1:
            raise RecorderError(f"history_size is {shown(history_size)}; it must be a whole number above 0.")
        self._history: deque[dict[str, Any]] = deque(maxlen=history_size)
        self._samplers: dict[str, Sampler] = {}
        self._machine = MachineNow()
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Starts reading in another thread; does nothing if it is started."""
        if self._thread is None:
            self._stopped.clear()
            self._thread = threading.Thread(target=self._read_often, name="stepscope-system", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Stops reading; the history is kept."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._stopped.set()
            thread.join()

    start_monitoring, stop_monitoring = start, stop

    def __enter__(self) -> SystemMonitor:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def history(self) -> list[dict[str, Any]]:
        """The newest readings, oldest first; at most `history_size`."""
        return list(self._history)

    def get_system_metrics(self) -> dict[str, Any]:
        """The figures of the machine now; while it is started, those of the newest reading."""
        if self._thread is not None and self._history:
            return self._history[-1]
        return self._read()

    get_metrics = get_system_metrics

    def get_summary(self) -> dict[str, dict[str, float]]:
        """Average, minimum and maximum of each figure over the history, if it has values."""
        rows = [_flat(reading) for reading in self._history]
        summary = {}
        for name in dict.fromkeys(name for row in rows for name in row):
            values = [row[name] for row in rows if name in row]
            summary[name] = {"average": sum(values) / len(values), "min": min(values), "max": max(values)}
        return summary

    def _read_often(self) -> None:
        while True:
            try:
                self._read()
            except Exception:
                log.exception("The machine could not be read; that is tried again")
            if self._stopped.wait(self.interval):
                return

    def _read(self) -> dict[str, Any]:
        with self._lock:
            if not self._samplers:
                self._samplers = _samplers()
                self._sample()
                time.sleep(FIRST_S)
            self._sample()
            reading = _as_dict(self._machine)
        self._history.append(reading)
        return reading

    def _sample(self) -> None:
        for name, sampler in self._samplers.items():
            self._machine.take(SamplerReadings(name, time.time_ns(), list(sampler.sample(()))))


def monitor_resources(interval: float = 1.0) -> dict[str, Any]:
    """The use of processors, memory and GPUs, averaged over some seconds.

        print(monitor_resources()["cpu_percent"])

    `gpu_metrics` has an entry for each GPU, such as `gpu_0`: what the driver reports, and the memory of
    PyTorch in MiB if this process uses it.
    """
    machine = SystemMonitor(seconds_argument("interval", interval))
    machine.get_system_metrics()
    time.sleep(machine.interval)
    metrics = machine.get_system_metrics()
    return {
        "cpu_percent": metrics["cpu_percent"],
        "cpu_count": metrics["cpu_count"],
        "memory_percent": metrics["memory_percent"],
        "memory_available_gb": metrics["memory_available_gb"],
        "gpu_metrics": {f"gpu_{gpu['gpu_index']}": gpu for gpu in metrics["gpus"]},
    }


def seconds_argument(name: str, value: Any) -> float:
    """A number of seconds between two readings; raises RecorderError for anything else."""
    seconds = None if isinstance(value, bool) else as_number(value)
    if seconds is None or not MIN_INTERVAL_S <= seconds <= MAX_INTERVAL_S:
        raise RecorderError(f"{name} is {shown(value)}; it must be a number of seconds from 0.1 to 600.")
    return seconds


def _samplers() -> dict[str, Sampler]:
    return {
        "cpu": CpuSampler(),
        "memory": MemorySampler(),
        "disk": DiskSampler(),
        "network": NetworkSampler(),
        # The agent reads the performance counters: a second reader would take them away.
        "gpu": GpuSampler(performance_counters=False),
    }


def _as_dict(machine: MachineNow) -> dict[str, Any]:
    host = machine.host()
    total, used = host.memory_total_bytes, host.memory_used_bytes
    available = None if total is None or used is None else total - used
    torch_memory = _torch_memory(machine)
    return {
        "timestamp": time.time(),
        "cpu_percent": _percent(host.cpu_ratio),
        "cpu_count": os.cpu_count(),
        "iowait_percent": _percent(host.iowait_ratio),
        "memory_percent": 100 * used / total if used is not None and total else None,
        "memory_used_gb": None if used is None else used / GIB,
        "memory_available_gb": None if available is None else available / GIB,
        "disk_read_mb_per_second": _mib(host.disk_read),
        "disk_written_mb_per_second": _mib(host.disk_written),
        "network_received_mb_per_second": _mib(host.received),
        "network_sent_mb_per_second": _mib(host.sent),
        "gpus": [{**_gpu(gpu), **torch_memory.get(gpu.index, {})} for gpu in machine.gpus()],
    }


def _gpu(gpu: GpuNow) -> dict[str, Any]:
    used, total = gpu.memory_used_bytes, gpu.memory_total_bytes
    return {
        "gpu_index": gpu.index,
        "name": gpu.name,
        "utilization_percent": _percent(gpu.utilization_ratio),
        "memory_used_mb": _mib(used),
        "memory_total_mb": _mib(total),
        "memory_percent": 100 * used / total if used is not None and total else None,
        "temperature_celsius": gpu.temperature_celsius,
        "power_draw_watts": gpu.power_watts,
        "fan_speed_percent": _percent(gpu.fan_ratio),
    }


def _torch_memory(machine: MachineNow) -> dict[int, dict[str, float]]:
    """PyTorch's memory by the driver's index, if this process uses GPUs; PyTorch is never imported here."""
    torch = sys.modules.get("torch")
    memory: dict[int, dict[str, float]] = {}
    try:
        if torch is None or not torch.cuda.is_initialized():
            return {}
        for number in range(torch.cuda.device_count()):
            uuid = f"GPU-{torch.cuda.get_device_properties(number).uuid}"
            index = machine.index_of(uuid)
            memory[number if index is None else index] = {
                "memory_allocated": torch.cuda.memory_allocated(number) / MIB,
                "memory_reserved": torch.cuda.memory_reserved(number) / MIB,
                "max_memory_allocated": torch.cuda.max_memory_allocated(number) / MIB,
            }
    except Exception:  # noqa: BLE001 - a failed GPU raises in the training as well
        return memory
    return memory


def _flat(reading: dict[str, Any]) -> dict[str, float]:
    """The numbers of a reading; those of a GPU with its index in their names."""
    flat = {name: value for name, value in reading.items() if _is_figure(name, value)}
    for gpu in reading["gpus"]:
        flat.update(
            {
                f"gpu_{gpu['gpu_index']}/{name}": value
                for name, value in gpu.items()
                if _is_figure(name, value)
            }
        )
    return flat


def _is_figure(name: str, value: Any) -> bool:
    return isinstance(value, int | float) and name not in ("timestamp", "gpu_index")


def _percent(ratio: float | None) -> float | None:
    return None if ratio is None else 100 * ratio


def _mib(value: float | None) -> float | None:
    return None if value is None else value / MIB
