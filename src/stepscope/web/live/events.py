"""The events of the live feed: the data of each, by its name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from stepscope.schema.series import Axis  # noqa: TC001 - the schema of the API reads it
from stepscope.views.alerts.alert_rows import AlertRow  # noqa: TC001 - the schema of the API reads it
from stepscope.views.overview.event_marks import EventMark  # noqa: TC001 - the schema of the API reads it
from stepscope.views.overview.run_findings import Finding  # noqa: TC001 - the schema of the API reads it
from stepscope.views.runs.run_rows import RunRow  # noqa: TC001 - the schema of the API reads it

EventName = Literal["hello", "run", "points", "alert", "finding", "mark", "runs", "resync"]

WireNumber = float | Literal["NaN", "Infinity", "-Infinity"]
"""A number of any size: JSON has none that are not finite, so these are texts."""


@dataclass(frozen=True)
class Hello:
    """The first event of a stream."""

    now: float
    """The server's clock, in seconds since the epoch."""
    cursor: str
    heartbeat_s: float
    """A stream without an event for this long sends a comment."""


@dataclass(frozen=True)
class PointsOfSeries:
    """New points of one series."""

    key: str
    rank: int | None
    host: str
    device: str
    axis: Axis
    steps: list[int]
    """For points without a step: the step in progress at the time."""
    times: list[float]
    values: list[WireNumber]


@dataclass(frozen=True)
class NewPoints:
    """New points of the keys that a client follows."""

    run: str
    series: list[PointsOfSeries]


@dataclass(frozen=True)
class ChangedRuns:
    """Rows of the run list that have changed."""

    changed: list[RunRow]
    total: int
    """Number of all runs."""


@dataclass(frozen=True)
class Resync:
    """Asks the client to read everything again."""

    why: str


@dataclass(frozen=True)
class StreamEvents:
    """The data of the events of a stream, by the name of the event."""

    hello: Hello
    run: RunRow
    points: NewPoints
    alert: AlertRow
    finding: Finding
    mark: EventMark
    runs: ChangedRuns
    resync: Resync


@dataclass(frozen=True)
class LiveEvent:
    """An event of the stream."""

    event: EventName
    data: Hello | RunRow | NewPoints | AlertRow | Finding | EventMark | ChangedRuns | Resync
    """What `StreamEvents` has under the name of the event."""


@dataclass(frozen=True)
class Delta:
    """Events since a cursor, for clients that cannot hold a stream."""

    cursor: str
    events: list[LiveEvent]
