"""Lets coding assistants ask about runs, by the Model Context Protocol."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from stepscope.cli.main import FINE
from stepscope.cli.options.find import add_store_argument
from stepscope.cli.options.prometheus_port import valid_port
from stepscope.cli.output.text import emit, say
from stepscope.config.find import settings_for
from stepscope.errors import NotFound
from stepscope.mcp.skill import write_skill
from stepscope.store.open import identity_of
from stepscope.web.access import tokens
from stepscope.web.server.options import ServerOptions

if TYPE_CHECKING:
    import argparse

DEFAULT_PORT = 8790
HTTP_OPTIONS = (
    "host", "port", "no_token", "tls_certificate", "tls_key", "behind_proxy", "allow_host",
)  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares how clients connect, what they may do, and where to write the skill."""
    add_store_argument(parser)
    parser.add_argument(
        "--allow-writes", action="store_true", help="also allow notes, tags, silences, opinions"
    )
    parser.add_argument(
        "--write-skill", type=Path, metavar="DIR", help="write the skill for assistants into DIR, and exit"
    )
    parser.add_argument("--http", action="store_true", help="serve over HTTP instead of stdin and stdout")
    http = parser.add_argument_group("with --http")
    http.add_argument("--host", default="127.0.0.1", help="address to listen on (default: 127.0.0.1)")
    http.add_argument("--port", type=valid_port, help=f"port (default: {DEFAULT_PORT}, or the next free one)")
    http.add_argument("--no-token", action="store_true", help="no token: all users of this machine can read")
    http.add_argument("--tls-certificate", type=Path, metavar="FILE", help="certificate, for https")
    http.add_argument("--tls-key", type=Path, metavar="FILE", help="its private key")
    http.add_argument("--behind-proxy", action="store_true", help="a proxy in front of the server encrypts")
    http.add_argument("--allow-host", action="append", default=[], metavar="NAME", help="allowed host name")


def run(options: argparse.Namespace) -> int:
    """Serves until the client ends or the server is stopped, or writes the skill."""
    if options.write_skill is not None:
        emit([str(write_skill(options.write_skill))])
        return FINE
    parser = options.parser
    given = [name for name in HTTP_OPTIONS if getattr(options, name) != parser.get_default(name)]
    if given and not options.http:
        parser.error(f"--{given[0].replace('_', '-')} needs --http")
    settings = settings_for()
    server_options = ServerOptions(
        folder=Path(options.store or settings.directory or ".stepscope").absolute(),
        settings=settings,
        host=options.host,
        port=DEFAULT_PORT if options.port is None else options.port,
        token=None if options.no_token else "",
        tls_certificate=options.tls_certificate,
        tls_key=options.tls_key,
        behind_proxy=options.behind_proxy,
        allowed_hosts=tuple(options.allow_host),
    )
    if options.http and not server_options.folder.exists():
        # The token is in this folder: a mistyped one must not be created.
        raise NotFound(
            f"There is no folder {server_options.folder}. Record a run first, name another folder with "
            "--store, or create it if the first run will be recorded there."
        )
    if identity_of(server_options.folder) is None:
        say(f"There is no store at {server_options.folder} yet. Tools say so until a run is recorded there.")
    with contextlib.suppress(KeyboardInterrupt):
        if options.http:
            _serve_http(server_options, options)
        else:
            _serve_stdio(server_options, allows_writes=options.allow_writes)
    return FINE


def _serve_stdio(server_options: ServerOptions, *, allows_writes: bool) -> None:
    """Serves one client on standard input and output, until it closes them."""
    # lazy: `--help` and `--write-skill` work without the server's libraries
    from stepscope.mcp.server import create_server
    from stepscope.mcp.watched_store import WatchedStore

    store = WatchedStore(server_options)
    try:
        server = create_server(store, allows_writes=allows_writes)
        if sys.stdin.isatty():
            say("Waiting for an MCP client on standard input. Clients start this command themselves.")
        # A thread waits for standard input, and an interrupt alone would not end it.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        server.run("stdio")
    finally:
        store.close()


def _serve_http(server_options: ServerOptions, options: argparse.Namespace) -> None:
    """Serves clients that have the token of the page, until it is stopped."""
    from stepscope.mcp.http_server import serve
    from stepscope.web.server.serving import log_to_file

    server_options.check()
    folder, token_file = server_options.folder, server_options.settings.dashboard.token_file
    path = None if options.no_token else tokens.path_of(folder, token_file)
    server_options = replace(server_options, token=None if path is None else tokens.token_of(path))
    warning = server_options.warning()
    if warning is not None:
        say(warning)

    def announce(address: str) -> None:
        token = f"token    in {path}" if path is not None else "header   X-Stepscope: 1"
        emit([f"mcp      {address}", token, f"store    {folder}", f"stop     kill {os.getpid()}"])

    log_to_file(folder)
    serve(server_options, announce, allows_writes=options.allow_writes, exactly=options.port is not None)
