"""Writes the figures in memory as the text that Prometheus reads, in its two formats."""

from __future__ import annotations

import platform
import zlib
from typing import TYPE_CHECKING, Any

from stepscope.errors import MissingExtra
from stepscope.prometheus import families
from stepscope.prometheus.families import FAMILIES, Family
from stepscope.prometheus.options import DEFAULT
from stepscope.prometheus.run_state import (
    ALLOCATED_BYTES,
    EPOCH,
    GRADIENT_NORM_KEYS,
    LEARNING_RATE_KEYS,
)
from stepscope.schema.keys import LOSS_KEYS
from stepscope.schema.run import deciding_process
from stepscope.version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from stepscope.prometheus.live_state import LiveState
    from stepscope.prometheus.machine_state import DeviceState
    from stepscope.prometheus.options import Options
    from stepscope.prometheus.run_state import RankState, RunState

MAX_LABEL = 200
FRAMEWORKS = ("lightning", "transformers", "accelerate", "ray", "jax", "torch")
"""Libraries that may run the loop; the first that a process has loaded is named."""


def client_library() -> Any:
    """The library that writes the formats; raises MissingExtra where it is not installed."""
    try:
        import prometheus_client  # lazy: an optional package
        import prometheus_client.core
    except ImportError as error:
        raise MissingExtra("prometheus", needed_for="The exporter prometheus") from error
    return prometheus_client


def render(state: LiveState, accept: str = "") -> tuple[bytes, str]:
    """The text of all families and its content type, in the format that the Accept header asks for."""
    collected = _Collected(collect(state))
    try:
        return _encoded(collected, accept)
    except TypeError:
        if not accept:
            raise
        return _encoded(collected, "")  # for a version such as `one`, which the library cannot compare


def _encoded(collected: _Collected, accept: str) -> tuple[bytes, str]:
    encode, content_type = client_library().exposition.choose_encoder(accept)
    return encode(collected), content_type


class _Collected:
    """Families in the form that the library writes, collected before: writing them holds no lock."""

    def __init__(self, metrics: list[Any]) -> None:
        self._metrics = metrics

    def collect(self) -> list[Any]:
        return self._metrics


def collect(state: LiveState) -> list[Any]:
    """All families with at least one sample, in a fixed order."""
    samples = Samples()
    with state.lock:
        options = state.options_in_use()
        runs = state.served_runs()
        _add_machines(samples, state, options)
        for run in runs:
            _add_run(samples, run, state)
        for labels, count in state.sent.items():
            samples.add(families.ALERTS_SENT, labels, count, options)
        libraries = [libraries for run in runs if (libraries := _facts(run).get("libraries"))]
        has_figures = state.has_figures
    torch = str(libraries[0].get("torch", "")) if libraries and isinstance(libraries[0], dict) else ""
    everything = [DEFAULT]
    samples.add(families.BUILD_INFO, (__version__, platform.python_version(), torch), 1.0, everything)
    samples.add(families.UP, (), float(has_figures), everything)
    return samples.metrics()


class Samples:
    """The samples of one scrape, by family; the first sample of equal labels is kept."""

    def __init__(self) -> None:
        self._values: dict[Family, dict[tuple[str, ...], Any]] = {}

    def add(self, family: Family, labels: Iterable[object], value: object, options: list[Options]) -> None:
        """Adds a sample to a family, under all names that the options ask for; None is left out."""
        if value is None:
            return
        texts = tuple(map(label_text, labels))
        for chosen in options:
            for version in family.versions(chosen.names, base_units=chosen.base_units):
                self._values.setdefault(version, {}).setdefault(texts, value)

    def metrics(self) -> list[Any]:
        """The families in the library's own form."""
        order = {family.name: place for place, family in enumerate(FAMILIES)}
        known = sorted(self._values, key=lambda family: order.get(family.name, len(order)))
        return [_metric(family, self._values[family]) for family in known]


def label_text(value: object) -> str:
    """A label's value as text that can be encoded; a surrogate without a pair is replaced.

    Of a long text the end is replaced by its checksum, so that two of them stay two series.
    """
    text = str(value)
    encoded = text.encode("utf-8", "replace")
    if len(text) > MAX_LABEL:
        return f"{encoded.decode()[: MAX_LABEL - 9]}_{zlib.crc32(encoded):08x}"
    return encoded.decode()


