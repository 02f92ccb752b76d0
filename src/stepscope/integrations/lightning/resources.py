"""`ResourceMonitorCallback`: logs how busy GPU, processors and disks are, and warns when they are not."""

from __future__ import annotations

import csv
import functools
import logging
import os
import time
from collections import defaultdict, deque
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

from stepscope.agent.sampling import Poller
from stepscope.config.sections import MIB
from stepscope.devices.find_gpus import find_gpus
from stepscope.devices.gpu_driver import visible_gpus
from stepscope.integrations.lightning.feeding import feed
from stepscope.integrations.lightning.fit_clock import clock_of
from stepscope.integrations.lightning.framework import guarded
from stepscope.integrations.lightning.options import (
    check_counts,
    check_flags,
    check_ratios,
    path_argument,
)
from stepscope.integrations.lightning.throughput import ClockedCallback
from stepscope.integrations.lightning.trainer_facts import batches_stepped
from stepscope.samplers.cpu import CpuSampler
from stepscope.samplers.disk import DiskSampler
from stepscope.samplers.gpu import GpuSampler
from stepscope.samplers.memory import MemorySampler
from stepscope.schema.sample import Sample
from stepscope.views.formatting import percent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from os import PathLike

    from stepscope.agent.sampling import SamplerReadings
    from stepscope.devices.find_gpus import GpusFound
    from stepscope.samplers.base import Sampler

log = logging.getLogger("stepscope.lightning")

SAMPLE_EVERY_S = 1.0
JUDGED = 10
"""Number of readings whose mean is compared with a threshold."""

WARM_UP = 20
"""Number of first readings that are not judged: a training starts, compiles and fills its memory."""

FIGURES: dict[str, tuple[str, str, float]] = {
    "resource/gpu_util": ("gpu", "gpu/utilization_ratio", 1.0),
    "resource/gpu_memory_ratio": ("gpu", "gpu/memory_used_ratio", 1.0),
    "resource/gpu_memory_mb": ("gpu", "gpu/memory_used_bytes", 1 / MIB),
    "resource/gpu_temperature_celsius": ("gpu", "gpu/temperature_celsius", 1.0),
    "resource/gpu_power_watts": ("gpu", "gpu/power_watts", 1.0),
    "resource/cpu_percent": ("cpu", "cpu/utilization_ratio", 100.0),
    "resource/memory_ratio": ("cpu", "memory/used_ratio", 1.0),
    "resource/io_wait": ("io", "cpu/iowait_ratio", 1.0),
    "resource/disk_read_mb_per_sec": ("io", "disk/read_bytes_per_second", 1 / MIB),
    "resource/disk_write_mb_per_sec": ("io", "disk/write_bytes_per_second", 1 / MIB),
}
"""Each figure: what has to be monitored, the metric of a sampler that it is, and the factor of its unit."""


@dataclass(frozen=True)
class Rule:
    """When to warn about a figure."""

    figure: str
    threshold: float
    is_low: bool
    text: str

    def is_broken(self, value: float) -> bool:
        """Whether a value is on the wrong side of the threshold."""
        return value < self.threshold if self.is_low else value > self.threshold


def low_gpu_rule(threshold: float) -> Rule:
    """Warns of a GPU that is often idle."""
    text = (
        "The GPU is busy {value} of the time, less than {threshold}. Use larger batches or a faster loader."
    )
    return Rule("resource/gpu_util", threshold, is_low=True, text=text)


def memory_rules(threshold: float) -> list[Rule]:
    """Warns of memory that is nearly full."""
    places = {"resource/gpu_memory_ratio": "GPU memory", "resource/memory_ratio": "Memory of the host"}
    text = "{} is {{value}} full, more than {{threshold}}."
    return [Rule(name, threshold, is_low=False, text=text.format(place)) for name, place in places.items()]


def waiting_rule(threshold: float) -> Rule:
    """Warns of processors that wait for disks."""
    text = "Processors wait for disks {value} of the time, more than {threshold}. Use faster storage."
    return Rule("resource/io_wait", threshold, is_low=False, text=text)


