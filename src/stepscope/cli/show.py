"""Shows one run: status, segments, facts, metrics, events."""

from __future__ import annotations

import shlex
import textwrap
import time
from dataclasses import asdict
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from stepscope.cli.main import FINE
from stepscope.cli.options.find import add_limit_argument, add_run_arguments, chosen_run, suggestion
from stepscope.cli.output import text
from stepscope.cli.output.show_energy import energy_lines
from stepscope.cli.output.show_machine import device_lines, machine_lines
from stepscope.cli.output.show_schedule import schedule_lines
from stepscope.cli.output.table import Column, shorten, table
from stepscope.config.find import settings_for
from stepscope.errors import NotFound
from stepscope.reading import PARAMS
from stepscope.schema.keys import CHECKS_EVENT, STACKS_EVENT
from stepscope.views.compare.compared_config import shown
from stepscope.views.energy.energy import energy_of
from stepscope.views.export.run_json import SPARKS, extremes, run_details, seconds
from stepscope.views.formatting import duration, percent
from stepscope.views.json_values import json_tree
from stepscope.views.machine.machine_figures import described, machine_figures
from stepscope.views.metrics.series_summaries import SeriesSummaries
from stepscope.views.overview.target_figures import target_figures
from stepscope.views.overview.wall_time import wall_time_of
from stepscope.views.run_context import RunContext
from stepscope.views.run_setup import flattened
from stepscope.views.runs.marks import NoMarks
from stepscope.views.schedule.schedule import schedule_of
from stepscope.views.steps.step_rate import run_seconds

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

    from stepscope.reading import Run
    from stepscope.schema.record import Event
    from stepscope.schema.run import Process
    from stepscope.schema.series import SeriesInfo
    from stepscope.views.overview.target_figures import TargetFigure
    from stepscope.views.overview.wall_time import WallTime

