"""The database is in its folder, is read from read-only folders too, and avoids network file systems."""

import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import stepscope
from stepscope.errors import StoreError
from stepscope.store.place import database
from stepscope.store.sqlite import SqliteReader, SqliteStore
from tests.golden import make
from tests.store.run_samples import append, points, process

MOUNT = "{number} 1 0:{number} / {point} rw shared:1 - {kind} server:/export rw\n"


def mounts(tmp_path, *points):
    """A list of mounts as the system gives it, from (point, kind)."""
    listed = tmp_path / "mountinfo"
    lines = [
        MOUNT.format(number=number, point=point, kind=kind)
        for number, (point, kind) in enumerate(points, start=20)
    ]
    listed.write_text("".join(lines))
    return listed


@pytest.fixture
def read_only(tmp_path):
    """Makes a folder of its own where nothing may be written, not even by root."""
    mounted = []

    def make_read_only(*files: Path) -> Path:
        place = tmp_path / "medium"
        place.mkdir()
        done = subprocess.run(["mount", "-t", "tmpfs", "tmpfs", place], capture_output=True, check=False)
        if done.returncode != 0:
            pytest.skip(f"mounting is not permitted here: {done.stderr.decode().strip()}")
        mounted.append(place)
        for file in files:
            shutil.copy(file, place)
        subprocess.run(["mount", "-o", "remount,ro", place], check=True)
        return place

    if shutil.which("mount") is None:
        pytest.skip("there is no mount command here")
    yield make_read_only
    for place in mounted:
        subprocess.run(["umount", "--lazy", place], check=True)


class TestReadOnlyFolders:
    def test_a_store_in_a_read_only_folder_is_readable(self, read_only, tmp_path):
        shutil.copy(make.STORE, tmp_path / "store.sqlite")
        place = read_only(tmp_path / "store.sqlite")
        runs = stepscope.open_store(place)
        assert len(runs.run("golden").series("lr")) == 400
        runs.close()

    def test_a_store_in_a_read_only_folder_cannot_be_written(self, read_only, tmp_path):
        shutil.copy(make.STORE, tmp_path / "store.sqlite")
        place = read_only(tmp_path / "store.sqlite")
        with pytest.raises(StoreError, match="cannot be opened"):
            SqliteStore(place / "store.sqlite")
        with pytest.raises(StoreError, match="cannot be opened"):
            SqliteStore(place / "deeper" / "store.sqlite")

    def test_rows_that_only_the_log_of_a_dead_writer_has_are_not_left_out_in_silence(
        self, read_only, tmp_path
    ):
        store = SqliteStore(tmp_path / "store.sqlite")
        with store.transaction():
            store.put_process(process())
        append(store, {"loss": [1.0]})
        place = read_only(tmp_path / "store.sqlite", tmp_path / "store.sqlite-wal")
        with pytest.raises(StoreError, match="Copy the folder"):
            SqliteReader(place / "store.sqlite")
        copied = tmp_path / "copied"
        copied.mkdir()
        for file in place.iterdir():
            shutil.copy(file, copied)
        reader = SqliteReader(copied / "store.sqlite")
        assert points(reader).values.tolist() == [1.0]
        reader.close()
        store.close()

    def test_a_file_that_is_not_a_store_is_refused_in_a_read_only_folder_too(self, read_only, tmp_path):
        (tmp_path / "store.sqlite").write_text("not a database " * 100)
        place = read_only(tmp_path / "store.sqlite")
        with pytest.raises(StoreError, match="cannot be read"):
            SqliteReader(place / "store.sqlite")

    def test_a_newer_store_is_refused_in_a_read_only_folder_too(self, read_only, tmp_path):
        raw = bytearray(make.STORE.read_bytes())
        raw[60:64] = (99).to_bytes(4, "big")
        (tmp_path / "store.sqlite").write_bytes(raw)
        place = read_only(tmp_path / "store.sqlite")
        with pytest.raises(StoreError, match="version 99"):
            SqliteReader(place / "store.sqlite")


def test_a_read_only_file_is_readable(tmp_path):
    path = shutil.copy(make.STORE, tmp_path / "store.sqlite")
    path.chmod(0o444)
    reader = SqliteReader(path)
    assert len(points(reader, "lr", make.RUN)) == 400
    reader.close()


@pytest.mark.parametrize("name", ["with blank", "100%", "a?b#c", "ünï"])
def test_a_folder_may_have_any_name(tmp_path, name):
    folder = tmp_path / name
    store = SqliteStore(database(folder))
    with store.transaction():
        store.put_process(process())
    append(store, {"loss": np.ones(3)})
    reader = SqliteReader(database(folder))
    assert len(points(reader)) == 3
    reader.close()
    store.close()


class TestNetworkFileSystems:
    @pytest.fixture(autouse=True)
    def cache(self, monkeypatch, tmp_path):
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        return tmp_path / "cache"

    def test_on_a_local_disk_the_database_is_in_its_folder(self, tmp_path):
        listed = mounts(tmp_path, ("/", "ext4"))
        assert database(tmp_path / "runs", listed) == tmp_path / "runs" / "store.sqlite"

    def test_where_the_system_does_not_say_the_database_is_in_its_folder(self, tmp_path):
        assert database(tmp_path / "runs", tmp_path / "missing").parent == tmp_path / "runs"

    @pytest.mark.parametrize("kind", ["nfs", "nfs4", "lustre", "cifs", "fuse.sshfs", "fuse.unheard-of"])
    def test_on_a_network_the_database_goes_to_the_cache_of_this_machine(self, tmp_path, cache, kind):
        listed = mounts(tmp_path, ("/", "ext4"), (tmp_path, kind))
        path = database(tmp_path / "runs", listed)
        assert path.is_relative_to(cache / "stepscope")
        assert path.name == "store.sqlite"

    def test_without_a_cache_folder_the_home_folder_has_one(self, tmp_path, monkeypatch):
        monkeypatch.delenv("XDG_CACHE_HOME")
        monkeypatch.setenv("HOME", str(tmp_path / "home"))
        listed = mounts(tmp_path, ("/", "nfs"))
        assert database(tmp_path / "runs", listed).is_relative_to(tmp_path / "home" / ".cache")

    def test_each_folder_has_one_database_by_any_path(self, tmp_path):
        listed = mounts(tmp_path, ("/", "nfs"))
        (tmp_path / "runs").mkdir()
        (tmp_path / "link").symlink_to(tmp_path / "runs")
        os.chdir(tmp_path)
        place = database(tmp_path / "runs", listed)
        assert database(tmp_path / "other", listed) != place
        for path in (Path("runs"), Path("runs/../runs"), tmp_path / "link"):
            assert database(path, listed) == place
