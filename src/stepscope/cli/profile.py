"""Runs a Python program and profiles some seconds of it, without editing it."""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stepscope.cli.main import FAILED, MISUSED
from stepscope.cli.options.find import add_store_argument
from stepscope.cli.output.table import Column, table
from stepscope.cli.output.text import emit, paint, safe, say, screen_width, to_json
from stepscope.config.find import settings_for
from stepscope.launcher.command import CannotStart, check, ending_of
from stepscope.launcher.signals import Signals
from stepscope.profiling.python_command import NotPython, PythonCommand, python_command
from stepscope.profiling.window.profiler_window import FOLDER, STORE_FOLDER
from stepscope.profiling.window.seconds_window import WindowRequest
from stepscope.profiling.window.session import Detail
from stepscope.views.formatting import size

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_SECONDS = 86_400.0
VIEWER = "https://ui.perfetto.dev"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares when and how long to profile, what to record, and where to write it."""
    parser.usage = (
        "stepscope profile [--after SECONDS] [--for SECONDS] [--output DIR] [--top N] [--shapes] [--stacks] "
        "[--memory] [--json] [--store DIR] -- python SCRIPT [ARGUMENT ...]"
    )
    parser.add_argument(
        "--after", type=_seconds, default=5.0, metavar="SECONDS", help="when to begin, from the start (5)"
    )
    parser.add_argument(
        "--for", dest="length", type=_length, default=5.0, metavar="SECONDS", help="how long to record (5)"
    )
    parser.add_argument(
        "--output", metavar="DIR", help="where to write (default: profiles in the store folder)"
    )
    parser.add_argument("--top", type=_count, default=15, metavar="N", help="operations to rank (15)")
    parser.add_argument("--shapes", action="store_true", help="record shapes of inputs")
    parser.add_argument("--stacks", action="store_true", help="record which function called an operation")
    parser.add_argument("--memory", action="store_true", help="record memory taken by operations")
    parser.add_argument("--json", action="store_true", help="print the summary as JSON")
    add_store_argument(parser)
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="COMMAND", help="what to run")


def run(options: argparse.Namespace) -> int:
    """Runs the command, prints what was recorded, and returns the command's exit code."""
    words = options.command[1:] if options.command[:1] == ["--"] else options.command
    if not words:
        say("Name a command to profile, as in: stepscope profile -- python train.py")
        return MISUSED
    try:
        command = python_command(words)
        check(words)
    except NotPython as error:
        say(str(error))
        return MISUSED
    except CannotStart as error:
        say(str(error))
        return error.exit_code
    command.check()
    request = WindowRequest(
        options.after,
        options.length,
        _folder(options) / f"{command.name}-{time.strftime('%Y%m%d-%H%M%S')}",
        Detail(options.shapes, options.stacks, options.memory),
        options.top,
    )
    reason = _why_unwritable(request.base.parent)
    if reason is not None:
        say(reason)
        return FAILED
    exit_code = _run(command, request)
    _show(request, as_json=options.json)
    return exit_code


def _folder(options: argparse.Namespace) -> Path:
    if options.output is not None:
        return Path(options.output).absolute()
    store = Path(options.store or settings_for().directory or STORE_FOLDER)
    return (store / FOLDER).absolute()


def _why_unwritable(folder: Path) -> str | None:
    """Why nothing can be written; checked before the command runs, not after."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        return f"{folder} cannot be created: {error.strerror}."
    return None


def _run(command: PythonCommand, request: WindowRequest) -> int:
    """Runs the command on this console and passes signals on to it."""
    signals = Signals(resize=lambda: None)
    try:
        process = subprocess.Popen(command.with_window(request))
        signals.pass_on_to(process)
        return ending_of(process.wait()).exit_code
    finally:
        signals.restore()


def _show(request: WindowRequest, *, as_json: bool) -> None:
    summary = _summary(request.base)
    if "reason" in summary:
        say(f"Nothing was profiled: {summary['reason']}.")
    if as_json:
        emit([to_json(summary)])
    elif "reason" not in summary:
        emit(_lines(summary))


def _summary(base: Path) -> dict[str, Any]:
    """The summary the program wrote of its window."""
    try:
        summary: dict[str, Any] = json.loads(base.with_name(f"{base.name}.json").read_text())
    except OSError:
        return {"reason": "the program ended before its window was complete"}
    return summary


def _lines(summary: dict[str, Any]) -> Iterator[str]:
    parts = summary["breakdown"]
    whole = summary["window_seconds"] or 1.0
    shares = (f"{name} {parts[f'{name}_seconds'] / whole:.0%}" for name in _PARTS)
    where = safe(parts["measured_on"])
    yield f"window   {summary['window_seconds']:.1f} s, time of the {where}: {', '.join(shares)}"
    for heading, key in _TABLES:
        if summary[key]:
            yield ""
            yield from _operations(heading, summary[key])
    yield ""
    yield paint(safe(summary["bottleneck"]), "heading")
    if summary["trace"] is not None:
        yield f"trace    {safe(summary['trace'])} (open it at {VIEWER})"


_PARTS = ("data", "compute", "communication", "idle")
_TABLES = (
    ("ON THE DEVICE, BY OPERATOR", "device_operations"),
    ("ON THE DEVICE, BY KERNEL", "kernels"),
    ("ON THE HOST, BY OPERATOR", "operations"),
)


def _operations(heading: str, operations: list[dict[str, Any]]) -> list[str]:
    """A table of operations; values that no operation has get no column."""
    extra = [
        name
        for name in ("memory_bytes", "shapes", "place")
        if any(operation[name] is not None for operation in operations)
    ]
    columns = [
        Column(heading, elastic=True),
        Column("CALLS", right=True),
        Column("SELF TIME", right=True),
        Column("SHARE", right=True),
        *(
            Column(_HEADINGS[name], right=name == "memory_bytes", elastic=name != "memory_bytes")
            for name in extra
        ),
    ]
    rows = [
        [
            operation["name"],
            f"{operation['calls']:,}",
            f"{operation['self_seconds'] * 1000:,.2f} ms",
            f"{operation['share_ratio']:.1%}",
            *(_cell(name, operation[name]) for name in extra),
        ]
        for operation in operations
    ]
    return table(columns, rows, screen_width())


_HEADINGS = {"memory_bytes": "MEMORY", "shapes": "SHAPES", "place": "CALLED FROM"}


def _cell(name: str, value: Any) -> str:
    if value is None:
        return "-"
    if name != "memory_bytes":
        return str(value)
    return f"-{size(-value)}" if value < 0 else size(value)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds <= MAX_SECONDS:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds from 0 to {MAX_SECONDS:.0f}.")
    return seconds


def _length(text: str) -> float:
    seconds = _seconds(text)
    if seconds == 0:
        raise argparse.ArgumentTypeError("a window of 0 seconds records nothing; give more.")
    return seconds


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number; give 1 or more.")
    return int(text)
