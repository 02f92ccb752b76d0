"""The header of a run's pages, and facts about the server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import stepscope
from stepscope.alerts.delivery.delivery import DEFAULT_CHANNELS
from stepscope.schema.run import LIVE
from stepscope.schema.series import Selection
from stepscope.web.live import cursor
from stepscope.web.live.live_run import position_of

if TYPE_CHECKING:
    from stepscope.reading import Run
    from stepscope.store.following import Counter
    from stepscope.web.app_state import AppState
    from stepscope.web.reader_pool import OpenStore

AXIS_KEYS = {
    "epoch": ("epoch", "train/epoch"),
    "samples": ("samples_total", "samples", "samples_seen", "train/samples"),
    "tokens": ("tokens_total", "tokens", "tokens_seen", "num_input_tokens_seen", "train/tokens"),
}
"""Common names of the series that count these, the most common first."""

NO_SERIES = {
    "epoch": "No epoch was logged. Give epoch=... to log_training_step.",
    "samples": "This axis needs the metric samples_total: log the samples seen so far.",
    "tokens": "This axis needs the metric tokens_total: log the tokens seen so far.",
}

COST_KEYS = {"cpu_ratio": "stepscope/agent_cpu_ratio", "rss_bytes": "stepscope/agent_resident_bytes"}


def run_head_of(state: AppState, opened: OpenStore, run: Run) -> dict[str, Any]:
    """What every page of a run shows at its top."""
    counters = opened.reader.counters(run.id)
    is_live = run.status in LIVE
    return {
        "row": state.row(run),
        "segments": [_segment(opened, run, counters, number) for number in range(len(run.segments))],
        "axes": _axes(_step_keys(counters)),
        "live": is_live,
        "heartbeat_age_s": max(state.now_ns() - run.info.last_ns, 0) / 1e9 if is_live else None,
        "notes": state.marks.notes(run.id),
        "cursor": cursor_of(state, opened, run, counters),
    }


def shared_axes(opened: OpenStore, runs: list[Run]) -> dict[str, Any]:
    """What charts of several runs need: the segments of each run, and the x axes all of them have."""
    counters_by_run = [opened.reader.counters(run.id) for run in runs]
    axes_by_run = [_axes(_step_keys(counters)) for counters in counters_by_run]
    return {
        "segments": [
            [_segment(opened, run, counters, number) for number in range(len(run.segments))]
            for run, counters in zip(runs, counters_by_run, strict=True)
        ],
        "axes": [_common_axis(choices) for choices in zip(*axes_by_run, strict=True)],
    }


def _step_keys(counters: list[Counter]) -> set[str]:
    return {counter.key for counter in counters if counter.source.axis == "step"}


def _common_axis(choices: tuple[dict[str, str | None], ...]) -> dict[str, str | None]:
    missing = sum(choice["why_not"] is not None for choice in choices)
    if missing:
        who = "No run" if missing == len(choices) else f"{missing} of {len(choices)} runs"
        verb = "logged a" if missing == len(choices) else "logged no"
        return {**choices[0], "key": None, "why_not": f"{who} {verb} count of {choices[0]['name']}."}
    if len({choice["key"] for choice in choices}) > 1:
        reason = f"The runs count {choices[0]['name']} under different names."
        return {**choices[0], "key": None, "why_not": reason}
    return choices[0]


def cursor_of(state: AppState, opened: OpenStore, run: Run, counters: list[Counter]) -> str:
    """The cursor to follow a run from, at the state that is read in the same transaction."""
    return cursor.encode(run.id, position_of(state, opened, run, counters))


def server_info(state: AppState, opened: OpenStore) -> dict[str, Any]:
    """Version, store and state of the server."""
    runs = opened.runs.runs()
    options = state.options
    return {
        "version": stepscope.__version__,
        "now": state.now_ns() / 1e9,
        "store": str(options.folder.absolute()),
        "read_only": options.read_only,
        "has_token": state.keyring.is_needed(),
        "run_count": len(runs),
        "channels": list({**DEFAULT_CHANNELS, **options.settings.alerts.channels}),
        "projects": sorted({run.project for run in runs}),
        "bytes_used": opened.reader.bytes_used(),
        "agent": _agent_cost(runs),
        "set_aside": [
            {"path": journal.path, "reason": journal.reason, "advice": journal.advice}
            for journal in opened.runs.set_aside()
        ],
    }


def _segment(opened: OpenStore, run: Run, counters: list[Counter], number: int) -> dict[str, Any]:
    part = run.segments[number]
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
    return {
        "id": part.id,
        "status": part.status,
        "reason": part.reason,
        "started": part.started_ns / 1e9,
        "ended": None if part.ended_ns is None else part.ended_ns / 1e9,
        "first_step": first,
        "last_step": max(steps, default=None),
    }


def _axes(keys: set[str]) -> list[dict[str, str | None]]:
    """The x axes a chart of the run can have."""
    counted: list[dict[str, str | None]] = [{"name": "step", "key": None, "why_not": None}]
    for name, candidates in AXIS_KEYS.items():
        key = next((candidate for candidate in candidates if candidate in keys), None)
        counted.append({"name": name, "key": key, "why_not": NO_SERIES[name] if key is None else None})
    times: list[dict[str, str | None]] = [
        {"name": name, "key": None, "why_not": None} for name in ("active", "process", "wall")
    ]
    return counted + times


def _agent_cost(runs: list[Run]) -> dict[str, float | None]:
    """CPU and memory the agent uses, from the newest live run."""
    live = [run for run in runs if run.status in LIVE]
    if not live:
        return dict.fromkeys(COST_KEYS)
    newest = {info.key: info.last for info in live[-1].machine_keys() if info.key in COST_KEYS.values()}
    return {name: newest.get(key) for name, key in COST_KEYS.items()}
