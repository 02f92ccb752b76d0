"""Tools on runs: the list, the explanation of one run, and the changes to make."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from stepscope.errors import NotFound, StepscopeError
from stepscope.mcp.answers import Answer, NextCall, moment, rounded
from stepscope.mcp.event_tools import failure_entry
from stepscope.mcp.parameters import Detail, FindingId, Limit, RunName  # noqa: TC001 - the schema of the tools reads it
from stepscope.mcp.watched_store import handle_of, similar
from stepscope.schema.finding import SEVERITIES
from stepscope.views.formatting import between, percent
from stepscope.views.history.run_history import history_of
from stepscope.views.logs.run_failure import failure_of
from stepscope.views.overview.run_findings import checks_of, listed_findings
from stepscope.views.overview.run_verdict import findings_of, verdict_for
from stepscope.views.runs.run_list import SORTS, filtered, sorted_rows

if TYPE_CHECKING:
    from stepscope.analysis.diagnose import Diagnosis
    from stepscope.analysis.verdict import Verdict
    from stepscope.mcp.watched_store import CalledStore, WatchedStore
    from stepscope.reading import Run
    from stepscope.schema.finding import Estimate
    from stepscope.views.logs.console_lines import Failure
    from stepscope.views.overview.run_findings import Finding
    from stepscope.views.runs.run_rows import RunRow

RUNS = 8
"""How many runs a list has where no number is given."""
TRACEBACK_LINES = 8
NOT_CHECKED = 3
"""How many checks that could not run are named."""


class RunTools:
    """Answers about runs as wholes."""

    def __init__(self, store: WatchedStore) -> None:
        self._store = store

    def list_runs(
        self,
        filter: Annotated[  # noqa: A002 - its name in the API and on the page
            str,
            Field(
                max_length=1000,
                description="Words and conditions, as on the page: `status:running loss<2 tag:best`.",
            ),
        ] = "",
        sort: Annotated[SORTS, Field(description="The figure to sort by, largest first.")] = "started",
        limit: Limit = None,
    ) -> Answer:
        """Lists runs, the newest first: status, progress, loss, speed and how each run is doing."""
        with self._store.open() as called:
            rows = self._store.rows(called)
            names = [row.name for row in rows]
        matching, error = filtered(
            [row for row in rows if not row.archived], filter, self._store.state.now_ns()
        )
        if error is not None:
            raise StepscopeError(f"The filter {filter!r} is not valid: {error.message}")
        shown = sorted_rows(matching, sort, descending=True)[: limit or RUNS]
        handles = [handle_of(row.id, row.name, names) for row in shown]
        body = {
            "runs": [_row(row, handle) for row, handle in zip(shown, handles, strict=True)],
            "matching": len(matching),
            "store": "" if rows else f"The store {self._store.folder} has no run yet.",
        }
        worst = next((at for at, row in enumerate(shown) if row.attention), 0)
        call = (
            NextCall("explain_run", {"run": handles[worst]}, "Says how this run is doing, and why.")
            if shown
            else NextCall("list_runs", {}, "Lists all runs." if filter else "Lists runs once there are some.")
        )
        return Answer(body, call, "short" if limit is None else "full")

    def explain_run(self, run: RunName = "", finding: FindingId = "", detail: Detail = "short") -> Answer:
        """Says how a run is doing, why it is slow or failed, the evidence, and what to change. Call it first.

        Without a finding, explains the most important one and lists the others.
        """
        with self._store.open() as called:
            chosen = called.run(run)
            handle = self._store.handle(chosen, called)
            diagnosis = chosen.diagnose()
            verdict = _verdict(self._store, called, chosen, diagnosis)
            findings = ranked_findings(called, chosen, diagnosis, verdict)
            failure = failure_of(chosen)
            history = history_of(chosen, called.opened.runs.runs(), diagnosis, self._store.state.figures)
            row = self._store.state.row(chosen)
        main, others = _chosen_finding(findings, finding, handle)
        not_run = [check for check in checks_of(diagnosis) if check.result == "could not run"]
        if detail == "short":  # checks that say nothing of the cause are of interest where there is none
            not_run = not_run[:NOT_CHECKED] if failure is None and main is None else []
        answer = history.answer
        body = {
            "run": {**_row(row, handle), "verdict": None, "reason": "" if failure else row.reason},
            "verdict": {
                "headline": verdict.headline,
                "severity": verdict.severity,
                "confidence": verdict.confidence,
            },
            "failure": None if failure is None else failure_entry(failure, TRACEBACK_LINES),
            "finding": None if main is None else _finding(main, detail),
            "other_findings": [
                {"id": other.id, "severity": other.severity, "headline": other.headline} for other in others
            ],
            "compared_with_earlier_runs": answer.sentence if answer.runs else "",
            "could_not_check": [{"id": check.id, "why": check.why} for check in not_run],
        }
        call = _after_explanation(handle, failure, main, is_first=not finding, has_more=bool(others))
        return Answer(body, call, detail)

    def recommend_changes(self, run: RunName = "", detail: Detail = "short") -> Answer:
        """Lists the changes to make, the largest gain first, with code, and what helped in earlier runs."""
        with self._store.open() as called:
            chosen = called.run(run)
            handle = self._store.handle(chosen, called)
            diagnosis = chosen.diagnose()
            verdict = _verdict(self._store, called, chosen, diagnosis)
            findings = ranked_findings(called, chosen, diagnosis, verdict)
            history = history_of(chosen, called.opened.runs.runs(), diagnosis, self._store.state.figures)
        by_gain = sorted(findings, key=_gain, reverse=True)
        changes = [
            {
                "change": remedy.text,
                "code": remedy.code,
                "framework": remedy.framework,
                "finding": finding.id,
                "problem": finding.headline,
                "where": finding.where,
                "estimated_gain": gain_text(finding.estimate),
            }
            for finding in by_gain
            for remedy in (finding.remedies[:1] if detail == "short" else finding.remedies)
        ]
        body = {
            "run": handle,
            "changes": changes,
            "nothing_to_change": "" if changes else verdict.headline,
            "helped_in_earlier_runs": [advice.sentence for advice in history.answer.helped],
        }
        if changes:
            arguments = {"run": handle, "finding": by_gain[0].id}
            return Answer(body, NextCall("explain_run", arguments, "Shows the evidence."), detail)
        return Answer(body, NextCall("list_metrics", {"run": handle}, "Shows what was recorded."), detail)


def ranked_findings(
    called: CalledStore, run: Run, diagnosis: Diagnosis, verdict: Verdict
) -> tuple[Finding, ...]:
    """Returns the findings that are open and not muted: the one of the verdict first, then the worst ones."""
    muted = called.marks.muted(run.id, run.project)
    listed = listed_findings(findings_of(run, diagnosis), muted)
    shown = [finding for finding in listed if finding.open and not finding.muted]
    shown.sort(
        key=lambda finding: (
            finding.id != verdict.id,
            SEVERITIES.index(finding.severity),
            -(finding.share or 0.0),
        )
    )
    return tuple(shown)


def _gain(finding: Finding) -> float:
    return finding.estimate.likely if finding.estimate else 0.0


def gain_text(estimate: Estimate | None) -> str:
    """Returns what a change is estimated to gain; empty where that is not known."""
    if estimate is None:
        return ""
    span = between(percent(estimate.low), percent(estimate.high))
    return f"{percent(estimate.likely)} of {estimate.of} ({span})"


def _verdict(store: WatchedStore, called: CalledStore, run: Run, diagnosis: Diagnosis) -> Verdict:
    figures = store.state.figures.of(run, store.state.now_ns())
    return verdict_for(run, called.marks.muted(run.id, run.project), figures, diagnosis)


def _chosen_finding(
    findings: tuple[Finding, ...], wanted: str, handle: str
) -> tuple[Finding | None, tuple[Finding, ...]]:
    """Returns the finding to explain and the others."""
    if not wanted:
        return (findings[0], findings[1:]) if findings else (None, ())
    for finding in findings:
        if wanted in (finding.id, finding.key):
            return finding, tuple(other for other in findings if other is not finding)
    known = similar(wanted, [finding.id for finding in findings])
    raise NotFound(f"The run {handle!r} has no open finding {wanted!r}; {known}")


def _after_explanation(
    handle: str, failure: Failure | None, main: Finding | None, *, is_first: bool, has_more: bool
) -> NextCall:
    if is_first and failure is not None:
        return NextCall("read_logs", {"run": handle}, "Shows the last lines that the run printed.")
    if is_first and main is not None and has_more:
        return NextCall("recommend_changes", {"run": handle}, "Lists the changes for all findings.")
    if main is not None and main.chart is not None:
        arguments = {"run": handle, "keys": list(main.chart.keys[:3])}
        return NextCall("read_series", arguments, "Shows the figures that the finding is about.")
    return NextCall("list_metrics", {"run": handle}, "Shows what was recorded.")


def _row(row: RunRow, handle: str) -> dict[str, Any]:
    """Returns a run in a list; `run` is what to call it in other tools."""
    return {
        "run": handle,
        "project": row.project,
        "status": row.status,
        "started": moment(row.started),
        "step": row.step,
        "total_steps": row.total_steps,
        "steps_per_second": rounded(row.steps_per_second),
        "loss": row.loss_nonfinite or rounded(row.loss_last),
        "verdict": row.verdict.headline,
        "reason": row.reason,
        "open_alerts": row.open_alerts or None,
        "tags": row.tags,
    }


def _finding(finding: Finding, detail: Detail) -> dict[str, Any]:
    """Returns a finding with its evidence and the changes to make; with all its fields in full."""
    steps = None if finding.first_step is None else [finding.first_step, finding.last_step]
    remedies = finding.remedies if detail == "full" else finding.remedies[:2]
    return {
        "id": finding.id,
        "headline": finding.headline,
        "severity": finding.severity,
        "confidence": finding.confidence,
        "changes": [{"change": remedy.text, "code": remedy.code} for remedy in remedies],
        "estimated_gain": gain_text(finding.estimate),
        "where": finding.where,
        "evidence": [
            f"{figure.label}: {figure.value}{f' ({figure.note})' if figure.note else ''}"
            for figure in finding.evidence
        ],
        "detail": finding.detail,
        "steps": steps,
        "rank": finding.rank,
        "ruled_out": finding.ruled_out,
        "how": finding.how if detail == "full" else "",
    }
