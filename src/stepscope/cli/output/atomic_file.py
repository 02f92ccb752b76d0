"""Writes files atomically: each appears complete or not at all."""

from __future__ import annotations

import contextlib
import secrets
from typing import TYPE_CHECKING

from stepscope.errors import StepscopeError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import BinaryIO


def refuse_existing(path: Path, *, force: bool) -> None:
    """Raises where the path exists, unless it is a file and `force` is set."""
    if path.exists() and not path.is_file():
        raise StepscopeError(f"{path} exists and is not a file; name another output.")
    if path.exists() and not force:
        raise StepscopeError(f"{path} exists; pass --force to replace it.")


@contextlib.contextmanager
def atomic_file(path: Path, *, force: bool) -> Iterator[BinaryIO]:
    """A temporary file that gets the name of the target when everything is written."""
    with atomic_files(force=force) as files, files.open(path) as file:
        yield file


@contextlib.contextmanager
def atomic_files(*, force: bool) -> Iterator[AtomicFiles]:
    """Several files that get their names together when everything is written; none on any error."""
    files = AtomicFiles(force=force)
    try:
        yield files
        files.publish()
    except OSError as error:
        raise StepscopeError(f"The export could not be written: {error.strerror}.") from error
    finally:
        files.discard()


class AtomicFiles:
    """Temporary files, in the folders of their targets."""

    def __init__(self, *, force: bool) -> None:
        self._force = force
        self._temporary: dict[Path, Path] = {}

    def open(self, path: Path) -> BinaryIO:
        """Opens a file to write, or to append if it was opened before; the caller closes it."""
        if path in self._temporary:
            return self._temporary[path].open("ab")
        refuse_existing(path, force=self._force)
        temporary = path.with_name(f".{path.name[:200]}.{secrets.token_hex(4)}")
        try:
            file = temporary.open("xb")
        except OSError as error:
            raise StepscopeError(f"{path} cannot be written: {error.strerror}.") from error
        self._temporary[path] = temporary
        return file

    @property
    def paths(self) -> list[Path]:
        """The targets of the files."""
        return list(self._temporary)

    def publish(self) -> None:
        """Gives every file its name."""
        for path, temporary in list(self._temporary.items()):
            temporary.replace(path)
            del self._temporary[path]

    def discard(self) -> None:
        """Deletes files that were not published."""
        for temporary in self._temporary.values():
            temporary.unlink(missing_ok=True)
