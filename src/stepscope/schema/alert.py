"""Alerts: what is wrong with a run, and the notices that report it."""

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
    """One alert in a notice."""

    rule: str
    severity: Severity
    message: str
    """What happened, in one sentence with its numbers."""
    since_ns: int
    """When it began."""
    key: str = ""
    """The metric it is about; empty for none."""
    quantity: str = ""
    """The expression that gave the value, such as `median(loss, 20 points)`; empty for the metric itself."""
    value: float | None = None
    threshold: float | None = None
    step: int | None = None
    rank: int | None = None
    device: str = ""
    """The GPU, disk or worker, by the device label of its series."""
    recent: tuple[float, ...] = ()
    """The last points of the metric, up to twenty, oldest first."""
    advice: str = ""
    """What to do about it."""


@dataclass(frozen=True)
class Notice:
    """One message to a person: the alerts of one run that belong together."""

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
        """The worst severity of its alerts."""
        return worst(alert.severity for alert in self.alerts)

    def to_dict(self) -> dict[str, Any]:
        """The same as plain values, for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Notice:
        """Makes a notice from the result of `to_dict`."""
        details = ({**detail, "recent": tuple(detail["recent"])} for detail in fields["alerts"])
        return cls(**{**fields, "alerts": tuple(AlertDetail(**detail) for detail in details)})


def worst(severities: Iterable[Severity]) -> Severity:
    """The worst of several severities; `info` for none."""
    return min(severities, key=SEVERITIES.index, default="info")
