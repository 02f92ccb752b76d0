"""What needs a person's attention: failed or stalled runs, NaN losses, alerts, findings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from stepscope.analysis.verdict import rank_of
from stepscope.schema.run import LIVE, without_end_mark
from stepscope.views.json_values import clean
from stepscope.views.overview.run_verdict import findings_of, is_open, shown_findings

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from stepscope.analysis.diagnose import Diagnosis
    from stepscope.reading import Run
    from stepscope.views.run_figures import RunFigures
    from stepscope.views.runs.marks import Marks

RECENT_NS = 7 * 86_400 * 10**9
"""A run that ended longer ago needs no attention."""

BAD_STATUSES = ("crashed", "failed", "stalled")
"""Statuses that verdicts also rate as critical."""

NONFINITE = "num.nonfinite"
"""The finding, and the alert rule, for a loss that is not finite."""

MAX_NAME = 300
MAX_WHAT = 400


@dataclass(frozen=True)
class Attention:
    """Something that needs a person's attention."""

    run_id: str
    run: str
    what: str
    severity: str
    since: float
    kind: Literal["alert", "status", "finding"]


def may_need_attention(run: Run, marks: Marks, now_ns: int) -> bool:
    """Returns whether a run is live or ended recently, and is not archived."""
    is_recent = run.status in LIVE or run.info.last_ns > now_ns - RECENT_NS
    return is_recent and not marks.archived(run.id)


def attention_of(
    run: Run, marks: Marks, figures: RunFigures, now_ns: int, diagnosis: Diagnosis | None = None
) -> Attention | None:
    """Returns the worst problem of a run that needs attention; None if there is none.

    There is one for each run, so that counts of runs and lists of problems agree. `diagnosis` is that of a
    run which no agent has checked.
    """
    if not may_need_attention(run, marks, now_ns):
        return None
    name = clean(marks.name(run.id) or run.name, MAX_NAME)
    findings = findings_of(run, diagnosis)
    reasons = [
        *_of_status(run),
        *_of_loss(run, marks, figures, findings),
        *_of_alerts(run),
        *_of_findings(run, marks, findings),
    ]
    needs = [Attention(run.id, name, *reason) for reason in reasons]
    return min(needs, key=lambda attention: (rank_of(attention.severity), -attention.since), default=None)


_Reason = tuple[str, str, float, Literal["alert", "status", "finding"]]
"""Text, severity, time of start in seconds, and kind."""


def _of_status(run: Run) -> Iterator[_Reason]:
    if run.status in BAD_STATUSES:
        why = f": {clean(without_end_mark(run.reason), MAX_NAME)}" if run.reason else ""
        since_ns = run.info.last_ns if run.info.ended_ns is None else run.info.ended_ns
        yield f"{run.status}{why}", "critical", since_ns / 1e9, "status"


def _of_loss(
    run: Run, marks: Marks, figures: RunFigures, findings: Sequence[dict[str, Any]]
) -> Iterator[_Reason]:
    """Yields a loss that is not finite now, or was not at the end, unless an open finding reports it."""
    if figures.loss_nonfinite is None or NONFINITE in marks.muted(run.id):
        return
    loss_findings = [finding for finding in findings if NONFINITE in _names(finding)]
    if any(is_open(finding) for finding in loss_findings):
        return
    for finding in loss_findings:
        yield _headline(finding), "critical", float(finding.get("first_time") or 0.0), "finding"
        return
    at = "" if figures.step is None else f" at step {figures.step:,}"
    yield f"{figures.loss_key} is {figures.loss_nonfinite}{at}", "critical", run.info.last_ns / 1e9, "finding"


def _of_alerts(run: Run) -> Iterator[_Reason]:
    """Yields open alerts of a live run; those of an ended run are over, and info alerts need no action."""
    if run.status not in LIVE:
        return
    for alert in run.alerts():
        if alert["resolved_ns"] is None and alert["severity"] in ("warning", "critical"):
            yield clean(alert["message"], MAX_WHAT), alert["severity"], alert["fired_ns"] / 1e9, "alert"


def _of_findings(run: Run, marks: Marks, findings: Sequence[dict[str, Any]]) -> Iterator[_Reason]:
    """Yields findings that can still be acted on in a live run, and critical ones of an ended run."""
    severities = ("warning", "critical") if run.status in LIVE else ("critical",)
    for finding in shown_findings(findings, marks.muted(run.id)):
        if finding.get("severity") in severities:
            since = float(finding.get("first_time") or 0.0)
            yield _headline(finding), str(finding.get("severity")), since, "finding"


def _names(finding: dict[str, Any]) -> set[str]:
    return {str(finding.get("id")), str(finding.get("key"))}


def _headline(finding: dict[str, Any]) -> str:
    return clean(finding.get("headline") or finding.get("title") or "", MAX_WHAT)
