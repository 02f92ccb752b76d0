"""The diagnosis page: the findings of a run with evidence and advice, and the checks that passed."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from stepscope.analysis.verdict import Verdict  # noqa: TC001 - the schema of the API reads it
from stepscope.errors import NotFound
from stepscope.schema import finding as schema
from stepscope.schema.finding import Estimate, Evidence, Remedy, Severity, is_muted
from stepscope.schema.run import LIVE
from stepscope.store.mark_store import Feedback
from stepscope.views.history.run_history import RunHistory, history_of
from stepscope.views.logs.console_lines import Failure  # noqa: TC001 - the schema of the API reads it
from stepscope.views.logs.run_failure import failure_of
from stepscope.views.overview.run_verdict import findings_of, verdict_for
from stepscope.views.runs.run_rows import FigureCache

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from stepscope.analysis.diagnose import Diagnosis
    from stepscope.reading import Run
    from stepscope.store.mark_store import Opinion
    from stepscope.views.history.run_history import ProjectHistory
    from stepscope.views.runs.marks import Marks

    _Part = TypeVar("_Part", Evidence, Remedy, Estimate)

NOT_STORED = schema.Finding("", "", "", "", "info", 0.0, 0.0, 0.0).as_dict()
"""The values of fields that a stored finding may lack."""


@dataclass(frozen=True)
class FindingChart:
    """The chart that shows a finding."""

    keys: tuple[str, ...]
    from_: int | None
    """The first step to show; None for the start of the run."""
    to: int | None


@dataclass(frozen=True)
class Finding:
    """A problem of a run, with evidence and advice."""

    id: str
    """The kind of problem, such as `input.exposed_wait`."""
    key: str
    """The id and its subject: unique in a run."""
    title: str
    headline: str
    """What is wrong, in one sentence with its most important number."""
    detail: str
    severity: Severity
    confidence: float
    """From 0 to 1: how consistent the evidence is, and how much of it there is."""
    share: float | None
    """The share of time that could be saved; None for a risk."""
    open: bool
    muted: bool
    first_step: int | None
    last_step: int | None
    first_time: float
    last_time: float
    rank: int | None
    """The rank that is affected most; None if it concerns the whole run."""
    device: str
    where: str
    """The line of the user's code that is responsible; empty if it is not known."""
    evidence: tuple[Evidence, ...]
    chart: FindingChart | None
    ruled_out: tuple[str, ...]
    """Other causes that the evidence excludes."""
    remedies: tuple[Remedy, ...]
    tries: tuple[str, ...]
    """What to try, in a few words each."""
    estimate: Estimate | None
    how: str
    """How it was computed."""
    refs: tuple[str, ...]


@dataclass(frozen=True)
class Check:
    """What one check of a run resulted in."""

    id: str
    title: str
    result: Literal["finding", "passed", "could not run", "skipped"]
    """`skipped` where it does not apply to the run or is disabled."""
    why: str


@dataclass(frozen=True)
class Findings:
    """The findings of a run, and all checks."""

    verdict: Verdict
    failure: Failure | None
    """Why the run failed; None if it did not."""
    findings: tuple[Finding, ...]
    checks: tuple[Check, ...]
    feedback: tuple[Feedback, ...]
    """People's opinions on findings in the project of the run."""
    history: RunHistory
    """How the run compares with similar earlier runs of its project."""


def findings_page_of(
    run: Run, runs: Iterable[Run], marks: Marks, now_ns: int, cache: FigureCache | None = None
) -> Findings:
    """Returns the diagnosis page of a run; an ended run that no agent has analysed is analysed now.

    `runs` are all runs of the store, among which are the earlier ones of its project.
    """
    cache = cache or FigureCache()
    diagnosis, muted = run.diagnose(), marks.muted(run.id, run.project)
    history = history_of(run, runs, diagnosis, cache, now_ns)
    shown = listed_findings(run.findings(), muted)
    if not shown and run.status not in LIVE:
        shown = listed_findings((finding.as_dict() for finding in diagnosis.findings), muted)
    return Findings(
        verdict=verdict_for(run, muted, cache.of(run, now_ns), diagnosis),
        failure=failure_of(run),
        findings=tuple(_with_history(finding, history) for finding in shown),
        checks=checks_of(diagnosis),
        feedback=marks.feedback(run.project),
        history=history.answer,
    )


def checks_of(diagnosis: Diagnosis) -> tuple[Check, ...]:
    """Returns the result of every check, by its id."""
    checks = [
        *(Check(found.id, found.title, "finding", found.headline) for found in diagnosis.findings),
        *(Check(other.id, other.title, other.result, other.why_not) for other in diagnosis.considered),
    ]
    return tuple(sorted(checks, key=lambda check: check.id))


def _with_history(finding: Finding, history: ProjectHistory) -> Finding:
    return replace(finding, detail=f"{finding.detail} {history.saved_before(finding.id)}".strip())


def listed_findings(stored: Iterable[Mapping[str, Any]], muted: Collection[str]) -> tuple[Finding, ...]:
    """Returns stored findings, each with whether it is muted; those that no page can show are left out."""
    findings = (_finding(document, muted) for document in stored if "key" in document)
    return tuple(finding for finding in findings if finding is not None)


def feedback_on(run: Run, finding_id: str, opinion: Opinion, note: str, made: float) -> Feedback:
    """Returns a person's opinion on a finding of a run; raises NotFound if the run has no such finding."""
    headlines = {
        str(finding.get("id")): str(finding.get("headline", ""))
        for finding in findings_of(run, run.diagnose())
    }
    if finding_id not in headlines:
        known = ", ".join(sorted(headlines))
        raise NotFound(
            f"The run {run.name!r} has no finding {finding_id!r}; "
            + (f"it has: {known}." if known else "it has none.")
        )
    return Feedback(run.project, finding_id, opinion, run.id, headlines[finding_id], note, made)


def _finding(stored: Mapping[str, Any], muted: Collection[str]) -> Finding | None:
    """Returns a finding; None if another program has stored something else under this name."""
    document = {name: stored.get(name, empty) for name, empty in NOT_STORED.items()}
    chart, estimate = document["chart"], document["estimate"]
    try:
        return Finding(
            **{
                **document,
                "muted": is_muted(document, muted),
                "evidence": tuple(_part(Evidence, part) for part in document["evidence"]),
                "chart": None if chart is None else FindingChart(chart["keys"], chart["from"], chart["to"]),
                "remedies": tuple(_part(Remedy, part) for part in document["remedies"]),
                "estimate": None if estimate is None else _part(Estimate, estimate),
            }
        )
    except (TypeError, LookupError):
        return None


def _part(kind: type[_Part], stored: Mapping[str, Any]) -> _Part:
    return kind(**{field.name: stored[field.name] for field in fields(kind) if field.name in stored})
