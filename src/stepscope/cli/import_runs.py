"""Imports runs of other tools: `stepscope import`."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stepscope import plugins
from stepscope.cli.main import FAILED, FINE
from stepscope.cli.options.find import add_store_argument
from stepscope.cli.output.table import Column, table
from stepscope.cli.output.text import emit, moment, safe, say, screen_width, to_json
from stepscope.reading import default_folder
from stepscope.run_import.run_import import RunImport
from stepscope.run_import.source_runs import Request

if TYPE_CHECKING:
    import argparse

    from stepscope.run_import.run_import import ImportedRun

MAX_REMARKS = 20
NOT_IMPORTED = ("changed", "damaged")
"""What became of runs that the store does not have as they are in the source."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares what to import, and under which names."""
    parser.add_argument("source", metavar="SOURCE", help="file or folder, or the address of an MLflow server")
    parser.add_argument(
        "--kind", choices=plugins.names("importers"), help="default: recognised from the source"
    )
    parser.add_argument("--project", metavar="P", help="default: that of the source")
    parser.add_argument("--name", metavar="N", help="name of the run, where the source has one")
    parser.add_argument(
        "--again",
        action="store_true",
        help="import runs whose source has changed since they were imported, as new runs",
    )
    parser.add_argument(
        "--skip-damaged", action="store_true", help="import the other runs where some cannot be read"
    )
    parser.add_argument("--dry-run", action="store_true", help="read the source and import nothing")
    parser.add_argument("--json", action="store_true", help="print a JSON array")
    add_store_argument(parser)


def run(options: argparse.Namespace) -> int:
    """Imports the runs, and prints a line for each."""
    folder = default_folder() if options.store is None else Path(options.store).expanduser()
    runs_import = RunImport(folder, say)
    if "://" in options.source:
        say(f"Reading {_without_password(options.source)}")
    act = runs_import.preview if options.dry_run else runs_import.run
    names = options.source, options.kind, options.project, options.name
    runs = act(Request(*names, again=options.again, skip_damaged=options.skip_damaged))
    emit([to_json([_as_dict(imported) for imported in runs])] if options.json else _lines(runs))
    _say_remarks(runs)
    _say_counts(runs, folder, is_dry_run=options.dry_run)
    return FAILED if any(imported.outcome in NOT_IMPORTED for imported in runs) else FINE


def _without_password(address: str) -> str:
    scheme, _, rest = address.partition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme}://{host.rpartition('@')[2]}{slash}{path}"


def _say_remarks(runs: list[ImportedRun]) -> None:
    """Says what is special about each run, such as what of it was left out."""
    remarks = [
        f"{imported.name}: {remark}."
        for imported in runs
        if imported.summary is not None
        for remark in imported.summary.remarks
    ]
    for remark in remarks[:MAX_REMARKS]:
        say(remark)
    if len(remarks) > MAX_REMARKS:
        say(f"{len(remarks) - MAX_REMARKS:,} more remarks on runs are in the output of --json.")


def _say_counts(runs: list[ImportedRun], folder: Path, *, is_dry_run: bool) -> None:
    counts = Counter(imported.outcome for imported in runs)
    known = counts["known"] + counts["changed"]
    sentences = [f"{known} of {len(runs)} runs were imported before." if known else ""]
    if counts["changed"]:
        sentences.append(
            f"The source of {_count(counts['changed'])} has changed since: --again imports it as a new run."
        )
    sentences.append(f"Nothing to import is in {_count(counts['empty'])}." if counts["empty"] else "")
    sentences.append(f"{_count(counts['damaged'])} left out as damaged." if counts["damaged"] else "")
    rest = "".join(f" {sentence}" for sentence in sentences if sentence)
    imported = _count(counts["imported"])
    if is_dry_run:
        say(f"Nothing was written. Without --dry-run: {imported} imported into {folder}.{rest}")
    else:
        say(f"Imported {imported} into {folder}.{rest}")


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
            status = "damaged" if imported.outcome == "damaged" else "-"
            cells = [status, "-", "-", "-", _note(imported)]
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


def _note(imported: ImportedRun) -> str:
    """Why a run is not imported now."""
    known = [f"imported before, as {imported.run_id}"] if imported.is_known else []
    return "; ".join([*known, *filter(None, [imported.reason])])


def _as_dict(imported: ImportedRun) -> dict[str, Any]:
    named = {
        "run": safe(imported.name),
        "id": imported.run_id,
        "project": safe(imported.project),
        "source": safe(imported.source),
        "imported_before": imported.is_known,
        "outcome": imported.outcome,
    }
    summary = imported.summary
    if summary is None:
        return {**named, "reason": safe(imported.reason)}
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
        "left_out": {safe(name): count for name, count in summary.left_out.items()},
        "remarks": [safe(remark) for remark in summary.remarks],
    }
