"""One figure at the top of a run's page: its value, its state in a word, what stands behind it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Sequence

State = Literal["ok", "warn", "bad", "none", "unknown"]
"""`none` is a figure that is known and is neither good nor bad by itself."""
TileId = Literal["throughput", "step_time", "gpu", "memory"]

STATE_WORDS: dict[State, str] = {
    "ok": "fine",
    "warn": "worth a look",
    "bad": "trouble",
    "none": "not judged",
    "unknown": "not known",
}


@dataclass(frozen=True)
class Change:
    """How a figure compares with what it was."""

    ratio: float
    """0.1 for a tenth more."""
    text: str


@dataclass(frozen=True)
class Tile:
    """One figure, its state in a word, and what stands behind it."""

    id: TileId
    title: str
    value: str
    detail: tuple[str, ...]
    state: State
    state_text: str
    spark: tuple[float | None, ...] = ()
    change: Change | None = None
    chart: str | None = None
    """The key of the chart behind it."""


def unknown_tile(tile: TileId, title: str, why: str, detail: Sequence[str] = ()) -> Tile:
    """A tile of which nothing is known, and why."""
    return Tile(tile, title, "–", tuple(detail), "unknown", why)


def worst_state(*states: State) -> State:
    """The worst of some."""
    order: tuple[State, ...] = ("bad", "warn", "unknown", "none", "ok")
    return min(states, key=order.index)
