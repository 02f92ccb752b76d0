"""Rows become points: the newest value of gauges, sums of counters, each with the time it was recorded."""

from __future__ import annotations

import math

import numpy as np
import pytest

from stepscope.exporters.base import Table
from stepscope.opentelemetry import conventions
from stepscope.opentelemetry.series import DurationSeries, Series, SeriesOfRun
from stepscope.prometheus.options import BUCKETS
from stepscope.schema.sample import DeviceFacts
from stepscope.schema.series import Source

SECOND_NS = 10**9
GPU = DeviceFacts("GPU-a", {"uuid": "GPU-a", "index": 2, "name": "Example One", "vendor": "Example"})


def logged(rows: dict[str, list[float]], first_step: int = 0, first_s: float = 100, rank: int = 0) -> Table:
    values = np.array(list(rows.values()), float).T
    places = np.arange(len(values))
    times_ns = (first_s * SECOND_NS + places * SECOND_NS).astype(np.int64)
    return Table(Source("run", "s", rank, "h"), list(rows), first_step + places, times_ns, values)


def sampled(
    rows: dict[str, list[float]],
    device: str = "",
    rank: int | None = None,
    first_s: int = 100,
    every_s: int = 1,
) -> Table:
    values = np.array(list(rows.values()), float).T
    times_ns = (first_s + np.arange(len(values)) * every_s) * SECOND_NS
    steps = np.zeros(len(values), np.int64)
    return Table(Source("run", "s", rank, "h", device, "seconds"), list(rows), steps, times_ns, values)


def collected(*tables: Table) -> dict[tuple[str, ...], Series]:
    """The series by name and by the values of their attributes, without those that only say which GPU."""
    run = SeriesOfRun()
    for table in tables:
        run.add(table, {"GPU-a": GPU})
    own = {"ml.training.phase", "hw.gpu.task", "network.io.direction", "disk.io.direction", "cpu.mode"}
    own |= {"error.type", "hw.state", "system.device", "network.interface.name"}
    return {
        (
            series.instrument.name,
            *(str(text) for name, text in sorted(series.attributes.items()) if name in own),
        ): series
        for series in run.unsent()
    }


def test_a_gauge_has_the_newest_value_and_its_time() -> None:
    series = collected(logged({"loss": [3.0, 2.0]}), logged({"loss": [1.0]}, first_s=90))
    loss = series["ml.training.loss",]
    assert (loss.value, loss.time_ns, loss.attributes) == (2.0, 101 * SECOND_NS, {"ml.training.rank": 0})


def test_values_that_are_not_finite_are_passed_on() -> None:
    series = collected(logged({"loss": [math.nan], "gradient_norm": [math.inf]}))
    assert math.isnan(series["ml.training.loss",].value)
    assert series["ml.training.gradient_norm",].value == math.inf


def test_of_several_losses_the_first_of_the_known_names_is_used() -> None:
    series = collected(
        logged({"train/loss": [5.0]}),
        logged({"loss": [1.0]}, first_s=101),
        logged({"train/loss": [6.0]}, first_s=102),
    )
    assert series["ml.training.loss",].value == 1.0


def test_step_durations_are_counted_in_buckets_that_include_their_bound() -> None:
    durations = [0.0005, 0.001, 0.0011, 200.0, math.nan]
    histogram = collected(logged({"step_seconds": durations}))["ml.training.step.duration",]
    assert isinstance(histogram, DurationSeries)
    assert histogram.counts.tolist() == [2, 1, *[0] * 13, 0, 1]
    assert len(histogram.counts) == len(BUCKETS) + 1
    assert histogram.value == pytest.approx(200.0026)
    assert (histogram.minimum, histogram.maximum) == (0.0005, 200.0)
    assert histogram.start_ns == 100 * SECOND_NS - 500_000


def test_the_step_counter_starts_again_where_a_training_goes_back() -> None:
    before = logged({"loss": [1.0, 1.0]}, first_step=10)
    after = logged({"loss": [1.0]}, first_step=5, first_s=110)
    steps = collected(before)["ml.training.steps",]
    assert (steps.value, steps.start_ns) == (12, 101 * SECOND_NS)
    steps = collected(before, after)["ml.training.steps",]
    assert (steps.value, steps.start_ns) == (6, 110 * SECOND_NS)


def phases(*tables: Table) -> dict[str, float]:
    return {
        key[1]: series.value
        for key, series in collected(*tables).items()
        if key[0] == "ml.training.phase.time"
    }


def test_the_time_of_all_steps_is_divided_as_in_those_that_were_timed_by_phase() -> None:
    timed = {"step_seconds": [1.0], "phase/forward_seconds": [0.25], "phase/other_seconds": [0.75]}
    assert phases(
        logged({**timed, "phase/sampled_ratio": [0.1]}),
        logged({"step_seconds": [1.0, 2.0]}, first_step=1, first_s=101),
    ) == {"forward": 1.0, "other": 3.0}


def test_steps_before_the_first_timed_one_are_divided_with_it() -> None:
    timed = {"step_seconds": [1.0], "phase/forward_seconds": [0.5], "phase/backward_seconds": [0.5]}
    assert phases(
        logged({"step_seconds": [3.0]}),
        logged({**timed, "phase/sampled_ratio": [0.5]}, first_step=1, first_s=101),
    ) == {"forward": 2.0, "backward": 2.0}


