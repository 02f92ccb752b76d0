"""The energy sampler counts the host and each package, and says why when there is nothing to count."""

from __future__ import annotations

from pathlib import Path

import pytest

from stepscope.samplers.energy import EnergySampler
from stepscope.schema.sample import Notice, Sample
from tests.devices.host.test_rapl import add_zone

CPU, DRAM, BOARD = "energy/cpu_joules_total", "energy/dram_joules_total", "energy/board_joules_total"


@pytest.fixture
def sampler(tmp_path: Path) -> EnergySampler:
    return EnergySampler(_powercap=tmp_path / "powercap", _proc=tmp_path)


def use(folder: Path, joules: float) -> None:
    """Lets a counter go on."""
    file = folder / "energy_uj"
    file.write_text(str(int(file.read_text()) + int(joules * 1e6)))


def values_by_device(sampler: EnergySampler) -> dict[str, dict[str, float]]:
    return {
        reading.device: dict(reading.values) for reading in sampler.sample([]) if isinstance(reading, Sample)
    }


def test_packages_have_figures_of_their_own_and_the_host_their_sum(
    tmp_path: Path, sampler: EnergySampler
) -> None:
    names = {"0": "package-0", "0:0": "dram", "1": "package-1", "1:0": "dram", "2": "psys"}
    zones = {number: add_zone(tmp_path / "powercap", number, name, 10**9) for number, name in names.items()}
    assert values_by_device(sampler)[""] == {CPU: 0.0, DRAM: 0.0, BOARD: 0.0}
    for number, joules in {"0": 100, "0:0": 10, "1": 50, "1:0": 5, "2": 300}.items():
        use(zones[number], joules)
    assert values_by_device(sampler) == {
        "": {CPU: 150.0, DRAM: 15.0, BOARD: 300.0},
        "package-0": {CPU: 100.0, DRAM: 10.0},
        "package-1": {CPU: 50.0, DRAM: 5.0},
    }


def test_dies_of_one_package_are_added_up(tmp_path: Path, sampler: EnergySampler) -> None:
    zones = [add_zone(tmp_path / "powercap", number, "package-0") for number in ("0", "1")]
    sampler.sample([])
    for zone in zones:
        use(zone, 3)
    assert values_by_device(sampler) == {"": {CPU: 6.0}, "package-0": {CPU: 6.0}}


def test_a_counter_that_fails_for_a_moment_leaves_its_sum_out_and_loses_nothing(
    tmp_path: Path, sampler: EnergySampler
) -> None:
    first, second = (add_zone(tmp_path / "powercap", str(number), f"package-{number}") for number in (0, 1))
    sampler.sample([])
    use(first, 4)
    (second / "energy_uj").write_text("")
    readings = sampler.sample([])
    assert {reading.device: reading.values for reading in readings if isinstance(reading, Sample)} == {
        "package-0": {CPU: 4.0}
    }
    assert [reading.subject for reading in readings if isinstance(reading, Notice)] == [
        "energy: intel-rapl:1"
    ]
    (second / "energy_uj").write_text("7000000")
    assert values_by_device(sampler)[""] == {CPU: 11.0}


def test_where_there_is_no_counter_a_notice_says_so_and_the_next_look_finds_one(
    tmp_path: Path, sampler: EnergySampler
) -> None:
    (notice,) = sampler.sample([])
    assert isinstance(notice, Notice)
    assert "energy is not recorded" in notice.text
    add_zone(tmp_path / "powercap", "0", "package-0")
    assert values_by_device(sampler)[""] == {CPU: 0.0}


def test_every_figure_is_declared(tmp_path: Path, sampler: EnergySampler) -> None:
    for number, name in {"0": "package-0", "0:0": "dram", "2": "psys"}.items():
        add_zone(tmp_path / "powercap", number, name)
    read = {key for values in values_by_device(sampler).values() for key in values}
    assert read == {metric.key for metric in EnergySampler.metrics}
