"""Decides where the database of a store folder is."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from stepscope.filesystem import MOUNTS, atomic_file, is_network, kind_of, read_regular

FILE_NAME = "store.sqlite"
POINTER_NAME = "store.url"
SCHEME = "sqlite:///"


def database(folder: Path, mounts: Path = MOUNTS) -> Path:
    """The database of a folder: where its pointer says, else inside it.

    A folder on a network file system has it on the local disk: SQLite's write-ahead log needs memory shared
    between processes, which no network file system offers.
    """
    try:
        return folder / os.fsdecode(read_regular(folder / POINTER_NAME)).strip().removeprefix(SCHEME)
    except OSError:
        pass
    if not is_network(kind_of(folder, mounts)):
        return folder / FILE_NAME
    digest = hashlib.sha256(os.fsencode(folder.resolve())).hexdigest()[:16]
    return _cache_folder() / "stepscope" / digest / FILE_NAME


def point_to(folder: Path, url: str) -> None:
    """Writes the absolute path of a folder's database into the folder, so that every reader finds it."""
    path = Path(url.removeprefix(SCHEME)).absolute()
    pointer = folder / POINTER_NAME
    content = f"{SCHEME}{path}\n"
    if not pointer.exists() or os.fsdecode(read_regular(pointer)) != content:
        folder.mkdir(parents=True, exist_ok=True)
        with atomic_file(pointer) as new:
            new.write_text(content)


def _cache_folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
