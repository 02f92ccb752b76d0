"""Findings: what slows a run down or puts it at risk, with evidence, advice and the estimated gain."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

Severity = Literal["critical", "warning", "notice", "info"]
SEVERITIES: tuple[Severity, ...] = ("critical", "warning", "notice", "info")
"""The worst first."""

NOTICE, WARNING = 0.02, 0.05
"""The shares of recoverable time from which a finding is a notice or a warning. Lost time alone is never
critical: that is reserved for what ends or ruins a run."""


@dataclass(frozen=True)
class Evidence:
    """One number that supports a finding."""

    label: str
    value: str
    """With its unit."""
    note: str = ""


@dataclass(frozen=True)
class Remedy:
    """One thing to do about it, with the smallest code that does it."""

    text: str
    code: str | None = None
    framework: str | None = None
    """The framework of the code; None for any."""


@dataclass(frozen=True)
class Estimate:
    """The estimated gain of a remedy, as shares from 0 to 1: bounds and the likely value."""

    low: float
    likely: float
    high: float
    of: str = "the time of a step"


@dataclass(frozen=True)
class Chart:
    """The keys to plot, and the range of steps."""

    keys: tuple[str, ...]
    first_step: int | None = None
    last_step: int | None = None


@dataclass(frozen=True)
class Finding:
    """A problem of a run, as of the last diagnosis that found it."""

    id: str
    """The id of the problem, such as `input.exposed_wait`."""
    title: str
    headline: str
    """What is wrong, in one sentence with its most important number."""
    detail: str
    severity: Severity
    confidence: float
    """From 0 to 1: how consistent the evidence is, and how much of it there is."""
    first_time: float
    last_time: float
    subject: str = ""
    """The part of the run it is about, for problems that can occur more than once."""
    share: float | None = None
    """The share of time that could be saved; None for a risk."""
    first_step: int | None = None
    last_step: int | None = None
    rank: int | None = None
    """The rank that is affected most; None where it concerns the whole run."""
    device: str = ""
    where: str = ""
    """The line of the user's code that is responsible, such as `train.py:83 in forward`; empty if unknown."""
    evidence: tuple[Evidence, ...] = ()
    chart: Chart | None = None
    ruled_out: tuple[str, ...] = ()
    remedies: tuple[Remedy, ...] = ()
    tries: tuple[str, ...] = ()
    """What to try, in a few words each."""
    estimate: Estimate | None = None
    how: str = ""
    """How it was computed."""
    refs: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """Identifies the finding within its run, across diagnoses."""
        return f"{self.id}:{self.subject}" if self.subject else self.id

    def as_dict(self) -> dict[str, Any]:
        """The same as plain values, for JSON; a new finding is open and not muted."""
        return {
            "id": self.id,
            "key": self.key,
            "title": self.title,
            "headline": self.headline,
            "detail": self.detail,
            "severity": self.severity,
            "confidence": self.confidence,
            "share": self.share,
            "open": True,
            "muted": False,
            "first_step": self.first_step,
            "last_step": self.last_step,
            "first_time": self.first_time,
            "last_time": self.last_time,
            "rank": self.rank,
            "device": self.device,
            "where": self.where,
            "evidence": [asdict(evidence) for evidence in self.evidence],
            "chart": None
            if self.chart is None
            else {
                "keys": list(self.chart.keys),
                "from": self.chart.first_step,
                "to": self.chart.last_step,
            },
            "ruled_out": list(self.ruled_out),
            "remedies": [asdict(remedy) for remedy in self.remedies],
            "tries": list(self.tries),
            "estimate": None if self.estimate is None else asdict(self.estimate),
            "how": self.how,
            "refs": list(self.refs),
        }


def severity_of(share: float) -> Severity:
    """How much a share of recoverable time matters."""
    if share >= WARNING:
        return "warning"
    return "notice" if share >= NOTICE else "info"


def is_muted(finding: Mapping[str, Any], muted: Collection[str]) -> bool:
    """Whether people have muted a finding in its run or its project; `muted` are ids and keys of findings."""
    names = {str(finding.get(name, "")) for name in ("id", "key", "problem")}
    return bool(finding.get("muted")) or not names.isdisjoint(muted)
