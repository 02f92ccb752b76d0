"""Each logical processor by itself."""

from __future__ import annotations

from pathlib import Path

from stepscope.samplers.cores import CoresSampler
from tests.devices.written import HandClock, values_of, write


def stat(cores: dict[int, tuple[int, int]]) -> dict[str, str]:
    lines = [f"cpu{number} {user} 0 0 {idle} 0 0 0 0 0 0\n" for number, (user, idle) in cores.items()]
    return {"stat": "cpu  0 0 0 0 0 0 0 0 0 0\n" + "".join(lines) + "ctxt 5\n"}


def test_a_core_is_reported_from_the_second_sample_on(tmp_path: Path) -> None:
    clock = HandClock()
    cores = CoresSampler(_proc=tmp_path, _now=clock)
    write(tmp_path, stat({0: (0, 0), 1: (0, 0)}))
    assert list(cores.sample([])) == []
    write(tmp_path, stat({0: (75, 25), 1: (0, 100), 2: (9, 1)}))
    clock.now += 1
    samples = list(cores.sample([]))
    assert values_of(samples, "cpu-0") == {"cpu/core_utilization_ratio": 0.75}
    assert values_of(samples, "cpu-1") == {"cpu/core_utilization_ratio": 0.0}
    assert values_of(samples, "cpu-2") == {}


def test_a_core_that_was_taken_away_and_put_back_has_no_figure_for_the_gap(tmp_path: Path) -> None:
    clock = HandClock()
    cores = CoresSampler(_proc=tmp_path, _now=clock)
    for counts in ((500, 500), (1, 1)):
        write(tmp_path, stat({0: counts}))
        clock.now += 1
        samples = list(cores.sample([]))
    assert samples == []
