"""Splits a learning-rate schedule into phases in which the rate rises, stays constant or falls."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

Kind = Literal["warm-up", "rise", "constant", "decay"]
Shape = Literal["linear", "cosine", "exponential"]

MAX_READINGS = 4096
"""A longer series is thinned to this many readings; the begin of a phase is then searched in all of them."""

MAX_ROUNDING = 1e-5
"""Readings with a smaller relative difference are one level: no schedule changes so slowly."""

MAX_JITTER = 0.01
"""Random fluctuations up to this are still one level."""
MAX_FLAT_CHANGE = 0.02
"""A piece that changes less than this in all is constant."""
MIN_TURN = 0.05
"""A rate that goes back by this much has turned; less is not a phase."""
MIN_JUMP = 0.2
"""A larger change from one reading to the next is a jump."""
MIN_LEVEL_RATIO = 0.02
"""A level that lasts for this share of all steps is a phase."""

MIN_STAIRS, MAX_STAIRS, MAX_STAIR_RATIO = 5, 12, 0.3
"""So many levels in a row, each at most this share of the total change, are a curve in steps."""

MIN_CURVE_POINTS, MAX_MISFIT = 5, 0.02
"""A shape needs so many points; none may deviate from it by more than this share of the total change."""

FLOOR = 1e-6
"""Rates are compared by ratio; rates below this share of the maximum count as zero."""


@dataclass(frozen=True)
class RatePhase:
    """A phase of a schedule: its first and last reading, counted from 0."""

    kind: Kind
    shape: Shape | None
    """None if no shape fits, or more than one."""
    cycle: int | None
    """Counted from 1; None if the rate is not raised again."""
    first: int
    last: int


class _Course(NamedTuple):
    """Levels of equal consecutive readings; a changing rate has one level for each reading."""

    firsts: Ints
    """The first reading of each level."""
    begins: Floats
    """The first step of each level; the last entry is the end of the last level."""
    middles: Floats
    rates: Floats
    logs: Floats
    counts: Ints

    def lasts(self, piece: _Piece) -> float:
        """Returns the number of steps of a piece."""
        return float(self.begins[piece.last + 1] - self.begins[piece.first])


class _Piece(NamedTuple):
    """A range of levels in which the rate falls (-1), stays (0) or rises (1)."""

    first: int
    last: int
    direction: int


def rate_phases(steps: Floats, rates: Floats) -> list[RatePhase]:
    """Returns the phases of a rate; steps must increase and readings must be finite."""
    if not len(rates):
        return []
    thin = np.unique(np.linspace(0, len(rates) - 1, min(len(rates), MAX_READINGS)).astype(np.int64))
    course = _levels(steps[thin], rates[thin])
    pieces = _pieces(course)
    begins = [0, *(_begin(course, pair, thin, rates) for pair in pairwise(pieces))]
    kinds, cycles = _kinds(course, pieces), _cycles(course, pieces)
    lasts = [*(begin - 1 for begin in begins[1:]), len(rates) - 1]
    shapes = [_shape(course, pieces, index) for index in range(len(pieces))]
    return [RatePhase(*fields) for fields in zip(kinds, shapes, cycles, begins, lasts, strict=True)]


def _levels(steps: Floats, rates: Floats) -> _Course:
    logs = np.log(np.maximum(rates, max(FLOOR * float(rates.max()), np.finfo(np.float64).tiny)))
    slack = max(MAX_ROUNDING, _jitter(logs))
    firsts = [0]
    for reading, log in enumerate(logs.tolist()):
        if abs(log - logs[firsts[-1]]) > slack:
            firsts.append(reading)
    first = np.array(firsts)
    last = np.r_[first[1:], len(logs)] - 1
    return _Course(
        firsts=first,
        begins=np.r_[steps[first], steps[-1]],
        middles=(steps[first] + steps[last]) / 2,
        rates=rates[first],
        logs=logs[first],
        counts=last - first + 1,
    )


def _jitter(logs: Floats) -> float:
    """Returns how much readings fluctuate: alternately up and down, which no schedule does."""
    moves = np.diff(logs)
    moves = moves[moves != 0]
    back = moves[1:] * moves[:-1] < 0
    if len(moves) < 10 or back.mean() < 0.1:
        return 0.0
    return min(3.0 * float(np.median(np.abs(moves[1:][back]))), MAX_JITTER)


def _pieces(course: _Course) -> list[_Piece]:
    lengths = np.diff(course.begins)
    stays = (lengths >= MIN_LEVEL_RATIO * (course.begins[-1] - course.begins[0])) & (course.counts > 1)
    pieces: list[_Piece] = []
    begin = 0
    for level in [*np.flatnonzero(stays).tolist(), len(course.logs)]:
        if begin < level:
            pieces += _monotone(course.logs, begin, level - 1)
        if level < len(course.logs):
            pieces.append(_Piece(level, level, 0))
        begin = level + 1
    pieces = _without_jumps(course, pieces)
    pieces = _with_stairs_as_curves(course, pieces)
    pieces = [part for piece in pieces for part in _split_at_drops(course, piece)]
    return _with_levels_joined(course, pieces)


def _monotone(logs: Floats, first: int, last: int) -> list[_Piece]:
    """Returns the pieces between turns."""
    pieces = []
    begin = low = high = first
    direction = 0
    for level in range(first + 1, last + 1):
        high = level if logs[level] >= logs[high] else high
        low = level if logs[level] <= logs[low] else low
        if direction >= 0 and logs[high] - logs[level] > MIN_TURN:
            if direction > 0:
                pieces.append(_Piece(begin, high, 1))
                begin = high + 1
            direction, low = -1, level
        elif direction <= 0 and logs[level] - logs[low] > MIN_TURN:
            if direction < 0:
                pieces.append(_Piece(begin, low, -1))
                begin = low + 1
            direction, high = 1, level
    moved = logs[last] - logs[begin]
    if direction == 0 and abs(moved) > MAX_FLAT_CHANGE:
        direction = int(np.sign(moved))
    return [*pieces, _Piece(begin, last, direction)]


def _without_jumps(course: _Course, pieces: list[_Piece]) -> list[_Piece]:
    """Removes changes from one reading to the next, which are the begin of the following phase."""
    kept = []
    begin: int | None = None
    for piece in pieces[:-1]:
        begin = piece.first if begin is None else begin
        if piece.first < piece.last or course.counts[piece.first] > 1:
            kept.append(piece._replace(first=begin))
            begin = None
    last = pieces[-1]
    if last.first == last.last:
        last = last._replace(direction=0)
    return [*kept, last if begin is None else last._replace(first=begin)]


def _with_stairs_as_curves(course: _Course, pieces: list[_Piece]) -> list[_Piece]:
    """Joins many consecutive levels, each below the last, into one decay in steps, as by epochs."""
    joined: list[_Piece] = []
    index = 0
    while index < len(pieces):
        end = _end_of_stairs(course, pieces, index)
        stairs = pieces[index:end]
        if _is_curve(course, stairs):
            direction = int(np.sign(course.logs[stairs[-1].last] - course.logs[stairs[0].first]))
            joined.append(_Piece(stairs[0].first, stairs[-1].last, direction))
            index = end
        else:
            joined.append(pieces[index])
            index += 1
    return joined


def _end_of_stairs(course: _Course, pieces: list[_Piece], begin: int) -> int:
    """Returns where levels from here change direction, or one is far longer than those before it."""
    direction, lengths = 0, [course.lasts(pieces[begin])]
    for index in range(begin + 1, len(pieces)):
        before, piece = pieces[index - 1], pieces[index]
        way = int(np.sign(course.logs[piece.first] - course.logs[before.last]))
        ways = {way, direction, piece.direction, before.direction} - {0}
        length = course.lasts(piece)
        if len(ways) != 1 or length > 3 * float(np.median(lengths)) or 3 * length < min(lengths[:1]):
            return index
        direction = ways.pop()
        lengths.append(length)
    return len(pieces)


def _is_curve(course: _Course, stairs: list[_Piece]) -> bool:
    rates = course.rates[[piece.last for piece in stairs if piece.direction == 0]]
    if len(rates) < MIN_STAIRS:
        return False
    highest = float(np.abs(np.diff(rates)).max())
    return len(rates) > MAX_STAIRS or highest <= MAX_STAIR_RATIO * abs(float(rates[0] - rates[-1]))


def _split_at_drops(course: _Course, piece: _Piece) -> list[_Piece]:
    """Splits a decay where the rate drops far more than before, after and on average."""
    moves = np.abs(np.diff(course.logs[piece.first : piece.last + 1]))
    if piece.direction == 0 or len(moves) < 8:
        return [piece]
    around = np.maximum(np.r_[0.0, moves[:-1]], np.r_[moves[1:], 0.0])
    usual = float(np.median(moves))
    begins = course.begins[piece.first + 1 : piece.last + 1]
    min_length = MIN_LEVEL_RATIO * (course.begins[-1] - course.begins[0])
    inside = (begins - course.begins[piece.first] > min_length) & (
        course.begins[piece.last + 1] - begins > min_length
    )
    sudden = inside & (moves > 2 * MIN_JUMP) & (moves > 5 * around) & (moves > 5 * usual)
    if not sudden.any():
        return [piece]
    cut = piece.first + int(np.argmax(np.where(sudden, moves, 0.0)))
    halves = (piece._replace(last=cut), piece._replace(first=cut + 1))
    return [part for half in halves for part in _split_at_drops(course, half)]


def _with_levels_joined(course: _Course, pieces: list[_Piece]) -> list[_Piece]:
    joined = pieces[:1]
    for piece in pieces[1:]:
        before = joined[-1]
        near = abs(course.logs[piece.last] - course.logs[before.last]) < MAX_FLAT_CHANGE
        if before.direction == piece.direction == 0 and near:
            joined[-1] = before._replace(last=piece.last)
        else:
            joined.append(piece)
    return joined


def _begin(course: _Course, pair: tuple[_Piece, _Piece], thin: Ints, rates: Floats) -> int:
    """Returns the first of all readings of the second of two pieces."""
    before, piece = pair
    if _turns(course, before, piece):
        top = int(course.firsts[before.last])
        low, high = int(thin[max(top - 1, 0)]), int(thin[course.firsts[piece.first]])
        return low + 1 + int(np.argmax(before.direction * rates[low : high + 1]))
    after = int(course.firsts[piece.first])
    low, high = int(thin[after - 1]), int(thin[after])
    return low + 1 + int(np.argmax(np.abs(np.diff(rates[low : high + 1]))))


def _turns(course: _Course, before: _Piece, piece: _Piece) -> bool:
    """Returns whether a changing rate turns here without a jump."""
    return before.direction * piece.direction < 0 and abs(_jump(course, before, piece)) < MIN_JUMP


def _kinds(course: _Course, pieces: list[_Piece]) -> list[Kind]:
    kinds: list[Kind] = []
    for index, piece in enumerate(pieces):
        begins_low = index == 0 or _jump(course, pieces[index - 1], piece) < -MIN_JUMP
        rising: Kind = "warm-up" if begins_low else "rise"
        kinds.append("constant" if piece.direction == 0 else "decay" if piece.direction < 0 else rising)
    return kinds


def _cycles(course: _Course, pieces: list[_Piece]) -> list[int | None]:
    """Returns cycle numbers, which increase where a rate rises again after a decay."""
    numbers = [1]
    for before, piece in pairwise(pieces):
        restarts = piece.direction < 0 and _jump(course, before, piece) > MIN_JUMP
        rises_again = piece.direction > 0 > before.direction
        numbers.append(numbers[-1] + (restarts or rises_again))
    return [
        number if piece.direction and numbers[-1] > 1 else None
        for piece, number in zip(pieces, numbers, strict=True)
    ]


def _jump(course: _Course, before: _Piece, piece: _Piece) -> float:
    return float(course.logs[piece.first] - course.logs[before.last])


def _shape(course: _Course, pieces: list[_Piece], index: int) -> Shape | None:
    before, piece, after = pieces[max(index - 1, 0)], pieces[index], pieces[min(index + 1, len(pieces) - 1)]
    if piece.direction == 0:
        return None
    # The turning point belongs to the curves on both sides, but not all levels nearly as high.
    begins_turning = _turns(course, before, piece)
    levels = np.arange(piece.first - begins_turning, piece.last + 1)
    steps = course.middles[levels]
    if begins_turning:
        steps[0] = course.begins[levels[0]]
    if _turns(course, piece, after):
        steps[-1] = course.begins[levels[-1]]
    return shape_of(steps, course.rates[levels])


def shape_of(x: Floats, y: Floats) -> Shape | None:
    """Returns the one shape that fits all points from first to last; None for none or several."""
    if len(x) < MIN_CURVE_POINTS or x[-1] == x[0] or y[-1] == y[0]:
        return None
    way = (x - x[0]) / (x[-1] - x[0])
    left = (y - y[-1]) / (y[0] - y[-1])
    curves: dict[Shape, Floats] = {"linear": 1 - way, "cosine": (1 + np.cos(np.pi * way)) / 2}
    if min(y[0], y[-1]) > FLOOR * max(y[0], y[-1]):
        ratio = y[-1] / y[0]
        curves["exponential"] = (ratio**way - ratio) / (1 - ratio)
    fitting = [shape for shape, curve in curves.items() if float(np.abs(left - curve).max()) < MAX_MISFIT]
    return fitting[0] if len(fitting) == 1 else None
