"""Says in a sentence how a run is doing. Every list, page, command and report takes its verdict from here.

A failure comes first, then the worst finding. A run is called healthy only if all checks ran with enough
evidence and no large share of its time is unexplained; otherwise the verdict says what is not known.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from stepscope.analysis.large_shares import LargeShare, largest_share
from stepscope.analysis.phase_shares import device_shares, phase_shares
from stepscope.analysis.wording import percent, seconds
from stepscope.schema.finding import SEVERITIES
from stepscope.schema.keys import STEP_SECONDS
from stepscope.schema.run import without_end_mark

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from stepscope.schema.window import RankWindow, Window

MIN_STEPS = 20
"""Steady steps before which nothing is said of how a run is doing."""

MAX_TRIES = 6
SPOILING = ("num.", "conv.")
"""Findings on what is computed; all others are about time."""

WATCH = "monitor.watch(model, optimizer)"


@dataclass(frozen=True)
class Verdict:
    """How a run is doing."""

    id: str
    headline: str
    severity: str
    """That of the finding it is about; `ok` for a healthy run, `unknown` where that cannot be said."""
    confidence: float | None
    steps: tuple[int, int] | None
    """The first and the last step it is about."""
    tries: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """The same as plain values, for JSON."""
        fields = asdict(self)
        return {
            **fields,
            "steps": None if self.steps is None else list(self.steps),
            "tries": list(self.tries),
        }


@dataclass(frozen=True)
class Checks:
    """What the checks of a run's newest steps came to, beside what they found."""

    passed: int = 0
    """How many ran with enough evidence and found nothing."""
    not_run: tuple[str, ...] = ()
    """The ids of those that could not run."""
    is_timed: bool = False
    """Whether steps and their phases are timed, not only the time between two log calls."""
    steady: int = 0
    """Steps after the warm-up."""
    examined: int = 0
    """The newest steps, all of which were looked at."""
    steps: tuple[int, int] | None = None
    pace: str = ""
    """How long a step takes, and what bounds it."""
    share: LargeShare | None = None
    """The largest share of time that nothing explains."""

    def as_dict(self) -> dict[str, Any]:
        """The same as plain values, to be kept."""
        return asdict(self)

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Checks:
        """What was kept."""
        share, steps = fields.get("share"), fields.get("steps")
        return cls(
            passed=int(fields.get("passed", 0)),
            not_run=tuple(map(str, fields.get("not_run", ()))),
            is_timed=bool(fields.get("is_timed")),
            steady=int(fields.get("steady", 0)),
            examined=int(fields.get("examined", 0)),
            steps=None if steps is None else (int(steps[0]), int(steps[1])),
            pace=str(fields.get("pace", "")),
            share=None if share is None else LargeShare(float(share["share"]), str(share["sentence"])),
        )


@dataclass(frozen=True)
class RunState:
    """What is known of a run beside its steps."""

    is_live: bool
    status: str
    reason: str
    points: int
    """Points of what is logged once a step."""
    nonfinite_losses: int = 0
    is_last_loss_finite: bool = True
    is_training: bool = True
    """Whether anything is trained: a machine may be watched by itself."""


def verdict_of(
    findings: Sequence[Mapping[str, Any]],
    checks: Checks | None,
    state: RunState | None = None,
    share: LargeShare | None = None,
) -> Verdict:
    """The failure of a run; else its worst finding that is more than information; else what checks came to.

    `findings` are those that are open and not muted. `share` is the largest unexplained share of wall time,
    where an account of it was made; else that of the checks counts.
    """
    told = sorted((one for one in findings if one.get("severity") != "info"), key=_order)
    failure = None if state is None else _failure(state, told)
    if failure is not None:
        return failure
    if told:
        return _of_finding(told[0])
    return _without_findings(checks, state, share or (checks.share if checks is not None else None))


def checks_of(window: Window | None, passed: int, not_run: Sequence[str]) -> Checks:
    """What checks came to in a window; the rank with the most steady steps tells of pace and shares."""
    ranks = [] if window is None else [one for one in window.ranks if STEP_SECONDS in one.columns]
    if not ranks:
        examined = 0 if window is None else max((one.examined for one in window.ranks), default=0)
        return Checks(passed, tuple(not_run), examined=examined)
    rank = max(ranks, key=lambda one: int(one.steady.sum()))
    steps = rank.steps[rank.steady]
    return Checks(
        passed,
        tuple(not_run),
        is_timed=True,
        steady=len(steps),
        examined=rank.examined,
        steps=(int(steps[0]), int(steps[-1])) if len(steps) else None,
        pace=_pace(rank) if len(steps) else "",
        share=largest_share(rank),
    )


