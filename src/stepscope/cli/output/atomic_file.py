"""Writes the files of a command atomically: all appear complete, or none does."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from stepscope import filesystem
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
    try:
        with contextlib.ExitStack() as stack:
            yield AtomicFiles(stack, force=force)
    except OSError as error:
        raise StepscopeError(f"The export could not be written: {error.strerror}.") from error


class AtomicFiles:
    """Temporary files, in the folders of their targets."""

    def __init__(self, stack: contextlib.ExitStack, *, force: bool) -> None:
        self._stack, self._force = stack, force
        self._temporary: dict[Path, Path] = {}

    def open(self, path: Path) -> BinaryIO:
        """Opens a file to write, or to append if it was opened before; the caller closes it."""
        if path not in self._temporary:
            refuse_existing(path, force=self._force)
            try:
                self._temporary[path] = self._stack.enter_context(filesystem.atomic_file(path))
            except OSError as error:
                raise StepscopeError(f"{path} cannot be written: {error.strerror}.") from error
        return self._temporary[path].open("ab")

    @property
    def paths(self) -> list[Path]:
        """The targets of the files."""
        return list(self._temporary)
