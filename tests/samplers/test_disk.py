"""What disks do, and the room on the file systems a run uses."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from stepscope.errors import ConfigError
from stepscope.samplers.disk import DiskSampler
from stepscope.schema.sample import DeviceFacts
from tests.devices.written import HandClock, values_of, watched, write


def line(name: str, reads: int, sectors: int, read_ms: int, busy_ms: int = 0) -> str:
    """The line of a disk that has written half as much as it has read, half as often, in half the time."""
    halves = f"{reads // 2} 0 {sectors // 2} {read_ms // 2}"
    return f" 8 0 {name} {reads} 0 {sectors} {read_ms} {halves} 0 {busy_ms} 0\n"


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    for name in ("sda", "sdb"):
        write(tmp_path / "sys", {f"block/{name}/size": "2048\n"})
    return tmp_path / "proc"


def disk(proc: Path, clock: HandClock, **options: object) -> DiskSampler:
    return DiskSampler(_proc=proc, _sys=proc.parent / "sys", _now=clock, **options)  # type: ignore[arg-type]


def test_rates_of_each_disk_and_of_all_come_with_the_second_look(proc: Path) -> None:
    clock = HandClock()
    sampler = disk(proc, clock)
    write(proc, {"diskstats": line("sda", 0, 0, 0) + line("sdb", 0, 0, 0) + line("sda1", 0, 0, 0)})
    assert values_of(sampler.sample([])) == {}
    write(
        proc,
        {"diskstats": line("sda", 40, 80, 400, 1500) + line("sdb", 20, 40, 0) + line("sda1", 40, 80, 0)},
    )
    clock.now += 2
    samples = list(sampler.sample([]))
    assert values_of(samples, "sda") == {
        "disk/read_bytes_per_second": 20480.0,
        "disk/write_bytes_per_second": 10240.0,
        "disk/reads_per_second": 20.0,
        "disk/writes_per_second": 10.0,
        "disk/busy_ratio": 0.75,
        "disk/wait_seconds": pytest.approx(0.01),
        "disk/read_wait_seconds": pytest.approx(0.01),
        "disk/write_wait_seconds": pytest.approx(0.01),
    }
    assert values_of(samples) == {
        "disk/read_bytes_per_second": 30720.0,
        "disk/write_bytes_per_second": 15360.0,
        "disk/reads_per_second": 30.0,
        "disk/writes_per_second": 15.0,
    }
    assert values_of(samples, "sda1") == {}


def test_a_disk_that_did_nothing_has_no_wait(proc: Path) -> None:
    clock = HandClock()
    sampler = disk(proc, clock)
    write(proc, {"diskstats": line("sda", 40, 80, 400)})
    list(sampler.sample([]))
    clock.now += 1
    values = values_of(sampler.sample([]), "sda")
    assert values["disk/reads_per_second"] == 0
    assert not any("wait" in key for key in values)


def test_a_disk_that_is_plugged_in_later_is_found_and_introduced(proc: Path) -> None:
    clock = HandClock()
    sampler = disk(proc, clock)
    introduced = []
    for text in (line("sda", 1, 2, 0), line("sda", 1, 2, 0) + line("sdb", 9, 9, 0), line("sdb", 9, 9, 0)):
        write(proc, {"diskstats": text})
        clock.now += 1
        introduced.append(
            [reading.device for reading in sampler.sample([]) if isinstance(reading, DeviceFacts)]
        )
    assert introduced == [["sda"], ["sdb"], []]


def test_pressure_is_reported_for_the_host(proc: Path) -> None:
    clock = HandClock()
    sampler = disk(proc, clock)
    for total in (0, 250_000):
        write(proc, {"pressure/io": f"some avg10=1.00 total={total}\nfull avg10=1.00 total=0\n"})
        clock.now += 1
        values = values_of(sampler.sample([]))
    assert values == {"disk/pressure_some_ratio": 0.25, "disk/pressure_full_ratio": 0.0}


def test_free_space_is_reported_for_the_store_the_working_directories_and_further_paths(proc: Path) -> None:
    root = proc.parent
    for name in ("store", "work", "checkpoints"):
        (root / name / "inner").mkdir(parents=True)
    points = [root / "store", root / "work", root / "checkpoints"]
    lines = [f"{n} 1 0:{n} / {point} rw - ext4 /dev/sda rw\n" for n, point in enumerate(points)]
    write(proc, {"self/mountinfo": "".join(lines)})
    for pid in (7, 8):
        (proc / str(pid)).mkdir()
        (proc / f"{pid}/cwd").symlink_to(root / "work/inner")
    sampler = disk(proc, HandClock(), _folder=root / "store/inner", paths=[str(root / "checkpoints")])
    samples = list(sampler.sample([watched(7), watched(8, 1), watched(99, 2)]))
    status = os.statvfs(root)
    assert sorted(sample.device for sample in samples) == sorted(map(str, points))
    values = values_of(samples, str(root / "work"))
    assert values["disk/total_bytes"] == status.f_blocks * status.f_frsize
    assert values["disk/free_bytes"] == pytest.approx(status.f_bavail * status.f_frsize, rel=0.05)
    assert 0 <= values["disk/used_ratio"] <= 1


def test_free_space_is_read_at_intervals(proc: Path) -> None:
    clock = HandClock()
    write(proc, {"self/mountinfo": f"1 1 0:1 / {proc.parent} rw - ext4 /dev/sda rw\n"})
    sampler = disk(proc, clock, _folder=proc.parent)
    readings = []
    for _ in range(3):
        readings.append(len(list(sampler.sample([]))))
        clock.now += 5
    assert readings == [1, 0, 1]


def test_one_path_in_place_of_a_list_is_refused_with_what_to_write() -> None:
    with pytest.raises(ConfigError, match=r"samplers.disk.paths is '/data'; it must be a list"):
        DiskSampler(paths="/data")


def test_a_machine_without_readable_files_yields_nothing(tmp_path: Path) -> None:
    sampler = DiskSampler(_proc=tmp_path / "proc", _sys=tmp_path / "sys", _now=HandClock(), _folder=tmp_path)
    assert list(sampler.sample([watched(7)])) == []
