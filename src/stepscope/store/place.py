"""Decides where the database of a store folder lies."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from stepscope.filesystem import MOUNTS, is_network, kind_of

FILE_NAME = "store.sqlite"


def database(folder: Path, mounts: Path = MOUNTS) -> Path:
    """The database of a folder: inside it, or on the local disk when the folder is on a network.

    SQLite's write-ahead log needs memory shared between processes, which no network file system gives.
    """
    if not is_network(kind_of(folder, mounts)):
        return folder / FILE_NAME
    digest = hashlib.sha256(os.fsencode(folder.resolve())).hexdigest()[:16]
    return _cache() / "stepscope" / digest / FILE_NAME


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
