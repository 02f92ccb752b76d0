"""Fails if a run is slower than its baselines: a check for continuous integration."""

from __future__ import annotations

import argparse
import dataclasses
import math
from typing import TYPE_CHECKING

from stepscope.cli.main import ALERTED, FINE
from stepscope.cli.options.find import add_run_arguments, chosen_run, named_run
from stepscope.cli.output import text
from stepscope.views.compare.gate import Gate, GatedRun, gate
from stepscope.views.formatting import quantity

if TYPE_CHECKING:
    from collections.abc import Iterator

DEFAULT_LIMIT = "5%"
_STYLES = {"passed": "ok", "failed": "problem", "inconclusive": "note"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the runs to compare, and the limit."""
    add_run_arguments(parser)
    parser.add_argument(
        "--baseline",
        metavar="RUN",
        action="append",
        required=True,
        help="name or id of a run to compare with; give it several times to include the noise between runs",
    )
    parser.add_argument(
        "--max-step-time-regression",
        metavar="SHARE",
        type=_share,
        default=DEFAULT_LIMIT,
        help="how much longer steps may take (default: 5%%)",
    )
    parser.add_argument(
        "--strict", action="store_true", help="exit with 3 also if the result is inconclusive"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(options: argparse.Namespace) -> int:
    """Compares the runs and prints the result."""
    store, current = chosen_run(options)
    baselines = [named_run(store, name) for name in dict.fromkeys(options.baseline)]
    result = gate(current, baselines, options.max_step_time_regression)
    store.close()
    text.emit([text.to_json(dataclasses.asdict(result))] if options.json else _page(result))
    has_failed = result.result == "failed" or (options.strict and result.result == "inconclusive")
    return ALERTED if has_failed else FINE


def _page(result: Gate) -> Iterator[str]:
    yield f"{text.paint(result.result, _STYLES[result.result])}: {text.safe(result.sentence)}"
    sides = (result.current, *result.baselines)
    width = max(len(text.safe(side.name)) for side in sides)
    for label, side in zip(("current", *("baseline" for _ in result.baselines)), sides, strict=True):
        yield f"  {label:<8}  {text.safe(side.name):<{width}}  {_figures(side)}"
    for note in result.notes:
        yield text.paint(f"  {text.safe(note)}", "faint")


def _figures(side: GatedRun) -> str:
    if side.step_s is None:
        return "no timed steps"
    return f"{quantity(side.step_s, 'seconds')} a step ({side.steps:,} steps)"


def _share(given: str) -> float:
    try:
        percentage = float(given.removesuffix("%"))
    except ValueError:
        percentage = math.nan
    if not given.endswith("%") or not 0 <= percentage < math.inf:
        raise argparse.ArgumentTypeError(f"{given!r} is not a share; write it as a percentage, such as 5%.")
    return percentage / 100
