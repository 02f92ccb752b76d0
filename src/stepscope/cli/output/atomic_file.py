"""Writes files so that each appears whole or not at all."""

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
    """Refuses to write over what is there, unless it is a file and that is wanted."""
    if path.exists() and not path.is_file():
        raise StepscopeError(f"{path} is there and is no file; name another output.")
    if path.exists() and not force:
        raise StepscopeError(f"{path} exists; pass --force to replace it.")


@contextlib.contextmanager
def whole_file(path: Path, *, force: bool) -> Iterator[BinaryIO]:
    """A file beside the target that takes its name when all is written."""
    with whole_files(force=force) as files, files.open(path) as file:
        yield file


@contextlib.contextmanager
def whole_files(*, force: bool) -> Iterator[WholeFiles]:
    """Several files that take their names together, when all is written; none on any error."""
    files = WholeFiles(force=force)
    try:
        yield files
        files.publish()
    except OSError as error:
        raise StepscopeError(f"The export could not be written: {error.strerror}.") from error
    finally:
        files.discard()


class WholeFiles:
    """Files under other names, beside those they will have."""

    def __init__(self, *, force: bool) -> None:
        self._force = force
        self._hidden: dict[Path, Path] = {}

    def open(self, path: Path) -> BinaryIO:
        """A file to write to, the same one when asked again; the caller closes it."""
        if path in self._hidden:
            return self._hidden[path].open("ab")
        refuse_existing(path, force=self._force)
        hidden = path.with_name(f".{path.name[:200]}.{secrets.token_hex(4)}")
        try:
            file = hidden.open("xb")
        except OSError as error:
            raise StepscopeError(f"{path} cannot be written: {error.strerror}.") from error
        self._hidden[path] = hidden
        return file

    @property
    def paths(self) -> list[Path]:
        """The names the files will have."""
        return list(self._hidden)

    def publish(self) -> None:
        """Gives every file its name."""
        for path, hidden in list(self._hidden.items()):
            hidden.replace(path)
            del self._hidden[path]

    def discard(self) -> None:
        """Deletes what has not got its name."""
        for hidden in self._hidden.values():
            hidden.unlink(missing_ok=True)
