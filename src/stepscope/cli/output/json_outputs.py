"""The shape of what each command prints with `--json`, as JSON schemas with a version."""

from __future__ import annotations

from typing import Any

from pydantic import TypeAdapter
from typing_extensions import NotRequired, TypedDict  # pydantic needs its TypedDict before Python 3.12

from stepscope.cli.checks.store_checks import Check as DoctorCheck
from stepscope.schema.finding import Estimate, Evidence, Remedy  # noqa: TC001 - the schema reads it
from stepscope.store.mark_store import Feedback  # noqa: TC001 - the schema reads it
from stepscope.views.compare.gate import Gate
from stepscope.views.history.run_history import RunHistory  # noqa: TC001 - the schema reads it
from stepscope.views.overview.run_findings import Check  # noqa: TC001 - the schema reads it
from stepscope.views.overview.target_figures import TargetFigure  # noqa: TC001 - the schema reads it
from stepscope.views.overview.wall_time import WallTime  # noqa: TC001 - the schema reads it

VERSION = 1
"""Grows when an entry is removed or renamed, or changes its type or meaning. New entries do not change it."""

NUMBER = {"anyOf": [{"type": "number"}, {"enum": ["NaN", "Infinity", "-Infinity"]}]}
"""Numbers that are not finite are printed as text, because JSON has none."""

AnyObject = dict[str, Any]


class _RunEntry(TypedDict):
    id: str
    name: str
    project: str
    status: str
    reason: str
    started: float | None
    ended: float | None
    duration_seconds: float
    step: int | None
    steps_per_second: float | None
    loss_key: str | None
    loss_last: float | None
    loss_best: float | None
    dropped: int
    lost: int
    folder: str


class RunOutput(_RunEntry):
    """A run of `stepscope runs`."""

    segments: int


class ProcessOutput(TypedDict):
    """A process of a segment."""

    rank: int
    host: str
    pid: int
    role: str
    status: str
    reason: str
    exit_code: int | None
    started: float | None
    ended: float | None
    last_record: float | None
    dropped: int
    lost: int
    facts: AnyObject


class SegmentOutput(TypedDict):
    """One start of a run."""

    id: str
    status: str
    reason: str
    started: float | None
    ended: float | None
    processes: list[ProcessOutput]


class KeyOutput(TypedDict):
    """A metric of a run."""

    key: str
    points: int
    ranks: list[int | None]
    last: float
    min: float | None
    max: float | None
    nonfinite: int


class EventOutput(TypedDict):
    """An event of a run."""

    kind: str
    time: float
    step: int | None
    rank: int | None
    segment: str
    fields: AnyObject


class MachineOutput(TypedDict):
    """A figure of the machine over the whole run."""

    key: str
    rank: int | None
    host: str
    device: str
    label: str
    points: int
    mean: float | None
    min: float | None
    max: float | None


class ShowOutput(_RunEntry):
    """`stepscope show`; `--events` leaves out the last four entries, `--schedule` has `schedule` instead."""

    segments: list[SegmentOutput]
    keys: list[KeyOutput]
    events: list[EventOutput]
    params: NotRequired[AnyObject]
    machine: NotRequired[list[MachineOutput]]
    energy: NotRequired[AnyObject]
    targets: NotRequired[list[TargetFigure]]
    wall_time: NotRequired[WallTime | None]
    schedule: NotRequired[AnyObject]


class VerdictOutput(TypedDict):
    """How a run is doing."""

    id: str
    headline: str
    severity: str
    confidence: float | None
    steps: list[int] | None
    tries: list[str]


ChartOutput = TypedDict("ChartOutput", {"keys": list[str], "from": int | None, "to": int | None})
"""The chart that shows a finding."""


class FindingOutput(TypedDict):
    """A problem of a run."""

    id: str
    key: str
    title: str
    headline: str
    detail: str
    severity: str
    confidence: float
    share: float | None
    open: bool
    muted: bool
    first_step: int | None
    last_step: int | None
    first_time: float
    last_time: float
    rank: int | None
    device: str
    where: str
    evidence: list[Evidence]
    chart: ChartOutput | None
    ruled_out: list[str]
    remedies: list[Remedy]
    tries: list[str]
    estimate: Estimate | None
    how: str
    refs: list[str]
    gain: NotRequired[Estimate | None]
    remedy: NotRequired[str]
    code: NotRequired[str | None]


class DiagnoseOutput(TypedDict):
    """`stepscope diagnose`; with `--watch` one object a line."""

    run: str
    name: str
    status: str
    verdict: VerdictOutput
    findings: list[FindingOutput]
    earlier: list[FindingOutput]
    checks: list[Check]
    history: RunHistory
    feedback: list[Feedback]


