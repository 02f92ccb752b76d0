"""Lists the runs of a store."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, get_args

from stepscope.cli.main import FINE
from stepscope.cli.options.find import add_limit_argument, add_store_argument
from stepscope.cli.output.table import Column, shorten, table
from stepscope.cli.output.text import emit, moment, number, paint, safe, say, screen_width, to_json
from stepscope.reading import open_store
from stepscope.schema.run import Status
from stepscope.views.export.run_json import last_loss, run_summary, seconds
from stepscope.views.formatting import duration
from stepscope.views.run_figures import figures_of
from stepscope.views.steps.step_rate import run_seconds

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

    from stepscope.reading import Run, Runs

WIDE_SCREEN = 120
"""Screens of at least this many columns show the reason in a column."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares what to list, and how."""
    add_store_argument(parser)
    parser.add_argument("--json", action="store_true", help="print a JSON array")
    parser.add_argument("--project", metavar="P", help="only runs of this project")
    parser.add_argument("--status", choices=get_args(Status), help="only runs of this status")
    add_limit_argument(parser, "only the newest N runs")


def run(options: argparse.Namespace) -> int:
    """Prints the runs, newest last."""
    store = open_store(options.store)
    runs = store.runs()
    listed = [
        run for run in runs if options.project in (None, run.project) and options.status in (None, run.status)
    ]
    if options.limit is not None:
        listed = listed[max(len(listed) - options.limit, 0) :]
    if not runs:
        say(f"The store {store.folder} has no run yet. Record one, or try: stepscope demo")
    elif not listed and options.limit != 0:
        say(f"None of the {len(runs)} runs in {store.folder} matches.")
    warn_of_set_aside(store)
    if options.json:
        emit([to_json([run_summary(run, str(store.folder.absolute())) for run in listed])])
    elif listed:
        emit(_lines(listed, with_project=len({run.project for run in runs}) > 1))
    store.close()
    return FINE


def warn_of_set_aside(store: Runs) -> None:
    """Warns in one line about journals that cannot be read, so that runs or parts of them are missing."""
    journals = store.set_aside()
    if journals:
        more = f" and {len(journals) - 1} more" if len(journals) > 1 else ""
        first = journals[0]
        say(
            f"Not read for now: {store.folder / first.path}{more} ({first.reason}). Nothing is deleted. "
            "See: stepscope doctor"
        )


def _lines(listed: Sequence[Run], *, with_project: bool) -> Iterator[str]:
    """A table of runs; on a narrow screen the reason is on a separate line below its run."""
    width = screen_width()
    is_wide = width >= WIDE_SCREEN
    columns = [
        Column("RUN", elastic=True),
        *([Column("PROJECT", elastic=True)] if with_project else []),
        Column("STATUS", painted=True),
        Column("STARTED"),
        Column("DURATION", right=True),
        Column("STEP", right=True),
        Column("LOSS", right=True),
        *([Column("REASON", elastic=True)] if is_wide else []),
    ]
    rows = []
    for run in listed:
        figures = figures_of(run)
        loss = last_loss(figures)
        cells = [
            run.name,
            *([run.project] if with_project else []),
            run.status,
            moment(seconds(run.info.created_ns)),
            duration(run_seconds(run, time.time_ns())),
            "-" if figures.step is None else f"{figures.step:,}",
            "-" if loss is None else number(loss),
        ]
        rows.append([*cells, run.reason] if is_wide else cells)
    heading, *lines = table(columns, rows, width)
    yield heading
    for run, line in zip(listed, lines, strict=True):
        yield line
        if run.reason and not is_wide:
            yield paint(shorten(f"  {safe(run.reason)}", width), "faint")
