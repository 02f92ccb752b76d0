"""Makes sure that a store has one server, and writes its address to a file."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from dataclasses import asdict
from typing import TYPE_CHECKING

from stepscope import procfs
from stepscope.filesystem import atomic_file
from stepscope.recorder.page_server import NAME

if TYPE_CHECKING:
    from pathlib import Path

LOCK_NAME = "server.lock"


class ServerLock:
    """A file lock that gives the right to serve a store; the kernel frees it when the process ends."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._descriptor: int | None = None

    def acquire(self) -> bool:
        """Whether this process may serve: no other does, or the folder cannot hold a lock file."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            descriptor = os.open(self._folder / LOCK_NAME, flags, 0o600)
        except OSError:
            return True
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return False
        self._descriptor = descriptor
        return True

    def write_address(self, address: str, token_file: Path | None) -> None:
        """Writes the address to a file that only this user can read."""
        document = {
            "address": address,
            "token_file": None if token_file is None else str(token_file.absolute()),
            "host": os.uname().nodename,
            "process": asdict(procfs.mark(os.getpid())),
        }
        with contextlib.suppress(OSError), atomic_file(self._folder / NAME, 0o600) as temporary:
            temporary.write_text(json.dumps(document))

    def release(self) -> None:
        """Deletes the address file and frees the lock."""
        if self._descriptor is not None:
            with contextlib.suppress(OSError):
                (self._folder / NAME).unlink()
            os.close(self._descriptor)
            self._descriptor = None
