"""Runs a `measure` function as the main program of its module."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

Measure = Callable[[Path, bool], dict[str, float]]


def run(measure: Measure) -> None:
    """Expect: data folder, result file, and optionally `quick`."""
    folder, result, *quick = sys.argv[1:]
    Path(result).write_text(json.dumps(measure(Path(folder), bool(quick))))
