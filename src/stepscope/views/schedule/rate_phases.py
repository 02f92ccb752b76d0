"""Splits a learning-rate schedule into phases in which the rate rises, stays constant or falls."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

Kind = Literal["warm-up", "rise", "constant", "decay"]
Shape = Literal["linear", "cosine", "exponential"]

FLOOR = 1e-6
"""Rates are compared by ratio; rates below this share of the maximum count as zero."""
MAX_ROUNDING, MAX_JITTER = 1e-5, 0.01
"""Readings that differ by less than rounding, or fluctuate up and down by less than 1%, are one level."""
MAX_FLAT_CHANGE, MIN_TURN, MIN_JUMP = 0.02, 0.05, 0.2
"""Relative changes: less in all is constant, going back by more is a turn, more in one reading is a jump."""
MIN_LEVEL_RATIO = 0.02
"""A level that lasts for this share of all steps is a phase."""
MIN_STAIRS, MAX_STAIRS, MAX_STAIR_RATIO = 5, 12, 0.3
"""So many levels in a row, each at most this share of the total change, are a curve in steps."""
MIN_CURVE_POINTS, MAX_MISFIT = 5, 0.02
"""A shape needs so many points; none may deviate from it by more than this share of the total change."""


class RatePhase(NamedTuple):
    """A phase of a schedule: its first and last reading, counted from 0."""

    kind: Kind
    shape: Shape | None
    """None if no shape fits, or more than one."""
    cycle: int | None
    """Counted from 1; None if the rate is not raised again."""
    first: int
    last: int


class _Piece(NamedTuple):
    """A range of levels in which the rate falls (-1), stays (0) or rises (1)."""

    first: int
    last: int
    direction: int


class _Levels(NamedTuple):
    """Levels of equal consecutive readings; a changing rate has one level for each reading."""

    firsts: Ints
    """The first reading of each level; the last entry is the number of readings."""
    begins: Floats
    """The first step of each level; the last entry is the last step."""
    rates: Floats
    logs: Floats


def rate_phases(steps: Floats, rates: Floats) -> list[RatePhase]:
    """Returns the phases of one or more readings; steps must increase and readings must be finite."""
    levels = _levels(steps, rates)
    pieces = _pieces(levels)
    jumps = [float(levels.logs[piece.first] - levels.logs[before.last]) for before, piece in pairwise(pieces)]
    cycles = [1]
    for (before, piece), jump in zip(pairwise(pieces), jumps, strict=True):
        restarts = piece.direction < 0 and jump > MIN_JUMP
        cycles.append(cycles[-1] + (restarts or piece.direction > 0 > before.direction))
    firsts = [0, *map(partial(_first_reading, levels, rates), pieces, pieces[1:], jumps), len(rates)]
    return [
        RatePhase(
            kind=_kind(piece.direction, is_start=index == 0 or jumps[index - 1] < -MIN_JUMP),
            shape=_shape(levels, piece) if piece.direction else None,
            cycle=cycles[index] if piece.direction and cycles[-1] > 1 else None,
            first=firsts[index],
            last=firsts[index + 1] - 1,
        )
        for index, piece in enumerate(pieces)
    ]


def _levels(steps: Floats, rates: Floats) -> _Levels:
    logs = np.log(np.maximum(rates, max(FLOOR * float(rates.max()), np.finfo(np.float64).tiny)))
    moves = np.diff(logs)
    moves = moves[moves != 0]
    back = moves[1:] * moves[:-1] < 0
    jitter = 0.0
    if len(moves) >= 10 and back.mean() >= 0.1:  # no schedule goes up and down so often
        jitter = min(3 * float(np.median(np.abs(moves[1:][back]))), MAX_JITTER)
    slack, level, firsts = max(MAX_ROUNDING, jitter), np.inf, []
    for reading, log in enumerate(logs.tolist()):
        if abs(log - level) > slack:
            firsts.append(reading)
            level = log
    begins = np.r_[steps[firsts], steps[-1]]
    return _Levels(np.array([*firsts, len(rates)]), begins, rates[firsts], logs[firsts])


def _pieces(levels: _Levels) -> list[_Piece]:
    min_length = MIN_LEVEL_RATIO * (levels.begins[-1] - levels.begins[0])
    counts = np.diff(levels.firsts)
    is_flat = (np.diff(levels.begins) >= min_length) & (counts > 1)
    cuts = [0, *_turns(levels.logs.tolist()), len(counts)]
    for first, end in pairwise(cuts):
        is_flat[_stairs(levels, first + np.flatnonzero(is_flat[first:end]))] = False
    flat = np.flatnonzero(is_flat)
    cuts = sorted({*cuts, *flat.tolist(), *(flat + 1).tolist()})
    drops = [drop for first, end in pairwise(cuts) for drop in _drops(levels, first, end, min_length)]
    pieces: list[_Piece] = []
    begin = 0
    for first, end in pairwise(sorted({*cuts, *drops})):
        if end - first == counts[first] == 1 and end < len(counts):
            continue  # a jump, which begins the next phase
        change = float(levels.logs[end - 1] - levels.logs[begin])
        is_constant = end - first == 1 or abs(change) <= MAX_FLAT_CHANGE
        last = pieces[-1] if pieces and pieces[-1].direction == 0 else None
        if is_constant and last and abs(levels.logs[end - 1] - levels.logs[last.last]) < MAX_FLAT_CHANGE:
            begin = pieces.pop().first
        pieces.append(_Piece(begin, end - 1, 0 if is_constant else int(np.sign(change))))
        begin = end
    return pieces


def _turns(logs: list[float]) -> list[int]:
    """Returns where the rate has turned by more than fluctuations: the first level of each new direction."""
    turns = []
    low = high = direction = 0
    for level, log in enumerate(logs):
        high = level if log >= logs[high] else high
        low = level if log <= logs[low] else low
        if direction >= 0 and logs[high] - log > MIN_TURN:
            turns += [high + 1] * direction
            direction, low = -1, level
        elif direction <= 0 and log - logs[low] > MIN_TURN:
            turns += [low + 1] * -direction
            direction, high = 1, level
    return turns


def _stairs(levels: _Levels, flat: Ints) -> Ints:
    """Returns the flat levels that form one curve in steps, such as a cosine that is updated by epochs."""
    lengths = levels.begins[flat + 1] - levels.begins[flat]
    stairs = flat[lengths <= 3 * np.median(lengths)] if len(flat) else flat
    if len(stairs) < MIN_STAIRS or abs(levels.logs[stairs[-1]] - levels.logs[stairs[0]]) < MIN_TURN:
        return stairs[:0]
    highest = np.abs(np.diff(levels.rates[stairs])).max()
    total = abs(levels.rates[stairs[-1]] - levels.rates[stairs[0]])
    return stairs if len(stairs) > MAX_STAIRS or highest <= MAX_STAIR_RATIO * total else stairs[:0]


def _drops(levels: _Levels, first: int, end: int, min_length: float) -> list[int]:
    """Returns where a changing rate jumps far more than before, after and on average."""
    moves = np.abs(np.diff(levels.logs[first:end]))
    if len(moves) < 8:
        return []
    around = np.maximum(np.r_[0.0, moves[:-1]], np.r_[moves[1:], 0.0])
    begins = levels.begins[first + 1 : end]
    is_inside = np.minimum(begins - levels.begins[first], levels.begins[end] - begins) > min_length
    is_sudden = moves > np.maximum(2 * MIN_JUMP, 5 * np.maximum(around, np.median(moves)))
    drops: list[int] = (first + 1 + np.flatnonzero(is_inside & is_sudden)).tolist()
    return drops


def _first_reading(levels: _Levels, rates: Floats, before: _Piece, piece: _Piece, jump: float) -> int:
    """Returns the first reading of a piece: the one after the extreme value, if the rate turns there."""
    if before.direction * piece.direction < 0 and abs(jump) < MIN_JUMP:
        begin, end = levels.firsts[piece.first - 1 : piece.first + 1]
        return int(begin) + 1 + int(np.argmax(before.direction * rates[begin:end]))
    return int(levels.firsts[piece.first])


def _kind(direction: int, *, is_start: bool) -> Kind:
    if direction > 0:
        return "warm-up" if is_start else "rise"
    return "decay" if direction < 0 else "constant"


def _shape(levels: _Levels, piece: _Piece) -> Shape | None:
    """Returns the one shape that fits all levels from first to last; None for none or several."""
    x, y = levels.begins[piece.first : piece.last + 1], levels.rates[piece.first : piece.last + 1]
    if len(x) < MIN_CURVE_POINTS:
        return None
    way, left = (x - x[0]) / (x[-1] - x[0]), (y - y[-1]) / (y[0] - y[-1])
    curves: dict[Shape, Floats] = {"linear": 1 - way, "cosine": (1 + np.cos(np.pi * way)) / 2}
    ratio = float(y[-1]) / float(y[0]) if y[0] > 0 else 0.0  # infinite for a tiny rate, without a warning
    if FLOOR < ratio < 1 / FLOOR:
        curves["exponential"] = (ratio**way - ratio) / (1 - ratio)
    fitting = [shape for shape, curve in curves.items() if float(np.abs(left - curve).max()) < MAX_MISFIT]
    return fitting[0] if len(fitting) == 1 else None