def _failure(state: RunState, told: Sequence[Mapping[str, Any]]) -> Verdict | None:
    """What ended or ruined the run; the worst finding is said after it."""
    before = f" Before that: {_headline(told[0])}" if told else ""
    tries = _tries(told[0]) if told else ()
    why = f": {without_end_mark(state.reason)}" if state.reason else ""
    if not state.is_training:
        return _said("machine", "A machine is watched; nothing is trained here.", "unknown")
    if state.status in ("crashed", "failed"):
        headline = f"The run {state.status}{why}.{before}"
        return Verdict(f"status.{state.status}", headline, "critical", None, None, tries)
    if state.status == "stalled":
        return Verdict("status.stalled", f"The run is stalled{why}.{before}", "critical", None, None, tries)
    is_told = any(str(one.get("id")) == "num.nonfinite" for one in told)
    if state.nonfinite_losses and not is_told and not (told and told[0].get("severity") == "critical"):
        many = state.nonfinite_losses
        losses = f"{many:,} losses are not finite" if many > 1 else "1 loss is not finite"
        severity = "warning" if state.is_last_loss_finite else "critical"
        also = before.replace("Before that:", "Also:")
        return Verdict("loss.nonfinite", f"{losses}.{also}", severity, None, None, tries)
    return None


def _without_findings(checks: Checks | None, state: RunState | None, share: LargeShare | None) -> Verdict:
    if state is not None and state.points < MIN_STEPS:
        return _said("few_steps", _few_steps(state, state.points), "unknown")
    if checks is None:
        fact = "" if share is None else f" {share.sentence}; cause not analysed."
        return _said("not_checked", f"No check has run yet.{fact}", "unknown")
    result = _passed(checks)
    if not checks.is_timed:
        return Verdict(
            "unmeasured", f"{result} Phases of steps are not timed.", "unknown", None, None, (WATCH,)
        )
    if checks.steady < MIN_STEPS:
        return _said("few_steps", _few_steps(state, checks.steady, " after the warm-up"), "unknown")
    confidence = round(0.95 * checks.steady / (checks.steady + 20), 3)
    if not checks.not_run and share is None:
        told = f"Healthy: {checks.passed} checks passed ({checks.examined:,} newest steps); {checks.pace}."
        return Verdict("ok", told, "ok", confidence, checks.steps)
    name = "not_all_checked" if share is None else "unexplained"
    fact = _capital(checks.pace) if share is None else share.sentence
    return Verdict(name, f"{result} {fact}.", "unknown", None, checks.steps)


def _few_steps(state: RunState | None, count: int, when: str = "") -> str:
    steps = f"{count} step{'s' if count != 1 else ''}{when}" if count else f"no steps{when}"
    if state is None or state.is_live:
        return f"Too early to tell: {steps} so far; {MIN_STEPS} are needed."
    return f"Too short to judge: {steps}; {MIN_STEPS} are needed."


def _passed(checks: Checks) -> str:
    many = f"{checks.passed} check{'s' if checks.passed != 1 else ''}"
    told = f"No problem found by {many}" if checks.passed else "No check could run"
    if not checks.not_run:
        return f"{told}."
    return f"{told}; {len(checks.not_run)} could not run."


def _pace(rank: RankWindow) -> str:
    (taken,) = rank.aligned(STEP_SECONDS)
    bound = _bound(rank)
    return f"{seconds(float(np.median(taken)))} a step{', ' + bound if bound else ''}"


def _bound(rank: RankWindow) -> str:
    """What sets the pace: the phase that takes most, on the GPU's clock where there is one."""
    for shares, where in ((device_shares(rank), " on the GPU"), (phase_shares(rank), "")):
        # The wait for data alone was timed where nothing is watched: that bounds nothing.
        if len(shares) > 1:
            phase = max(shares, key=lambda name: shares[name])
            return f"bound by {phase}{where} ({percent(shares[phase])})"
    return ""


def rank_of(severity: str) -> int:
    """How bad a severity is, 0 for the worst; one that is not known comes last."""
    return next((place for place, known in enumerate(SEVERITIES) if known == severity), len(SEVERITIES))


def _order(finding: Mapping[str, Any]) -> tuple[int, bool, float, float]:
    """The worst first; of equally bad ones those that spoil the result before those that cost time."""
    share, confidence = _number(finding.get("share")), _number(finding.get("confidence"))
    costs_time = not str(finding.get("id", "")).startswith(SPOILING)
    return rank_of(str(finding.get("severity", ""))), costs_time, -(share or 0.0), -(confidence or 0.0)


def _of_finding(finding: Mapping[str, Any]) -> Verdict:
    first, last = finding.get("first_step"), finding.get("last_step")
    has_steps = isinstance(first, int) and isinstance(last, int)
    severity = str(finding.get("severity", ""))
    return Verdict(
        id=str(finding.get("id") or finding.get("problem") or "finding"),
        headline=_headline(finding),
        severity=severity if severity in SEVERITIES else "unknown",
        confidence=_number(finding.get("confidence")),
        steps=(int(first), int(last)) if has_steps else None,  # type: ignore[arg-type]  # looked at above
        tries=_tries(finding),
    )


def _headline(finding: Mapping[str, Any]) -> str:
    return str(finding.get("headline") or finding.get("title") or finding.get("problem") or "")


def _tries(finding: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(map(str, finding.get("tries") or ()))[:MAX_TRIES]


def _number(value: object) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and bool(np.isfinite(value))
    return float(value) if is_number else None  # type: ignore[arg-type]  # looked at above


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _said(name: str, headline: str, severity: str) -> Verdict:
    return Verdict(name, headline, severity, None, None, ())
