"""Makes one finding of those that have one cause, and puts the most worthwhile first."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from stepscope.analysis.wording import listed, percent
from stepscope.schema.finding import SEVERITIES, Evidence, Finding

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from stepscope.detectors.base import Detector


@dataclass(frozen=True)
class Considered:
    """A problem that was looked for and is not told, and why."""

    id: str
    title: str
    why_not: str
    has_run: bool = True
    """Whether there was enough evidence to look for it at all."""


def over_ranks(found: Sequence[Finding], looked_at: int) -> Finding:
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


def over_causes(
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