def test_phases_that_are_timed_in_every_step_are_added_as_they_are() -> None:
    assert phases(
        logged({"step_seconds": [1.0], "phase/data_seconds": [0.5], "phase/checkpoint_seconds": [0.25]}),
        logged(
            {
                "step_seconds": [1.0],
                "phase/data_seconds": [0.25],
                "phase/forward_seconds": [0.75],
                "phase/sampled_ratio": [0.01],
            },
            first_step=1,
            first_s=101,
        ),
        logged({"phase/eval_seconds": [5.0]}, first_step=2, first_s=102),
    ) == {"data": 0.75, "checkpoint": 0.25, "forward": 1.0, "eval": 5.0}


def test_a_gpu_has_the_names_and_attributes_of_the_hardware_conventions() -> None:
    series = collected(
        sampled(
            {
                "gpu/utilization_ratio": [0.5, 0.75],
                "gpu/memory_used_bytes": [1e9, 2e9],
                "gpu/temperature_celsius": [60, 65],
                "gpu/ecc_corrected_total": [0, 3],
                "gpu/throttled_hardware_slowdown": [0, 0],
                "gpu/throttled_hardware_thermal": [0, 1],
            },
            "GPU-a",
        )
    )
    busy = series["hw.gpu.utilization", "general"]
    assert busy.value == 0.75
    assert busy.attributes == {
        "hw.id": "GPU-a",
        "hw.name": "GPU 2",
        "hw.model": "Example One",
        "hw.vendor": "Example",
        "hw.gpu.task": "general",
    }
    assert series["hw.gpu.memory.usage",].value == 2e9
    assert series["hw.temperature",].attributes["hw.type"] == "gpu"
    assert series["hw.errors", "corrected"].value == 3
    assert series["hw.status", "degraded"].value == 1
    assert ("hw.power",) not in series


def test_bytes_are_the_sum_of_rates_and_a_gap_counts_nothing() -> None:
    rates = {"network/received_bytes_per_second": [100.0, 200.0, math.nan, 400.0]}
    later = sampled({"network/received_bytes_per_second": [1000.0, 50.0]}, "eth0", first_s=1000)
    series = collected(sampled(rates, "eth0"), later)
    received = series["system.network.io", "eth0", "receive"]
    assert received.value == pytest.approx(200 + 400 + 50)
    assert (received.start_ns, received.time_ns) == (100 * SECOND_NS, 1001 * SECOND_NS)


def test_sums_over_all_devices_and_loader_workers_are_left_out() -> None:
    series = collected(
        sampled({"disk/read_bytes_per_second": [1.0, 1.0]}),
        sampled({"gpu/total_power_watts": [1.0]}),
        sampled({"process/rss_bytes": [1.0]}, "worker-7", rank=0),
    )
    assert series == {}


def test_the_host_and_its_processes_have_the_names_of_the_system_conventions() -> None:
    series = collected(
        sampled({"cpu/user_ratio": [0.25], "memory/used_bytes": [5.0], "memory/available_bytes": [3.0]}),
        sampled({"process/rss_bytes": [7.0], "process/cpu_user_seconds_total": [9.0]}, rank=3),
    )
    assert series["system.cpu.utilization", "user"].value == 0.25
    assert series["system.memory.usage",].attributes == {"system.memory.state": "used"}
    assert series["system.memory.linux.available",].value == 3
    assert series["process.memory.usage",].attributes == {"ml.training.rank": 3}
    assert series["process.cpu.time", "user"].value == 9


@pytest.mark.parametrize(
    "conversion", [*conventions.GPU, *conventions.HOST, *conventions.DEVICE, *conventions.PROCESS]
)
def test_a_machine_metric_has_the_name_unit_and_kind_of_the_conventions(
    conversion: conventions.Conversion,
) -> None:
    from opentelemetry.semconv._incubating.metrics import hw_metrics, process_metrics, system_metrics

    instrument = conversion.instrument
    modules = {"hw": hw_metrics, "system": system_metrics, "process": process_metrics}
    module = modules[instrument.name.split(".")[0]]
    assert instrument.name in {value for name, value in vars(module).items() if name.isupper()}
    recorded: list[tuple[str, str]] = []

    class Meter:
        def __getattr__(self, kind: str):
            return lambda name, description, unit, callbacks=None: recorded.append((kind, unit))

    create = getattr(module, f"create_{instrument.name.replace('.', '_')}")
    create(Meter(), None) if "callbacks" in create.__annotations__ else create(Meter())
    ((kind, unit),) = recorded
    assert unit == instrument.unit
    assert kind.removeprefix("create_").removeprefix("observable_").replace("up_down_counter", "up_down") == (
        instrument.kind
    )


def test_every_recorded_key_is_one_that_a_sampler_declares() -> None:
    from stepscope import plugins
    from stepscope.samplers.base import Sampler

    declared = {
        metric.key
        for name in plugins.names("samplers")
        for metric in plugins.load("samplers", name, Sampler).metrics
    }
    conversions = [*conventions.GPU, *conventions.HOST, *conventions.DEVICE, *conventions.PROCESS]
    assert {key for conversion in conversions for key in conversion.keys} <= declared
