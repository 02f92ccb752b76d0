"""Where a path is mounted, and how full that is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from stepscope.devices.host.mounts import mount_point, mounts, space
from tests.devices.written import write

MOUNTINFO = """\
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard
40 27 0:40 / /data rw,relatime shared:5 - nfs4 server:/data rw,vers=4.2
41 27 0:41 / /data/my\\040sets rw,relatime - xfs /dev/vdb rw
42 27 0:42 /docker/abc /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct
a line nobody understands
"""


def test_a_path_belongs_to_the_innermost_mount_around_it(tmp_path: Path) -> None:
    write(tmp_path, {"self/mountinfo": MOUNTINFO})
    mounted = mounts(tmp_path)
    assert mount_point("/data/my sets/train", mounted) == "/data/my sets"
    assert mount_point("/data/mine", mounted) == "/data"
    assert mount_point("/data", mounted) == "/data"
    assert mount_point("/database", mounted) == "/"
    assert mount_point("/anything", []) is None


def test_a_mount_has_its_kind_its_root_and_its_options(tmp_path: Path) -> None:
    write(tmp_path, {"self/mountinfo": MOUNTINFO})
    mount = mounts(tmp_path)[3]
    assert (mount.kind, mount.root, mount.options) == ("cgroup", "/docker/abc", ("rw", "cpu", "cpuacct"))


def test_free_space_is_that_of_the_file_system(tmp_path: Path) -> None:
    status = os.statvfs(tmp_path)
    room = space(tmp_path)
    assert room is not None
    assert room.total_bytes == status.f_blocks * status.f_frsize
    assert room.free_bytes == pytest.approx(status.f_bavail * status.f_frsize, rel=0.05)
    assert 0 <= room.used_ratio <= 1


def test_free_space_is_unknown_for_a_missing_folder_or_a_file_system_without_size(tmp_path: Path) -> None:
    assert space(tmp_path / "gone") is None
    assert space("/proc") is None
