"""The type of a file system is read from the list of mounts; files are written whole or not at all."""

import os
from pathlib import Path

import pytest

from stepscope.filesystem import atomic_file, is_network, keeps_reserved_space, kind_of, write_once

LINE = "36 35 98:0 /part {point} rw,noatime master:1 - {kind} /dev/some rw,errors=continue"


@pytest.fixture
def listed(tmp_path):
    """Writes a list of mounts from (point, kind), the first mounted first."""

    def write(*points: tuple[str, str]) -> Path:
        path = tmp_path / "mountinfo"
        path.write_text("\n".join(LINE.format(point=point, kind=kind) for point, kind in points) + "\n")
        return path

    return write


def test_the_innermost_mount_decides(listed):
    mounts = listed(("/", "ext4"), ("/data", "xfs"), ("/data/shared", "nfs4"), ("/dat", "btrfs"))
    assert kind_of(Path("/data/shared/run"), mounts) == "nfs4"
    assert kind_of(Path("/data/shared"), mounts) == "nfs4"
    assert kind_of(Path("/data/sharedby"), mounts) == "xfs"
    assert kind_of(Path("/database"), mounts) == "ext4"


def test_the_order_of_the_list_does_not_matter(listed):
    mounts = listed(("/data/shared", "nfs4"), ("/data", "xfs"), ("/", "ext4"))
    assert kind_of(Path("/data/shared/run"), mounts) == "nfs4"


def test_of_two_mounts_at_one_point_the_later_decides(listed):
    mounts = listed(("/", "ext4"), ("/data", "autofs"), ("/data", "nfs"))
    assert kind_of(Path("/data/run"), mounts) == "nfs"


@pytest.mark.parametrize(
    ("escaped", "point"),
    [
        ("/my\\040disk", "/my disk"),
        ("/tab\\011bed", "/tab\tbed"),
        ("/back\\134slash", "/back\\slash"),
        ("/line\\012break", "/line\nbreak"),
        ("/münchen", "/münchen"),
        ("/\\134040", "/\\040"),
        ("/next\x85line\u2028end", "/next\x85line\u2028end"),
    ],
)
def test_a_mount_point_may_have_any_name(listed, escaped, point):
    mounts = listed(("/", "ext4"), (escaped, "nfs"))
    assert kind_of(Path(point) / "run", mounts) == "nfs"
    assert kind_of(Path(point + "x"), mounts) == "ext4"


def test_a_name_that_is_not_text_is_distinguished_too(tmp_path):
    mounts = tmp_path / "mountinfo"
    mounts.write_bytes(LINE.format(point="/raw", kind="nfs").encode().replace(b"/raw", b"/raw\xff"))
    assert kind_of(Path("/raw\udcff/run"), mounts) == "nfs"


def test_a_path_is_followed_to_where_it_leads(listed, tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    mounts = listed(("/", "ext4"), (str(tmp_path / "real"), "lustre"))
    assert kind_of(tmp_path / "link" / "not" / "yet" / "there", mounts) == "lustre"


def test_a_mount_without_optional_fields_is_understood(tmp_path):
    mounts = tmp_path / "mountinfo"
    mounts.write_text("36 35 98:0 / / rw - overlay overlay rw\n")
    assert kind_of(Path("/any"), mounts) == "overlay"


def test_where_there_is_no_list_nothing_is_known(tmp_path):
    assert kind_of(tmp_path, tmp_path / "missing") is None


def test_an_empty_mount_list_gives_no_file_system(tmp_path):
    (tmp_path / "mountinfo").touch()
    assert kind_of(tmp_path, tmp_path / "mountinfo") is None


def test_the_list_of_this_machine_is_understood():
    assert kind_of(Path("/proc/self")) == "proc"


@pytest.mark.parametrize("kind", ["nfs", "nfs4", "lustre", "cifs", "9p", "fuse.sshfs", "fuse.any"])
def test_network_file_systems_are_known(kind):
    assert is_network(kind)
    assert not keeps_reserved_space(kind)


@pytest.mark.parametrize("kind", ["ext4", "xfs", "tmpfs", "overlay", "fuseblk", None])
def test_local_file_systems_keep_what_was_reserved(kind):
    assert not is_network(kind)
    assert keeps_reserved_space(kind)


@pytest.mark.parametrize("kind", ["btrfs", "zfs", "bcachefs"])
def test_a_disk_that_copies_on_write_is_local_but_keeps_no_reserve(kind):
    assert not is_network(kind)
    assert not keeps_reserved_space(kind)


def test_a_replaced_file_has_its_new_content_and_nothing_is_left_beside_it(tmp_path):
    path = tmp_path / "settings.json"
    path.write_text("old")
    with atomic_file(path) as temporary:
        assert temporary.parent == tmp_path
        temporary.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_keeps_its_content_if_the_new_one_could_not_be_written(tmp_path):
    path = tmp_path / "settings.json"
    path.write_text("old")
    with pytest.raises(UnicodeEncodeError), atomic_file(path) as temporary:
        temporary.write_text("ne\ud800", encoding="utf-8")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_replaced_file_has_the_permissions_that_were_asked_for(tmp_path):
    path = tmp_path / "secret"
    path.write_text("old")
    path.chmod(0o644)
    before = os.umask(0o277)
    try:
        with atomic_file(path, 0o600) as temporary:
            assert temporary.stat().st_mode & 0o777 == 0o600
            temporary.write_text("new")
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_file_is_created_once_with_its_whole_content(tmp_path):
    path = tmp_path / "claim"
    assert write_once(path, b"first", 0o600)
    assert not write_once(path, b"second")
    assert path.read_bytes() == b"first"
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [path]
