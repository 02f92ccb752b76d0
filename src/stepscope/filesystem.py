"""Finds the type of a path's file system; opens, creates, replaces and shares files."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from stepscope.descriptors import open_above_streams

if TYPE_CHECKING:
    from collections.abc import Iterator

MOUNTS = Path("/proc/self/mountinfo")

NETWORK = frozenset(
    [
        "9p",
        "afs",
        "beegfs",
        "ceph",
        "cifs",
        "cvmfs",
        "fuse.gcsfuse",
        "fuse.glusterfs",
        "fuse.s3fs",
        "fuse.sshfs",
        "gpfs",
        "lustre",
        "ncpfs",
        "nfs",
        "nfs4",
        "panfs",
        "pvfs2",
        "smb3",
        "smbfs",
        "wekafs",
    ]
)
COPY_ON_WRITE = frozenset(["bcachefs", "btrfs", "zfs"])

_ESCAPE = re.compile(r"\\([0-7]{3})")


def kind_of(path: Path, mounts: Path = MOUNTS) -> str | None:
    """The file system type of a path, existing or not; None where it is unknown."""
    target = os.path.realpath(path)
    best, kind = "", None
    try:
        lines = mounts.read_bytes().split(b"\n")
    except OSError:
        return None
    for line in filter(None, lines):
        before, _, after = os.fsdecode(line).partition(" - ")
        point = _ESCAPE.sub(_unescaped, before.split(" ")[4])
        inside = target == point or target.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):
            best, kind = point, after.split(" ")[0]
    return kind


def _unescaped(escape: re.Match[str]) -> str:
    """A blank, tab, line break or backslash, which the system writes as an octal number."""
    return chr(int(escape[1], 8))


def is_network(kind: str | None) -> bool:
    """Whether other machines may write to the same files; true for any FUSE mount."""
    return kind is not None and (kind in NETWORK or kind.startswith("fuse."))


def has_inodes(kind: str | None) -> bool:
    """Whether a file keeps its inode number; FUSE may change it at any time."""
    return kind is None or not kind.startswith("fuse")


def keeps_reserved_space(kind: str | None) -> bool:
    """Whether reserved blocks stay reserved, so that a mapped write can never fail."""
    return not (is_network(kind) or kind in COPY_ON_WRITE)


def open_regular(path: Path, flags: int, mode: int = 0o666) -> int:
    """Opens a file without blocking; raises OSError for a pipe, a folder or a device."""
    descriptor = open_above_streams(path, flags | os.O_NONBLOCK, mode)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "Not a file", str(path))
    return descriptor


def read_regular(path: Path, max_bytes: int = 1 << 20) -> bytes:
    """Reads a small file without blocking; raises OSError for anything but a regular file."""
    descriptor = open_regular(path, os.O_RDONLY)
    try:
        return os.pread(descriptor, max_bytes, 0)
    finally:
        os.close(descriptor)


def share(path: Path, folder: Path) -> None:
    """Gives a new file or folder the group and other permissions of its store folder, whatever the umask is.

    In a store folder that only its owner may write, the umask applies.
    """
    with contextlib.suppress(OSError):
        mode = stat.S_IMODE(folder.stat().st_mode)
        if mode & (stat.S_IWGRP | stat.S_IWOTH):
            own = path.stat().st_mode
            inherited = mode & (0o2777 if stat.S_ISDIR(own) else 0o666)
            path.chmod(stat.S_IMODE(own) | inherited)


def is_closed(folder: Path) -> bool:
    """Whether a folder, or one above it, may not be entered by this user."""
    try:
        (folder / "any name").lstat()
    except OSError as error:
        return isinstance(error, PermissionError)
    return False


@contextlib.contextmanager
def temporary_file(path: Path, mode: int | None = None) -> Iterator[Path]:
    """Creates an empty file with a hidden name beside `path`, and deletes it if it is still there at the end.

    `mode` sets its exact permissions; without it the umask applies.
    """
    temporary = path.with_name(f".{path.name[:200]}.{os.getpid()}.{os.urandom(6).hex()}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    descriptor = open_above_streams(temporary, flags, 0o666 if mode is None else mode)
    try:
        try:
            if mode is not None:
                os.fchmod(descriptor, mode)
        finally:
            os.close(descriptor)
        yield temporary
    finally:
        temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def atomic_file(path: Path, mode: int | None = None) -> Iterator[Path]:
    """A temporary file that replaces `path`, after it was flushed to disk, unless the block raises.

    Readers see the old file or the new one, never a part, also after a loss of power.
    """
    with temporary_file(path, mode) as temporary:
        yield temporary
        descriptor = open_above_streams(temporary, os.O_WRONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        temporary.replace(path)


def write_once(path: Path, content: bytes, mode: int | None = None) -> bool:
    """Creates a file atomically with its content; False where another process was faster."""
    with temporary_file(path, mode) as temporary:
        _write(open_above_streams(temporary, os.O_WRONLY), content)
        try:
            os.link(temporary, path)
        except FileExistsError:
            return False
        except OSError as error:
            if error.errno not in (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK):
                raise
            return _write_where_nothing_is_linked(path, content, 0o666 if mode is None else mode)
    return True


def _write_where_nothing_is_linked(path: Path, content: bytes, mode: int) -> bool:
    try:
        descriptor = open_above_streams(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    except FileExistsError:
        return False
    _write(descriptor, content)
    return True


def _write(descriptor: int, content: bytes) -> None:
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
