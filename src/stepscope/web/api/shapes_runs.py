"""The shapes of answers on runs, as the API's own description has them."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field

Status = Literal["running", "stalled", "finished", "failed", "crashed"]
Severity = Literal["info", "notice", "warning", "critical"]
Scalar = str | int | float | bool | None


class AgentCost(BaseModel):
    """What watching costs."""

    cpu_ratio: float | None = Field(description="Processor time of the agent; 0.01 is a hundredth of a core.")
    rss_bytes: float | None = Field(description="Memory it holds.")


class SetAsideJournal(BaseModel):
    """A journal that cannot be read or stored for now; runs may lack what it holds."""

    path: str = Field(description="Where it is in the store folder.")
    reason: str
    advice: str = Field(description="What a person can do about it.")


class Meta(BaseModel):
    """The server, and what it serves."""

    version: str
    now: float = Field(description="The server's clock, in seconds since the epoch.")
    store: str = Field(description="The store folder.")
    read_only: bool
    has_token: bool
    run_count: int
    channels: list[str] = Field(description="Ways to tell a person, by their names in the settings.")
    projects: list[str]
    bytes_used: int
    agent: AgentCost
    set_aside: list[SetAsideJournal]


class Verdict(BaseModel):
    """How a run fares, in a sentence."""

    id: str
    headline: str
    severity: Severity | Literal["ok", "unknown"]
    confidence: float | None
    steps: tuple[int, int] | None
    tries: list[str]


class RunRow(BaseModel):
    """A run as a list shows it; null for what is not known."""

    id: str
    name: str
    project: str
    status: Status
    reason: str
    started: float
    ended: float | None
    duration_s: float = Field(description="The sum of its segments; the time between them is left out.")
    last_seen: float
    step: int | None
    total_steps: int | None
    steps_per_second: float | None
    eta_s: float | None
    loss_last: float | None
    loss_best: float | None
    loss_nonfinite: Literal["NaN", "∞", "-∞"] | None = Field(
        description="What the newest loss is where it is not a finite number."
    )
    loss_key: str | None
    data_wait_ratio: float | None
    gpu_mean_ratio: float | None
    gpu_worst_ratio: float | None
    gpu_worst: str | None
    peak_memory_bytes: float | None
    verdict: Verdict | None
    attention: str | None = Field(description="What needs a person's attention; null where nothing does.")
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
    """What is wrong with a filter, and where in its text."""

    message: str
    begin: int
    end: int


class RunList(BaseModel):
    """A page of the list of runs."""

    total: int = Field(description="How many match, on all pages together.")
    runs: list[RunRow]
    filter_error: FilterTrouble | None
    config_keys: list[str]
    tags: list[str]
    attention: int = Field(description="How many runs need attention, whatever the filter.")


class Attention(BaseModel):
    """Something a person should look at."""

    run_id: str
    run: str
    what: str
    severity: Severity
    since: float
    kind: Literal["alert", "status", "finding"]


class GpuNow(BaseModel):
    """A GPU at this moment."""

    device: str
    name: str
    utilization_ratio: float | None
    memory_used_bytes: float | None
    memory_total_bytes: float | None
    temperature_celsius: float | None
    power_watts: float | None


class HostNow(BaseModel):
    """A machine at this moment."""

    host: str
    live: bool
    last_seen: float
    cpu_ratio: float | None
    memory_used_bytes: float | None
    memory_total_bytes: float | None
    gpus: list[GpuNow]
    runs: list[str]


class Home(BaseModel):
    """What the first page shows."""

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
    """Something to count a chart's x in."""

    name: Literal["step", "epoch", "samples", "tokens", "active", "process", "wall"]
    key: str | None = Field(description="The series that maps steps to it, where there is one.")
    why_not: str | None = Field(description="Why it cannot be chosen; null where it can.")


class Note(BaseModel):
    """What somebody wrote at a step or a moment of a run."""

    id: int
    run_id: str
    step: int | None
    time: float | None
    text: str
    made: float


class RunHead(BaseModel):
    """The header of every page on a run."""

    row: RunRow
    segments: list[Segment]
    axes: list[AxisChoice]
    live: bool
    heartbeat_age_s: float | None
    notes: list[Note]
    cursor: str = Field(description="Where a stream takes up from what this answer has.")


class ErrorText(BaseModel):
    """What went wrong."""

    message: str
    id: str = Field(description="The server's log has the same id.")


class ErrorBody(BaseModel):
    """How every error is told."""

    error: ErrorText


class Health(BaseModel):
    """Whether the server answers."""

    status: Literal["ok"]


class TimePart(BaseModel):
    """What a run spent its time on, and its share of the wall time."""

    name: str
    label: str
    seconds: float
    share: float


class WallTime(BaseModel):
    """Where the time of a run went, from beginning to end."""

    seconds: float
    parts: list[TimePart]
