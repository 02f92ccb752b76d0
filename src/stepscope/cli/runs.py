"""Lists the runs of a store."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, get_args

from stepscope.cli.find import add_limit_argument, add_store_argument
from stepscope.cli.main import FINE
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

ROOMY = 120
"""From so many columns on, the reason has a column."""


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
    every = store.runs()
    listed = [
        one
        for one in every
        if options.project in (None, one.project) and options.status in (None, one.status)
    ]
    if options.limit is not None:
        listed = listed[max(len(listed) - options.limit, 0) :]
    if not every:
        say(f"The store {store.folder} has no run yet. Record one, or try: stepscope demo")
    elif not listed and options.limit != 0:
        say(f"None of the {len(every)} runs in {store.folder} is of that kind.")
    warn_of_set_aside(store)
    if options.json:
        emit([to_json([run_summary(one, str(store.folder.absolute())) for one in listed])])
    elif listed:
        emit(_lines(listed, with_project=len({one.project for one in every}) > 1))
    store.close()
    return FINE


def warn_of_set_aside(store: Runs) -> None:
    """Says in one line that journals cannot be read, so that runs or parts of them are not listed."""
    every = store.set_aside()
    if every:
        more = f" and {len(every) - 1} more" if len(every) > 1 else ""
        one = every[0]
        say(
            f"Not read for now: {store.folder / one.path}{more} ({one.reason}). Nothing is deleted. "
            "See: stepscope doctor"
        )


def _lines(listed: Sequence[Run], *, with_project: bool) -> Iterator[str]:
    """A table; on a narrow screen each reason has a line of its own under its run."""
    width = screen_width()
    roomy = width >= ROOMY
    columns = [
        Column("RUN", elastic=True),
        *([Column("PROJECT", elastic=True)] if with_project else []),
        Column("STATUS", painted=True),
        Column("STARTED"),
        Column("DURATION", right=True),
        Column("STEP", right=True),
        Column("LOSS", right=True),
        *([Column("REASON", elastic=True)] if roomy else []),
    ]
    rows = []
    for one in listed:
        figures = figures_of(one)
        loss = last_loss(figures)
        cells = [
            one.name,
            *([one.project] if with_project else []),
            one.status,
            moment(seconds(one.info.created_ns)),
            duration(run_seconds(one, time.time_ns())),
            "-" if figures.step is None else f"{figures.step:,}",
            "-" if loss is None else number(loss),
        ]
        rows.append([*cells, one.reason] if roomy else cells)
    heading, *lines = table(columns, rows, width)
    yield heading
    for one, line in zip(listed, lines, strict=True):
        yield line
        if one.reason and not roomy:
            yield paint(shorten(f"  {safe(one.reason)}", width), "faint")
