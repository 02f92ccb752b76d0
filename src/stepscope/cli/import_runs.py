"""Imports runs of other tools: `stepscope import`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from stepscope import plugins
from stepscope.cli.main import FINE
from stepscope.cli.options.find import add_store_argument
from stepscope.cli.output.table import Column, table
from stepscope.cli.output.text import emit, moment, safe, say, screen_width, to_json
from stepscope.reading import default_folder
from stepscope.run_import.run_import import Request, RunImport

if TYPE_CHECKING:
    import argparse

    from stepscope.run_import.run_import import ImportedRun


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares what to import, and under which names."""
    parser.add_argument("source", metavar="SOURCE", help="file or folder, or the address of an MLflow server")
    parser.add_argument(
        "--kind", choices=plugins.names("importers"), help="default: recognised from the source"
    )
    parser.add_argument("--project", metavar="P", help="default: that of the source")
    parser.add_argument("--name", metavar="N", help="name of the run, where the source has one")
    parser.add_argument("--dry-run", action="store_true", help="read the source and import nothing")
    parser.add_argument("--json", action="store_true", help="print a JSON array")
    add_store_argument(parser)


def run(options: argparse.Namespace) -> int:
    """Imports the runs, and prints a line for each."""
    folder = default_folder() if options.store is None else Path(options.store).expanduser()
    runs_import = RunImport(folder, say)
    act = runs_import.preview if options.dry_run else runs_import.run
    runs = act(Request(options.source, options.kind, options.project, options.name))
    emit([to_json([_as_dict(imported) for imported in runs])] if options.json else _lines(runs))
    new = [imported for imported in runs if not imported.is_known]
    known = len(runs) - len(new)
    before = f" {known} of {len(runs)} runs were imported before." if known else ""
    if options.dry_run:
        say(f"Nothing was written. Without --dry-run: {_count(len(new))} imported into {folder}.{before}")
    else:
        say(f"Imported {_count(len(new))} into {folder}.{before}")
    return FINE


def _count(runs: int) -> str:
    return f"{runs} run{'' if runs == 1 else 's'}"


def _lines(runs: list[ImportedRun]) -> list[str]:
    columns = [
        Column("RUN", elastic=True),
        Column("PROJECT", elastic=True),
        Column("STATUS", painted=True),
        Column("STARTED"),
        Column("METRICS", right=True),
        Column("POINTS", right=True),
        Column("NOTE", elastic=True),
    ]
    rows = []
    for imported in runs:
        summary = imported.summary
        if summary is None:
            cells = ["-", "-", "-", "-", f"imported before, as {imported.run_id}"]
        else:
            started = moment(imported.started_ns / 1e9)
            cells = [
                summary.end.status,
                started,
                f"{len(summary.keys):,}",
                f"{summary.points:,}",
                summary.end.reason,
            ]
        rows.append([imported.name, imported.project, *cells])
    return table(columns, rows, screen_width())


def _as_dict(imported: ImportedRun) -> dict[str, Any]:
    named = {
        "run": safe(imported.name),
        "id": imported.run_id,
        "project": safe(imported.project),
        "source": safe(imported.source),
        "imported_before": imported.is_known,
    }
    summary = imported.summary
    if summary is None:
        return named
    return {
        **named,
        "started": imported.started_ns / 1e9,
        "ended": summary.ended_ns / 1e9,
        "status": summary.end.status,
        "reason": safe(summary.end.reason),
        "metrics": len(summary.keys),
        "points": summary.points,
        "histograms": summary.arrays,
        "texts": summary.texts,
        "params": summary.params,
    }
