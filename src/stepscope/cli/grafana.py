"""Writes the Grafana dashboards, and the files that set Grafana and Prometheus up."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from stepscope.cli.main import FINE
from stepscope.cli.output.atomic_file import atomic_files
from stepscope.cli.output.text import say
from stepscope.errors import StepscopeError
from stepscope.grafana.setup_files import setup_files

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the folder to write to."""
    parser.add_argument(
        "--output", metavar="DIR", default="grafana", help="folder to write; default: grafana"
    )
    parser.add_argument("--force", action="store_true", help="replace files that exist")


def run(options: argparse.Namespace) -> int:
    """Writes all files or none, and a summary to standard error."""
    folder = Path(options.output)
    files = {folder / name: text for name, text in setup_files().items()}
    try:
        for path in files:
            path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StepscopeError(f"{error.filename} cannot be made: {error.strerror}.") from error
    with atomic_files(force=options.force) as written:
        for path, text in files.items():
            with written.open(path) as file:
                file.write(text.encode())
    say(f"Wrote {len(files)} files to {folder}: import dashboards/*.json into Grafana, or use compose.yaml.")
    return FINE
