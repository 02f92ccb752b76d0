"""Says in one sentence how a run fares: the worst of what was found, or what can be told without that."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stepscope.analysis.verdict import Verdict
from stepscope.schema.finding import SEVERITIES
from stepscope.views.plain import clean, finite
from stepscope.views.wording import percent

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping


FEWEST_STEPS = 20
"""Before these nothing is said of how a run fares."""

WAITS = "input.wait"

MUCH_WAIT = 0.2
"""A share of step time spent waiting for data that nobody would call fine."""


@dataclass(frozen=True)
class Known:
    """What is known of a run for which nothing was found."""

    is_live: bool
    status: str
    reason: str
    points: int
    """Points of what is logged once a step."""
    data_wait_ratio: float | None
    nonfinite_losses: int
    is_training: bool = True
    """Whether anything is trained: a machine may be watched by itself."""


def verdict_of(findings: Iterable[Mapping[str, Any]], muted: Collection[str], known: Known) -> Verdict:
    """The worst finding that is open, more than information, and not muted; else what can be told without."""
    shown = [one for one in findings if _is_shown(one, muted)]
    if shown:
        return _of_finding(min(shown, key=_order))
    return without_findings(known)


def without_findings(known: Known) -> Verdict:
    """What can be told of a run for which no finding is open."""
    trouble = _trouble(known)
    if trouble is not None:
        return trouble
    if known.points < FEWEST_STEPS:
        more = "so far" if known.is_live else "in all"
        few = f"{known.points} steps {more}" if known.points else f"no step {more}"
        return _said("few_steps", f"Too early to tell: {few}.", "unknown")
    if known.data_wait_ratio is None:
        return _said("unmeasured", "Steps are not timed, so nothing can be said of their pace.", "unknown")
    if known.data_wait_ratio >= MUCH_WAIT:
        looked = "the cause is being looked for" if known.is_live else "its cause was not looked for"
        told = f"{percent(known.data_wait_ratio)} of step time waits for data; {looked}."
        return _said(WAITS, told, "unknown")
    return _said("ok", "No problem was found.", "ok")


def _trouble(known: Known) -> Verdict | None:
    """What nobody would call fine, and needs no steps to be seen."""
    if not known.is_training:
        return _said("machine", "A machine is watched; nothing is trained here.", "unknown")
    if known.status in ("crashed", "failed"):
        why = f": {clean(known.reason, 300)}" if known.reason else "."
        return _said(f"status.{known.status}", f"The run {known.status}{why}", "critical")
    if known.nonfinite_losses:
        many = f"{known.nonfinite_losses:,} of its losses are" if known.nonfinite_losses > 1 else "A loss is"
        return _said("loss.nonfinite", f"{many} not finite.", "unknown")
    return None


def _is_shown(finding: Mapping[str, Any], muted: Collection[str]) -> bool:
    is_open = finding.get("open", finding.get("closed_ns") is None)
    names = {str(finding.get(name, "")) for name in ("id", "key", "problem")}
    is_more = finding.get("severity") != "info"
    return bool(is_open) and is_more and not finding.get("muted") and names.isdisjoint(muted)


def _order(finding: Mapping[str, Any]) -> tuple[int, float, float]:
    confidence, share = _number(finding.get("confidence")), _number(finding.get("share"))
    return rank_of(str(finding.get("severity", ""))), -(share or 0.0), -(confidence or 0.0)


def rank_of(severity: str) -> int:
    """How bad a severity is, 0 for the worst; one that is not known comes last."""
    return next((place for place, known in enumerate(SEVERITIES) if known == severity), len(SEVERITIES))


def _of_finding(finding: Mapping[str, Any]) -> Verdict:
    first, last = finding.get("first_step"), finding.get("last_step")
    has_steps = isinstance(first, int) and isinstance(last, int)
    severity = str(finding.get("severity", ""))
    return Verdict(
        id=clean(finding.get("id") or finding.get("problem") or "finding", 200),
        headline=clean(finding.get("headline") or finding.get("title") or finding.get("problem") or "", 500),
        severity=severity if severity in SEVERITIES else "unknown",
        confidence=_number(finding.get("confidence")),
        steps=(int(first), int(last)) if has_steps else None,  # type: ignore[arg-type]  # looked at above
        tries=tuple(clean(one, 100) for one in finding.get("tries") or ())[:6],
    )


def _number(value: object) -> float | None:
    return finite(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _said(name: str, headline: str, severity: str) -> Verdict:
    return Verdict(name, headline, severity, None, None, ())
