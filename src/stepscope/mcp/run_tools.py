"""Tools on runs: the list, the explanation of one run, and the changes to make."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from stepscope.analysis.verdict import importance
from stepscope.errors import NotFound, StepscopeError
from stepscope.mcp.answers import MORE_DETAIL, Answer, NextCall, moment, quoted, rounded, with_rows
from stepscope.mcp.event_tools import failure_entry
from stepscope.mcp.parameters import Detail, FindingId, Limit, Offset, RunName  # noqa: TC001 - the schema of the tools reads it
from stepscope.mcp.watched_store import handle_of, similar
from stepscope.views.formatting import between, percent
from stepscope.views.history.run_history import history_of
from stepscope.views.logs.run_failure import failure_of
from stepscope.views.overview.run_findings import checks_of, listed_findings
from stepscope.views.overview.run_verdict import findings_of, verdict_for
from stepscope.views.runs.run_list import SORTS, filtered, sorted_rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from stepscope.analysis.diagnose import Diagnosis
    from stepscope.analysis.verdict import Verdict
    from stepscope.mcp.watched_store import CalledStore, WatchedStore
    from stepscope.reading import Run
    from stepscope.schema.finding import Estimate, Remedy
    from stepscope.store.mark_store import Feedback
    from stepscope.views.overview.run_findings import Finding
    from stepscope.views.runs.run_rows import RunRow

RUNS = 8
"""How many runs a list has where no number is given."""
TRACEBACK_LINES = 8
FAILURE_LINES = 4
"""How many lines of a traceback come before the changes to make."""
FIX_FIRST = "No other problem is known. Fix the failure first."
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
        offset: Offset = 0,
    ) -> Answer:
        """Lists runs, the newest first: status, progress, loss, speed and how each run is doing."""
        with self._store.open() as called:
            rows = self._store.rows(called)
            names = [row.name for row in rows]
        matching = _matching(rows, filter, self._store.state.now_ns())
        if offset and offset >= len(matching):
            raise StepscopeError(f"offset is {offset}, and the number of matching runs is {len(matching)}.")
        shown = sorted_rows(matching, sort, descending=True)[offset : offset + (limit or RUNS)]
        handles = [handle_of(row.id, row.name, names) for row in shown]
        worst = next((at for at, row in enumerate(shown) if row.attention), 0)
        call = (
            NextCall("explain_run", {"run": handles[worst]}, "Says how this run is doing, and why.")
            if shown
            else NextCall("list_runs", {}, "Lists all runs." if filter else "Lists runs once there are some.")
        )
        body = {
            "runs": [],
            "matching": len(matching),
            "store": "" if rows else f"The store {self._store.folder} has no run yet.",
        }
        listed = [_row(row, handle) for row, handle in zip(shown, handles, strict=True)]
        answer = Answer(body, call, "short" if limit is None else "full", "limit=1000")
        answer, count = with_rows(answer, "runs", listed, len(matching) - offset)
        following = offset + count if offset + count < len(matching) else None
        return replace(answer, body={**answer.body, "next_offset": following})

    def explain_run(self, run: RunName = "", finding: FindingId = "", detail: Detail = "short") -> Answer:
        """Says how a run is doing, why it is slow or failed, the evidence, and what to change. Call it first.

        Without a finding, explains the most important one and lists the others. Earlier findings are over:
        they are not in the newest steps.
        """
        with self._store.open() as called:
            chosen = called.run(run)
            handle = self._store.handle(chosen, called)
            diagnosis = chosen.diagnose()
            verdict = _verdict(self._store, called, chosen, diagnosis)
            ranked = ranked_findings(called, chosen, diagnosis, verdict)
            failure = failure_of(chosen)
            history = history_of(chosen, called.opened.runs.runs(), diagnosis, self._store.state.figures)
            row = self._store.state.row(chosen)
            handles = called.key_handles(chosen)
        main, others = _chosen_finding(ranked, finding, handle)
        not_run = [check for check in checks_of(diagnosis) if check.result == "could not run"]
        if detail == "short":  # checks that say nothing of the cause are of interest where there is none
            not_run = not_run[:NOT_CHECKED] if failure is None and main is None else []
        answer = history.answer
        body = {
            "run": {**_row(row, handle), "verdict": None, "reason": "" if failure else row.reason},
            "failure": None if failure is None else failure_entry(failure, TRACEBACK_LINES),
            "verdict": {
                "headline": verdict.headline,
                "severity": verdict.severity,
                "confidence": verdict.confidence,
            },
            "finding": None if main is None else {**_finding(main, detail), **ranked.state_of(main)},
            "other_findings": [
                {"id": other.id, "severity": other.severity, "headline": other.headline} for other in others
            ],
            **ranked.put_aside(),
            "compared_with_earlier_runs": answer.sentence if answer.runs else "",
            "could_not_check": [{"id": check.id, "why": check.why} for check in not_run],
        }
        charted = main.chart.keys if main is not None and main.chart is not None else ()
        keys = [handles[key] for key in charted if key in handles]
        call = _after_explanation(
            handle, keys, is_failed=failure is not None, is_first=not finding, has_more=bool(others)
        )
        return Answer(body, call, detail, MORE_DETAIL)

    def recommend_changes(self, run: RunName = "", detail: Detail = "short") -> Answer:
        """Lists the changes to make, the most important first, with code, and what helped in earlier runs.

        Earlier findings are over: they are not in the newest steps.
        """
        with self._store.open() as called:
            chosen = called.run(run)
            handle = self._store.handle(chosen, called)
            diagnosis = chosen.diagnose()
            verdict = _verdict(self._store, called, chosen, diagnosis)
            ranked = ranked_findings(called, chosen, diagnosis, verdict)
            failure = failure_of(chosen)
            history = history_of(chosen, called.opened.runs.runs(), diagnosis, self._store.state.figures)
        changes = [
            _change(finding, remedy)
            for finding in ranked.current
            for remedy in (finding.remedies[:1] if detail == "short" else finding.remedies)
        ]
        body = {
            "run": handle,
            "failure": None if failure is None else failure_entry(failure, FAILURE_LINES),
            "changes": changes,
            "nothing_to_change": "" if changes else FIX_FIRST if failure else verdict.headline,
            **ranked.put_aside(),
            "helped_in_earlier_runs": [advice.sentence for advice in history.answer.helped],
        }
        call = NextCall("list_metrics", {"run": handle}, "Shows what was recorded.")
        if changes:
            arguments = {"run": handle, "finding": changes[0]["finding"]}
            call = NextCall("explain_run", arguments, "Shows the evidence.")
        return Answer(body, call, detail, MORE_DETAIL)


def _matching(rows: Iterable[RunRow], text: str, now_ns: int) -> list[RunRow]:
    """Returns the rows that match a filter, without archived runs."""
    matching, error = filtered([row for row in rows if not row.archived], text, now_ns)
    if error is not None:
        raise StepscopeError(f"The filter {quoted(text)} is not valid: {error.message}")
    return matching


def _change(finding: Finding, remedy: Remedy) -> dict[str, Any]:
    return {
        "change": remedy.text,
        "code": remedy.code,
        "framework": remedy.framework,
        "finding": finding.id,
        "problem": finding.headline,
        "severity": finding.severity,
        "where": finding.where,
        "estimated_gain": gain_text(finding.estimate),
    }


@dataclass(frozen=True)
class RankedFindings:
    """The findings of a run, the most important first."""

    current: tuple[Finding, ...]
    """Those in the newest steps, and the one that the verdict is about."""
    earlier: tuple[Finding, ...]
    """Those that are over: an earlier diagnosis had them, that of the newest steps has not."""
    muted: tuple[Finding, ...]
    opinions: Mapping[str, Feedback]
    """Why findings are muted, by their ids."""

    def state_of(self, finding: Finding) -> dict[str, Any]:
        """Returns the entries of a finding that is muted or over."""
        if finding in self.muted:
            opinion = self.opinions.get(finding.id)
            return {"muted": True, **({} if opinion is None else _opinion(opinion))}
        return {"over": "It is not in the newest steps."} if finding in self.earlier else {}

    def put_aside(self) -> dict[str, Any]:
        """Returns short lists of the findings that are muted or over."""
        return {
            "earlier_findings": [
                {"id": finding.id, "headline": finding.headline} for finding in self.earlier
            ],
            "muted_findings": [
                {"id": id_, **(_opinion(self.opinions[id_]) if id_ in self.opinions else {})}
                for id_ in dict.fromkeys(finding.id for finding in self.muted)
            ],
        }


def ranked_findings(called: CalledStore, run: Run, diagnosis: Diagnosis, verdict: Verdict) -> RankedFindings:
    """Returns the findings of a run: the one of the verdict first, then in the order of the diagnosis."""
    stored = listed_findings(findings_of(run, diagnosis), called.marks.muted(run.id, run.project))
    # A problem that was over and came back is stored as it was, and then as it is.
    by_key = {finding.key: finding for finding in sorted(stored, key=lambda finding: finding.open)}
    findings = sorted(
        by_key.values(), key=lambda finding: (finding.id != verdict.id, importance(asdict(finding)))
    )
    shown = [finding for finding in findings if not finding.muted]
    return RankedFindings(
        current=tuple(finding for finding in shown if finding.open),
        earlier=tuple(finding for finding in shown if not finding.open),
        muted=tuple(finding for finding in findings if finding.muted),
        opinions={opinion.finding: opinion for opinion in called.marks.feedback(run.project)},
    )


def _opinion(opinion: Feedback) -> dict[str, Any]:
    return {"opinion": opinion.opinion, "note": opinion.note}


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
    ranked: RankedFindings, name: str, handle: str
) -> tuple[Finding | None, tuple[Finding, ...]]:
    """Returns the finding to explain and the other current ones."""
    if not name:
        return (ranked.current[0], ranked.current[1:]) if ranked.current else (None, ())
    findings = (*ranked.current, *ranked.earlier, *ranked.muted)
    for finding in findings:
        if name in (finding.id, finding.key):
            return finding, tuple(other for other in ranked.current if other is not finding)
    known = similar(name, [finding.id for finding in findings])
    raise NotFound(f"The run {quoted(handle)} has no finding {quoted(name)}; {known}")


def _after_explanation(
    handle: str, keys: list[str], *, is_failed: bool, is_first: bool, has_more: bool
) -> NextCall:
    if is_first and is_failed:
        return NextCall("read_logs", {"run": handle}, "Shows the last lines that the run printed.")
    if is_first and has_more:
        return NextCall("recommend_changes", {"run": handle}, "Lists the changes for all findings.")
    if keys:
        arguments = {"run": handle, "keys": keys[:3]}
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
