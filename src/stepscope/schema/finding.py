"""Findings: what slows a run down or endangers it, with evidence, advice and what the advice is worth."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

Severity = Literal["critical", "warning", "notice", "info"]
SEVERITIES: tuple[Severity, ...] = ("critical", "warning", "notice", "info")
"""The worst first."""

NOTICE, WARNING = 0.02, 0.05
"""The shares of recoverable time from which a finding is more than information. Time alone is never critical:
that is kept for what ends or ruins a run."""


@dataclass(frozen=True)
class Evidence:
    """One number that speaks for a finding."""

    label: str
    value: str
    """With its unit."""
    note: str = ""


@dataclass(frozen=True)
class Remedy:
    """One thing to do about it, with the least code that does it."""

    text: str
    code: str | None = None
    framework: str | None = None
    """Whose code it is; None where it is everybody's."""


@dataclass(frozen=True)
class Estimate:
    """What a remedy would give back, as shares from 0 to 1: bounds, and what is likely."""

    low: float
    likely: float
    high: float
    of: str = "the time of a step"


@dataclass(frozen=True)
class Chart:
    """The keys to look at, and between which steps."""

    keys: tuple[str, ...]
    first_step: int | None = None
    last_step: int | None = None


@dataclass(frozen=True)
class Finding:
    """A problem of a run, as of the steps it was last seen in."""

    id: str
    """Which problem, such as `input.exposed_wait`."""
    title: str
    headline: str
    """What is wrong, in a sentence with its most important number."""
    detail: str
    severity: Severity
    confidence: float
    """From 0 to 1: how far the evidence agrees, and how much of it there is."""
    first_time: float
    last_time: float
    subject: str = ""
    """What of the run it is about, where a problem can be there more than once."""
    share: float | None = None
    """The share of time that could be had back; None for a risk."""
    first_step: int | None = None
    last_step: int | None = None
    rank: int | None = None
    """The rank that has it worst; None where it concerns the whole run."""
    device: str = ""
    evidence: tuple[Evidence, ...] = ()
    chart: Chart | None = None
    ruled_out: tuple[str, ...] = ()
    remedies: tuple[Remedy, ...] = ()
    tries: tuple[str, ...] = ()
    """What to try, in a few words each."""
    estimate: Estimate | None = None
    how: str = ""
    """How it was worked out."""
    refs: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """Tells it from all others of its run, today and tomorrow."""
        return f"{self.id}:{self.subject}" if self.subject else self.id

    def as_dict(self) -> dict[str, Any]:
        """The same as plain values, for JSON; found now, it is open, and nobody has muted it."""
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
