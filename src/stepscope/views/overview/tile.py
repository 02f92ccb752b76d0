"""A tile of the overview: one figure, its state, and details."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

State = Literal["ok", "warn", "bad", "none", "unknown"]
"""`none` is a known figure that is neither good nor bad."""
TileId = Literal["throughput", "step_time", "gpu", "memory"]


STATE_OF_SEVERITY: dict[str, State] = {"critical": "bad", "warning": "warn", "notice": "warn", "info": "ok"}


@dataclass(frozen=True)
class Change:
    """How a figure compares with an earlier value."""

    ratio: float
    """0.1 means 10% more."""
    text: str


@dataclass(frozen=True)
class Tile:
    """One figure of the overview, with its state and details."""

    id: TileId
    title: str
    value: str
    detail: tuple[str, ...]
    state: State
    state_text: str
    spark: tuple[float | None, ...] = ()
    change: Change | None = None
    chart: str | None = None
    """The key of the chart that shows the figure over time."""


def unknown_tile(tile: TileId, title: str, why: str, detail: Sequence[str] = ()) -> Tile:
    """Returns a tile without a value, with the reason."""
    return Tile(tile, title, "–", tuple(detail), "unknown", why)


def state_of_finding(finding: Mapping[str, Any]) -> State:
    """Returns the state of a figure that a check has judged."""
    return STATE_OF_SEVERITY.get(str(finding.get("severity")), "unknown")


def worst_state(*states: State) -> State:
    """Returns the worst of several states."""
    order: tuple[State, ...] = ("bad", "warn", "unknown", "none", "ok")
    return min(states, key=order.index)
