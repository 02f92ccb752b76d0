"""Says in one sentence how a run is doing. Every list, page, command and report uses this verdict.

A failure comes first, then the worst finding. A run is called healthy only if all checks ran with enough
evidence and no large share of its time is unexplained; otherwise the verdict says what is not known.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from stepscope.analysis.large_shares import LargeShare, largest_share
from stepscope.analysis.phase_shares import device_shares, phase_shares
from stepscope.analysis.wording import percent, seconds
from stepscope.schema.finding import SEVERITIES, Severity
from stepscope.schema.keys import STEP_SECONDS
from stepscope.schema.run import FAILED, without_end_mark

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from stepscope.schema.window import RankWindow, Window

MIN_STEPS = 20
"""Minimum number of steady steps for a verdict on how a run is doing."""

MAX_TRIES = 6
SPOILING = (
    "num.", "conv.", "grad.", "act.", "mode.", "lr.", "data.order", "opt.not_updating", "dist.divergence",
)  # fmt: skip
"""Beginnings of the ids of findings about wrong results; all others are about time."""

NONFINITE = "num.nonfinite"
"""The finding for a loss that is not finite."""

STALL = "run.stall"
"""The finding that describes a stall."""

WATCH = "monitor.watch(model, optimizer)"


@dataclass(frozen=True)
class Verdict:
    """How a run is doing, in one sentence."""

    id: str
    headline: str
    severity: Severity | Literal["ok", "unknown"]
    """Severity of the finding it is about; `ok` for a healthy run, `unknown` without enough evidence."""
    confidence: float | None
    steps: tuple[int, int] | None
    """First and last step it is about."""
    tries: tuple[str, ...] = ()
    """What to try, in a few words each."""

    def as_dict(self) -> dict[str, Any]:
        """Returns the fields as plain values, for JSON."""
        fields = asdict(self)
        return {
            **fields,
            "steps": None if self.steps is None else list(self.steps),
            "tries": list(self.tries),
        }


@dataclass(frozen=True)
class Problem:
    """Something that is wrong with a run."""

    id: str
    text: str
    severity: Severity | Literal["unknown"]
    finding: Mapping[str, Any] | None = None
    """The finding that it is, if it is one."""


@dataclass(frozen=True)
class Checks:
    """Results of the checks of a run's newest steps, except for the findings."""

    passed: int = 0
    """How many checks ran with enough evidence and found nothing."""
    not_run: tuple[str, ...] = ()
    """Ids of the checks that could not run."""
    is_timed: bool = False
    """Whether steps and their phases are timed, not only the time between two log calls."""
    steady: int = 0
    """Number of steps after the warm-up."""
    examined: int = 0
    """Number of newest steps that were examined."""
    steps: tuple[int, int] | None = None
    pace: str = ""
    """How long a step takes, and which phase takes most of it."""
    share: LargeShare | None = None
    """The largest unexplained share of time."""

    def as_dict(self) -> dict[str, Any]:
        """Returns the fields as plain values, for the store."""
        return asdict(self)

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Checks:
        """Restores checks from what `as_dict` returned."""
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
    """What is known about a run besides its steps."""

    is_live: bool
    status: str
    reason: str
    points: int
    """Number of points of the metrics that are logged once a step."""
    nonfinite_losses: int = 0
    is_last_loss_finite: bool = True
    is_training: bool = True
    """False for a machine that is monitored without a training."""


def verdict_of(
    findings: Sequence[Mapping[str, Any]],
    checks: Checks | None,
    state: RunState | None = None,
    share: LargeShare | None = None,
) -> Verdict:
    """Returns the failure of a run; else its worst finding above `info`; else the result of the checks.

    `findings` are those that are open and not muted. `share` is the largest unexplained share of wall time if
    wall time was analysed; otherwise the share of the checks is used.
    """
    problems = problems_of(findings, state)
    if state is not None and not state.is_training:
        return _unknown("machine", "This machine is monitored without a training run.")
    if problems:
        return _of_problems(problems)
    return _without_findings(checks, state, share or (checks.share if checks is not None else None))


