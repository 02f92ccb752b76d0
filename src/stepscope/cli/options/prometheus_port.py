"""The option `--prometheus-port`, which several commands have: serves a run's metrics for Prometheus."""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import TYPE_CHECKING

from stepscope.agent.process.election import agent_pid
from stepscope.cli.output.text import say
from stepscope.config.environment import variable_of

if TYPE_CHECKING:
    from pathlib import Path

    from stepscope.config.sections import Settings

NAME = "prometheus"


def add_port_argument(parser: argparse.ArgumentParser) -> None:
    """Declares the option of a command that records."""
    parser.add_argument(
        "--prometheus-port",
        type=valid_metrics_port,
        metavar="PORT",
        help="serve metrics for Prometheus on this port while it is recorded",
    )


def valid_port(text: str) -> int:
    """The number of a port."""
    if not text.isdecimal() or int(text) > 65_535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a valid port; give a number from 0 to 65535.")
    return int(text)


def valid_metrics_port(text: str) -> int:
    """The number of a port that Prometheus can be told, which one that is chosen later cannot."""
    port = valid_port(text)
    if not port:
        raise argparse.ArgumentTypeError("Prometheus must know the port; give a number from 1 to 65535.")
    return port


def with_port(settings: Settings, port: int | None) -> Settings:
    """The same settings with the exporter on this port; its other options stay."""
    if port is None:
        return settings
    options = {**settings.exporters.get(NAME, {}), "enabled": True, "port": port}
    return replace(settings, exporters={**settings.exporters, NAME: options})


def port_variables(port: int | None) -> dict[str, str]:
    """Environment variables with which a command that records serves its metrics on the port, too."""
    if port is None:
        return {}
    keys = (("exporters", NAME, "port"), ("exporters", NAME, "enabled"))
    return dict(zip(map(variable_of, keys), (str(port), "true"), strict=True))


def check_port(settings: Settings, port: int | None, folder: Path, *, recorded: bool) -> None:
    """Says why metrics cannot be served on the port, if they cannot; the command goes on."""
    if port is None:
        return
    if not recorded:
        say("Nothing is served to Prometheus either.")
    else:
        host = str(settings.exporters.get(NAME, {}).get("host", "127.0.0.1"))
        say_port_trouble(host, port, agent_pid(folder))


def say_port_trouble(host: str, port: int, own_pid: int | None) -> None:
    """Prints what is in the way of a server on this port."""
    from stepscope.prometheus.metrics_server import port_trouble  # lazy: only with the option

    trouble = port_trouble(host, port, own_pid)
    if trouble is not None:
        say(trouble)
