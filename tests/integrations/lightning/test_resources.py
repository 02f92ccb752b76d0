"""The rules by which readings become alerts."""

from __future__ import annotations

import pytest

from stepscope.agent.sampling import SamplerReadings
from stepscope.integrations.lightning.resources import (
    JUDGED,
    WARM_UP,
    Readings,
    low_gpu_rule,
    memory_rules,
    samplers_of,
    waiting_rule,
)
from stepscope.schema.sample import Sample


def take(
    readings: Readings, sampler: str, values: dict[str, float], times: int = 1, device: str = ""
) -> None:
    for _ in range(times):
        readings.take(SamplerReadings(sampler, 0, [Sample(values, device)]))


def test_a_gpu_that_stays_idle_is_reported_once_until_it_was_busy() -> None:
    readings = Readings([low_gpu_rule(0.5)])
    take(readings, "gpu", {"gpu/utilization_ratio": 0.1}, WARM_UP + JUDGED - 1, "GPU-1")
    assert readings.take_alerts() == []
    take(readings, "gpu", {"gpu/utilization_ratio": 0.1}, 30, "GPU-1")
    ((rule, value),) = readings.take_alerts()
    assert value == pytest.approx(0.1)
    assert rule.text.format(value="10%", threshold="50%").startswith("The GPU is busy 10% of the time")
    take(readings, "gpu", {"gpu/utilization_ratio": 0.9}, JUDGED, "GPU-1")
    take(readings, "gpu", {"gpu/utilization_ratio": 0.1}, JUDGED, "GPU-1")
    assert len(readings.take_alerts()) == 1


def test_memory_and_disks_are_judged_by_the_host_as_a_whole() -> None:
    readings = Readings([*memory_rules(0.9), waiting_rule(0.3)])
    many = WARM_UP + JUDGED
    take(readings, "memory", {"memory/used_ratio": 0.95}, many)
    take(readings, "cpu", {"cpu/iowait_ratio": 0.2}, many)
    take(readings, "disk", {"disk/read_bytes_per_second": 1 << 20}, many, device="sda")
    assert [rule.figure for rule, _ in readings.take_alerts()] == ["resource/memory_ratio"]
    take(readings, "cpu", {"cpu/iowait_ratio": 0.9}, JUDGED)
    assert [rule.figure for rule, _ in readings.take_alerts()] == ["resource/io_wait"]
    assert readings.take_means({"cpu", "io"}).keys() == {"resource/memory_ratio", "resource/io_wait"}


def test_means_are_those_since_the_last_time_in_the_units_of_their_names() -> None:
    readings = Readings([])
    take(readings, "cpu", {"cpu/utilization_ratio": 0.2})
    take(readings, "cpu", {"cpu/utilization_ratio": 0.4})
    assert readings.take_means({"cpu"}) == {"resource/cpu_percent": pytest.approx(30)}
    assert readings.take_means({"cpu"}) == {}
    assert readings.means_of_fit({"cpu"}) == {"resource/cpu_percent": pytest.approx(30)}


def test_a_training_on_a_processor_does_not_read_a_gpu() -> None:
    assert set(samplers_of(None, {"gpu", "cpu", "io"})) == {"cpu", "memory", "disk"}
    assert samplers_of(None, {"gpu"}) == {}
