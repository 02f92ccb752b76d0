"""Collects what the verdict on a stored run depends on: its findings, its checks, its status."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from stepscope.analysis.large_shares import waiting_share
from stepscope.analysis.verdict import NONFINITE, Checks, RunState, Verdict, verdict_of
from stepscope.schema.finding import is_muted
from stepscope.schema.keys import CHECKS_EVENT
from stepscope.schema.run import LIVE
from stepscope.views.json_values import clean

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from stepscope.analysis.diagnose import Diagnosis
    from stepscope.analysis.large_shares import LargeShare
    from stepscope.reading import Run
    from stepscope.views.run_figures import RunFigures


def verdict_for(
    run: Run,
    muted: Collection[str],
    figures: RunFigures,
    diagnosis: Diagnosis | None = None,
    share: LargeShare | None = None,
) -> Verdict:
    """Returns the verdict on a run; without a `diagnosis`, from the last checks that the agent recorded.

    `share` is the largest unexplained share of wall time, if it was computed.
    """
    share = share or figures.large_share
    findings = shown_findings(findings_of(run, diagnosis), muted)
    checks = recorded_checks(run) if diagnosis is None else diagnosis.checks
    if checks is None:
        share = share or waiting_share(figures.data_wait_ratio)
    verdict = verdict_of(findings, checks, state_of(run, figures, muted), share)
    return replace(
        verdict,
        id=clean(verdict.id, 200),
        headline=clean(verdict.headline, 800),
        tries=tuple(clean(suggestion, 100) for suggestion in verdict.tries),
    )


def findings_of(run: Run, diagnosis: Diagnosis | None = None) -> list[dict[str, Any]]:
    """Returns the findings that the agent recorded, and those of a diagnosis that it has not."""
    recorded = run.findings()
    if diagnosis is None:
        return recorded
    open_keys = {finding.get("key") for finding in recorded if is_open(finding)}
    return [*recorded, *(finding.as_dict() for finding in diagnosis.findings if finding.key not in open_keys)]


def shown_findings(findings: Iterable[dict[str, Any]], muted: Collection[str]) -> list[dict[str, Any]]:
    """Returns the findings that are open and not muted."""
    return [finding for finding in findings if is_open(finding) and not is_muted(finding, muted)]


def state_of(run: Run, figures: RunFigures, muted: Collection[str] = ()) -> RunState:
    """Returns the state of a run apart from its steps."""
    return RunState(
        is_live=run.status in LIVE,
        status=run.status,
        reason=clean(run.reason, 300),
        points=figures.points,
        nonfinite_losses=0 if NONFINITE in muted else figures.nonfinite_losses,
        is_last_loss_finite=figures.loss_last is not None,
        is_training=any(
            process.role != "machine" for segment in run.segments for process in segment.processes
        ),
    )


def recorded_checks(run: Run) -> Checks | None:
    """Returns the last checks that the agent recorded; None if no agent has checked the run."""
    events = [event for event in run.events(CHECKS_EVENT) if not event.by_user]
    return Checks.from_dict(events[-1].fields) if events else None


def is_open(finding: Mapping[str, Any]) -> bool:
    """Returns whether a finding is still open, or was when the run ended."""
    return bool(finding.get("open", finding.get("closed_ns") is None))
