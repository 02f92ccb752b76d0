"""Opens the web page of a store."""

from __future__ import annotations

import contextlib
import getpass
import os
import socket
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from stepscope.cli.main import FINE
from stepscope.cli.options.find import add_store_argument
from stepscope.cli.options.prometheus_port import say_port_trouble, valid_metrics_port, valid_port
from stepscope.cli.output.text import emit, say
from stepscope.config.find import settings_for
from stepscope.recorder.page_server import Served, find_server
from stepscope.web.access import tokens
from stepscope.web.server.options import ServerOptions

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from stepscope.config.sections import Settings

SSH_PORT = "22"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares where to listen, what to serve, and who has access."""
    add_store_argument(parser)
    parser.add_argument("--host", help="address to listen on (default: dashboard.host, 127.0.0.1)")
    parser.add_argument(
        "--port", type=valid_port, help="port (default: dashboard.port, 8787, or the next free one)"
    )
    parser.add_argument("--unix-socket", type=Path, metavar="PATH", help="listen on a socket file instead")
    parser.add_argument(
        "--no-token", action="store_true", help="no token: all users of this machine can read"
    )
    parser.add_argument("--read-only", action="store_true", help="refuse changes: notes, tags, silences")
    parser.add_argument("--tls-certificate", type=Path, metavar="FILE", help="certificate, for https")
    parser.add_argument("--tls-key", type=Path, metavar="FILE", help="its private key")
    parser.add_argument("--behind-proxy", action="store_true", help="a proxy in front of the server encrypts")
    parser.add_argument("--allow-host", action="append", default=[], metavar="NAME", help="allowed host name")
    parser.add_argument("--base-path", default="", metavar="PATH", help="URL prefix, such as /stepscope")
    parser.add_argument(
        "--prometheus-port",
        type=valid_metrics_port,
        metavar="PORT",
        help="also serve metrics for Prometheus on a port of their own; /metrics of the page has them, too",
    )
    parser.add_argument("--open", action="store_true", help="open the page in the browser")


def run(options: argparse.Namespace) -> int:
    """Serves until it is stopped; where another server has the store already, prints its address."""
    settings = settings_for()
    folder = Path(options.store or settings.directory or ".stepscope").absolute()
    if not folder.exists():
        say(f"There is no store at {folder} yet. The page is empty until a run is recorded there.")
    running = find_server(folder)
    if running is not None and _is_listening(running):
        _print_running(running, folder, options)
        return FINE
    path = None if options.no_token else tokens.path_of(folder, settings.dashboard.token_file)
    server_options = _server_options(options, settings, folder)
    server_options.check()
    server_options = replace(server_options, token=None if path is None else tokens.token_of(path))
    if options.prometheus_port is not None:
        say_port_trouble(server_options.prometheus_host, options.prometheus_port, None)
    warning = server_options.warning()
    if warning is not None:
        say(warning)

    def announce(address: str) -> None:
        served = Served(address, None if path is None else str(path), os.getpid())
        emit(_lines(served, folder, server_options))
        if options.open:
            _open(served.link())

    # lazy: `--help` and errors in options work without the server's libraries
    from stepscope.web.server.serving import log_to_file, serve

    log_to_file(folder)
    with contextlib.suppress(KeyboardInterrupt):
        other = serve(server_options, path, announce, exactly=options.port is not None)
        if other is not None:
            _print_running(other, folder, options)
    return FINE


def _server_options(options: argparse.Namespace, settings: Settings, folder: Path) -> ServerOptions:
    """The options of the server, before the token is read."""
    return ServerOptions(
        folder=folder,
        settings=settings,
        host=options.host or settings.dashboard.host,
        port=settings.dashboard.port if options.port is None else options.port,
        token=None if options.no_token else "",
        read_only=options.read_only,
        tls_certificate=options.tls_certificate,
        tls_key=options.tls_key,
        behind_proxy=options.behind_proxy,
        allowed_hosts=tuple(options.allow_host),
        base_path=options.base_path,
        unix_socket=options.unix_socket,
        prometheus_port=options.prometheus_port,
    )


def _lines(served: Served, folder: Path, server_options: ServerOptions) -> Iterator[str]:
    """The address, the store, how to stop, and how to reach it from another machine."""
    yield f"page     {served.link()}"
    yield f"store    {folder}"
    if server_options.prometheus_port is not None:
        host = server_options.prometheus_host
        shown_host = f"[{host}]" if ":" in host else host
        yield f"metrics  http://{shown_host}:{server_options.prometheus_port}/metrics"
    yield "stop     Ctrl-C"
    if server_options.is_local and server_options.unix_socket is None and "SSH_CONNECTION" in os.environ:
        yield f"from your machine     {_ssh_command(served.address)}"


def _ssh_command(address: str) -> str:
    """The command that makes a server on loopback reachable from another machine."""
    parts = urlsplit(address)
    connection = os.environ["SSH_CONNECTION"].split()
    host, ssh_port = connection[2:] if len(connection) == 4 else (socket.gethostname(), SSH_PORT)
    port = "" if ssh_port == SSH_PORT else f" -p {ssh_port}"
    return f"ssh -N{port} -L {parts.port}:{parts.hostname}:{parts.port} {getpass.getuser()}@{host}"


def _print_running(running: Served, folder: Path, options: argparse.Namespace) -> None:
    emit([f"page     {running.link()}", f"store    {folder}", f"stop     kill {running.pid}"])
    say("A server is already running for this store; the options of this command have no effect on it.")
    if options.open:
        _open(running.link())


def _is_listening(running: Served) -> bool:
    """Whether something listens at the address a server has written."""
    parts = urlsplit(running.address)
    if parts.hostname is None or parts.port is None:
        return True  # a socket file
    try:
        socket.create_connection((parts.hostname, parts.port), timeout=1.0).close()
    except OSError:
        return False
    return True


def _open(link: str) -> None:
    import webbrowser  # lazy: rarely needed

    webbrowser.open(link)
