"""Copies a stored run into TensorBoard, MLflow or W&B, for the command `export`."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

from stepscope.cli.output.text import safe, say
from stepscope.errors import StepscopeError
from stepscope.reading import open_store
from stepscope.views.export.replay import replay

if TYPE_CHECKING:
    import argparse
    from collections.abc import Collection

    from stepscope.mirrors.remote_mirror import Existing, RemoteMirror
    from stepscope.reading import Run

TOOLS = ("tensorboard", "mlflow", "wandb")
TENSORBOARD_FOLDER = "tensorboard"

OPTIONS = {
    "output": ("tensorboard", "wandb"),
    "tracking_uri": ("mlflow",),
    "experiment": ("mlflow",),
    "project": ("wandb",),
    "entity": ("wandb",),
    "offline": ("wandb",),
    "format": (),
    "long": (),
    "per_epoch": (),
}
"""Options, and the tools they are for; those of none are for files."""


def add_tool_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the tool, and where it keeps runs."""
    parser.add_argument("tool", nargs="?", choices=TOOLS, metavar="TOOL", help=f"{', '.join(TOOLS)}")
    tools = parser.add_argument_group("tools")
    tools.add_argument(
        "--tracking-uri", metavar="URI", help="of MLflow, such as sqlite:///mlflow.db (default: its own)"
    )
    tools.add_argument("--experiment", metavar="NAME", help="of MLflow (default: the run's project)")
    tools.add_argument("--project", metavar="NAME", help="of W&B (default: the run's project)")
    tools.add_argument("--entity", metavar="NAME", help="of W&B (default: yours)")
    tools.add_argument("--offline", action="store_true", help="W&B: write files and upload nothing")


def take_tool(options: argparse.Namespace) -> None:
    """Takes the name of a tool for one, where it is the only name and no run has it."""
    if options.tool is None and options.run in TOOLS:
        store = open_store(options.store)
        if all(options.run not in (run.id, run.name) for run in store.runs()):
            options.tool, options.run = options.run, None
        store.close()


def check_tool_options(options: argparse.Namespace, stdout: str) -> None:
    """Raises ValueError with what to do for an option that is not for the tool, or for files."""
    for name, tools in OPTIONS.items():
        value = getattr(options, name)
        if value in (None, False, stdout):
            continue
        option = f"--{name.replace('_', '-')}"
        if options.tool is None and tools and name != "output":
            raise ValueError(
                f"{option} is for {tools[0]}. Name the tool after the run: stepscope export RUN {tools[0]}."
            )
        if options.tool is not None and options.tool not in tools:
            targets = " and ".join(tools) if tools else "files"
            raise ValueError(f"{option} is for {targets}, not for {options.tool}.")


def export_to_tool(run: Run, keys: Collection[str] | None, options: argparse.Namespace, stdout: str) -> None:
    """Copies the run, and says where it is."""
    output = None if options.output == stdout else options.output
    if options.tool == "tensorboard":
        _to_tensorboard(run, keys, output or TENSORBOARD_FOLDER, replaces=options.force)
        return
    existing: Existing = "duplicate" if options.force else "refuse"
    feed = _remote(options, output or "", existing)
    try:
        replay(run, feed, keys)
        feed.flush()
    finally:
        feed.close()
    say(f"Copied {safe(run.name)!r} to {feed.program}: {', '.join(feed.addresses)}.")
    if "://" in (options.tracking_uri or "") and not options.tracking_uri.startswith("http"):
        say(f"Open it with: mlflow ui --backend-store-uri {options.tracking_uri}")
    if any(address.startswith("/") for address in feed.addresses):
        say(f"Upload it with: wandb sync {' '.join(feed.addresses)}")


def _to_tensorboard(run: Run, keys: Collection[str] | None, folder: str, *, replaces: bool) -> None:
    # lazy: the library is an extra
    from stepscope.exporters.tensorboard import TensorBoard

    feed = TensorBoard(folder)
    folders = [feed.folder_of(run.id, segment.id) for segment in run.segments]
    existing = [file for place in folders for file in sorted(place.glob("*.tfevents.*"))]
    if existing and not replaces:
        raise StepscopeError(
            f"{existing[0].parent} has event files of {safe(run.name)!r} already; TensorBoard would show "
            "each value twice. Name another folder with --output, or replace them with --force."
        )
    for file in existing:
        file.unlink()
    replay(run, feed, keys)
    feed.close()
    say(f"Wrote {safe(run.name)!r} to {Path(folder) / run.id}. Open it with: tensorboard --logdir {folder}")


def _remote(options: argparse.Namespace, output: str, existing: Existing) -> RemoteMirror:
    # lazy: each tool is an extra
    if options.tool == "mlflow":
        from stepscope.exporters.mlflow import Mlflow

        return Mlflow(
            options.tracking_uri or "",
            options.experiment or "",
            points_per_second=math.inf,
            _existing=existing,
        )
    from stepscope.exporters.wandb import Wandb

    return Wandb(
        options.project or "",
        options.entity or "",
        mode="offline" if options.offline else "",
        directory=output,
        points_per_second=math.inf,
        _existing=existing,
    )