class AlertOutput(TypedDict):
    """An alert; times in nanoseconds since the epoch."""

    run: str
    run_id: str
    id: int
    rule: str
    severity: str
    message: str
    fired_ns: int
    resolved_ns: int | None
    step: NotRequired[int | None]
    rank: NotRequired[int | None]
    device: NotRequired[str]
    key: NotRequired[str]
    quantity: NotRequired[str]
    value: NotRequired[float | None]
    threshold: NotRequired[float | None]
    recent: NotRequired[list[float | None]]
    advice: NotRequired[str]


class SilenceOutput(TypedDict):
    """A rule that is muted for a while."""

    id: str
    rule: str
    run: str
    until_ns: int
    reason: str
    made_ns: int


class UnrecordedOutput(TypedDict):
    """A rule that uses a metric which is not recorded."""

    run: str
    run_id: str
    rule: str
    text: str


class AlertListOutput(TypedDict):
    """`stepscope alert list`."""

    alerts: list[AlertOutput]
    silences: list[SilenceOutput]
    unrecorded: list[UnrecordedOutput]


class AlertHistoryOutput(TypedDict):
    """`stepscope alert history`."""

    alerts: list[AlertOutput]
    notices: list[AnyObject]


RuleOutput = TypedDict(
    "RuleOutput",
    {
        "name": str,
        "severity": str,
        "when": str,
        "advice": str,
        "origin": str,
        "enabled": bool,
        "run": str,
        "project": str,
        "for": str,
        "cooldown": str,
        "remind": str,
    },
)
"""A rule of `stepscope alert list --rules`."""


class ConfigOutput(TypedDict):
    """`stepscope config show`; `origins` with `--origin`."""

    settings: AnyObject
    origins: NotRequired[dict[str, str]]


class WatchOutput(TypedDict):
    """A line of `stepscope watch`: a notice, or the facts or values of a device."""

    time: float
    host: str
    sampler: str
    notice: NotRequired[str]
    gpu: NotRequired[int]
    device: NotRequired[str]
    facts: NotRequired[AnyObject]
    values: NotRequired[dict[str, float]]


class OperationOutput(TypedDict):
    """An operation of a profile."""

    name: str
    calls: int
    self_seconds: float
    share_ratio: float
    shapes: str | None
    place: str | None
    memory_bytes: int | None


class ProfileOutput(TypedDict):
    """`stepscope profile`."""

    epoch: int | None
    after_step: int | None
    steps: int | None
    window_seconds: float
    breakdown: AnyObject
    operations: list[OperationOutput]
    device_operations: list[OperationOutput]
    kernels: list[OperationOutput]
    bottleneck: str
    trace: str | None
    events: int
    method: str


class ImportedOutput(TypedDict):
    """A run of `stepscope import`; a run that is not imported now has the first entries and `reason` only."""

    run: str
    id: str
    project: str
    source: str
    imported_before: bool
    outcome: str
    started: NotRequired[float]
    ended: NotRequired[float]
    status: NotRequired[str]
    reason: NotRequired[str]
    metrics: NotRequired[int]
    points: NotRequired[int]
    histograms: NotRequired[int]
    texts: NotRequired[int]
    params: NotRequired[Any]
    left_out: NotRequired[dict[str, int]]
    remarks: NotRequired[list[str]]


OUTPUTS: dict[str, Any] = {
    "runs": list[RunOutput],
    "show": ShowOutput,
    "diagnose": DiagnoseOutput,
    "gate": Gate,
    "alert-list": AlertListOutput,
    "alert-history": AlertHistoryOutput,
    "alert-rules": list[RuleOutput],
    "config-show": ConfigOutput,
    "doctor": list[DoctorCheck],
    "watch": WatchOutput,
    "profile": ProfileOutput,
    "import": list[ImportedOutput],
}
"""The output of each command, by the name of its schema file."""


def schema_of(name: str) -> dict[str, Any]:
    """The JSON schema of an output."""
    schema: dict[str, Any] = _with_numbers(TypeAdapter(OUTPUTS[name]).json_schema(mode="serialization"))
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": name,
        "version": VERSION,
        **{key: part for key, part in schema.items() if key != "title"},
    }


def _with_numbers(schema: Any) -> Any:
    """The same schema, in which a number may also be the text of one that is not finite."""
    if isinstance(schema, list):
        return [_with_numbers(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("type") == "number":
        return {**NUMBER}
    return {
        key: _with_numbers(part)
        for key, part in schema.items()
        # An entry of an output may be named title; its schema is a dictionary.
        if key not in ("title", "default") or isinstance(part, dict)
    }
