"""Keeps the figures of a run as a baseline, and compares later runs with it."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from stepscope.errors import StepscopeError
from stepscope.filesystem import atomic_file
from stepscope.reading import open_store
from stepscope.schema.keys import STEP_SECONDS
from stepscope.views.compare.compared_figures import change, change_text
from stepscope.views.formatting import quantity
from stepscope.views.json_values import finite
from stepscope.views.run_figures import figures_of

if TYPE_CHECKING:
    import os

    from stepscope.reading import Run
    from stepscope.views.compare.compared_figures import Better

FORMAT = 1

FIGURES: dict[str, tuple[str, str, Better]] = {
    "step_seconds_median": ("Step time, p50", "seconds", "less"),
    "step_seconds_p95": ("Step time, p95", "seconds", "less"),
    "steps_per_second": ("Steps per second", "/s", "more"),
    "data_wait_ratio": ("Waiting for data", "ratio", "less"),
    "gpu_mean_ratio": ("GPU utilization", "ratio", "more"),
    "peak_memory_bytes": ("Peak memory", "bytes", "less"),
    "loss_last": ("Loss, last", "", "less"),
    "loss_best": ("Loss, best", "", "less"),
}
"""The name of each figure for people, its unit, and what is better."""


def write_baseline(run: Run, path: str | os.PathLike[str]) -> dict[str, Any]:
    """Writes the figures of a run to a JSON file, and returns them."""
    baseline = {
        "format": FORMAT,
        "run": run.name,
        "run_id": run.id,
        "written": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "figures": measured(run),
    }
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(Path(path)) as temporary:
        temporary.write_text(json.dumps(baseline, indent=2) + "\n", encoding="utf-8")
    return baseline


def compare_with_baseline(run: Run, path: str | os.PathLike[str]) -> str:
    """Compares the figures of a run with those in a file, line by line, as text."""
    baseline = read_baseline(path)
    before, now = baseline["figures"], measured(run)
    rows = [("", "baseline", "now", "")]
    for key, (name, unit, better) in FIGURES.items():
        pair = before.get(key), now.get(key)
        if pair != (None, None):
            then, later = ("–" if value is None else quantity(value, unit) for value in pair)
            rows.append((name, then, later, change_text(change(pair[1], pair[0]), better, None, unit)))
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    lines = [
        f"  {row[0]:<{widths[0]}}  {row[1]:>{widths[1]}}  {row[2]:>{widths[2]}}  {row[3]}".rstrip()
        for row in rows
    ]
    return "\n".join([f"{run.name} compared with the baseline {baseline['run']} ({path}):", *lines])


def report_baseline(folder: Path, run_id: str, path: str) -> str:
    """Writes the baseline if there is none yet, and compares the run with it otherwise; as text."""
    run = open_store(folder).run(run_id)
    if Path(path).exists():
        return compare_with_baseline(run, path)
    write_baseline(run, path)
    return f"The figures of {run.name} are now the baseline {path}. Delete the file to replace it."


def read_baseline(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Reads a baseline file; raises StepscopeError if it is not one."""
    try:
        baseline = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise StepscopeError(f"{path} cannot be read as a baseline: {error}.") from error
    if not isinstance(baseline, dict) or baseline.get("format") != FORMAT:
        raise StepscopeError(f"{path} is not a baseline of format {FORMAT}. Delete it to write a new one.")
    if not isinstance(baseline.get("figures"), dict) or "run" not in baseline:
        raise StepscopeError(f"{path} has no figures of a run. Delete it to write a new one.")
    return baseline


def measured(run: Run) -> dict[str, float]:
    """The figures of a run that are known; the step times are those of its first rank."""
    figures = figures_of(run)
    values: dict[str, float | None] = {name: getattr(figures, name, None) for name in FIGURES}
    if STEP_SECONDS in {series.key for series in run.keys()}:
        seconds = run.series(STEP_SECONDS, rank=0).values
        values["step_seconds_median"] = float(np.median(seconds))
        values["step_seconds_p95"] = float(np.percentile(seconds, 95))
    return {name: number for name, value in values.items() if (number := finite(value)) is not None}
