"""Energy counters count through their wraps, and say why when they cannot be read."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from stepscope.devices.host.rapl import Meter, RaplUnavailable, Zone, find_zones

RANGE_UJ = 262_143_328_850
NOBODY = 65_534


class HandClock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def add_zone(powercap: Path, number: str, name: str, energy_uj: int | str = 0) -> Path:
    folder = powercap / f"intel-rapl:{number}"
    folder.mkdir(parents=True)
    (folder / "name").write_text(f"{name}\n")
    (folder / "max_energy_range_uj").write_text(f"{RANGE_UJ}\n")
    (folder / "energy_uj").write_text(f"{energy_uj}\n")
    return folder


@pytest.fixture
def powercap(tmp_path: Path) -> Path:
    return tmp_path / "powercap"


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that everybody can look into, unlike pytest's own."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def ordinary_user() -> Iterator[None]:
    """The rights of a person who is not root."""
    is_root = os.geteuid() == 0
    if is_root:
        os.seteuid(NOBODY)
    yield
    if is_root:
        os.seteuid(0)


def test_packages_memory_and_board_are_counted_and_their_parts_are_not(
    powercap: Path, tmp_path: Path
) -> None:
    for number, name in [
        ("0", "package-0"),
        ("0:0", "core"),
        ("0:1", "uncore"),
        ("0:2", "dram"),
        ("1", "package-1"),
        ("1:0", "dram"),
        ("2", "psys"),
    ]:
        add_zone(powercap, number, name)
    # The same package by another way in.
    shutil.copytree(powercap / "intel-rapl:0", powercap / "intel-rapl-mmio:0")
    (powercap / "intel-rapl").mkdir()
    zones = [(zone.kind, zone.device) for zone in find_zones(powercap, tmp_path)]
    assert sorted(zones) == [
        ("dram", "package-0"),
        ("dram", "package-1"),
        ("package", "package-0"),
        ("package", "package-1"),
        ("psys", "psys"),
    ]


def test_a_meter_begins_at_zero_and_counts_joules(powercap: Path) -> None:
    folder = add_zone(powercap, "0", "package-0", 5_000_000)
    meter = Meter(find_zones(powercap)[0])
    assert meter.joules() == 0.0
    (folder / "energy_uj").write_text("7500000")
    assert meter.joules() == 2.5


def test_a_counter_that_wraps_loses_nothing(powercap: Path) -> None:
    folder = add_zone(powercap, "0", "package-0", RANGE_UJ - 40_000_000)
    clock = HandClock()
    meter = Meter(find_zones(powercap)[0], clock)
    for shown in (60_000_000, RANGE_UJ - 10_000_000, 20_000_000):
        clock.now += 1000
        (folder / "energy_uj").write_text(str(shown))
        joules = meter.joules()
    assert joules == pytest.approx(100 + (RANGE_UJ / 1e6 - 70) + 30)


def test_a_counter_set_back_while_the_machine_slept_is_not_taken_for_a_wrap(powercap: Path) -> None:
    folder = add_zone(powercap, "0", "package-0", 9_000_000)
    clock = HandClock()
    meter = Meter(find_zones(powercap)[0], clock)
    clock.now += 1
    (folder / "energy_uj").write_text("3000000")
    assert meter.joules() == 3.0


def test_counters_only_root_may_read_are_reported_with_the_command_that_helps(
    open_folder: Path, request: pytest.FixtureRequest
) -> None:
    folder = add_zone(open_folder, "0", "package-0")
    (folder / "energy_uj").chmod(0o400 if os.geteuid() == 0 else 0)
    request.getfixturevalue("ordinary_user")
    with pytest.raises(
        RaplUnavailable, match=r"root alone.*sudo chmod a\+r /sys/class/powercap/intel-rapl:\*/"
    ):
        find_zones(open_folder)


def test_a_counter_that_fails_for_another_reason_says_which(powercap: Path) -> None:
    add_zone(powercap, "0", "package-0", "nonsense")
    with pytest.raises(RaplUnavailable, match=r"cannot be used \(invalid literal.*nonsense"):
        find_zones(powercap)


def test_memory_that_can_be_read_does_not_stand_in_for_a_package_that_cannot(powercap: Path) -> None:
    add_zone(powercap, "0", "package-0", "nonsense")
    add_zone(powercap, "0:0", "dram", 7)
    with pytest.raises(RaplUnavailable):
        find_zones(powercap)


def test_a_virtual_machine_without_counters_gets_its_own_message(powercap: Path, tmp_path: Path) -> None:
    (tmp_path / "cpuinfo").write_text("flags\t\t: fpu vme hypervisor lahf_lm\n")
    with pytest.raises(RaplUnavailable, match="virtual machine whose host does not pass"):
        find_zones(powercap, tmp_path)


def test_the_message_for_a_machine_without_counters_says_what_may_help(
    powercap: Path, tmp_path: Path
) -> None:
    (tmp_path / "cpuinfo").write_text("flags\t\t: fpu vme\n")
    with pytest.raises(RaplUnavailable, match="sudo modprobe intel_rapl_msr"):
        find_zones(powercap, tmp_path)


def test_a_zone_reads_microjoules_as_joules(powercap: Path) -> None:
    folder = add_zone(powercap, "0", "package-0", 1_500_000)
    assert Zone("package", "package-0", folder, 1.0).read_joules() == 1.5
