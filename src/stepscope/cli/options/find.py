"""Finds the store and the run a command is about."""

from __future__ import annotations

import argparse
import difflib
from typing import TYPE_CHECKING

from stepscope.cli.output.text import safe
from stepscope.errors import NotFound
from stepscope.reading import open_store

if TYPE_CHECKING:
    from collections.abc import Iterable

    from stepscope.reading import Run, Runs

MAX_NAMED = 5
"""Names that a message about an unknown one lists."""


def add_store_argument(parser: argparse.ArgumentParser) -> None:
    """Declares `--store`."""
    parser.add_argument(
        "--store", metavar="DIR", help="store folder (default: STEPSCOPE_DIR, else .stepscope)"
    )


def add_run_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the run, and the store it is in."""
    parser.add_argument("run", nargs="?", metavar="RUN", help="name or id of a run (default: the newest)")
    add_store_argument(parser)


def add_limit_argument(parser: argparse.ArgumentParser, meaning: str) -> None:
    """Declares `--limit`."""
    parser.add_argument("--limit", type=_count, metavar="N", help=meaning)


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number; give 0 or more.")
    return int(text)


def chosen_run(options: argparse.Namespace) -> tuple[Runs, Run]:
    """The store, and the run that was named, or its newest."""
    store = open_store(options.store)
    runs = store.runs()
    if not runs:
        raise NotFound(f"The store {store.folder} has no run yet. Record one first.")
    return store, runs[-1] if options.run is None else named_run(store, options.run)


def named_run(store: Runs, name: str) -> Run:
    """The run of a name or id; raises NotFound with similar names."""
    runs = store.runs()
    if all(name not in (run.id, run.name) for run in runs):
        newest_first = [run.name for run in reversed(runs)]
        raise NotFound(f"There is no run {safe(name)!r} in {store.folder}; {suggestion(name, newest_first)}")
    return store.run(name)


def suggestion(name: str, known: Iterable[str]) -> str:
    """The end of an error message: names similar to `name`, or the first few known ones."""
    names = list(dict.fromkeys(known))
    similar = difflib.get_close_matches(name, names, n=MAX_NAMED, cutoff=0.5)
    if similar:
        return f"did you mean {' or '.join(repr(safe(match)) for match in similar)}?"
    if not names:
        return "there are none."
    more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    return f"there are: {', '.join(safe(name) for name in names[:MAX_NAMED])}{more}."
