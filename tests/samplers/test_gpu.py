"""The GPU sampler: each GPU by its UUID, a process's share, several as one, those that go and come back."""

from __future__ import annotations

import math

import pytest

from stepscope.devices.find_gpus import GpusFound
from stepscope.devices.gpu import FIGURES, GpuProcess, GpuReading
from stepscope.devices.gpu_metrics import DESCRIPTIONS
from stepscope.devices.scripted import ScriptedGpu, h200, scripted_host, working
from stepscope.samplers.gpu import GpuSampler
from stepscope.schema.sample import DeviceFacts, Notice, Sample, Watched


class HandClock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


class Host:
    """GPUs that can be found, and how often they were looked for."""

    def __init__(self, *gpus, notices=()):
        self.gpus, self.notices = list(gpus), list(notices)
        self.looks, self.closed = 0, 0

    def __call__(self, *, performance_counters):
        self.looks += 1
        self.performance_counters = performance_counters
        return GpusFound(list(self.gpus), list(self.notices), [self])

    def close(self):
        self.closed += 1


class Noting(ScriptedGpu):
    """Remembers how it was asked."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.thorough = []

    def read(self, *, thorough):
        self.thorough.append(thorough)
        return super().read(thorough=thorough)


def sampler_of(host, clock=None, parents=None, **options):
    parent_of = (parents or {}).get
    return GpuSampler(_find=host, _now=clock or HandClock(), _parent_of=parent_of, **options)


def samples_in(readings, device=None, owner=None):
    return [
        reading
        for reading in readings
        if isinstance(reading, Sample)
        and reading.device == device
        and (reading.owner is owner if owner else not reading.owner)
    ]


def kinds_in(readings, kind):
    return [reading for reading in readings if isinstance(reading, kind)]


RANK = Watched("run", "seg", 0, 10, "rank")


def test_each_gpu_is_sampled_under_its_uuid():
    host = Host(*scripted_host(2, now=HandClock()))
    readings = sampler_of(host).sample([])
    for gpu in host.gpus:
        (sample,) = samples_in(readings, gpu.facts.uuid)
        assert 0.9 < sample.values["gpu/utilization_ratio"] <= 1
        assert sample.values["gpu/memory_total_bytes"] == gpu.facts.memory_total_bytes
        assert sample.values["gpu/memory_used_ratio"] == pytest.approx(0.72, abs=0.01)


def test_only_what_is_known_is_there():
    reading = GpuReading(
        temperature_celsius=40, throttle_reasons=frozenset({"power_cap"}), remap_pending=True
    )
    readings = sampler_of(Host(ScriptedGpu(h200(0), [reading]))).sample([])
    (sample,) = samples_in(readings, h200(0).uuid)
    assert sample.values == {
        "gpu/temperature_celsius": 40.0,
        "gpu/remap_pending": 1.0,
        "gpu/throttled_power_cap": 1.0,
        "gpu/throttled_hardware_slowdown": 0.0,
        "gpu/throttled_software_thermal": 0.0,
        "gpu/throttled_hardware_thermal": 0.0,
        "gpu/throttled_power_brake": 0.0,
        "gpu/throttled_sync_boost": 0.0,
    }


def test_every_key_is_declared_with_a_sentence_and_every_figure_has_a_key():
    declared = {metric.key: metric.sentence for metric in GpuSampler.metrics}
    assert len(declared) == len(GpuSampler.metrics)
    assert all(sentence.endswith(".") for sentence in declared.values())
    assert set(DESCRIPTIONS) == FIGURES - {"throttle_reasons", "processes"}
    gpus = [ScriptedGpu(h200(index), working(h200(index), pid=10), now=HandClock()) for index in range(2)]
    readings = sampler_of(Host(*gpus)).sample([RANK])
    keys = {key for sample in kinds_in(readings, Sample) for key in sample.values}
    assert keys <= declared.keys()
    assert all(
        math.isfinite(value) for sample in kinds_in(readings, Sample) for value in sample.values.values()
    )


def test_the_description_explains_utilisation():
    (sentence,) = (metric.sentence for metric in GpuSampler.metrics if metric.key == "gpu/utilization_ratio")
    assert "at least one kernel ran" in sentence
    assert "not say how much of the GPU" in sentence


def test_each_gpu_is_described_once_with_what_it_does_not_give():
    gpus = scripted_host(2, now=HandClock())
    gpus[1].lose("fan_ratio")
    sampler = sampler_of(Host(*gpus))
    first, second = kinds_in(sampler.sample([]), DeviceFacts)
    assert (first.device, second.device) == (gpus[0].facts.uuid, gpus[1].facts.uuid)
    assert first.fields["name"] == "NVIDIA H200"
    assert (first.fields["index"], first.fields["vendor"], second.fields["index"]) == (0, "NVIDIA", 1)
    assert first.fields["driver"]
    assert first.fields["pci_bus_id"] == "00000000:18:00.0"
    assert (first.fields["memory_total_bytes"], first.fields["power_limit_watts"]) == (141 << 30, 700.0)
    assert (first.fields["absent"], second.fields["absent"]) == ([], ["fan_ratio"])
    assert "parent_uuid" not in first.fields
    assert not kinds_in(sampler.sample([]), DeviceFacts)


def test_one_idle_gpu_of_eight_shows_beside_the_mean():
    host = Host(*scripted_host(8, idle_gpus={5}, now=HandClock()))
    (together,) = samples_in(sampler_of(host).sample([]), "")
    assert together.values["gpu/least_utilization_ratio"] == 0.0
    assert 0.8 < together.values["gpu/mean_utilization_ratio"] < 0.88
    assert together.values["gpu/total_power_watts"] > 7 * 500
    assert together.values["gpu/total_memory_used_bytes"] == pytest.approx(7 * 0.72 * (141 << 30), rel=0.01)


def test_one_gpu_alone_is_not_summed_up():
    assert not samples_in(sampler_of(Host(*scripted_host(1, now=HandClock()))).sample([]), "")


def test_a_sum_that_lacks_a_part_is_left_out():
    gpus = scripted_host(2, now=HandClock())
    gpus[0].lose("power_watts")
    (together,) = samples_in(sampler_of(Host(*gpus)).sample([]), "")
    assert "gpu/total_power_watts" not in together.values
    assert "gpu/total_memory_used_bytes" in together.values


def test_a_slice_is_not_counted_beside_its_whole():
    part = ScriptedGpu(
        h200(1).__class__("MIG-1", 0, "slice", "NVIDIA", parent_uuid=h200(0).uuid),
        [GpuReading(utilization_ratio=0.5, memory_used_bytes=1 << 30, power_watts=100.0)],
    )
    whole = ScriptedGpu(h200(0), [GpuReading(memory_used_bytes=3 << 30, power_watts=300.0)])
    (together,) = samples_in(sampler_of(Host(whole, part)).sample([]), "")
    assert together.values == {
        "gpu/total_power_watts": 300.0,
        "gpu/total_memory_used_bytes": 3 << 30,
        "gpu/mean_utilization_ratio": 0.5,
        "gpu/least_utilization_ratio": 0.5,
    }


def using(*processes):
    return ScriptedGpu(h200(0), [GpuReading(power_watts=1.0, processes=processes)])


def test_what_a_rank_and_its_children_take_goes_to_the_rank():
    gpu = using(GpuProcess(10, 100, 0.25), GpuProcess(12, 50, 0.5), GpuProcess(99, 7000, 0.2))
    readings = sampler_of(Host(gpu), parents={10: 1, 12: 11, 11: 10, 99: 1}).sample([RANK])
    (owned,) = samples_in(readings, h200(0).uuid, RANK)
    assert owned.values == {"gpu/process_memory_bytes": 150.0, "gpu/process_utilization_ratio": 0.75}
    (whole,) = samples_in(readings, h200(0).uuid)
    assert whole.values["gpu/process_count"] == 3.0


def test_a_rank_that_uses_no_gpu_owns_no_sample():
    readings = sampler_of(Host(using(GpuProcess(99, 1, 0.1))), parents={99: 1}).sample([RANK])
    assert not samples_in(readings, h200(0).uuid, RANK)


def test_a_figure_of_a_process_that_is_not_known_is_left_out():
    known = sampler_of(Host(using(GpuProcess(10, 100)))).sample([RANK])
    (owned,) = samples_in(known, h200(0).uuid, RANK)
    assert owned.values == {"gpu/process_memory_bytes": 100.0}
    unknown = sampler_of(Host(using(GpuProcess(10, None)))).sample([RANK])
    assert not samples_in(unknown, h200(0).uuid, RANK)


def test_slow_things_are_read_first_and_then_rarely():
    clock, gpu = HandClock(), Noting(h200(0), [GpuReading(power_watts=1.0)])
    sampler = sampler_of(Host(gpu), clock, thorough_every_s=3.0)
    for _ in range(7):
        sampler.sample([])
        clock.now += 1
    assert gpu.thorough == [True, False, False, True, False, False, True]


def test_a_gpu_is_read_thoroughly_the_first_time_it_answers():
    clock, late = HandClock(), Noting(h200(0), [None, GpuReading(power_watts=1.0)])
    sampler = sampler_of(Host(late, ScriptedGpu(h200(1), [GpuReading()])), clock, thorough_every_s=1000.0)
    readings = sampler.sample([])
    assert [facts.device for facts in kinds_in(readings, DeviceFacts)] == [h200(1).uuid]
    clock.now += 61
    assert [facts.device for facts in kinds_in(sampler.sample([]), DeviceFacts)] == [h200(0).uuid]
    sampler.sample([])
    assert late.thorough == [True, True, False]


def test_a_missing_gpu_is_reported_once_and_checked_again_every_minute():
    clock, host = HandClock(), Host(notices=[Notice("gpu/nvidia", "No driver. Install one.")])
    sampler = sampler_of(host, clock)
    said = []
    for _ in range(130):
        said += sampler.sample([])
        clock.now += 1
    assert said == [Notice("gpu/nvidia", "No driver. Install one.")]
    assert host.looks == 3


def test_a_gpu_that_appears_later_is_watched():
    clock, host = HandClock(), Host()
    sampler = sampler_of(host, clock)
    assert sampler.sample([]) == []
    host.gpus = scripted_host(1, now=clock)
    clock.now += 61
    assert samples_in(sampler.sample([]), h200(0).uuid)


def test_a_gpu_that_vanishes_is_named_and_the_others_continue():
    clock = HandClock()
    first, other = GpuReading(power_watts=1.0), GpuReading(power_watts=2.0)
    falling = ScriptedGpu(h200(0), [first, first, None, None, first])
    host = Host(falling, ScriptedGpu(h200(1), [other]))
    sampler = sampler_of(host, clock)
    said, sampled = [], []
    for _ in range(200):
        readings = sampler.sample([])
        said += kinds_in(readings, Notice)
        sampled.append((len(samples_in(readings, h200(0).uuid)), len(samples_in(readings, h200(1).uuid))))
        clock.now += 1
    gone, back = said
    assert "GPU 0 (NVIDIA H200, GPU-00000000" in gone.text
    assert "no longer answers: GPU is lost. See why with: sudo dmesg" in gone.text
    assert back.text.endswith("answers again.")
    assert gone.subject != back.subject
    assert {others for _, others in sampled} == {1}
    assert sampled[2][0] == 0
    assert sampled[-1][0] == 1
    assert host.looks == 1, "the one that answers is not closed to look for the other"


def test_a_gpu_that_falls_twice_is_named_twice_under_two_subjects():
    clock = HandClock()
    reading = GpuReading(power_watts=1.0)
    falling = ScriptedGpu(h200(0), [reading, None, reading, None, reading])
    sampler = sampler_of(Host(falling, ScriptedGpu(h200(1), [reading])), clock)
    said = []
    for _ in range(300):
        said += kinds_in(sampler.sample([]), Notice)
        clock.now += 1
    assert len({notice.subject for notice in said}) == len(said) == 4


def test_when_all_gpus_are_lost_the_driver_is_closed_and_opened_again_every_minute():
    clock = HandClock()
    host = Host(ScriptedGpu(h200(0), [GpuReading(power_watts=1.0), None]))
    sampler = sampler_of(host, clock)
    for _ in range(130):
        sampler.sample([])
        clock.now += 1
    assert (host.looks, host.closed) == (3, 2)
    host.gpus = [ScriptedGpu(h200(0), [GpuReading(power_watts=5.0)])]
    clock.now += 60
    readings = sampler.sample([])
    assert samples_in(readings, h200(0).uuid)[0].values["gpu/power_watts"] == 5.0
    assert [notice.text.endswith("answers again.") for notice in kinds_in(readings, Notice)] == [True]


def test_options_reach_those_who_find_gpus():
    host = Host()
    sampler_of(host, performance_counters=False).sample([])
    assert host.performance_counters is False


def test_closing_lets_the_driver_go():
    host = Host(*scripted_host(1, now=HandClock()))
    sampler = sampler_of(host)
    sampler.sample([])
    sampler.close()
    assert host.closed == 1
