"""What the history of a project uses of one run: its conditions, settings, newest steps and findings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from stepscope.analysis.change_points import warm_up_length
from stepscope.analysis.steady import SHORTEST_S
from stepscope.schema.keys import ANOTHER_TRAINING_EVENT, BATCH_SIZES, STEP_SECONDS
from stepscope.schema.run import detector_options
from stepscope.views.json_values import as_list, as_mapping, clean
from stepscope.views.metrics.series_summaries import SeriesSummaries
from stepscope.views.overview.run_environment import precision_of
from stepscope.views.overview.run_verdict import is_open, recorded_checks
from stepscope.views.run_setup import first_process, flattened, setup_of
from stepscope.views.steps.workload import STEP_KEYS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray

    from stepscope.analysis.diagnose import Diagnosis
    from stepscope.reading import Run
    from stepscope.schema.record import Event
    from stepscope.views.json_values import Scalar

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

MAX_STEPS = 2048
"""The newest steps that are compared: as many as a diagnosis examines."""

MICRO_STEPS, TOKENS = "micro_steps", "batch/tokens"
KEYS = (*STEP_KEYS, *BATCH_SIZES, MICRO_STEPS)

BATCH_NAMES = ("batch_size", "train_batch_size", "per_device_train_batch_size", "micro_batch_size")
"""Names of the batch size in a configuration, for runs whose batches were not counted."""

SETUP_EVENT, DEVICE = "census", "device"

SWITCHES = (
    "compiled", "wrappers", "optimizers", "channels_last", "autocast", "threads", "environment",
    "tf32_matmul", "tf32_cudnn", "float32_matmul_precision", "cudnn_enabled", "cudnn_benchmark",
    "cudnn_deterministic", "deterministic_algorithms", "detect_anomaly", "profiler", "flash_attention",
    "memory_efficient_attention",
)  # fmt: skip
"""What is recorded of PyTorch's setup that affects the speed."""

PROCESSOR, PRECISION = "processor", "precision"
TOLERANCES = {"batch": 0.01, TOKENS: 0.1}
"""Conditions that are means or may vary, and by which share they may differ."""


@dataclass(frozen=True)
class TimeProblem:
    """A finding about time that is open in a run."""

    title: str
    share: float
    """The largest share of time that it may cost."""
    advice: str
    """The text and code of its remedies."""


@dataclass(frozen=True)
class LossSeries:
    """Where the loss of a run is."""

    key: str
    rank: int | None
    last_step: int


@dataclass(frozen=True)
class RunRecord:
    """One run of a project."""

    run: str
    name: str
    started: float
    conditions: Mapping[str, Scalar]
    """What decides how long a step takes, as far as it was recorded."""
    settings: Mapping[str, Scalar]
    seconds: Floats
    """The newest step times, without the warm-up."""
    loss: LossSeries | None
    problems: Mapping[str, TimeProblem]
    """Open findings about time, by their ids."""
    unchecked: frozenset[str] | None
    """Checks that could not run; None if no check ran."""

    def lacks(self, finding: str) -> bool:
        """Whether a problem was looked for in this run and not found."""
        return finding not in self.problems and self.unchecked is not None and finding not in self.unchecked


def record_of(run: Run, diagnosis: Diagnosis | None = None) -> RunRecord:
    """Reads what the history uses of a run; without a diagnosis, its findings are those in the store."""
    summaries = SeriesSummaries(run.summaries(KEYS))
    if summaries.loss_key() is None:
        # The run uses its own key names, so all keys are needed.
        summaries = SeriesSummaries(run.summaries())
    events: dict[str, list[Event]] = {}
    for event in run.own_events((SETUP_EVENT, DEVICE, ANOTHER_TRAINING_EVENT)):
        events.setdefault(event.kind, []).append(event)
    process = first_process(run)
    facts = process.facts if process is not None else {}
    setup = events[SETUP_EVENT][-1].fields if SETUP_EVENT in events else {}
    config = setup_of(run).flat
    devices = [event.fields for event in events.get(DEVICE, ())]
    restarts = [event.step or 0 for event in events.get(ANOTHER_TRAINING_EVENT, ())]
    return RunRecord(
        run=run.id,
        name=clean(run.name, 300),
        started=(run.info.created_ns or run.segments[0].started_ns) / 1e9,
        conditions={
            **_hardware(setup, devices, facts),
            **_batch(summaries, config),
            "parameters": setup.get("parameters"),
            PRECISION: precision_of(setup) or None,
            "ranks": _ranks(run, facts),
        },
        settings={**_software(setup, facts), **config},
        seconds=_newest_seconds(run, summaries, max(restarts, default=0)),
        loss=_loss(summaries),
        problems=_problems(run, diagnosis),
        unchecked=_unchecked(run, diagnosis),
    )


def are_similar(one: RunRecord, other: RunRecord, *, but_for: Iterable[str] = ()) -> bool:
    """Whether two runs did the same work on the same hardware, as far as that was recorded."""
    conditions, others = one.conditions, other.conditions
    names = {*conditions, *others} - set(but_for)
    return all(_agree(name, conditions.get(name), others.get(name)) for name in names)


def _agree(name: str, value: Scalar, other: Scalar) -> bool:
    if value is None or other is None:
        # The processor is read by the agent, which may not have come to it in a short run.
        return value is other or name == PROCESSOR
    if isinstance(value, str) or isinstance(other, str):
        return value == other
    return abs(value - other) <= TOLERANCES.get(name, 0.0) * max(abs(value), abs(other))