def _metric(family: Family, values: Mapping[tuple[str, ...], Any]) -> Any:
    core = client_library().core
    if family.kind == "histogram":
        histogram = core.HistogramMetricFamily(family.name, family.help, labels=family.labels)
        for labels, (buckets, total) in values.items():
            histogram.add_metric(labels, buckets, total)
        return histogram
    kind = core.CounterMetricFamily if family.kind == "counter" else core.GaugeMetricFamily
    metric = kind(family.name, family.help, labels=family.labels)
    for labels, value in values.items():
        metric.add_metric(labels, float(value) * family.factor)
    return metric


def _add_machines(samples: Samples, state: LiveState, options: list[Options]) -> None:
    now_ns = state.now_ns()
    for (host, name), device in state.machine.devices.items():
        figures = device.current(now_ns)
        if not name:
            _add_host(samples, host, figures, options)
        elif any(key.startswith("gpu/") for key in figures):
            labels = (host, state.machine.gpu_index(host, name), name)
            _add_gpu(samples, labels, figures, options)
            _add_gpu_facts(samples, labels, device, options)


def _add_host(samples: Samples, host: str, figures: Mapping[str, float], options: list[Options]) -> None:
    samples.add(families.CPU_PERCENT, (host,), figures.get(families.CPU_KEY), options)
    for key, family in families.HOST_GAUGES.items():
        samples.add(family, (host,), figures.get(key), options)
    for family, directions in (
        (families.DISK, families.DISK_DIRECTIONS),
        (families.NETWORK, families.NETWORK_DIRECTIONS),
    ):
        for key, direction in directions.items():
            samples.add(family, (host, direction), figures.get(key), options)


def _add_gpu(
    samples: Samples, labels: tuple[str, str, str], figures: Mapping[str, float], options: list[Options]
) -> None:
    for key, family in families.GPU_GAUGES.items():
        samples.add(family, labels, figures.get(key), options)
    samples.add(families.GPU_MEMORY_BY_ID, labels[:2], figures.get("gpu/memory_used_bytes"), options)
    samples.add(families.GPU_ENERGY, labels, figures.get(families.GPU_ENERGY_KEY), options)
    for family, kinds in (
        (families.GPU_CLOCK, families.GPU_CLOCKS),
        (families.GPU_ECC, families.GPU_ECC_TYPES),
        (families.PCIE, families.PCIE_DIRECTIONS),
    ):
        for key, kind in kinds.items():
            samples.add(family, (*labels, kind), figures.get(key), options)
    for key, seconds in figures.items():
        if key.startswith(families.THROTTLE_KEY_START):
            reason = key.removeprefix(families.THROTTLE_KEY_START)
            samples.add(families.GPU_THROTTLE, (*labels, reason), seconds, options)


def _add_gpu_facts(
    samples: Samples, labels: tuple[str, str, str], device: DeviceState, options: list[Options]
) -> None:
    names = ("name", "driver", "cuda", "runtime_index", "gpu_instance")
    facts = [device.facts.get(name) for name in names]
    if device.facts:
        texts = ("" if fact is None else fact for fact in facts)
        samples.add(families.GPU_INFO, (*labels, *texts), 1.0, options)


def _add_run(samples: Samples, run: RunState, state: LiveState) -> None:
    options, labels = [run.options], (run.project, run.name)
    _add_run_facts(samples, run, options)
    if not run.ranks:
        return
    first = run.ranks[min(run.ranks)]
    samples.add(families.EPOCH, labels, first.figures.get(EPOCH), options)
    samples.add(families.LEARNING_RATE, (*labels, "0"), first.first(LEARNING_RATE_KEYS), options)
    _add_progress(samples, run, first, options)
    steps = [rank.last.step for rank in run.ranks.values() if rank.last.step is not None]
    for number, rank in run.ranks.items():
        rank_labels = (*labels, str(number))
        samples.add(families.STEPS, rank_labels, run.steps_done(rank), options)
        _add_rank(samples, rank_labels, rank, options, _gpu_of(rank, state))
        if rank.last.step is not None and run.ended_ns is None:
            # Of an ended run it would look like a run that does not go on.
            samples.add(families.LAST_STEP, rank_labels, rank.last.time_ns / 1e9, options)
        if rank.last.step is not None and len(steps) > 1:
            samples.add(families.RANK_LAG, rank_labels, max(steps) - rank.last.step, options)


