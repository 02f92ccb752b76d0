"""The header of a run's pages, and facts about the server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import stepscope
from stepscope.alerts.delivery.delivery import DEFAULT_CHANNELS
from stepscope.schema.run import LIVE
from stepscope.schema.series import Selection
from stepscope.views.runs.axes import AxisChoice, Segment, SharedAxes, axes_of, common_axes
from stepscope.views.runs.marks import Note  # noqa: TC001 - the schema of the API reads it
from stepscope.views.runs.run_rows import RunRow  # noqa: TC001 - the schema of the API reads it
from stepscope.web.live import cursor
from stepscope.web.live.live_run import position_of

if TYPE_CHECKING:
    from stepscope.reading import Run
    from stepscope.schema.run import SegmentInfo
    from stepscope.store.base import Counter
    from stepscope.web.app_state import AppState
    from stepscope.web.reader_pool import OpenStore


@dataclass(frozen=True)
class Health:
    """Whether the server is up."""

    status: Literal["ok"]


@dataclass(frozen=True)
class AgentCost:
    """The overhead of the agent."""

    cpu_ratio: float | None
    """CPU time of the agent; 0.01 is 1% of a core."""
    rss_bytes: float | None
    """Resident memory of the agent."""


@dataclass(frozen=True)
class SetAsideJournal:
    """A journal that cannot be read or stored at present; its data may be missing from runs."""

    path: str
    """Its path in the store folder."""
    reason: str
    advice: str
    """What to do about it."""


@dataclass(frozen=True)
class Meta:
    """Version, store and state of the server."""

    version: str
    now: float
    """The server's clock, in seconds since the epoch."""
    store: str
    """The store folder."""
    read_only: bool
    has_token: bool
    run_count: int
    channels: tuple[str, ...]
    """Alert channels, by their names in the settings."""
    projects: tuple[str, ...]
    bytes_used: int
    agent: AgentCost
    set_aside: tuple[SetAsideJournal, ...]


@dataclass(frozen=True)
class RunHead:
    """The header of a run's pages."""

    row: RunRow
    segments: tuple[Segment, ...]
    axes: tuple[AxisChoice, ...]
    live: bool
    heartbeat_age_s: float | None
    """Seconds since the run last wrote anything; None if it has ended."""
    notes: tuple[Note, ...]
    cursor: str
    """Where a stream continues after this response."""


def run_head_of(state: AppState, opened: OpenStore, run: Run) -> RunHead:
    """What every page of a run shows at its top."""
    counters = opened.reader.counters(run.id)
    is_live = run.status in LIVE
    return RunHead(
        row=state.row(run),
        segments=_segments(opened, run, counters),
        axes=axes_of(_step_keys(counters)),
        live=is_live,
        heartbeat_age_s=max(state.now_ns() - run.info.last_ns, 0) / 1e9 if is_live else None,
        notes=state.marks.notes(run.id),
        cursor=cursor_of(state, opened, run, counters),
    )


def shared_axes(opened: OpenStore, runs: list[Run]) -> SharedAxes:
    """What charts of several runs need: the segments of each run, and the x axes all of them have."""
    counters_by_run = [opened.reader.counters(run.id) for run in runs]
    return SharedAxes(
        segments=tuple(
            _segments(opened, run, counters) for run, counters in zip(runs, counters_by_run, strict=True)
        ),
        axes=common_axes(axes_of(_step_keys(counters)) for counters in counters_by_run),
    )


def _step_keys(counters: list[Counter]) -> set[str]:
    return {counter.key for counter in counters if counter.source.axis == "step"}


def cursor_of(state: AppState, opened: OpenStore, run: Run, counters: list[Counter]) -> str:
    """The cursor to follow a run from, at the state that is read in the same transaction."""
    return cursor.encode(run.id, position_of(state, opened, run, counters))


def server_info(state: AppState, opened: OpenStore) -> Meta:
    """Version, store and state of the server."""
    runs = opened.runs.runs()
    options = state.options
    return Meta(
        version=stepscope.__version__,
        now=state.now_ns() / 1e9,
        store=str(options.folder.absolute()),
        read_only=options.read_only,
        has_token=state.keyring.is_needed(),
        run_count=len(runs),
        channels=tuple({**DEFAULT_CHANNELS, **options.settings.alerts.channels}),
        projects=tuple(sorted({run.project for run in runs})),
        bytes_used=opened.reader.bytes_used(),
        agent=_agent_cost(runs),
        set_aside=tuple(
            SetAsideJournal(journal.path, journal.reason, journal.advice)
            for journal in opened.runs.set_aside()
        ),
    )


def _segments(opened: OpenStore, run: Run, counters: list[Counter]) -> tuple[Segment, ...]:
    return tuple(_segment(opened, run, counters, part) for part in run.segments)


def _segment(opened: OpenStore, run: Run, counters: list[Counter], part: SegmentInfo) -> Segment:
    logged = [
        counter for counter in counters if counter.source.segment == part.id and counter.source.axis == "step"
    ]
    first = None
    if logged:
        densest = max(logged, key=lambda counter: counter.points)
        source = densest.source
        labels = (source.segment, source.rank, source.host, source.device, source.axis)
        reach = opened.reader.reach(Selection(run.id, densest.key, *labels))
        first = None if reach is None else reach[0]
    steps = [counter.last_step for counter in logged if counter.last_step is not None]
    return Segment(
        id=part.id,
        status=part.status,
        reason=part.reason,
        started=part.started_ns / 1e9,
        ended=None if part.ended_ns is None else part.ended_ns / 1e9,
        first_step=first,
        last_step=max(steps, default=None),
    )


def _agent_cost(runs: list[Run]) -> AgentCost:
    """CPU and memory the agent uses, from the newest live run."""
    live = [run for run in runs if run.status in LIVE]
    newest = {info.key: info.last for info in live[-1].machine_keys()} if live else {}
    return AgentCost(newest.get("stepscope/agent_cpu_ratio"), newest.get("stepscope/agent_resident_bytes"))
