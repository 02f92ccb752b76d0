"""Runs the detectors over the newest steps of a run: what was found, what was looked for, a verdict."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from stepscope.analysis.build import build_window
from stepscope.analysis.detector_registry import make_detectors, wanted_by
from stepscope.analysis.verdict import Checks, Verdict, checks_of, verdict_of
from stepscope.analysis.wording import listed, percent
from stepscope.schema.finding import SEVERITIES, Evidence, Finding

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from stepscope.detectors.base import Detector
    from stepscope.schema.window import RankWindow, Window
    from stepscope.store.base import Reader

log = logging.getLogger("stepscope")

MAX_HEADLINES = 3


@dataclass(frozen=True)
class Considered:
    """A problem that was looked for and is not told, and why."""

    id: str
    title: str
    why_not: str
    has_run: bool = True
    """Whether there was enough evidence to look for it at all."""


@dataclass(frozen=True)
class Diagnosis:
    """How a run fares, and why."""

    findings: tuple[Finding, ...]
    """The most worthwhile first."""
    considered: tuple[Considered, ...]
    """What was looked for and is not told."""
    checks: Checks
    """How many checks ran, which could not, and what is known of the pace."""
    segment: str = ""
    """The segment that was looked at."""

    @property
    def verdict(self) -> Verdict:
        """How the newest steps are doing; a stored run has more to judge by."""
        return verdict_of([one.as_dict() for one in self.findings], self.checks)

    @property
    def headlines(self) -> tuple[str, ...]:
        """The most important of them in a sentence each, three at most."""
        return tuple(one.headline for one in self.findings[:MAX_HEADLINES])


class _NotFound(NamedTuple):
    """Why a detector found nothing."""

    sentence: str
    has_run: bool


class Diagnostician:
    """The detectors as settings want them; may be asked about any run, again and again."""

    def __init__(self, settings: Mapping[str, Mapping[str, Any]]) -> None:
        self._detectors, self._off = make_detectors(settings)
        self._wanted = wanted_by(self._detectors)
        self._failed: set[str] = set()

    def diagnose(self, reader: Reader, run_id: str) -> Diagnosis:
        """Looks at the newest steps of a run."""
        return self.examine(build_window(reader, run_id, self._wanted))

    def examine(self, window: Window | None) -> Diagnosis:
        """Looks at a window; None is that of a run without any step."""
        found: list[Finding] = []
        off = [_left_out(one, "It is switched off in the settings.") for one in self._off]
        considered: list[Considered] = []
        ranks = 0 if window is None else len(window.ranks)
        for detector in self._detectors:
            if 0 < ranks < detector.least_ranks:
                off.append(_left_out(detector, "It concerns runs of several ranks."))
                continue
            told = self._ask(detector, window)
            if isinstance(told, Finding):
                found.append(told)
            else:
                considered.append(Considered(detector.id, detector.title, told.sentence, told.has_run))
        findings, signs = _over_causes(found, self._detectors)
        every = sorted((*off, *considered, *signs), key=lambda one: one.id)
        not_run = [one.id for one in considered if not one.has_run]
        checks = checks_of(window, len(considered) - len(not_run), not_run)
        segment = "" if window is None else window.segment
        return Diagnosis(tuple(findings), tuple(every), checks, segment)

    def _ask(self, detector: Detector, window: Window | None) -> Finding | _NotFound:
        """What a detector finds over all ranks. One that fails is said once and left out."""
        try:
            # Losses that overflow are what some look for, and no reason to warn of arithmetic.
            with np.errstate(all="ignore"):
                return _over_window(detector, window)
        except Exception as error:
            if detector.id not in self._failed:
                self._failed.add(detector.id)
                log.exception("The detector %s failed, and is left out.", detector.id)
            return _NotFound(f"It failed: {type(error).__name__}.", has_run=False)


def diagnose(reader: Reader, run_id: str, settings: Mapping[str, Mapping[str, Any]]) -> Diagnosis:
    """Looks at the newest steps of a run; `settings` are the options of detectors by their ids."""
    return Diagnostician(settings).diagnose(reader, run_id)


def _left_out(detector: Detector | type[Detector], why: str) -> Considered:
    return Considered(detector.id, detector.title, why, has_run=False)


def _over_window(detector: Detector, window: Window | None) -> Finding | _NotFound:
    ranks = () if window is None else window.ranks
    able: list[RankWindow] = []
    why_not = "No steps were recorded."
    for rank in ranks:
        reason = _missing(detector, rank)
        if reason is None:
            able.append(rank)
        else:
            why_not = reason
    if not able or window is None:
        return _NotFound(why_not, has_run=False)
    chosen: Sequence[RankWindow] = able if detector.for_each_rank else able[:1]
    found: list[Finding] = []
    for rank in chosen:
        told = detector.examine(rank, window)
        if isinstance(told, Finding):
            found.append(told)
        else:
            why_not = told
    if found:
        return _over_ranks(found, len(chosen))
    newest = max(rank.examined for rank in chosen)
    return _NotFound(f"{why_not.removesuffix('.')} ({newest:,} newest steps checked).", has_run=True)


def _missing(detector: Detector, rank: RankWindow) -> str | None:
    """Why a rank cannot be looked at; None where it can."""
    steps = rank.steady if detector.in_steady_state else rank.steady | True
    for group in detector.requires:
        here = [key for key in group if key in rank.columns]
        if not here:
            return f"It needs {' or '.join(group)}, which was not recorded."
        known = [rank.columns[key] for key in here]
        flags = [one.finite if detector.in_finite_values else one.present for one in known]
        steps = steps & np.logical_or.reduce(flags)
    many = int(steps.sum())
    if many < detector.min_steps:
        state = " after the warm-up" if detector.in_steady_state else ""
        return f"It needs {detector.min_steps} steps{state}, and has {many}."
    return None


def _over_ranks(found: Sequence[Finding], looked_at: int) -> Finding:
    """One finding for a problem that several ranks have: that of the rank which has it worst."""
    worst = min(found, key=_worth)
    if len(found) < 2:
        return worst
    ranks = tuple(sorted(one.rank for one in found if one.rank is not None))
    shares = [one.share for one in found if one.share is not None]
    between = f"from {percent(min(shares))} to {percent(max(shares))}" if shares else ""
    told = Evidence("ranks", f"{len(found)} of {looked_at}", f"{listed(ranks)}; {between}".rstrip("; "))
    return replace(
        worst,
        # What all of them have is no rank's own.
        rank=None if len(found) == looked_at else worst.rank,
        evidence=(*worst.evidence, told),
    )


def _over_causes(
    found: Iterable[Finding], detectors: Iterable[Detector]
) -> tuple[list[Finding], list[Considered]]:
    """Takes out what is but a sign of something else that was found; the most worthwhile comes first."""
    several = list(found)
    known = {one.id: one for one in detectors}
    signs = {sign: one for one in several for sign in known[one.id].explains}
    kept = [one for one in several if one.id not in signs]
    left_out = [
        Considered(one.id, one.title, f"{one.headline} Told as a sign of: {signs[one.id].title.lower()}.")
        for one in several
        if one.id in signs
    ]
    return sorted(kept, key=_worth), left_out


def _worth(finding: Finding) -> tuple[bool, float, int, float]:
    """What endangers the run comes first, then what gives back most."""
    endangers = finding.share is None and finding.severity in ("critical", "warning")
    share = -1.0 if finding.share is None else finding.share
    return not endangers, -share, SEVERITIES.index(finding.severity), -finding.confidence