def _add_run_facts(samples: Samples, run: RunState, options: list[Options]) -> None:
    labels, facts = (run.project, run.name), _facts(run)
    loaded = facts.get("libraries")
    framework = next((name for name in FRAMEWORKS if isinstance(loaded, dict) and name in loaded), "")
    about = (*labels, run.run_id, framework, run.precision, facts.get("world_size", ""))
    samples.add(families.RUN_INFO, about, 1.0, options)
    for finding in run.findings:
        samples.add(families.FINDING, (*labels, *finding), 1.0, options)
    for alert in run.alerts:
        samples.add(families.ALERT, (*labels, *alert), 1.0, options)
    for (name, key), value in run.exporters.items():
        samples.add(families.EXPORTERS[key], (*labels, name), value, options)
    for process in run.processes.values():
        if process.segment == run.segment and process.role == "rank":
            lost = process.dropped + process.lost
            samples.add(families.DROPPED, (*labels, process.rank), lost, options)


def _add_progress(samples: Samples, run: RunState, rank: RankState, options: list[Options]) -> None:
    total = run.total_steps
    labels, done = (run.project, run.name), run.steps_done(rank)
    if total is None or done is None:
        return
    samples.add(families.PROGRESS, labels, min(done / total, 1.0), options)
    speed = rank.steps_per_second()
    if speed and run.ended_ns is None:
        samples.add(families.ETA, labels, max(total - done, 0) / speed, options)


def _add_rank(
    samples: Samples, labels: tuple[str, str, str], rank: RankState, options: list[Options], gpu: str
) -> None:
    samples.add(families.LOSS, labels, rank.first(LOSS_KEYS), options)
    samples.add(families.GRADIENT_NORM, labels, rank.first(GRADIENT_NORM_KEYS), options)
    samples.add(families.ALLOCATED, (*labels, gpu), rank.figures.get(ALLOCATED_BYTES), options)
    for key, family in families.RANK_GAUGES.items():
        own_labels = (*labels, gpu) if "gpu" in family.labels else labels
        samples.add(family, own_labels, rank.figures.get(key), options)
    for phase, seconds in rank.phase_seconds.items():
        samples.add(families.PHASE_SECONDS, (*labels, phase), seconds, options)
    samples.add(families.SAMPLES, labels, rank.samples, options)
    samples.add(families.TOKENS, labels, rank.tokens, options)
    samples.add(families.OVERHEAD, labels, rank.overhead_seconds, options)
    samples.add(families.WORKERS, labels, rank.workers, options)
    for name, value in rank.user_metrics.items():
        samples.add(families.USER_METRIC, (*labels, name), value, options)
    if rank.bucket_counts.any():
        bounds = [*map(_bound_text, rank.bounds), "+Inf"]
        counts = [float(count) for count in rank.bucket_counts.cumsum().tolist()]
        histogram = (list(zip(bounds, counts, strict=True)), rank.step_seconds_sum)
        samples.add(families.STEP_DURATION, labels, histogram, options)


def _bound_text(bound: float) -> str:
    """A bound of a bucket as other clients of Prometheus write it."""
    return repr(float(bound))


def _gpu_of(rank: RankState, state: LiveState) -> str:
    """The index of the one GPU that a rank uses; empty where that is not known."""
    if len(rank.gpus) != 1:
        return ""
    return state.machine.gpu_index(rank.host, next(iter(rank.gpus)))


def _facts(run: RunState) -> Mapping[str, Any]:
    """What the lowest rank of the newest segment recorded about itself."""
    of_segment = [process for process in run.processes.values() if process.segment == run.segment]
    process = deciding_process(of_segment)
    return {} if process is None else process.facts
