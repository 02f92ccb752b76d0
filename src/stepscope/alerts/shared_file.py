"""A small JSON file beside the store that people change from anywhere and the agent reads."""

from __future__ import annotations

import fcntl
import json
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from stepscope.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

MAX_BYTES = 8 * 2**20
"""A larger file is none of ours."""

Mark = tuple[int, int, int]
"""What changes with a file's content: its time, its size, its inode."""


class SharedFile:
    """One such file. Who reads it sees the old content or the new, never a part."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def mark(self) -> Mark | None:
        """What to compare with to know whether it has changed; None where there is no file. One stat."""
        try:
            found = self.path.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino

    def read(self) -> Any:
        """What it holds; raises OSError, or ValueError where that is not JSON."""
        if self.path.stat().st_size > MAX_BYTES:
            raise ValueError(f"it has more than {MAX_BYTES:,} bytes")
        return json.loads(self.path.read_text(encoding="utf-8"))

    @contextmanager
    def changing(self, load: Callable[[], dict[str, Any]]) -> Iterator[dict[str, Any]]:
        """Holds the file's lock from reading, by `load`, to writing; an error in between writes nothing."""
        try:
            with self.path.with_suffix(".lock").open("a") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                document = load()
                yield document
                fresh = self.path.with_suffix(".new")
                with fresh.open("w", encoding="utf-8") as file:
                    file.write(json.dumps(document, indent=1))
                    file.flush()
                    os.fsync(file.fileno())
                fresh.replace(self.path)
        except OSError as error:
            raise StoreError(f"{self.path} cannot be written: {error.strerror}.") from error