WIDE_SCREEN = 100
"""Narrower screens get trends of half the width."""
MAX_PROCESSES = 24
MAX_KEYS = 40
MAX_EVENTS = 10
MAX_PARAMS = 30
CONSOLE_LINES = 10
CONSOLE = "console"
DEVICE = "device"
"""Events of this kind describe the hardware; they are shown with its figures."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares which run to show, and how much of it."""
    add_run_arguments(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument(
        "--keys", metavar="PATTERN", help="only keys that contain this, or match it as in 'val/*'"
    )
    only = parser.add_mutually_exclusive_group()
    only.add_argument("--events", action="store_true", help="only the events, all of them")
    only.add_argument(
        "--schedule",
        action="store_true",
        help="only the effect of each learning-rate phase",
    )
    add_limit_argument(parser, "at most N keys and N events")


def run(options: argparse.Namespace) -> int:
    """Prints the run."""
    store, chosen = chosen_run(options)
    if options.json:
        text.emit([text.to_json(_as_dict(chosen, str(store.folder.absolute()), options))])
    elif options.events:
        text.emit([*_head(chosen), *_events(chosen.events(), options.limit)])
    elif options.schedule:
        lines = schedule_lines(schedule_of(chosen), text.screen_width() - 2)
        text.emit([*_head(chosen), *_section("schedule", lines)])
    else:
        text.emit(_page(chosen, options))
    store.close()
    return FINE


def _as_dict(run: Run, folder: str, options: argparse.Namespace) -> dict[str, Any]:
    """What `--json` prints."""
    if options.schedule:
        return {**run_details(run, folder, [], []), "schedule": schedule_of(run).described()}
    keys = [] if options.events else _chosen_keys(run, options.keys)[: options.limit]
    document = run_details(run, folder, keys, _newest(run.events(), options.limit))
    document["params"] = run.params
    if not options.events:
        document["machine"] = [described(figure) for figure in machine_figures(run, options.keys, SPARKS)]
        document["energy"] = energy_of(run, settings_for().energy).described()
        wall_time = _wall_time_of(run)
        document["targets"] = [asdict(figure) for figure in _target_figures(run)]
        document["wall_time"] = None if wall_time is None else wall_time.described()
    return document


def _page(run: Run, options: argparse.Namespace) -> Iterator[str]:
    yield from _head(run)
    yield from _segments(run)
    yield from _facts(run)
    yield from _params(run)
    if options.keys is None:
        yield from _targets(run)
        yield from _wall_time(run)
    yield from _metrics(run, options)
    yield from _machine(run, options)
    events = run.events()
    hidden = (CONSOLE, DEVICE, PARAMS, CHECKS_EVENT, STACKS_EVENT)
    others = [event for event in events if event.by_user or event.kind not in hidden]
    yield from _events(others, MAX_EVENTS if options.limit is None else options.limit)
    yield from _console([event for event in events if event.kind == CONSOLE and not event.by_user])


def _head(run: Run) -> Iterator[str]:
    yield f"{text.paint(text.safe(run.name), 'heading')}  {text.paint(run.status, run.status)}"
    for line in textwrap.wrap(text.safe(run.reason), text.screen_width() - 2):
        yield f"  {line}"
    took = duration(run_seconds(run, time.time_ns()))
    yield f"  project {text.safe(run.project)}, id {text.safe(run.id)}"
    yield f"  started {text.moment(seconds(run.info.created_ns))}, ran {took}"


def _segments(run: Run) -> Iterator[str]:
    processes = [process for part in run.segments for process in part.processes]
    hidden = max(len(processes) - MAX_PROCESSES, 0)
    with_role = any(process.role != "rank" for process in processes)
    has_losses = any(process.dropped or process.lost for process in processes)
    columns = [
        Column("SEGMENT"),
        Column("RANK", right=True),
        *([Column("ROLE")] if with_role else []),
        Column("HOST", elastic=True),
        Column("PID", right=True),
        Column("STARTED"),
        Column("STATUS", painted=True),
        *([Column("DROPPED", right=True), Column("LOST", right=True)] if has_losses else []),
        *([Column("REASON", elastic=True)] if len(processes) > 1 else []),
    ]
    rows = []
    shown = sorted(processes, key=_has_no_problem)[:MAX_PROCESSES] if hidden else processes
    for process in shown:
        counts = [f"{process.dropped:,}", f"{process.lost:,}"] if has_losses else []
        rows.append(
            [
                process.segment,
                process.rank,
                *([process.role] if with_role else []),
                process.host,
                process.pid,
                text.moment(seconds(process.started_ns)),
                process.status,
                *counts,
                *([process.reason] if len(processes) > 1 else []),
            ]
        )
    lines = table(columns, rows, text.screen_width() - 2)
    if hidden:
        lines.append(text.paint(f"{hidden:,} more processes: see --json", "faint"))
    yield from _section("segments", lines)


def _has_no_problem(process: Process) -> bool:
    return process.status in ("running", "finished") and not (process.dropped or process.lost)


def _facts(run: Run) -> Iterator[str]:
    processes = run.segments[-1].processes
    facts = next((process for process in processes if process.role == "rank"), processes[0]).facts
    lines = []
    for name, value in _short_facts(facts).items():
        lines.append(shorten(f"{name:<9}  {text.safe(value)}", text.screen_width() - 2))
    if lines:
        yield from _section("facts", lines)


def _short_facts(facts: dict[str, Any]) -> dict[str, str]:
    """Facts that fit on a line each; the rest is in `--json`."""
    short = {
        "command": shlex.join(facts.get("command", ())),
        "python": facts.get("python"),
        "commit": facts.get("commit"),
        "libraries": ", ".join(f"{name} {version}" for name, version in facts.get("libraries", {}).items()),
    }
    return {name: value for name, value in short.items() if value}


def _params(run: Run) -> Iterator[str]:
    """Hyper-parameters, one name and value on each line."""
    flat = flattened(json_tree(run.params))
    room = max((len(name) for name in flat), default=0)
    lines = [f"{text.safe(name):<{room}}  {text.safe(shown(value))}" for name, value in flat.items()]
    if len(lines) > MAX_PARAMS:
        more = text.paint(f"{len(lines) - MAX_PARAMS:,} more: see --json", "faint")
        lines = [*lines[:MAX_PARAMS], more]
    if lines:
        yield from _section("params", [shorten(line, text.screen_width() - 2) for line in lines])


def _chosen_keys(run: Run, pattern: str | None) -> list[SeriesInfo]:
    keys = run.keys()
    if pattern is None:
        return keys
    glob = pattern if any(sign in pattern for sign in "*?[") else f"*{pattern}*"
    chosen = [info for info in keys if fnmatchcase(info.key, glob) or info.key == pattern]
    sampled = [info.key for info in run.machine_keys()]
    if not chosen and not any(fnmatchcase(key, glob) for key in sampled):
        names = [*(info.key for info in keys), *sampled]
        raise NotFound(
            f"Run {text.safe(run.name)!r} has no key like {text.safe(pattern)!r}; "
            f"{suggestion(pattern, names)}"
        )
    return chosen


def _target_figures(run: Run) -> tuple[TargetFigure, ...]:
    return target_figures(RunContext(run, NoMarks(), time.time_ns()), settings_for().energy)


def _targets(run: Run) -> Iterator[str]:
    figures = _target_figures(run)
    if figures:
        columns = [
            Column("TARGET"),
            Column("GOAL", right=True),
            Column("NOW", right=True),
            Column("STATE", elastic=True),
            Column("OF", elastic=True),
        ]
        rows = [
            [figure.title, figure.target_text, figure.value_text, figure.state_text, figure.detail]
            for figure in figures
        ]
        yield from _section("targets", table(columns, rows, text.screen_width() - 2))


def _wall_time_of(run: Run) -> WallTime | None:
    return wall_time_of(run, SeriesSummaries(run.summaries()), time.time_ns())


def _wall_time(run: Run) -> Iterator[str]:
    wall_time = _wall_time_of(run)
    if wall_time is None:
        return
    columns = [Column("PART"), Column("TIME", right=True), Column("SHARE", right=True)]
    parts = [part for part in wall_time.parts if part.share >= 0.0005]
    rows = [[part.label, duration(part.seconds), percent(part.share)] for part in parts]
    title = f"wall time of {duration(wall_time.seconds)}"
    yield from _section(title, table(columns, rows, text.screen_width() - 2))


def _metrics(run: Run, options: argparse.Namespace) -> Iterator[str]:
    chosen = _chosen_keys(run, options.keys)
    if not chosen:
        if options.keys is None:
            yield from _section("metrics", ["nothing was logged"])
        return
    shown = chosen[: MAX_KEYS if options.limit is None else options.limit]
    sparks = SPARKS if text.screen_width() >= WIDE_SCREEN else SPARKS // 2
    series = [(info, run.buckets(info.key, sparks)) for info in shown]
    has_nonfinite = any(buckets.nonfinite.any() for _, buckets in series)
    columns = [
        Column("KEY", elastic=True),
        Column("POINTS", right=True),
        Column("LAST", right=True),
        Column("MIN", right=True),
        Column("MAX", right=True),
        *([Column("NOT FINITE", right=True)] if has_nonfinite else []),
        Column("TREND"),
    ]
    rows = []
    for info, buckets in series:
        low, high = extremes(buckets)
        last = "NaN" if info.last is None else text.number(info.last)
        count = [f"{int(buckets.nonfinite.sum()):,}"] if has_nonfinite else []
        cells = [info.key, f"{info.points:,}", last, text.number(low), text.number(high)]
        rows.append([*cells, *count, text.sparkline(text.bucket_heights(buckets))])
    lines = table(columns, rows, text.screen_width() - 2)
    if len(shown) < len(chosen):
        more = f"{len(chosen) - len(shown):,} more keys: choose with --keys, or raise --limit"
        lines.append(text.paint(more, "faint"))
    yield from _section("metrics", lines)


def _machine(run: Run, options: argparse.Namespace) -> Iterator[str]:
    sparks = SPARKS if text.screen_width() >= WIDE_SCREEN else SPARKS // 2
    lines = machine_lines(run, options.keys, options.limit, sparks)
    if lines:
        yield from _section("machine", [*device_lines(run), *lines])
        used = energy_lines(energy_of(run, settings_for().energy))
        if used:
            yield from _section("energy", [shorten(line, text.screen_width() - 2) for line in used])


def _events(events: Sequence[Event], limit: int | None) -> Iterator[str]:
    if not events:
        return
    shown = _newest(events, limit)
    with_rank = len({event.rank for event in events}) > 1
    columns = [
        Column("TIME"),
        Column("STEP", right=True),
        *([Column("RANK", right=True)] if with_rank else []),
        Column("EVENT"),
        Column("FIELDS", elastic=True),
    ]
    rows = [
        [
            text.moment(event.time),
            "-" if event.step is None else f"{event.step:,}",
            *(["-" if event.rank is None else event.rank] if with_rank else []),
            shorten(event.kind, 40),
            _fields(event),
        ]
        for event in shown
    ]
    title = "events" if len(shown) == len(events) else f"newest {len(shown)} of {len(events):,} events"
    yield from _section(title, table(columns, rows, text.screen_width() - 2))


def _fields(event: Event) -> str:
    """The fields of an event in one line; nested values as a number of entries, since `--json` has them."""
    shown = []
    for name, value in event.fields.items():
        if not isinstance(value, list | tuple | dict):
            shown.append(f"{name}={value}")
        else:
            shown.append(f"{name}=({len(value):,} {'entry' if len(value) == 1 else 'entries'})")
    return " ".join(shown)


def _newest(events: Sequence[Event], limit: int | None) -> Sequence[Event]:
    return events if limit is None else events[max(len(events) - limit, 0) :]


def _console(events: Sequence[Event]) -> Iterator[str]:
    """The last lines the run printed; the newest console event has them."""
    output = str(events[-1].fields.get("text", "")) if events else ""
    lines = [text.safe(line) for line in output.splitlines()[-CONSOLE_LINES:]]
    if lines:
        width = text.screen_width() - 2
        yield from _section("console", [shorten(line, width) for line in lines])


def _section(title: str, lines: Sequence[str]) -> Iterator[str]:
    yield ""
    yield text.paint(title, "heading")
    yield from (f"  {line}" for line in lines)
