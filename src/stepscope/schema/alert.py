"""Alerts: what is wrong with a run, and what a person is told of it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Severity = Literal["critical", "warning", "info"]
SEVERITIES: tuple[Severity, ...] = ("critical", "warning", "info")
"""The worst first."""

Kind = Literal["firing", "reminder", "resolved", "test"]


@dataclass(frozen=True)
class AlertDetail:
    """One alert, as a notice tells it."""

    rule: str
    severity: Severity
    message: str
    """What happened, in a sentence, with its numbers."""
    since_ns: int
    """When it began."""
    key: str = ""
    """The metric it is about; empty where it is about none."""
    quantity: str = ""
    """What the value is of, such as `median(loss, 20 points)`; empty for the metric itself."""
    value: float | None = None
    threshold: float | None = None
    step: int | None = None
    rank: int | None = None
    device: str = ""
    """The GPU, disk or worker, as the series of the metric name it."""
    recent: tuple[float, ...] = ()
    """The last points of the metric, up to twenty, oldest first."""
    advice: str = ""
    """What to do about it."""


@dataclass(frozen=True)
class Notice:
    """What a person is told at once: the alerts of one run that belong together."""

    id: str
    """The same for every attempt to deliver it, and for no other notice."""
    kind: Kind
    run: str
    run_id: str
    project: str
    host: str
    at_ns: int
    alerts: tuple[AlertDetail, ...]
    """The worst first."""
    link: str = ""
    """The page of the run; empty where none is served."""
    pid: int | None = None
    """A process of the training; None where none is known."""

    @property
    def severity(self) -> Severity:
        """That of the worst."""
        return worst(alert.severity for alert in self.alerts)

    def to_dict(self) -> dict[str, Any]:
        """The same as plain values, for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Notice:
        """What `to_dict` made, again as a notice."""
        alerts = tuple(AlertDetail(**{**told, "recent": tuple(told["recent"])}) for told in fields["alerts"])
        return cls(**{**fields, "alerts": alerts})


def worst(severities: Iterable[Severity]) -> Severity:
    """The worst of some; `info` of none."""
    return min(severities, key=SEVERITIES.index, default="info")