def problems_of(findings: Sequence[Mapping[str, Any]], state: RunState | None = None) -> list[Problem]:
    """Returns what is wrong with a run: its failure first, then bad losses, then findings, the worst first.

    `findings` are those that are open and not muted; those of severity `info` are no problems.
    """
    reported = sorted((finding for finding in findings if finding.get("severity") != "info"), key=importance)
    problems = [
        Problem(
            str(finding.get("id") or finding.get("problem") or "finding"),
            _headline(finding),
            _severity_of(finding),
            finding,
        )
        for finding in reported
    ]
    if state is None or not state.is_training:
        return problems
    if state.status != "stalled":
        problems = [problem for problem in problems if problem.id != STALL]
    elif any(problem.id == STALL for problem in problems):
        return sorted(problems, key=lambda problem: problem.id != STALL)
    if state.status in (*FAILED, "stalled"):
        why = f": {without_end_mark(state.reason)}" if state.reason else ""
        return [Problem(f"status.{state.status}", f"{state.status}{why}", "critical"), *problems]
    is_reported = any(problem.id == NONFINITE for problem in problems)
    if state.nonfinite_losses and not is_reported and not (problems and problems[0].severity == "critical"):
        count = state.nonfinite_losses
        text = f"{count:,} losses are not finite" if count > 1 else "1 loss is not finite"
        severity: Severity = "warning" if state.is_last_loss_finite else "critical"
        return [Problem("loss.nonfinite", text, severity), *problems]
    return problems


def checks_of(window: Window | None, passed: int, not_run: Sequence[str]) -> Checks:
    """Summarises the checks of a window; step time and shares are of the rank with most steady steps."""
    ranks = [] if window is None else [rank for rank in window.ranks if STEP_SECONDS in rank.columns]
    if not ranks:
        examined = 0 if window is None else max((rank.examined for rank in window.ranks), default=0)
        return Checks(passed, tuple(not_run), examined=examined)
    rank = max(ranks, key=lambda rank: int(rank.steady.sum()))
    steps = rank.steps[rank.steady]
    return Checks(
        passed,
        tuple(not_run),
        is_timed=True,
        steady=len(steps),
        examined=rank.examined,
        steps=(int(steps[0]), int(steps[-1])) if len(steps) else None,
        pace=_step_time(rank) if len(steps) else "",
        share=largest_share(rank, window),
    )


def _of_problems(problems: Sequence[Problem]) -> Verdict:
    """Returns the verdict on the worst problem; that of a failure also mentions the worst finding."""
    worst = problems[0]
    if worst.finding is not None:
        return _of_finding(worst.finding)
    other = problems[1].finding if len(problems) > 1 else None
    also, tries = ("", ()) if other is None else (_headline(other), _tries(other))
    if worst.id == "loss.nonfinite":
        headline = f"{worst.text}.{f' Also: {also}' if also else ''}"
    else:
        verb = "is " if worst.id == "status.stalled" else ""
        headline = f"The run {verb}{worst.text}.{f' Before that: {also}' if also else ''}"
    return Verdict(worst.id, headline, worst.severity, None, None, tries)


def _without_findings(checks: Checks | None, state: RunState | None, share: LargeShare | None) -> Verdict:
    if state is not None and state.points < MIN_STEPS:
        return _unknown("few_steps", _few_steps(state, state.points))
    if checks is None:
        fact = "" if share is None else f" {share.sentence}; cause not analysed."
        return _unknown("not_checked", f"No check has run yet.{fact}")
    result = _passed(checks)
    if not checks.is_timed:
        return Verdict(
            "unmeasured", f"{result} Phases of steps are not timed.", "unknown", None, None, (WATCH,)
        )
    if checks.steady < MIN_STEPS:
        return _unknown("few_steps", _few_steps(state, checks.steady, " after the warm-up"))
    confidence = round(0.95 * checks.steady / (checks.steady + 20), 3)
    if not checks.not_run and share is None:
        headline = (
            f"Healthy: {checks.passed} checks passed ({checks.examined:,} newest steps); {checks.pace}."
        )
        return Verdict("ok", headline, "ok", confidence, checks.steps)
    name = "not_all_checked" if share is None else "unexplained"
    fact = _capital(checks.pace) if share is None else share.sentence
    return Verdict(name, f"{result} {fact}.", "unknown", None, checks.steps)