class ResourceMonitorCallback(ClockedCallback):
    """Logs the use of GPU, processors, memory and disks every `log_interval` batches, and warns of problems.

        trainer = Trainer(callbacks=[ResourceMonitorCallback(export_timeseries=True)])

    The resources are read once a second in a thread. Thresholds are shares from 0 to 1: of the time in which
    the GPU is busy, of its memory or that of the host, of the time in which processors wait for a disk. With
    `export_timeseries`, each logged row is a line of a CSV file.
    """

    def __init__(  # noqa: PLR0913 - all by name, and each optional
        self,
        *,
        enabled: bool = True,
        log_interval: int = 50,
        gpu_monitoring: bool = True,
        cpu_monitoring: bool = True,
        io_monitoring: bool = True,
        alert_gpu_underutilization: bool = True,
        alert_memory_pressure: bool = True,
        alert_io_bottleneck: bool = True,
        gpu_util_threshold: float = 0.5,
        memory_threshold: float = 0.9,
        io_wait_threshold: float = 0.3,
        export_timeseries: bool = False,
        timeseries_path: str | PathLike[str] | None = None,
        _make_samplers: Callable[[Any, set[str]], Mapping[str, Sampler]] | None = None,
    ) -> None:
        check_flags(self, enabled=enabled, export_timeseries=export_timeseries)
        check_flags(
            self, gpu_monitoring=gpu_monitoring, cpu_monitoring=cpu_monitoring, io_monitoring=io_monitoring
        )
        check_flags(
            self,
            alert_gpu_underutilization=alert_gpu_underutilization,
            alert_memory_pressure=alert_memory_pressure,
            alert_io_bottleneck=alert_io_bottleneck,
        )
        check_counts(self, 1, log_interval=log_interval)
        check_ratios(
            self,
            gpu_util_threshold=gpu_util_threshold,
            memory_threshold=memory_threshold,
            io_wait_threshold=io_wait_threshold,
        )
        path = path_argument(self, "timeseries_path", timeseries_path)
        super().__init__(enabled=enabled)
        self._log_interval, self._batches = log_interval, 0
        kinds = {"gpu": gpu_monitoring, "cpu": cpu_monitoring, "io": io_monitoring}
        self._kinds = {kind for kind, is_on in kinds.items() if is_on}
        self._path = Path(path or "resource_timeseries.csv") if export_timeseries else None
        self._make_samplers = _make_samplers or samplers_of
        rules = [
            *([low_gpu_rule(gpu_util_threshold)] if alert_gpu_underutilization else []),
            *(memory_rules(memory_threshold) if alert_memory_pressure else []),
            *([waiting_rule(io_wait_threshold)] if alert_io_bottleneck else []),
        ]
        self._readings = Readings(rules)
        self._pollers: list[Poller] = []

    def state_to_pickle(self) -> dict[str, Any]:
        """Leaves out threads, which belong to this process."""
        return {**vars(self), "_pollers": [], "_readings": Readings(self._readings.rules)}

    @guarded
    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Starts reading."""
        self._batches = 0
        self._readings = Readings(self._readings.rules)
        self._stop()
        device = trainer.strategy.root_device
        for name, sampler in self._make_samplers(device, self._kinds).items():
            poller = Poller(name, sampler, SAMPLE_EVERY_S, self._readings.take)
            poller.configure(SAMPLE_EVERY_S, ())
            self._pollers.append(poller)

    def after_batch(self, trainer: Any, pl_module: Any) -> None:
        """Logs what is due, and warns of what has changed."""
        self._batches += 1
        if self._readings.has_judged:
            self._warn(trainer)
        if self._batches % self._log_interval == 0:
            self._log(trainer)

    @guarded
    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Stops reading, and prints means over the fit."""
        self._stop()
        self._warn(trainer)
        self._log(trainer)
        means = self._readings.means_of_fit(self._kinds)
        if means:
            pl_module.print(f"Resources: {summary(means)}.")

    @guarded
    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Stops reading."""
        self._stop()

    def _stop(self) -> None:
        while self._pollers:
            poller = self._pollers.pop()
            poller.ask_to_stop()
            poller.join()

    def _log(self, trainer: Any) -> None:
        figures = self._readings.take_means(self._kinds)
        feed(trainer, figures, self._guard)
        if figures and self._path is not None and trainer.is_global_zero:
            self._guard.attempt("Writing the time series", self._write, trainer, figures)

    def _write(self, trainer: Any, figures: Mapping[str, float]) -> None:
        if self._path is None:
            return
        names = [name for name, (kind, *_) in FIGURES.items() if kind in self._kinds]
        is_new = not self._path.exists() or not self._path.stat().st_size
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            if is_new:
                writer.writerow(["time", "epoch", "step", *names])
            place = [f"{time.time():.3f}", trainer.current_epoch, batches_stepped(trainer)]
            writer.writerow([*place, *(figures.get(name, "") for name in names)])

    def _warn(self, trainer: Any) -> None:
        monitor = clock_of(trainer).monitor
        for rule, value in self._readings.take_alerts():
            text = rule.text.format(value=percent(value), threshold=percent(rule.threshold))
            if trainer.is_global_zero:
                log.warning("%s", text)
            if monitor is not None:
                monitor.event("resource_alert", figure=rule.figure, value=value, text=text)


class Readings:
    """Readings of the samplers since the last log, and whether they break a rule; used by several threads."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        self.rules = list(rules)
        self.has_judged = False
        """Whether there are alerts to take."""
        self._lock = Lock()
        self._since_log: defaultdict[str, list[float]] = defaultdict(list)
        self._of_fit: defaultdict[str, tuple[float, int]] = defaultdict(lambda: (0.0, 0))
        self._judged: dict[str, deque[float]] = {rule.figure: deque(maxlen=JUDGED) for rule in self.rules}
        self._broken: set[Rule] = set()
        self._alerts: list[tuple[Rule, float]] = []

    def take(self, taken: SamplerReadings) -> None:
        """Keeps the figures of a poll; called by the threads of the samplers."""
        values: dict[str, float] = {}
        for reading in taken.readings:
            # Besides the host, only the GPU of the training is read; a disk alone does not matter here.
            if isinstance(reading, Sample) and (taken.sampler == "gpu" or not reading.device):
                values.update(reading.values)
        with self._lock:
            for figure, (_, key, factor) in FIGURES.items():
                if key in values:
                    self._add(figure, factor * values[key])

    def _add(self, figure: str, value: float) -> None:
        self._since_log[figure].append(value)
        total, count = self._of_fit[figure]
        self._of_fit[figure] = total + value, count + 1
        for rule in self.rules:
            if rule.figure == figure:
                self._judge(rule, value)

    def _judge(self, rule: Rule, value: float) -> None:
        """Decides by the mean of the last readings; an alert is repeated only after it was over."""
        newest = self._judged[rule.figure]
        newest.append(value)
        if self._of_fit[rule.figure][1] < WARM_UP + JUDGED:
            return
        mean = sum(newest) / len(newest)
        if not rule.is_broken(mean):
            self._broken.discard(rule)
        elif rule not in self._broken:
            self._broken.add(rule)
            self._alerts.append((rule, mean))
            self.has_judged = True

    def take_means(self, kinds: set[str]) -> dict[str, float]:
        """The means since the last call."""
        with self._lock:
            since_log, self._since_log = self._since_log, defaultdict(list)
        means = {name: sum(values) / len(values) for name, values in since_log.items()}
        return {name: means[name] for name, (kind, *_) in FIGURES.items() if kind in kinds and name in means}

    def means_of_fit(self, kinds: set[str]) -> dict[str, float]:
        """The means of the whole fit."""
        with self._lock:
            means = {name: total / count for name, (total, count) in self._of_fit.items()}
        return {name: means[name] for name, (kind, *_) in FIGURES.items() if kind in kinds and name in means}

    def take_alerts(self) -> list[tuple[Rule, float]]:
        """The alerts since the last call, each with the mean that caused it."""
        with self._lock:
            alerts, self._alerts, self.has_judged = self._alerts, [], False
        return alerts


