"""The first page of all: what runs, what needs attention, what ran last, and the machines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from stepscope.analysis.verdict import rank_of
from stepscope.schema.run import LIVE
from stepscope.views.host_now import HostNow, hosts_now
from stepscope.views.plain import clean
from stepscope.views.run_rows import KeptFigures, RunRow, run_row

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stepscope.reading import Run, Runs
    from stepscope.views.marks import Marks

MOST_RECENT = 10
MOST_ATTENTION = 50
RECENT_NS = 7 * 86_400 * 10**9
"""A run that went wrong longer ago needs nobody's attention any more."""

STATUS_SEVERITY = {"crashed": "critical", "failed": "critical", "stalled": "warning"}


@dataclass(frozen=True)
class Attention:
    """Something a person should look at."""

    run_id: str
    run: str
    what: str
    severity: str
    since: float
    kind: Literal["alert", "status", "finding"]


@dataclass(frozen=True)
class Home:
    """The page."""

    running: tuple[RunRow, ...]
    attention: tuple[Attention, ...]
    recent: tuple[RunRow, ...]
    hosts: tuple[HostNow, ...]


def home_of(runs: Runs, marks: Marks, now_ns: int, kept: KeptFigures | None = None) -> Home:
    """All of it, of the runs that nobody has put aside; a live run is shown in any case."""
    kept = kept or KeptFigures()
    every = runs.runs()
    live = [run for run in every if run.status in LIVE]
    ended = [run for run in every if run.status not in LIVE and not marks.archived(run.id)]
    ended.sort(key=lambda run: run.info.ended_ns or run.info.last_ns)
    recent = ended[-MOST_RECENT:][::-1]
    looked_at = [*live, *(run for run in ended if run.info.last_ns > now_ns - RECENT_NS)]
    attention = [one for run in looked_at for one in _attention(run, marks)]
    attention.sort(key=lambda one: (rank_of(one.severity), -one.since))
    return Home(
        running=tuple(run_row(run, marks, now_ns, kept) for run in reversed(live)),
        attention=tuple(attention[:MOST_ATTENTION]),
        recent=tuple(run_row(run, marks, now_ns, kept) for run in recent),
        hosts=hosts_now(every, now_ns),
    )


def _attention(run: Run, marks: Marks) -> Iterator[Attention]:
    name = clean(marks.name(run.id) or run.name, 300)
    if run.status in STATUS_SEVERITY:
        why = f": {clean(run.reason, 300)}" if run.reason else ""
        since_ns = run.info.last_ns if run.info.ended_ns is None else run.info.ended_ns
        severity = STATUS_SEVERITY[run.status]
        yield Attention(run.id, name, f"{run.status}{why}", severity, since_ns / 1e9, "status")
    if run.status not in LIVE:
        return  # its alerts are over, and its findings are for those who look at it
    for alert in run.alerts():
        if alert["resolved_ns"] is None:
            told = clean(alert["message"], 400)
            yield Attention(run.id, name, told, alert["severity"], alert["fired_ns"] / 1e9, "alert")
    muted = marks.muted(run.id)
    for finding in run.findings():
        if _is_told(finding, muted):
            told = clean(finding.get("headline") or finding.get("title") or "", 400)
            since = float(finding.get("first_time") or 0.0)
            yield Attention(run.id, name, told, str(finding.get("severity")), since, "finding")


def _is_told(finding: dict[str, Any], muted: frozenset[str]) -> bool:
    names = {str(finding.get("id")), str(finding.get("key"))}
    is_bad = finding.get("severity") in ("warning", "critical")
    return bool(finding.get("open", True)) and is_bad and names.isdisjoint(muted)
