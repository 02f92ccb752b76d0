"""Runs the detectors over the newest steps of a run: findings, checks that found nothing, and a verdict."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from stepscope.analysis.build import ANY, build_window
from stepscope.analysis.detector_registry import make_detectors, window_request
from stepscope.analysis.verdict import Checks, Verdict, checks_of, importance, verdict_of
from stepscope.analysis.wording import listed, percent
from stepscope.detectors.base import TooLittleEvidence
from stepscope.schema.finding import Evidence, Finding
from stepscope.schema.window import RankWindow

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from stepscope.detectors.base import Detector
    from stepscope.schema.window import Window
    from stepscope.store.base import Reader

log = logging.getLogger("stepscope")

MAX_HEADLINES = 3

MOST = 0.6
"""A problem explains another one only if it takes at least this part of its share of time."""

WITHOUT_STEPS = RankWindow(
    rank=0,
    host="",
    steps=np.empty(0, np.int64),
    times=np.empty(0),
    columns={},
    steady=np.empty(0, bool),
)
"""Stands for the ranks of a run that has logged no step, for detectors that can do without."""


CheckResult = Literal["passed", "could not run", "skipped"]
"""How a check without a finding ended: without enough evidence it could not run, and it is skipped where it
does not apply to a run or is disabled."""


@dataclass(frozen=True)
class Considered:
    """A problem that is not reported, and why."""

    id: str
    title: str
    why_not: str
    result: CheckResult = "passed"


@dataclass(frozen=True)
class Diagnosis:
    """How a run is doing, and why."""

    findings: tuple[Finding, ...]
    """The most important first."""
    considered: tuple[Considered, ...]
    """Problems that were checked and are not reported."""
    checks: Checks
    """How many checks ran, which could not, and how long a step takes."""
    segment: str = ""
    """The segment that was examined."""

    @property
    def verdict(self) -> Verdict:
        """The verdict on the newest steps alone; that of a stored run also considers its status."""
        return verdict_of([finding.as_dict() for finding in self.findings], self.checks)

    @property
    def headlines(self) -> tuple[str, ...]:
        """One sentence for each of the most important findings, three at most."""
        return tuple(finding.headline for finding in self.findings[:MAX_HEADLINES])


class _NoFinding(NamedTuple):
    """Why a detector found nothing."""

    sentence: str
    has_run: bool


class Diagnostician:
    """Runs the detectors that the settings enable; one instance serves any number of runs."""

    def __init__(self, settings: Mapping[str, Mapping[str, Any]]) -> None:
        self._detectors, self._off = make_detectors(settings)
        self._request = window_request(self._detectors)
        self._failed: set[str] = set()

    def diagnose(self, reader: Reader, run_id: str) -> Diagnosis:
        """Examines the newest steps of a run."""
        return self.examine(build_window(reader, run_id, self._request))

    def examine(self, window: Window | None) -> Diagnosis:
        """Examines a window; None stands for a run without any step."""
        all_findings: list[Finding] = []
        skipped = [_skipped(kind, "Disabled in the settings.") for kind in self._off]
        checked: list[Considered] = []
        ranks = 0 if window is None else len(window.ranks)
        for detector in self._detectors:
            if 0 < ranks < detector.least_ranks:
                skipped.append(_skipped(detector, "Applies only to runs with several ranks."))
                continue
            if window is not None and detector.is_optional and not _has_keys(detector, window):
                keys = " and ".join(" or ".join(group) for group in detector.requires)
                skipped.append(_skipped(detector, f"Applies only to runs that record {keys}."))
                continue
            result = self._run(detector, window)
            if isinstance(result, Finding):
                all_findings.append(result)
            else:
                outcome: CheckResult = "passed" if result.has_run else "could not run"
                checked.append(Considered(detector.id, detector.title, result.sentence, outcome))
        findings, symptoms = _separate_symptoms(all_findings, self._detectors)
        considered = sorted((*skipped, *checked, *symptoms), key=lambda check: check.id)
        not_run = [check.id for check in checked if check.result != "passed"]
        checks = checks_of(window, len(checked) - len(not_run), not_run)
        segment = "" if window is None else window.segment
        return Diagnosis(tuple(findings), tuple(considered), checks, segment)

    def _run(self, detector: Detector, window: Window | None) -> Finding | _NoFinding:
        """Runs one detector over all ranks. A detector that fails is logged once and skipped."""
        try:
            # Some detectors look for losses that overflow; NumPy need not warn about them.
            with np.errstate(all="ignore"):
                return _examine_ranks(detector, window)
        except Exception as error:
            if detector.id not in self._failed:
                self._failed.add(detector.id)
                log.exception("Detector %s failed and is skipped.", detector.id)
            return _NoFinding(f"The detector failed: {type(error).__name__}.", has_run=False)


def diagnose(reader: Reader, run_id: str, settings: Mapping[str, Mapping[str, Any]]) -> Diagnosis:
    """Examines the newest steps of a run; `settings` holds the options of detectors by their ids."""
    return Diagnostician(settings).diagnose(reader, run_id)


def _skipped(detector: Detector | type[Detector], why: str) -> Considered:
    return Considered(detector.id, detector.title, why, "skipped")


def _examine_ranks(detector: Detector, window: Window | None) -> Finding | _NoFinding:
    if window is None or not (window.ranks or detector.min_steps == 0):
        return _NoFinding("No steps were recorded.", has_run=False)
    reasons = [(_missing(detector, rank, window), rank) for rank in window.ranks or (WITHOUT_STEPS,)]
    ready = [rank for reason, rank in reasons if reason is None]
    why_not = reasons[-1][0]
    if not ready and why_not is not None:
        return _NoFinding(why_not, has_run=False)
    examined: Sequence[RankWindow] = ready if detector.for_each_rank else ready[:1]
    results = [detector.examine(rank, window) for rank in examined]
    findings = [result for result in results if isinstance(result, Finding)]
    if findings:
        return _merge_ranks(findings, len(examined))
    why_not = next(result for result in reversed(results) if isinstance(result, str))
    if isinstance(why_not, TooLittleEvidence) or detector.min_steps == 0:
        return _NoFinding(why_not, has_run=not isinstance(why_not, TooLittleEvidence))
    newest = max(rank.examined for rank in examined)
    return _NoFinding(f"{why_not.removesuffix('.')} ({newest:,} newest steps checked).", has_run=True)


def _has_keys(detector: Detector, window: Window) -> bool:
    sampled = {figures.key for figures in window.machine}
    logged = {key for rank in window.ranks for key in rank.columns}
    return all(any(_matching(key, logged | sampled) for key in group) for group in detector.requires)


def _matching(key: str, keys: Collection[str]) -> list[str]:
    """Returns the keys that a required key stands for: itself or, with `/*` at its end, all that begin so."""
    if key.endswith(ANY):
        return [name for name in keys if name.startswith(key.removesuffix("*"))]
    return [key] if key in keys else []


def _missing(detector: Detector, rank: RankWindow, window: Window) -> str | None:
    """Returns why a detector cannot examine a rank; None where it can."""
    steps = rank.steady if detector.in_steady_state else rank.steady | True
    sampled = {figures.key for figures in window.machine}
    for group in detector.requires:
        recorded = [rank.columns[name] for key in group for name in _matching(key, rank.columns)]
        if recorded:
            flags = [column.finite if detector.in_finite_values else column.present for column in recorded]
            steps = steps & np.logical_or.reduce(flags)
        elif sampled.isdisjoint(group):
            return f"Needs {' or '.join(group)}, which is not recorded."
    count = int(steps.sum())
    if count < detector.min_steps:
        state = " after the warm-up" if detector.in_steady_state else ""
        return f"Needs at least {detector.min_steps} steps{state}; {count} recorded."
    return None


def _merge_ranks(findings: Sequence[Finding], examined: int) -> Finding:
    """Merges the findings of several ranks into one: that of the worst rank, with the list of ranks."""
    worst = min(findings, key=_importance)
    if len(findings) < 2:
        return worst
    ranks = tuple(sorted(finding.rank for finding in findings if finding.rank is not None))
    shares = [finding.share for finding in findings if finding.share is not None]
    between = f"{percent(min(shares))} to {percent(max(shares))}" if shares else ""
    affected = Evidence("ranks", f"{len(findings)} of {examined}", f"{listed(ranks)}; {between}".rstrip("; "))
    return replace(
        worst,
        # A problem of all ranks is not a problem of one rank.
        rank=None if len(findings) == examined else worst.rank,
        evidence=(*worst.evidence, affected),
    )


def _separate_symptoms(
    findings: Sequence[Finding], detectors: Iterable[Detector]
) -> tuple[list[Finding], list[Considered]]:
    """Separates findings that another finding explains; the most important of the rest comes first."""
    explains = {detector.id: detector.explains for detector in detectors}
    causes = {
        symptom.id: cause
        for cause in findings
        for symptom in findings
        if symptom.id in explains[cause.id] and _is_large_enough(cause, symptom)
    }
    kept = [finding for finding in findings if finding.id not in causes]
    symptoms = [
        Considered(
            finding.id,
            finding.title,
            f"{finding.headline} Explained by: {causes[finding.id].title.lower()}.",
        )
        for finding in findings
        if finding.id in causes
    ]
    return sorted(kept, key=_importance), symptoms


def _is_large_enough(cause: Finding, symptom: Finding) -> bool:
    """Whether a problem can be the cause of another one: it takes most of the time that the other takes."""
    if cause.share is None or symptom.share is None:
        return True
    return cause.share >= MOST * symptom.share


def _importance(finding: Finding) -> tuple[int, bool, float, float]:
    return importance(finding.as_dict())
