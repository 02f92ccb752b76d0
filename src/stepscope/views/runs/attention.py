"""What a person should look at: a run that failed or stalled, a loss that is NaN, alerts, findings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from stepscope.analysis.verdict import rank_of
from stepscope.schema.run import LIVE, without_end_mark
from stepscope.views.plain import clean

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stepscope.reading import Run
    from stepscope.views.run_figures import RunFigures
    from stepscope.views.runs.marks import Marks

RECENT_NS = 7 * 86_400 * 10**9
"""A run that went wrong longer ago needs nobody's attention any more."""

STATUS_SEVERITY = {"crashed": "critical", "failed": "critical", "stalled": "warning"}
NONFINITE = "num.nonfinite"
"""The finding on a loss that is not a number, and the rule that has people told of it."""

MAX_NAME = 300
MAX_WHAT = 400


@dataclass(frozen=True)
class Attention:
    """Something a person should look at."""

    run_id: str
    run: str
    what: str
    severity: str
    since: float
    kind: Literal["alert", "status", "finding"]


def may_need_attention(run: Run, marks: Marks, now_ns: int) -> bool:
    """Whether a run is live, or ended lately and was not put aside."""
    if run.status in LIVE:
        return True
    return run.info.last_ns > now_ns - RECENT_NS and not marks.archived(run.id)


def attention_of(run: Run, marks: Marks, figures: RunFigures, now_ns: int) -> list[Attention]:
    """What a run needs a person for, the worst first; nothing where it ended long ago or was put aside."""
    if not may_need_attention(run, marks, now_ns):
        return []
    name = clean(marks.name(run.id) or run.name, MAX_NAME)
    several = [*_of_status(run), *_of_loss(run, marks, figures), *_of_live(run, marks)]
    found = [Attention(run.id, name, *said) for said in several]
    return sorted(found, key=lambda one: (rank_of(one.severity), -one.since))


_Said = tuple[str, str, float, Literal["alert", "status", "finding"]]
"""What, how bad, since when, and of which kind."""


def _of_status(run: Run) -> Iterator[_Said]:
    if run.status in STATUS_SEVERITY:
        why = f": {clean(without_end_mark(run.reason), MAX_NAME)}" if run.reason else ""
        since_ns = run.info.last_ns if run.info.ended_ns is None else run.info.ended_ns
        yield f"{run.status}{why}", STATUS_SEVERITY[run.status], since_ns / 1e9, "status"


def _of_loss(run: Run, marks: Marks, figures: RunFigures) -> Iterator[_Said]:
    """A loss that is not a number now, or was not when the run ended."""
    if figures.loss_nonfinite is None or NONFINITE in marks.muted(run.id):
        return
    if run.status in LIVE and any(_is_open(one) and _is_nonfinite(one) for one in run.findings()):
        return  # that finding is told of as it is
    for finding in run.findings():
        if _is_nonfinite(finding):
            yield _headline(finding), "critical", float(finding.get("first_time") or 0.0), "finding"
            return
    at = "" if figures.step is None else f" at step {figures.step:,}"
    yield f"{figures.loss_key} is {figures.loss_nonfinite}{at}", "critical", run.info.last_ns / 1e9, "finding"


def _of_live(run: Run, marks: Marks) -> Iterator[_Said]:
    """Alerts and findings: those of a run that has ended are over, or for those who look at it."""
    if run.status not in LIVE:
        return
    for alert in run.alerts():
        if alert["resolved_ns"] is None:
            yield clean(alert["message"], MAX_WHAT), alert["severity"], alert["fired_ns"] / 1e9, "alert"
    muted = marks.muted(run.id)
    for finding in run.findings():
        is_bad = finding.get("severity") in ("warning", "critical")
        if _is_open(finding) and is_bad and _names(finding).isdisjoint(muted):
            since = float(finding.get("first_time") or 0.0)
            yield _headline(finding), str(finding.get("severity")), since, "finding"


def _is_open(finding: dict[str, Any]) -> bool:
    return bool(finding.get("open", True))


def _is_nonfinite(finding: dict[str, Any]) -> bool:
    return NONFINITE in _names(finding)


def _names(finding: dict[str, Any]) -> set[str]:
    return {str(finding.get("id")), str(finding.get("key"))}


def _headline(finding: dict[str, Any]) -> str:
    return clean(finding.get("headline") or finding.get("title") or "", MAX_WHAT)
