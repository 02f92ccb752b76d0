"""Writes a run as CSV, JSON, JSON lines or Parquet, or copies it into TensorBoard, MLflow or W&B."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from stepscope.cli.main import FINE, MISUSED
from stepscope.cli.options.find import add_run_arguments, chosen_run, suggestion
from stepscope.cli.output.atomic_file import atomic_file, atomic_files
from stepscope.cli.output.text import safe, say
from stepscope.cli.tool_export import add_tool_arguments, check_tool_options, export_to_tool, take_tool
from stepscope.errors import NotFound, StepscopeError
from stepscope.exporters.csv_file import CsvFile
from stepscope.exporters.json_file import JsonFile
from stepscope.exporters.jsonl import JsonLines
from stepscope.exporters.parquet import Parquet
from stepscope.views.export.epochs import KEY, by_epoch
from stepscope.views.export.rows import long_rows, wide_rows
from stepscope.views.formatting import size

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable, Sequence
    from typing import BinaryIO

    from stepscope.exporters.base import Exporter, Rows
    from stepscope.reading import Run

FORMATS: dict[str, Callable[[BinaryIO], Exporter]] = {
    "csv": CsvFile,
    "json": JsonFile,
    "jsonl": JsonLines,
    "parquet": Parquet,
}
ENDINGS = {
    ".csv": "csv",
    ".json": "json",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
    ".pq": "parquet",
}
STDOUT = "-"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares which run to write, in which format, and where."""
    add_run_arguments(parser)
    add_tool_arguments(parser)
    parser.add_argument("--format", choices=FORMATS, help="default: by the output's ending, else csv")
    parser.add_argument(
        "--output",
        metavar="PATH",
        default=STDOUT,
        help="file to write; - is standard output; with a tool, its folder",
    )
    parser.add_argument("--keys", metavar="A,B", help="only these keys, in this order")
    parser.add_argument(
        "--machine", action="store_true", help="what was read from the machine instead of what was logged"
    )
    shape = parser.add_mutually_exclusive_group()
    shape.add_argument("--long", action="store_true", help="a row for each value, with its key")
    shape.add_argument("--per-epoch", action="store_true", help="a CSV file for each epoch")
    parser.add_argument("--force", action="store_true", help="replace files that exist")


def run(options: argparse.Namespace) -> int:
    """Writes the run, and a summary to standard error."""
    take_tool(options)
    try:
        check_tool_options(options, STDOUT)
        format_name = "" if options.tool else _format(options)
    except ValueError as error:
        say(str(error))
        return MISUSED
    store, chosen = chosen_run(options)
    if options.tool:
        export_to_tool(chosen, _keys_for_tool(chosen, options), options, STDOUT)
        store.close()
        return FINE
    keys = _chosen_keys(chosen, options.keys, machine=options.machine)
    if options.per_epoch:
        _write_per_epoch(chosen, keys, options)
    else:
        batches = long_rows(chosen, keys) if options.long else wide_rows(chosen, keys)
        _write(batches, FORMATS[format_name], options)
    store.close()
    return FINE


def _format(options: argparse.Namespace) -> str:
    """The output format; raises ValueError with what to do where the options do not say it."""
    ending = Path(options.output).suffix.lower()
    to_stdout = options.output == STDOUT
    if not (options.format or to_stdout or ending in ENDINGS):
        known = ", ".join(ENDINGS)
        raise ValueError(f"{options.output} has none of the endings {known}. Name the format with --format.")
    chosen: str = options.format or ENDINGS.get(ending, "csv")
    if options.per_epoch and chosen != "csv":
        raise ValueError(f"--per-epoch writes CSV files, not {chosen}.")
    if chosen == "parquet" and to_stdout and sys.stdout.isatty():
        raise ValueError("A terminal cannot show Parquet. Name a file with --output.")
    return chosen


def _chosen_keys(run: Run, option: str | None, *, machine: bool) -> list[str]:
    logged = [info.key for info in run.keys()]
    sampled = [info.key for info in run.machine_keys()]
    if option is None:
        return sampled if machine else logged
    known = [*logged, *sampled]
    # A key may itself have a comma.
    chosen = [option] if option in known else list(dict.fromkeys(option.split(",")))
    for key in chosen:
        if key not in known:
            raise NotFound(f"Run {safe(run.name)!r} has no key {safe(key)!r}; {suggestion(key, known)}")
    return chosen


def _keys_for_tool(run: Run, options: argparse.Namespace) -> list[str] | None:
    """The keys of a run for a tool, which gets logged values and those of the machine; None for all keys."""
    if options.keys is None and not options.machine:
        return None
    return _chosen_keys(run, options.keys, machine=options.machine)


def _write(
    batches: Iterable[Rows], exporter: Callable[[BinaryIO], Exporter], options: argparse.Namespace
) -> None:
    if options.output == STDOUT:
        _publish(batches, exporter(sys.stdout.buffer))
        sys.stdout.flush()
        return
    path = Path(options.output)
    with atomic_file(path, force=options.force) as file:
        count = _publish(batches, exporter(file))
    say(f"Wrote {count:,} rows to {path} ({size(path.stat().st_size)}).")


def _publish(batches: Iterable[Rows], exporter: Exporter) -> int:
    count = 0
    for rows in batches:
        exporter.publish(rows)
        count += len(rows)
    exporter.close()
    return count


def _write_per_epoch(run: Run, keys: Sequence[str], options: argparse.Namespace) -> None:
    base = Path(f"{run.id}.csv") if options.output == STDOUT else Path(options.output)
    has_epochs = any(info.key == KEY for info in run.keys())
    columns = [*keys, KEY] if has_epochs and KEY not in keys else keys
    with atomic_files(force=options.force) as files:
        for epoch, rows in by_epoch(wide_rows(run, columns), keep_key=KEY in keys):
            name = "none" if epoch is None else f"{epoch:04d}"
            path = base.with_name(f"{base.stem}.epoch-{name}.csv")
            # Opened for each batch: a run may have more epochs than a process may have open files.
            is_new = path not in files.paths
            with files.open(path) as file:
                CsvFile(file, heading=is_new).publish(rows)
        written = files.paths
    if not written:
        raise StepscopeError(f"Run {safe(run.name)!r} has no rows to write.")
    say(f"Wrote {len(written)} files, {written[0]} to {written[-1]}.")
