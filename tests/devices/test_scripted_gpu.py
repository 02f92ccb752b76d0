"""Scripted GPUs: played readings, lost figures, falling off the bus, recordings."""

from __future__ import annotations

import pytest

from stepscope.devices.gpu import GpuLost, GpuProcess, GpuReading
from stepscope.devices.scripted import ScriptedGpu, h200, idle, play_lines, scripted_host, to_line, working


class HandClock:
    now = 50.0

    def __call__(self) -> float:
        return self.now


def readings_of(*powers):
    return [None if watts is None else GpuReading(power_watts=watts) for watts in powers]


def test_readings_are_played_in_turn_and_the_last_one_stays():
    gpu = ScriptedGpu(h200(0), readings_of(1.0, 2.0))
    assert [gpu.read(thorough=False).power_watts for _ in range(4)] == [1.0, 2.0, 2.0, 2.0]


def test_a_gpu_falls_off_the_bus_and_comes_back():
    gpu = ScriptedGpu(h200(0), readings_of(1.0, None, 3.0))
    assert gpu.read(thorough=False).power_watts == 1.0
    with pytest.raises(GpuLost):
        gpu.read(thorough=True)
    assert gpu.read(thorough=False).power_watts == 3.0


def test_a_figure_can_be_lost_and_found():
    gpu = ScriptedGpu(h200(0), working(h200(0)), now=HandClock())
    gpu.lose("power_watts", "fan_ratio")
    reading = gpu.read(thorough=False)
    assert reading.power_watts is None
    assert reading.utilization_ratio is not None
    assert gpu.absent() == {"power_watts", "fan_ratio"}
    gpu.restore("power_watts")
    assert gpu.read(thorough=False).power_watts is not None


def test_a_function_is_asked_with_the_seconds_since_the_beginning():
    clock = HandClock()
    gpu = ScriptedGpu(h200(0), lambda seconds: GpuReading(power_watts=seconds), now=clock)
    clock.now += 7
    assert gpu.read(thorough=False).power_watts == 7.0


def test_one_of_eight_gpus_is_idle():
    clock = HandClock()
    gpus = scripted_host(8, idle_gpus={3}, now=clock)
    clock.now += 100
    busy = [gpu.read(thorough=False).utilization_ratio for gpu in gpus]
    assert busy[3] == 0.0
    assert min(busy[:3] + busy[4:]) > 0.9
    assert len({gpu.facts.uuid for gpu in gpus}) == 8


@pytest.mark.parametrize("play", [working(h200(2), pid=7), idle(h200(2))])
def test_invented_readings_are_possible_ones(play):
    last = 0.0
    for seconds in range(600):
        reading = play(float(seconds))
        assert 0 <= reading.utilization_ratio <= 1
        assert reading.memory_used_bytes < reading.memory_total_bytes
        assert reading.power_watts <= reading.power_limit_watts
        assert reading.energy_joules_total >= last
        last = reading.energy_joules_total
    assert last / 599 == pytest.approx(reading.power_watts, rel=0.2)


def test_a_recording_plays_as_it_was_taken():
    first = GpuReading(power_watts=1.0, throttle_reasons=frozenset({"power_cap"}), remap_pending=False)
    second = GpuReading(power_watts=2.0, processes=(GpuProcess(7, 100, None),))
    other = GpuReading(utilization_ratio=0.5)
    lines = [
        to_line(10.0, h200(0), first),
        to_line(10.5, h200(1), other),
        to_line(12.0, h200(0), second),
        to_line(13.0, h200(0), None),
        "",
    ]
    clock = HandClock()
    one, two = play_lines(lines, now=clock)
    assert (one.facts, two.facts) == (h200(0), h200(1))
    assert (one.read(thorough=True), two.read(thorough=True)) == (first, other)
    clock.now += 1.9
    assert one.read(thorough=True) == first
    clock.now += 0.1
    assert one.read(thorough=True) == second
    clock.now += 1
    with pytest.raises(GpuLost):
        one.read(thorough=True)
    assert two.read(thorough=True) == other
