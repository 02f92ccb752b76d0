"""Parses the command line; imports a command only when it is called."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from typing import TYPE_CHECKING

from stepscope.agent.process.report import explain_error
from stepscope.errors import StepscopeError

if TYPE_CHECKING:
    from collections.abc import Sequence

FINE, FAILED, MISUSED, ALERTED = 0, 1, 2, 3

COMMANDS = {
    "demo": "Train a small model and watch it.",
    "run": "Record any command as a run, without editing it.",
    "watch": "Watch a machine, with or without a training on it.",
    "profile": "Profile a Python command: where its time goes, operation by operation.",
    "serve": "Open the web page of a store.",
    "runs": "List the runs of a store.",
    "show": "Show one run: status, metrics, events.",
    "diagnose": "Explain why a run is slow or failing, and what to change.",
    "gate": "Fail if a run is slower than its baselines, for continuous integration.",
    "alert": "List alerts, test channels, mute rules, check rule files.",
    "export": "Write a run as CSV, JSON, JSONL or Parquet, or copy it to TensorBoard, MLflow or W&B.",
    "import": "Import runs of TensorBoard, W&B, trackio or MLflow, CSV files and JSON lines.",
    "prometheus": "Print alerting and recording rules for Prometheus.",
    "grafana": "Write dashboards for Grafana, and files that start it with Prometheus.",
    "mcp": "Let coding assistants ask about runs, by the Model Context Protocol.",
    "config": "Show, check or write settings.",
    "doctor": "Check what works on this machine and what does not, and why.",
}

MODULES = {"import": "import_runs"}
"""The modules of commands whose names no module can have; the others have the name of the command."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code: 0 success, 1 failure, 2 usage error, 3 alert or gate."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        parser = _parser(words[0] if words else None)
        options, unknown = parser.parse_known_args(words)
        if unknown:  # with the usage of the command, not with the list of all commands
            options.parser.error(f"unrecognized arguments: {' '.join(unknown)}")
        if "run_command" not in options:
            parser.print_help(sys.stderr)
            return MISUSED
        return int(options.run_command(options))
    except ModuleNotFoundError as error:
        print(f"stepscope: {explain_error(error)}", file=sys.stderr)
        return FAILED
    except StepscopeError as error:
        print(f"stepscope: {error}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        discard_output()  # its reader has ended (`| head`)
        return FINE


def discard_output() -> None:
    """Drops what could not be written; Python would fail again when it closes the output."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _parser(command: str | None) -> argparse.ArgumentParser:
    from stepscope import __version__

    parser = argparse.ArgumentParser(
        prog="stepscope", description="Watches a model being trained.", allow_abbrev=False
    )
    parser.add_argument("--version", action="version", version=f"stepscope {__version__}")
    parser.set_defaults(parser=parser)
    commands = parser.add_subparsers(metavar="COMMAND", title="commands")
    for name, summary in COMMANDS.items():
        subparser = commands.add_parser(name, help=summary, description=summary, allow_abbrev=False)
        if name == command:
            module = importlib.import_module(f"stepscope.cli.{MODULES.get(name, name)}")
            module.add_arguments(subparser)
            subparser.set_defaults(run_command=module.run, parser=subparser)
    return parser


if __name__ == "__main__":
    sys.exit(main())
