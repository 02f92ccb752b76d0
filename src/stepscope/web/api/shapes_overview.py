"""Schemas of responses on a run's overview, steps, ranks, findings and configuration, and on comparisons."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field

from stepscope.web.api.shapes_alerts import AlertRow  # noqa: TC001 - pydantic reads it
from stepscope.web.api.shapes_logs import Failure  # noqa: TC001 - pydantic reads it
from stepscope.web.api.shapes_runs import (  # noqa: TC001 - pydantic reads it
    AxisChoice,
    RunRow,
    Segment,
    Severity,
    Status,
    Verdict,
    WallTime,
)


class Change(BaseModel):
    """How a figure has changed."""

    ratio: float
    text: str


class Tile(BaseModel):
    """One figure of the overview."""

    id: Literal["throughput", "step_time", "gpu", "memory"]
    title: str
    value: str
    detail: list[str]
    state: Literal["ok", "warn", "bad", "none", "unknown"]
    state_text: str
    spark: list[float | None]
    change: Change | None
    chart: str | None


class PhaseShare(BaseModel):
    """A phase and its share of a step."""

    phase: str
    key: str
    mean_s: float
    share: float


class ChartSpec(BaseModel):
    """A chart to draw."""

    title: str
    keys: list[str]
    unit: str
    kind: Literal["line", "stack"]
    second_axis: list[str]
    from_zero: bool
    percent: bool
    per: Literal["rank", "device", "host", "none"]


class EventMark(BaseModel):
    """An event on the time line."""

    kind: str
    time: float
    step: int | None
    end_time: float | None
    rank: int | None
    label: str
    detail: str


class Ended(BaseModel):
    """How a run ended."""

    status: Status
    text: str
    last_step: int | None
    failure: Failure | None = Field(description="Why it failed; null where it did not.")
    last_loss: str | None = Field(description="The newest loss as text: a number, NaN, ∞ or -∞.")
    log_lines: list[str]
    duration_s: float
    energy_kwh: float | None
    cost: str | None
    best: str | None
    changed: list[str]


class Labelled(BaseModel):
    """A fact with its name."""

    label: str
    value: str


class Missing(BaseModel):
    """What is not measured, and why."""

    what: str
    why: str


class Overview(BaseModel):
    """One run at a glance."""

    verdict: Verdict
    tiles: list[Tile]
    phases: list[PhaseShare]
    wall_time: WallTime | None
    key_charts: list[ChartSpec]
    system_charts: list[ChartSpec]
    events: list[EventMark] = Field(description="Of a kind with very many, an even sample over the run.")
    event_counts: dict[str, int] = Field(description="Number of all events, by kind.")
    alerts: list[AlertRow]
    environment: list[Labelled]
    ended: Ended | None
    waiting_s: float | None
    missing: list[Missing]


class StepBar(BaseModel):
    """One step and its phases."""

    step: int
    time: float
    seconds: float
    phases: dict[str, float]
    marks: list[str]


class SlowStep(BaseModel):
    """One of the slowest steps."""

    step: int
    rank: int
    time: float
    seconds: float
    ratio_to_median: float
    worst_phase: str | None
    marks: list[str]


class HistogramBar(BaseModel):
    """Number of steps with a duration between `low` and `high`."""

    low: float
    high: float
    count: int


class Percentiles(BaseModel):
    """Percentiles of step time."""

    p50: float
    p90: float
    p95: float
    p99: float
    max: float


class StepWindow(BaseModel):
    """The steps of a range of a run."""

    from_: int = Field(alias="from")
    to: int
    bars: list[StepBar]
    phase_order: list[str]
    slowest: list[SlowStep]
    histogram: list[HistogramBar]
    percentiles: Percentiles | None
    count: int
    ranks: list[int]
    sampled_ratio: float | None
    overhead_ratio: float | None


class LateRank(BaseModel):
    """The rank that the others wait for."""

    rank: int
    phase: str
    seconds: float
    text: str


class Heatmap(BaseModel):
    """The values of a key by rank and step."""

    key: str
    unit: str
    ranks: list[int]
    hosts: list[str]
    starts: list[int]
    width: int
    values: list[list[float | None]]
    late: LateRank | None


class Evidence(BaseModel):
    """A figure that supports a finding."""

    label: str
    value: str
    note: str


class Remedy(BaseModel):
    """What to do about a finding."""

    text: str
    code: str | None
    framework: str | None


class Estimate(BaseModel):
    """The estimated gain of a remedy."""

    low: float
    likely: float
    high: float
    of: str


class FindingChart(BaseModel):
    """The chart that shows a finding."""

    keys: list[str]
    from_: int | None = Field(alias="from")
    to: int | None


class Finding(BaseModel):
    """A problem with evidence and advice."""

    id: str
    key: str
    title: str
    headline: str
    detail: str
    severity: Severity
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
    evidence: list[Evidence]
    chart: FindingChart | None
    ruled_out: list[str]
    remedies: list[Remedy]
    tries: list[str]
    estimate: Estimate | None
    how: str
    refs: list[str]


class Considered(BaseModel):
    """A check that passed, or could not run."""

    id: str
    title: str
    why_not: str
    has_run: bool


class Findings(BaseModel):
    """The findings of a run, and the checks that passed."""

    verdict: Verdict
    failure: Failure | None = Field(description="Why the run failed; null where it did not.")
    findings: list[Finding]
    considered: list[Considered]


class ConfigItem(BaseModel):
    """A fact, and whether the page offers to copy it."""

    label: str
    value: str
    copy_: bool = Field(alias="copy")


class ConfigSection(BaseModel):
    """Facts that belong together."""

    title: str
    items: list[ConfigItem]


class RunConfig(BaseModel):
    """The configuration and environment of a run."""

    config: dict[str, Any]
    sections: list[ConfigSection]


class Cell(BaseModel):
    """A figure of one run, compared with the baseline."""

    run: str
    value: float | None
    text: str
    delta_ratio: float | None
    delta_text: str
    sure: bool | None


class Figure(BaseModel):
    """A figure of all compared runs."""

    name: str
    unit: str
    better: Literal["less", "more", "none"]
    cells: list[Cell]


class Group(BaseModel):
    """Runs with the same value of the grouping entry; null where they do not have it."""

    value: str | None
    runs: list[str]


class GroupCell(BaseModel):
    """The mean of a figure over the runs of a group, compared with the baseline's group."""

    runs: int
    value: float | None
    text: str
    low: float | None
    high: float | None
    delta_ratio: float | None
    delta_text: str
    sure: bool | None


class GroupFigure(BaseModel):
    """A figure of all groups."""

    name: str
    unit: str
    better: Literal["less", "more", "none"]
    cells: list[GroupCell]


class ConfigDifference(BaseModel):
    """A configuration entry in all compared runs."""

    key: str
    values: list[str | None]
    same: bool
    types_differ: bool


class Comparison(BaseModel):
    """Several runs side by side."""

    runs: list[RunRow]
    baseline: str
    keys: list[str]
    warm_up_steps: list[int]
    figures: list[Figure]
    groups: list[Group]
    group_figures: list[GroupFigure]
    config: list[ConfigDifference]
    verdicts: list[Verdict]
    segments: list[list[Segment]]
    axes: list[AxisChoice]
