"""Writes the secret settings of a run beside its journal, readable only for its own user's agent.

Channels and exporters contain tokens, and URLs that work like passwords. They are not recorded, because
records are stored and shown, but written to a file that only its owner can read. The agent deletes it when
the run has ended and all its notices are delivered. Standard library only, because training processes import
this.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stepscope.config.secret import is_reference
from stepscope.descriptors import open_above_streams
from stepscope.filesystem import has_inodes, kind_of, open_regular
from stepscope.journal.folder import journals_of, make_run_folder, parse

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from stepscope.config.sections import Settings
    from stepscope.journal.folder import JournalName

SUFFIX = ".settings"
MAX_FILE_BYTES = 1 << 22


@dataclass(frozen=True)
class PrivateSettings:
    """The contents of a private settings file."""

    directory: Path | None = None
    """The working directory of the process, the base of relative paths in the options."""
    channels: dict[str, Any] = field(default_factory=dict)
    link: str | None = None
    exporters: dict[str, Any] = field(default_factory=dict)
    prices_file: str | None = None
    """The absolute path of `energy.prices_file`, where the run has a target for its cost."""


def has_private(settings: Settings) -> bool:
    """Whether a run has private settings; most have none, and write no file."""
    is_priced = settings.targets.cost is not None and settings.energy.prices_file is not None
    return bool(settings.alerts.channels or settings.alerts.link or settings.exporters or is_priced)


def private_file(store: Path, name: JournalName) -> Path:
    """The path of a process's private settings."""
    return journals_of(store) / name.run_id / f"{name.segment}-r{name.rank}-{name.pid}{SUFFIX}"


def write_private(path: Path, settings: Settings, environment: Mapping[str, str] = os.environ) -> None:
    """Writes the file; raises OSError where it cannot be written, or cannot be private."""
    content = {
        "directory": _working_directory(),
        "channels": _resolved(settings.alerts.channels, environment),
        "link": settings.alerts.link,
        "exporters": _resolved(settings.exporters, environment),
        "prices_file": _prices_file(settings),
    }
    make_run_folder(path.parent)
    path.unlink(missing_ok=True)
    # Written under its final name: an incomplete file of a killed process is then deleted like the others.
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    descriptor = open_above_streams(path, flags, 0o600)
    try:
        with open(descriptor, "w", encoding="utf-8") as file:  # noqa: PTH123 - a descriptor has no path
            # Before anything is written: some file systems give every file the same mode.
            _check_private(descriptor, path, "it would hold secrets, and")
            json.dump({**content, "inode": os.fstat(descriptor).st_ino}, file)
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def read_private(path: Path) -> PrivateSettings:
    """Reads the file; raises OSError where it cannot be read, or another user may have written it."""
    descriptor = open_regular(path, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        # Options name files to write and URLs to call: those of another user must not be used.
        _check_private(descriptor, path, "it is not used, because")
        content = json.loads(os.pread(descriptor, MAX_FILE_BYTES, 0))
        if content["inode"] != os.fstat(descriptor).st_ino and has_inodes(kind_of(path)):
            # Otherwise a store from somebody else could make this agent write files and call URLs.
            raise OSError(errno.EACCES, "it is not used, because it is a copy from elsewhere", str(path))
        return PrivateSettings(
            directory=None if content["directory"] is None else Path(content["directory"]),
            channels=dict(content["channels"]),
            link=content["link"],
            exporters=dict(content["exporters"]),
            prices_file=content["prices_file"],
        )
    except (ValueError, TypeError, KeyError) as error:
        raise OSError(errno.EINVAL, "it is damaged", str(path)) from error
    finally:
        os.close(descriptor)


def list_private(store: Path) -> Iterator[tuple[JournalName, Path]]:
    """All private settings files of a store, with the process of each."""
    for path in sorted(journals_of(store).glob(f"*/*{SUFFIX}")):
        name = parse(path.with_suffix(".0"))
        if name is not None:
            yield name, path


def _check_private(descriptor: int, path: Path, consequence: str) -> None:
    status = os.fstat(descriptor)
    mode = stat.S_IMODE(status.st_mode)
    if status.st_uid != os.geteuid():
        reason = f"it belongs to user {status.st_uid}, not to user {os.geteuid()}"
    elif mode & 0o077:
        reason = f"others could read or write it (mode {mode:04o})"
    else:
        return
    raise OSError(errno.EACCES, f"{consequence} {reason}", str(path))


def _prices_file(settings: Settings) -> str | None:
    if settings.targets.cost is None or settings.energy.prices_file is None:
        return None
    return str(Path(settings.energy.prices_file).absolute())


def _working_directory() -> str | None:
    try:
        return str(Path.cwd())
    except OSError:  # it was deleted
        return None


def _resolved(value: Any, environment: Mapping[str, str]) -> Any:
    """The options without references to this process's environment variables and working directory."""
    if is_reference(value):
        [(kind, name)] = value.items()
        if kind == "env":
            return environment.get(name, value)
        return {"file": os.path.abspath(name)}  # noqa: PTH100 - links in it are left as they are
    if isinstance(value, dict):
        return {name: _resolved(part, environment) for name, part in value.items()}
    if isinstance(value, list):
        return [_resolved(part, environment) for part in value]
    return value