def _few_steps(state: RunState | None, count: int, when: str = "") -> str:
    steps = f"{count} step{'s' if count != 1 else ''}{when}" if count else f"no steps{when}"
    if state is None or state.is_live:
        return f"Too early to tell: {steps} so far; {MIN_STEPS} are needed."
    return f"Too short to judge: {steps}; {MIN_STEPS} are needed."


def _passed(checks: Checks) -> str:
    missing = len(checks.not_run)
    if not checks.passed:
        return f"None of the {missing} checks could run." if missing else "No check could run."
    result = f"No problem found by {checks.passed} check{'s' if checks.passed != 1 else ''}"
    return f"{result}; {missing} could not run." if missing else f"{result}."


def _step_time(rank: RankWindow) -> str:
    (taken,) = rank.aligned(STEP_SECONDS)
    bound = _bound(rank)
    return f"{seconds(float(np.median(taken)))} a step{', ' + bound if bound else ''}"


def _bound(rank: RankWindow) -> str:
    """Names the phase that takes most of the step, on the GPU's clock if phases were timed there."""
    for shares, where in ((device_shares(rank), " on the GPU"), (phase_shares(rank), "")):
        # Without watch() only the wait for data is timed: a single phase has nothing to be compared with.
        if len(shares) > 1:
            phase = max(shares, key=lambda name: shares[name])
            return f"bound by {phase}{where} ({percent(shares[phase])})"
    return ""


def _severity_of(finding: Mapping[str, Any]) -> Severity | Literal["unknown"]:
    return next((severity for severity in SEVERITIES if severity == finding.get("severity")), "unknown")


def rank_of(severity: str) -> int:
    """Returns the position of a severity, 0 for the worst; an unknown one comes last."""
    return next((place for place, name in enumerate(SEVERITIES) if name == severity), len(SEVERITIES))


def importance(finding: Mapping[str, Any]) -> tuple[int, bool, float, float]:
    """Sorts findings, the worst first; of equal severity, wrong results come before lost time."""
    share, confidence = _number(finding.get("share")), _number(finding.get("confidence"))
    costs_time = not str(finding.get("id", "")).startswith(SPOILING)
    return rank_of(str(finding.get("severity", ""))), costs_time, -(share or 0.0), -(confidence or 0.0)


def _of_finding(finding: Mapping[str, Any]) -> Verdict:
    first, last = finding.get("first_step"), finding.get("last_step")
    has_steps = isinstance(first, int) and isinstance(last, int)
    return Verdict(
        id=str(finding.get("id") or finding.get("problem") or "finding"),
        headline=_headline(finding),
        severity=_severity_of(finding),
        confidence=_number(finding.get("confidence")),
        steps=(int(first), int(last)) if has_steps else None,  # type: ignore[arg-type]  # checked above
        tries=_tries(finding),
    )


def _headline(finding: Mapping[str, Any]) -> str:
    return str(finding.get("headline") or finding.get("title") or finding.get("problem") or "")


def _tries(finding: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(map(str, finding.get("tries") or ()))[:MAX_TRIES]


def _number(value: object) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and bool(np.isfinite(value))
    return float(value) if is_number else None  # type: ignore[arg-type]  # checked above


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _unknown(name: str, headline: str) -> Verdict:
    return Verdict(name, headline, "unknown", None, None, ())
