"""Opens the store of a folder, whatever kind it is; nothing outside this room names a kind of store."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from stepscope.store.place import SCHEME, database
from stepscope.store.sqlite import health
from stepscope.store.sqlite.connecting import IN_MEMORY
from stepscope.store.sqlite.sqlite_marks import SqliteMarks
from stepscope.store.sqlite.sqlite_reader import SqliteReader
from stepscope.store.sqlite.sqlite_store import SqliteStore

if TYPE_CHECKING:
    from stepscope.store.base import Reader, Store, StoreHealth
    from stepscope.store.mark_store import MarkStore


def open_reader(place: Path | str) -> Reader:
    """Opens a store for reading: that of a folder, or that of a URL such as `sqlite:///path/of/a/file`.

    Raises NotFound where there is none, and StoreError where it cannot be read.
    """
    return SqliteReader(_path_of(place))


def open_store(place: Path | str) -> Store:
    """Opens a store for writing, or creates it; the caller holds the lock of its folder."""
    return SqliteStore(_path_of(place))


def empty_store() -> Store:
    """A store in memory with nothing in it, for readers of a folder that has none yet."""
    return SqliteStore(IN_MEMORY)


def open_marks(folder: Path) -> MarkStore:
    """Opens what people have added to the runs of a folder; it is created by the first change."""
    return SqliteMarks(folder)


def has_store(folder: Path) -> bool:
    """Whether a folder has a store."""
    return database(folder).exists()


def identity_of(folder: Path) -> tuple[int, int] | None:
    """Differs when another store is in the place of an earlier one; None where there is none."""
    try:
        status = database(folder).stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def find_damage(folder: Path, seconds: float) -> str | None:
    """What is wrong with the store of a folder; None if nothing was found within `seconds`."""
    return health.find_damage(database(folder), seconds)


def check_store(folder: Path) -> StoreHealth:
    """Whether the store of a folder can be used on this machine, and what it is."""
    return health.check(database(folder))


def _path_of(place: Path | str) -> Path:
    if isinstance(place, str) and place.startswith(SCHEME):
        return Path(place.removeprefix(SCHEME))
    return database(Path(place))
