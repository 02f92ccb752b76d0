"""Reads back what stepscope recorded of a training, as a user would."""

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import stepscope
from stepscope.reading import Run

AROUND_THE_LOOP = ("startup", "ending")
"""Parts of the wall time before the first step and after the last: imports, above all."""

STEP_SECONDS, OTHER_SECONDS, SAMPLED_RATIO = "step_seconds", "phase/other_seconds", "phase/sampled_ratio"
LOSSES = ("loss", "train_loss", "train/loss", "training_loss")


@dataclass(frozen=True)
class Recorded:
    """What a store has of one training."""

    runs: tuple[str, ...]
    """The names of the runs; a training is one."""
    status: str
    reason: str
    starts: int
    """Segments in which ranks recorded."""
    steps: Mapping[int, NDArray[np.int64]]
    """The numbers of the timed steps of each rank, in the order they were recorded."""
    losses: Mapping[int, float]
    """The loss by step."""
    explained: float
    """Share of the time between the first and the last step that is accounted for."""
    in_named_phases: float | None
    """Share of step time in phases other than `other`; None if no phases were timed."""
    loop_seconds: float
    """The time that is accounted for, without what is before the first step and after the last."""
    alerts: tuple[str, ...]
    findings: tuple[str, ...]
    """Findings above `info`."""
    dropped: int


def read(store: Path) -> Recorded:
    """Reads a store that has the runs of one training."""
    runs = stepscope.open_store(store)
    recorded = runs.runs()
    if not recorded:
        raise LookupError(f"There is no run in {store}.")
    run = recorded[-1]
    described = _json("show", run.id, store)
    report = _json("diagnose", run.id, store)
    explained, loop_seconds = _account(described["wall_time"])
    processes = [process for segment in run.segments for process in segment.processes]
    try:
        return Recorded(
            runs=tuple(run.name for run in recorded),
            status=run.status,
            reason=run.reason,
            starts=len({process.segment for process in processes if process.role == "rank"}),
            steps=_steps(run),
            losses=_losses(run),
            explained=explained,
            in_named_phases=_in_named_phases(run),
            loop_seconds=loop_seconds,
            alerts=tuple(f"{alert['rule']}: {alert['message']}" for alert in run.alerts()),
            findings=tuple(
                f"{finding['id']}: {finding['headline']}"
                for finding in [*report["findings"], *report["earlier"]]
                if finding["severity"] != "info"
            ),
            dropped=sum(process.dropped + process.lost for process in processes),
        )
    finally:
        runs.close()


def _json(command: str, run: str, store: Path) -> dict[str, Any]:
    """What a command of stepscope says of a run."""
    words = [sys.executable, "-m", "stepscope", command, run, "--json", "--store", str(store)]
    document: dict[str, Any] = json.loads(subprocess.check_output(words, text=True))
    return document


def _steps(run: Run) -> dict[int, NDArray[np.int64]]:
    ranks = sorted({rank for info in run.keys() if info.key == STEP_SECONDS for rank in info.ranks})
    return {rank: run.series(STEP_SECONDS, rank).steps for rank in ranks}


def _losses(run: Run) -> dict[int, float]:
    keys = [info.key for info in run.keys()]
    named = [*(key for key in LOSSES if key in keys), *(key for key in keys if "loss" in key)]
    return _by_step(run, named[0]) if named else {}


def _account(wall_time: Mapping[str, Any] | None) -> tuple[float, float]:
    """The share of the loop's time that is accounted for, and the seconds."""
    if wall_time is None:
        return 0.0, 0.0
    seconds = {part["name"]: part["seconds"] for part in wall_time["parts"]}
    loop = wall_time["seconds"] - sum(seconds.get(name, 0.0) for name in AROUND_THE_LOOP)
    accounted = loop - seconds.get("unaccounted", 0.0)
    return (accounted / loop if loop > 0 else 0.0), accounted


def _in_named_phases(run: Run) -> float | None:
    keys = {info.key for info in run.keys()}
    if not {OTHER_SECONDS, SAMPLED_RATIO} <= keys:
        return None
    other, ratios = _by_step(run, OTHER_SECONDS), _by_step(run, SAMPLED_RATIO)
    taken = _by_step(run, STEP_SECONDS)
    sampled = other.keys() & ratios.keys() & taken.keys()
    whole = sum(taken[step] / ratios[step] for step in sampled)
    return 1 - sum(other[step] / ratios[step] for step in sampled) / whole if whole else None


def _by_step(run: Run, key: str) -> dict[int, float]:
    points = run.series(key, rank=0)
    return dict(zip(points.steps.tolist(), points.values.tolist(), strict=True))
