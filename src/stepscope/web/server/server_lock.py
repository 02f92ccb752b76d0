"""Sees to it that a store has one server, and leaves word where it listens."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
from dataclasses import asdict
from typing import TYPE_CHECKING

from stepscope import procfs
from stepscope.recorder.page_server import NAME

if TYPE_CHECKING:
    from pathlib import Path

LOCK_NAME = "server.lock"


class ServerLock:
    """The right to serve a store: the kernel's lock on a file, gone with the process that holds it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._descriptor: int | None = None

    def take(self) -> bool:
        """Whether this process may serve: no other does, or nothing can be written that would tell."""
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

    def announce(self, address: str, token_file: Path | None) -> None:
        """Leaves word of the address; only this user can read it."""
        told = {
            "address": address,
            "token_file": None if token_file is None else str(token_file.absolute()),
            "host": os.uname().nodename,
            "process": asdict(procfs.mark(os.getpid())),
        }
        beside = self._folder / f".{NAME}.{secrets.token_hex(6)}"
        with contextlib.suppress(OSError):
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
            descriptor = os.open(beside, flags, 0o600)
            with os.fdopen(descriptor, "w") as file:
                os.fchmod(descriptor, 0o600)
                file.write(json.dumps(told))
            beside.replace(self._folder / NAME)

    def release(self) -> None:
        """Takes the word back and lets another serve."""
        if self._descriptor is not None:
            with contextlib.suppress(OSError):
                (self._folder / NAME).unlink()
            os.close(self._descriptor)
            self._descriptor = None
