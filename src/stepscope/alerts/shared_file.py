"""A small JSON file beside the store that any process may change and the agent reads."""

from __future__ import annotations

import fcntl
import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from stepscope.errors import StoreError
from stepscope.filesystem import atomic_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

MAX_BYTES = 8 * 2**20
"""Larger files are rejected."""

Mark = tuple[int, int, int]
"""Identifies a version of the file: modification time, size and inode."""


class SharedFile:
    """One such file. Readers see the old content or the new, never a part."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def mark(self) -> Mark | None:
        """Returns a value that changes with the file; None if there is no file. Costs one stat."""
        try:
            status = self.path.stat()
        except OSError:
            return None
        return status.st_mtime_ns, status.st_size, status.st_ino

    def read(self) -> Any:
        """Returns the content; raises OSError, or ValueError if it is not JSON."""
        if self.path.stat().st_size > MAX_BYTES:
            raise ValueError(f"it has more than {MAX_BYTES:,} bytes")
        return json.loads(self.path.read_text(encoding="utf-8"))

    @contextmanager
    def changing(self, load: Callable[[], dict[str, Any]]) -> Iterator[dict[str, Any]]:
        """Locks the file, reads it with `load`, and writes it when the block ends without an error."""
        try:
            with self.path.with_suffix(".lock").open("a") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                document = load()
                yield document
                with atomic_file(self.path) as temporary:
                    temporary.write_text(json.dumps(document, indent=1), encoding="utf-8")
        except OSError as error:
            raise StoreError(f"{self.path} cannot be written: {error.strerror}.") from error
