"""Schemas of responses on runs, home and the server."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field

Status = Literal["running", "stalled", "finished", "failed", "crashed"]
Severity = Literal["info", "notice", "warning", "critical"]
Scalar = str | int | float | bool | None


class AgentCost(BaseModel):
    """The overhead of the agent."""

    cpu_ratio: float | None = Field(description="CPU time of the agent; 0.01 is 1% of a core.")
    rss_bytes: float | None = Field(description="Resident memory of the agent.")


class SetAsideJournal(BaseModel):
    """A journal that cannot be read or stored at present; its data may be missing from runs."""

    path: str = Field(description="Its path in the store folder.")
    reason: str
    advice: str = Field(description="What to do about it.")


class Meta(BaseModel):
    """Version, store and state of the server."""

    version: str
    now: float = Field(description="The server's clock, in seconds since the epoch.")
    store: str = Field(description="The store folder.")
    read_only: bool
    has_token: bool
    run_count: int
    channels: list[str] = Field(description="Alert channels, by their names in the settings.")
    projects: list[str]
    bytes_used: int
    agent: AgentCost
    set_aside: list[SetAsideJournal]


class Verdict(BaseModel):
    """How a run is doing, in one sentence."""

    id: str
    headline: str
    severity: Severity | Literal["ok", "unknown"]
    confidence: float | None
    steps: tuple[int, int] | None
    tries: list[str]


class RunRow(BaseModel):
    """A row of the run list; null means unknown."""

    id: str
    name: str
    project: str
    status: Status
    reason: str
    started: float
    ended: float | None
    duration_s: float = Field(description="The sum of its segments, without the time between them.")
    last_seen: float
    step: int | None
    total_steps: int | None
    steps_per_second: float | None
    eta_s: float | None
    loss_last: float | None
    loss_best: float | None
    loss_nonfinite: Literal["NaN", "∞", "-∞"] | None = Field(
        description="The newest loss where it is not a finite number."
    )
    loss_key: str | None
    data_wait_ratio: float | None
    gpu_mean_ratio: float | None
    gpu_worst_ratio: float | None
    gpu_worst: str | None
    peak_memory_bytes: float | None
    verdict: Verdict | None
    attention: str | None = Field(description="What needs attention; null where nothing does.")
    open_alerts: int
    tags: list[str]
    archived: bool
    colour: str | None
    hosts: list[str]
    ranks: int
    segments: int
    config: dict[str, Scalar]
    spark: list[float | None] = Field(description="At most 40 values of the loss.")


class FilterTrouble(BaseModel):
    """What is wrong with a filter, and at which characters."""

    message: str
    begin: int
    end: int


class RunList(BaseModel):
    """A page of the list of runs."""

    total: int = Field(description="Number of matching runs on all pages together.")
    runs: list[RunRow]
    filter_error: FilterTrouble | None
    config_keys: list[str]
    tags: list[str]
    attention: int = Field(description="Number of runs that need attention, regardless of the filter.")


class Attention(BaseModel):
    """Something a person should look at."""

    run_id: str
    run: str
    what: str
    severity: Severity
    since: float
    kind: Literal["alert", "status", "finding"]


class GpuNow(BaseModel):
    """The newest values of a GPU."""

    device: str
    name: str
    utilization_ratio: float | None
    memory_used_bytes: float | None
    memory_total_bytes: float | None
    temperature_celsius: float | None
    power_watts: float | None


class HostNow(BaseModel):
    """The newest values of a machine."""

    host: str
    live: bool
    last_seen: float
    cpu_ratio: float | None
    memory_used_bytes: float | None
    memory_total_bytes: float | None
    gpus: list[GpuNow]
    runs: list[str]


class Home(BaseModel):
    """What the home page shows."""

    running: list[RunRow]
    attention: list[Attention]
    recent: list[RunRow]
    hosts: list[HostNow]


class Segment(BaseModel):
    """One start of a run."""

    id: str
    status: Status
    reason: str
    started: float
    ended: float | None
    first_step: int | None
    last_step: int | None


class AxisChoice(BaseModel):
    """An x axis a chart can have."""

    name: Literal["step", "epoch", "samples", "tokens", "active", "process", "wall"]
    key: str | None = Field(description="The series that maps steps to it, if any.")
    why_not: str | None = Field(description="Why it cannot be chosen; null if it can.")


class Note(BaseModel):
    """A note at a step or time of a run."""

    id: int
    run_id: str
    step: int | None
    time: float | None
    text: str
    made: float


class RunHead(BaseModel):
    """The header of a run's pages."""

    row: RunRow
    segments: list[Segment]
    axes: list[AxisChoice]
    live: bool
    heartbeat_age_s: float | None
    notes: list[Note]
    cursor: str = Field(description="Where a stream continues after this response.")


class ErrorText(BaseModel):
    """What went wrong."""

    message: str
    id: str = Field(description="The same id is in the server's log.")


class ErrorBody(BaseModel):
    """The body of every error."""

    error: ErrorText


class Health(BaseModel):
    """Whether the server is up."""

    status: Literal["ok"]


class TimePart(BaseModel):
    """One part of a run's wall time, and its share."""

    name: str
    label: str
    seconds: float
    share: float


class WallTime(BaseModel):
    """What a run spent its wall time on."""

    seconds: float
    parts: list[TimePart]
