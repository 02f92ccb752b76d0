"""Starts a demo run in a separate process, for people who have no run yet."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

from fastapi.exceptions import HTTPException

from stepscope.config.sections import Settings
from stepscope.schema.identity import run_id

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

DEMO_ARGUMENTS = ("--steps", "6000")
"""Long enough to watch while it trains: a minute or two."""


class Demo:
    """Records demo runs in a store folder, one at a time."""

    def __init__(self, folder: Path, arguments: tuple[str, ...] = DEMO_ARGUMENTS) -> None:
        self._folder, self._arguments = folder, arguments
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def is_playing(self) -> bool:
        """Whether a demo run is in progress."""
        return self._process is not None and self._process.poll() is None

    def play(self) -> str:
        """Starts a demo and returns its run id; refused while one runs, or where the folder is read-only."""
        with self._lock:
            if not _may_write(self._folder):
                raise HTTPException(405, "The server may not write to the store folder.")
            if self.is_playing:
                raise HTTPException(429, "A demo run is being played. Wait until it has ended.")
            name = f"demo-{secrets.token_hex(3)}"
            self._process = subprocess.Popen(
                [sys.executable, "-m", "stepscope", "demo", *self._arguments, *self._store_arguments()],
                env={**_without_settings(os.environ), "STEPSCOPE_RUN": name},
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        return run_id(Settings().project, name)

    def _store_arguments(self) -> list[str]:
        return ["--exit", "--store", str(self._folder.absolute())]


def _without_settings(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if not name.startswith("STEPSCOPE_")}


def _may_write(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(folder, os.W_OK)
