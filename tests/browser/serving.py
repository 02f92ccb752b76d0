"""Serves a store by the real command, in a process of its own, and stops and starts it again."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

TEST_PAGE = Path(__file__).resolve().parents[2] / "ui" / "serve_test_page.py"


class Served:
    """A server of a store, as `stepscope serve` starts it: with the page of tests, or the one users get."""

    def __init__(self, folder: Path, *flags: str, shipped: bool = False) -> None:
        program = ["-m", "stepscope"] if shipped else [str(TEST_PAGE)]
        self._command = [sys.executable, *program, "serve", "--store", str(folder), *flags]
        self._process: subprocess.Popen[str] | None = None
        self._port = "0"
        self.link = ""
        """The address with its token, as it is printed."""
        self.start()

    @property
    def base(self) -> str:
        """The address without the token, up to where paths begin."""
        parts = urlsplit(self.link)
        return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"

    def start(self) -> None:
        """Starts it; a second time on the same port."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("STEPSCOPE_")}
        self._process = subprocess.Popen(
            [*self._command, "--port", self._port], env=environment, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line.startswith("page"), f"the server did not say where it is: {line!r}"
        self.link = line.split(maxsplit=1)[1].strip()
        self._port = str(urlsplit(self.link).port)

    def kill(self) -> None:
        """Ends it at once, as a crash would."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None
