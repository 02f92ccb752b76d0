"""Folders that have not changed are not read again, and a change is never missed for long."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from stepscope.journal import folder_cache
from stepscope.journal.folder_cache import FolderCache

LONG_AGO_S = 1_000_000


class Cache:
    """A cache with a clock that is set by hand, and a count of the folders it reads."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.reads = 0.0, 0
        self._folder, self._scandir = folder, os.scandir
        monkeypatch.setattr(folder_cache.os, "scandir", self._counted)
        self._cache = FolderCache(lambda: self.now)

    def _counted(self, path: str):
        self.reads += 1
        return self._scandir(path)

    def names(self) -> list[str]:
        return sorted(Path(path).name for path in self._cache.entries(str(self._folder)))


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cache:
    (tmp_path / "one").touch()
    return Cache(tmp_path, monkeypatch)


def age(folder: Path) -> None:
    os.utime(folder, (LONG_AGO_S, LONG_AGO_S))


def test_a_folder_that_has_not_changed_is_read_once(cache: Cache, tmp_path: Path) -> None:
    age(tmp_path)
    assert [cache.names() for _ in range(5)] == [["one"]] * 5
    assert cache.reads == 1


@pytest.mark.parametrize(
    "change",
    [
        lambda folder: (folder / "two").touch(),
        lambda folder: (folder / "one").unlink(),
        lambda folder: (folder / "one").rename(folder / "two"),
    ],
)
def test_a_change_is_seen_at_once(cache: Cache, tmp_path: Path, change: Callable[[Path], None]) -> None:
    age(tmp_path)
    before = cache.names()
    change(tmp_path)
    now = cache.names()
    assert now != before
    assert now == sorted(os.listdir(tmp_path))


def test_a_folder_that_has_just_changed_is_read_again_until_its_time_can_be_trusted(
    cache: Cache, tmp_path: Path
) -> None:
    status = tmp_path.stat()
    cache.names()
    (tmp_path / "two").touch()
    os.utime(tmp_path, ns=(status.st_atime_ns, status.st_mtime_ns))  # as if within one tick of the clock
    assert cache.names() == ["one", "two"]


def test_a_change_that_does_not_show_in_the_time_of_the_folder_is_seen_in_some_seconds(
    cache: Cache, tmp_path: Path
) -> None:
    age(tmp_path)
    cache.names()
    (tmp_path / "two").touch()
    age(tmp_path)
    cache.now = 5.0
    assert cache.names() == ["one", "two"]


def test_a_folder_that_is_gone_or_is_none_holds_nothing_and_may_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "runs"
    cache = Cache(folder, monkeypatch)
    assert cache.names() == []
    folder.touch()
    assert cache.names() == []
    folder.unlink()
    folder.mkdir()
    (folder / "one").touch()
    assert cache.names() == ["one"]
