"""`MonitoringDashboard`: the web page of a store, started from Python."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from stepscope.config.find import settings_for
from stepscope.errors import ConfigError
from stepscope.guard import shown
from stepscope.recorder.monitor_settings import folder_argument
from stepscope.recorder.page_server import LOG_NAME, MAX_WAIT_S, Served, ensure_server, find_server
from stepscope.web.access import tokens
from stepscope.web.server.options import ServerOptions

if TYPE_CHECKING:
    from pathlib import Path


class MonitoringDashboard:
    """Shows the runs of a store folder; the default is that of `open_store`.

        MonitoringDashboard().run(host="localhost", port=8050)   # until Ctrl-C, as `stepscope serve`
        MonitoringDashboard().start()                            # beside a training

    The page needs the token in the address that is printed.
    """

    def __init__(self, directory: str | os.PathLike[str] | None = None) -> None:
        self._settings = settings_for()
        self.directory: Path = folder_argument(directory, self._settings)

    @property
    def url(self) -> str | None:
        """The address of the page, with its token; None while no server runs."""
        server = find_server(self.directory)
        return None if server is None else server.link()

    def run(self, host: str | None = None, port: int | None = None) -> None:
        """Serves the page until Ctrl-C; if a server is already running, prints its address.

        Without `port`, that of the settings or the next free one is used.
        """
        from stepscope.web.server.serving import serve  # lazy: the server's libraries

        options = self._options(host, port)
        path = tokens.path_of(self.directory, self._settings.dashboard.token_file)
        options = replace(options, token=tokens.token_of(path))
        warning = options.warning()
        if warning is not None:
            sys.stderr.write(f"{warning}\n")

        def announce(address: str) -> None:
            print_line(f"Dashboard: {Served(address, str(path), os.getpid()).link()}  (stop with Ctrl-C)")

        with contextlib.suppress(KeyboardInterrupt):
            other = serve(options, path, announce, exactly=port is not None)
            if other is not None:
                print_line(f"Dashboard: {other.link()}  (already running)")

    def start(self, host: str | None = None, port: int | None = None) -> str | None:
        """Starts the server in another process, unless one is running; it ends when it is idle.

        Prints the address and returns it; None if the server does not answer within five seconds.
        """
        options = self._options(host, port)
        dashboard = replace(self._settings.dashboard, enabled=True, host=options.host, port=options.port)
        self.directory.mkdir(parents=True, exist_ok=True)
        ensure_server(self.directory, replace(self._settings, dashboard=dashboard))
        deadline = time.monotonic() + MAX_WAIT_S
        while (url := self.url) is None and time.monotonic() < deadline:
            time.sleep(0.05)
        where = self.directory / LOG_NAME
        print_line(f"Dashboard: {url}" if url else f"The dashboard did not start; {where} says why.")
        return url

    def _options(self, host: str | None, port: int | None) -> ServerOptions:
        dashboard = self._settings.dashboard
        if not isinstance(host, str | None):
            raise ConfigError(f"argument: host is {shown(host)}; it must be text, such as localhost.")
        is_port = isinstance(port, int) and not isinstance(port, bool) and 0 <= port <= 65_535
        if port is not None and not is_port:
            raise ConfigError(f"argument: port is {shown(port)}; it must be a number from 0 to 65535.")
        options = ServerOptions(
            folder=self.directory,
            settings=self._settings,
            host=host or dashboard.host,
            port=dashboard.port if port is None else port,
            token="",  # replaced by that of the store before it serves
        )
        options.check()
        return options


def print_line(text: str) -> None:
    """Prints a line at once, also where the output is a file."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
