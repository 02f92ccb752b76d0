"""What needs a person's attention: failed or stalled runs, NaN losses, alerts, findings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from stepscope.analysis.verdict import NONFINITE, problems_of, rank_of
from stepscope.schema.finding import Severity
from stepscope.schema.run import LIVE
from stepscope.views.json_values import clean
from stepscope.views.overview.run_verdict import findings_of, shown_findings, state_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from stepscope.analysis.diagnose import Diagnosis
    from stepscope.analysis.verdict import Problem
    from stepscope.reading import Run
    from stepscope.views.run_figures import RunFigures
    from stepscope.views.runs.marks import Marks

RECENT_NS = 7 * 86_400 * 10**9
"""A run that ended longer ago needs no attention."""

MAX_NAME = 300
MAX_WHAT = 400


@dataclass(frozen=True)
class Attention:
    """Something that needs a person's attention."""

    run_id: str
    run: str
    what: str
    severity: Severity
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
    reasons = [*_of_problems(run, marks, figures, findings_of(run, diagnosis)), *_of_alerts(run)]
    needs = [Attention(run.id, name, *reason) for reason in reasons]
    return min(needs, key=lambda attention: (rank_of(attention.severity), -attention.since), default=None)


_Reason = tuple[str, Severity, float, Literal["alert", "status", "finding"]]
"""Text, severity, time of start in seconds, and kind."""


def _of_problems(
    run: Run, marks: Marks, figures: RunFigures, findings: Sequence[dict[str, Any]]
) -> Iterator[_Reason]:
    """Yields problems that can still be acted on in a live run, and critical ones of an ended run."""
    muted = marks.muted(run.id, run.project)
    severities: tuple[Severity, ...] = ("warning", "critical") if run.status in LIVE else ("critical",)
    for problem in problems_of(shown_findings(findings, muted), state_of(run, figures, muted)):
        severity = next((known for known in severities if known == problem.severity), None)
        if severity is None:
            continue
        if problem.finding is not None:
            since = float(problem.finding.get("first_time") or 0.0)
            yield clean(problem.text, MAX_WHAT), severity, since, "finding"
        elif problem.id.startswith("status."):
            since_ns = run.info.last_ns if run.info.ended_ns is None else run.info.ended_ns
            yield clean(problem.text, MAX_WHAT), severity, since_ns / 1e9, "status"
        else:
            text, since = _loss(run, figures, problem, findings)
            yield text, severity, since, "finding"


def _loss(
    run: Run, figures: RunFigures, problem: Problem, findings: Sequence[dict[str, Any]]
) -> tuple[str, float]:
    """Returns what is wrong with the loss and since when, from the finding that reported it, if one did."""
    for finding in findings:
        if NONFINITE in (finding.get("id"), finding.get("key")):
            text = clean(finding.get("headline") or finding.get("title") or "", MAX_WHAT)
            return text, float(finding.get("first_time") or 0.0)
    at = "" if figures.step is None else f" at step {figures.step:,}"
    is_last = figures.loss_nonfinite is not None
    text = f"{figures.loss_key} is {figures.loss_nonfinite}{at}" if is_last else problem.text
    return text, run.info.last_ns / 1e9


def _of_alerts(run: Run) -> Iterator[_Reason]:
    """Yields open alerts of a live run; those of an ended run are over, and info alerts need no action."""
    if run.status not in LIVE:
        return
    for alert in run.alerts():
        if alert["resolved_ns"] is None and alert["severity"] in ("warning", "critical"):
            yield clean(alert["message"], MAX_WHAT), alert["severity"], alert["fired_ns"] / 1e9, "alert"