def _hardware(
    setup: Mapping[str, Any], devices: Iterable[Mapping[str, Any]], facts: Mapping[str, Any]
) -> dict[str, Scalar]:
    """Returns the models of the GPUs, or of the processors if the training uses none."""
    used = {str(as_mapping(gpu).get("name")) for gpu in as_list(setup.get("devices"))}
    is_on_processor = bool(setup) and not used
    gpus = used or {str(fields["name"]) for fields in devices if "uuid" in fields and "name" in fields}
    if gpus and not is_on_processor:
        return {"gpu": ", ".join(sorted(gpus))}
    models = {
        f"{fields['model']}, {fields.get('usable_threads') or fields.get('threads')} threads"
        for fields in devices
        if fields.get("device") == "cpu" and "model" in fields
    }
    return {PROCESSOR: ", ".join(sorted(models)) or None, "processors": facts.get("cpus")}


def _batch(summaries: SeriesSummaries, config: Mapping[str, Scalar]) -> dict[str, Scalar]:
    counted = (summaries.by_first_rank(key) for key in BATCH_SIZES if key != TOKENS)
    # Of a pass over the data only the last batch may be smaller.
    batch: Scalar = next((series[-1].maximum for series in counted if series), None)
    if batch is None:
        names = sorted(config, key=lambda name: name.startswith("loader."))
        batch = next((config[name] for name in names if name.rpartition(".")[2] in BATCH_NAMES), None)
    tokens, micro_steps = summaries.by_first_rank(TOKENS), summaries.by_first_rank(MICRO_STEPS)
    return {
        "batch": batch,
        TOKENS: tokens[-1].mean if tokens else None,
        MICRO_STEPS: micro_steps[-1].maximum if micro_steps else None,
    }


def _ranks(run: Run, facts: Mapping[str, Any]) -> int:
    world_size = facts.get("world_size")
    recorded = {process.rank for process in run.segments[-1].processes if process.role == "rank"}
    return max(len(recorded), world_size if isinstance(world_size, int) else 0)


def _software(setup: Mapping[str, Any], facts: Mapping[str, Any]) -> dict[str, Scalar]:
    """Returns switches of PyTorch, and versions of the code and the libraries."""
    recorded = {name: setup[name] for name in SWITCHES if name in setup}
    recorded["libraries"] = as_mapping(facts.get("libraries"))
    recorded["python"] = facts.get("python")
    recorded["commit"] = str(facts["commit"])[:12] if facts.get("commit") else None
    return flattened({name: value for name, value in recorded.items() if value not in (None, {}, [])})


def _newest_seconds(run: Run, summaries: SeriesSummaries, first_step: int) -> Floats:
    """Returns the newest step times of the lowest rank since its last start, without the warm-up."""
    key = summaries.step_key()
    series = summaries.by_first_rank(key) if key is not None else []
    if key is None or not series or series[-1].last_step is None:
        return np.empty(0)
    newest, last_step, source = series[-1], series[-1].last_step, series[-1].source
    labels: dict[str, Any] = {"rank": source.rank, "segment": source.segment, "device": "", "axis": "step"}
    is_whole = newest.points <= MAX_STEPS
    if is_whole:
        points = run.series(key, **labels)
        steps, values, times = points.steps, points.values, points.times
    else:
        buckets = run.buckets(key, MAX_STEPS, low=last_step - MAX_STEPS + 1, **labels)
        steps, values, times = buckets.starts, buckets.last, buckets.times
    inside = steps >= first_step
    steps, values, times = steps[inside], values[inside], times[inside]
    if key != STEP_SECONDS:
        steps_between = np.diff(steps)
        is_forward = steps_between > 0
        values = np.diff(times)[is_forward] / steps_between[is_forward]
    seconds = values[np.isfinite(values) & (values > SHORTEST_S)]
    return seconds[warm_up_length(seconds) :] if is_whole else seconds


def _loss(summaries: SeriesSummaries) -> LossSeries | None:
    key = summaries.loss_key()
    series = summaries.by_first_rank(key) if key is not None else []
    if key is None or not series or series[-1].last_step is None:
        return None
    return LossSeries(key, series[-1].source.rank, series[-1].last_step)


def _problems(run: Run, diagnosis: Diagnosis | None) -> dict[str, TimeProblem]:
    findings = (
        [finding for finding in run.findings() if is_open(finding)]
        if diagnosis is None
        else [finding.as_dict() for finding in diagnosis.findings]
    )
    return {
        clean(finding["id"], 200): _problem(finding)
        for finding in findings
        if "id" in finding and isinstance(finding.get("share"), int | float)
    }


def _problem(finding: Mapping[str, Any]) -> TimeProblem:
    remedies = map(as_mapping, as_list(finding.get("remedies")))
    advice = "\n".join(f"{remedy.get('text')}\n{remedy.get('code')}" for remedy in remedies)
    high = as_mapping(finding.get("estimate")).get("high")
    shares = [finding["share"], *([high] if isinstance(high, int | float) else [])]
    return TimeProblem(clean(finding.get("title", finding["id"])), float(max(shares)), advice)


def _unchecked(run: Run, diagnosis: Diagnosis | None) -> frozenset[str] | None:
    if diagnosis is not None:
        could_not_run = [check.id for check in diagnosis.considered if check.result != "passed"]
        return frozenset(could_not_run) if diagnosis.checks.examined else None
    checks = recorded_checks(run)
    if checks is None or not checks.examined:
        return None
    options = detector_options(process for part in run.segments for process in part.processes)
    off = {name for name, given in options.items() if given.get("enabled") is False}
    return frozenset({*checks.not_run, *off})