def samplers_of(device: Any, kinds: set[str]) -> dict[str, Sampler]:
    """The samplers for these kinds; that of the GPU only if the training uses one."""
    samplers: dict[str, Sampler] = {}
    if kinds & {"cpu", "io"}:
        samplers["cpu"] = CpuSampler()
    if "cpu" in kinds:
        samplers["memory"] = MemorySampler()
    if "io" in kinds:
        samplers["disk"] = DiskSampler()
    if "gpu" in kinds and getattr(device, "type", "") == "cuda":
        # The agent reads the SM counters: a second reader would take them away.
        find = functools.partial(find_own_gpu, device.index or 0)
        samplers["gpu"] = GpuSampler(performance_counters=False, _find=find)
    return samplers


def find_own_gpu(index: int, **options: bool) -> GpusFound:
    """The GPU with this index in this process."""
    gpus = find_gpus(**options)
    uuids = visible_gpus(os.environ, [gpu.facts for gpu in gpus.gpus])
    uuid = uuids[index] if index < len(uuids) else None
    own = [gpu for gpu in gpus.gpus if gpu.facts.uuid == uuid]
    if uuid is None:  # CUDA's order is not known: that of the driver is used
        own = [gpu for gpu in gpus.gpus if gpu.facts.index == index]
    return replace(gpus, gpus=own)


def summary(means: Mapping[str, float]) -> str:
    """Means in words."""
    texts = {
        "resource/gpu_util": "GPU busy {}",
        "resource/gpu_memory_ratio": "GPU memory {} used",
        "resource/cpu_percent": "processors busy {}",
        "resource/memory_ratio": "memory {} used",
        "resource/io_wait": "waiting for disks {}",
    }
    shares = {name: value / 100 if name.endswith("_percent") else value for name, value in means.items()}
    return ", ".join(text.format(percent(shares[name])) for name, text in texts.items() if name in shares)
