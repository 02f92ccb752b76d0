"""Tells whether a loss diverges: it left its course and neither returns nor falls again.

Many healthy losses rise: that of a GAN or of a value function slowly; with a schedule or new data by a jump,
after which it falls again. So a loss diverges only if it rises quickly, beyond its own noise, does not fall
again, and has come down before; or if it explodes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from stepscope.analysis.excursions import MIN_BEFORE, Excursion
from stepscope.analysis.robust import spread

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

BEFORE = 50
"""Losses are compared with the median of at least so many before them, where there are as many."""

LIMIT = 6.0
"""How far above that median they are, in spreads."""

LASTING = 5
"""How many losses in a row are that far above it."""

STANDS_HIGH = 0.5
"""A loss that is so much above its lowest is examined more closely."""

FACTOR = 2.0
"""A loss that diverges is at so many times the level before, at least."""

LAST = 20
"""So many losses at the end tell where the loss is now."""

EXPLODED, EXPLODED_WITHIN = 30.0, 100
"""A loss at so many times its level within so many steps, and above all it was before, has exploded."""

HIGH, MIN_HIGH = 2.5, 40
"""A loss at so many times the highest level so far, for so many losses, need not grow further."""

MIN_FLAT, SHARE_OF_FIRST = 100, 0.6
"""A loss back at this share of the first, for so many losses, has lost what was learned."""

DOUBLES_WITHIN, JUMPS_WITHIN = 60, 20
"""Steps within which a loss that diverges has doubled, and within which one that stays flat has."""

FALLEN, FELL_BY = 0.1, 3.0
"""A loss has come down if it was lower than the first by this share of it, and by so many spreads."""

GROWS, FALLS = 1.3, 0.9
"""How the second half of a stretch compares with the first if it grows; and the last third if it falls."""

FLAT = 0.97
"""The same for a loss that is said to stay where it is: one that learns slowly falls a little."""

PARTS, FELL = 6, 0.75
"""Of so many parts of a stretch none is below this share of an earlier one, unless the loss still learns."""

STARTED = 5
"""So many losses tell where a run began."""


class Start(NamedTuple):
    """Where a run began."""

    loss: float
    is_in_window: bool
    """Whether the losses that are examined are all there are."""


class _Stretch(NamedTuple):
    """The losses after a place, and those before it."""

    after: Floats
    earlier: Floats
    steps: Ints
    """Of the losses after it."""
    level: float
    """The usual loss before it."""
    size: float
    """How far losses were from that level."""
    stands: float
    """The usual loss at the end."""


def divergence(
    losses: Floats,
    steps: Ints,
    start: Start,
    *,
    limit: float = LIMIT,
    lasting: int = LASTING,
    least_level: float = -np.inf,
) -> Excursion | None:
    """The stretch at the end in which the loss diverges; None if it does not. `limit` is in spreads.

    Below `least_level` a rise is expected, such as after a restart of the learning rate.
    """
    count, first = len(losses), start.loss
    if count < MIN_BEFORE + lasting:
        return None
    # A test that costs little, and decides for nearly every run: is the loss high at all?
    blocks = _block_medians(losses, lasting)
    if blocks[-1] < blocks.min() + STANDS_HIGH * abs(blocks.min()):
        return None
    stands = float(np.median(losses[-LAST:]))
    lowest = float(blocks.min())
    may_have_exploded = stands >= EXPLODED * min(first, lowest)
    if not may_have_exploded and stands < max(least_level, min(SHARE_OF_FIRST * first, first)):
        return None
    length = lasting
    found = _exploded_at_once(losses, steps) if start.is_in_window else None
    while length <= count - MIN_BEFORE:
        level = float(np.median(losses[max(count - length - max(BEFORE, length), 0) : count - length]))
        is_far = stands - level >= (FACTOR - 1) * abs(level)
        if is_far and stands >= least_level and (may_have_exploded or _has_come_down(first, lowest, 0.0)):
            found = _left_at(losses, steps, count - length, limit, first) or found
        length = max(length + 2, int(1.3 * length))
    return found


def _exploded_at_once(losses: Floats, steps: Ints) -> Excursion | None:
    """The whole run, where its loss exploded in its first steps: then there are no losses to compare with."""
    first = float(losses[:STARTED].min())
    stands = float(np.median(losses[-LAST:]))
    if first <= 0 or stands < EXPLODED * first or _falls(losses[STARTED:]):
        return None
    low = np.flatnonzero(losses <= FACTOR * first)
    begin = int(low[-1]) + 1 if len(low) else 0
    if begin > MIN_BEFORE:
        return None
    size = 0.1 * first
    stretch = _Stretch(losses[begin:], losses[:begin], steps[begin:], first, size, stands)
    if not _explodes(stretch):
        return None
    return Excursion(begin, len(losses), len(losses) - 1, first, stands, (stands - first) / size)


def has_exploded(found: Excursion) -> bool:
    """Whether the rise is too large for any schedule or change of data to explain it."""
    return found.level > 0 and found.value >= EXPLODED * found.level


def _left_at(losses: Floats, steps: Ints, begin: int, limit: float, first: float) -> Excursion | None:
    after = losses[begin:]
    before = losses[max(begin - max(BEFORE, len(after)), 0) : begin]
    level = float(np.median(before))
    size = max(float(spread(before)), 1e-3 * abs(level), 1e-12)
    stands = float(np.median(after[-LAST:]))
    if stands - level < (FACTOR - 1) * _range(losses[:begin]) / FACTOR:
        return None
    if ((after - level) / size > limit).mean() < 0.95:
        return None
    begin = _left_since(losses[:begin], level + limit * size)
    stretch = _Stretch(losses[begin:], losses[:begin], steps[begin:], level, size, stands)
    if not _diverges(stretch, first):
        return None
    return Excursion(begin, len(losses), len(losses) - 1, level, stands, (stands - level) / size)


def _diverges(stretch: _Stretch, first: float) -> bool:
    if not len(stretch.earlier) or _falls(stretch.after):
        return False
    blocks = _block_medians(stretch.earlier, min(LASTING, len(stretch.earlier)))
    highest, lowest = max(first, float(blocks.max())), float(np.quantile(blocks, 0.1))
    if stretch.stands >= HIGH * highest and _explodes(stretch):
        return True
    took = _steps_until(stretch, stretch.level + (FACTOR - 1) * abs(stretch.level))
    is_quick = took <= DOUBLES_WITHIN and not _falls_in_between(stretch.after)
    if not is_quick or not _has_come_down(first, lowest, stretch.size):
        return False
    count = len(stretch.after)
    is_growing = stretch.stands >= highest and _grows(stretch.after)
    is_high = stretch.stands >= HIGH * highest and count >= MIN_HIGH
    is_flat = count >= MIN_FLAT and took <= JUMPS_WITHIN and stretch.stands >= SHARE_OF_FIRST * first
    is_flat = is_flat and not _falls(stretch.after, FLAT)
    return is_growing or is_high or (is_flat and not _was_there(stretch))


def _has_come_down(first: float, level: float, size: float) -> bool:
    return first - level >= max(FALLEN * abs(first), FELL_BY * size)


def _explodes(stretch: _Stretch) -> bool:
    # The level right before it: that of longer ago is low in a loss that has been rising slowly all along.
    near = stretch.earlier[-MIN_BEFORE:]
    level = max(stretch.level, float(np.median(near)) if len(near) else stretch.level)
    if level <= 0 or stretch.stands < EXPLODED * level or len(stretch.after) < LASTING:
        return False
    return _steps_until(stretch, EXPLODED * level) <= EXPLODED_WITHIN


def _steps_until(stretch: _Stretch, value: float) -> int:
    """How many steps it took from where the course was left to a value; the median of three losses counts."""
    after = stretch.after
    if len(after) >= 3:
        after = np.median(np.lib.stride_tricks.sliding_window_view(after, 3), axis=1)
    there = np.flatnonzero(after >= value)
    return int(stretch.steps[there[0]] - stretch.steps[0]) if len(there) else np.iinfo(np.int64).max


def _falls(after: Floats, share: float = FALLS) -> bool:
    """Whether the loss is on its way back."""
    third = max(len(after) // 3, 1)
    return float(np.median(after[-third:])) < share * float(np.median(after[:third]))


def _falls_in_between(after: Floats) -> bool:
    """Whether the loss came down clearly at any time, as it does after new data: it still learns."""
    if len(after) < PARTS:
        return False
    parts = np.array([np.median(one) for one in np.array_split(after, PARTS)])
    return bool((parts < FELL * np.maximum.accumulate(parts)).any())


def _grows(after: Floats) -> bool:
    """Whether the loss goes on growing: in the second half of the stretch as well."""
    quarters = [float(np.median(one)) for one in np.array_split(after, 4)]
    if min(quarters) <= 0:
        return quarters[0] < quarters[1] < quarters[2] < quarters[3]
    early, late = np.log(quarters[1] / quarters[0]), np.log(quarters[3] / quarters[2])
    return bool(late >= np.log(GROWS) and late >= 0.5 * early)


def _left_since(earlier: Floats, limit: float) -> int:
    """The place after the last two losses in a row that were as usual."""
    usual = earlier <= limit
    together = np.flatnonzero(usual[1:] & usual[:-1])
    return int(together[-1]) + 2 if len(together) else 0


def _was_there(stretch: _Stretch) -> bool:
    """Whether the loss, once it had come down to its level, has been as high: then it may be so again."""
    earlier, level = stretch.earlier, stretch.level
    low = np.flatnonzero(_block_medians(earlier, LASTING) <= level + 0.1 * abs(level))
    since = earlier[len(earlier) % LASTING :][int(low[0]) * LASTING :] if len(low) else earlier
    return bool(np.sort(since)[-min(3, len(since))] >= 0.7 * stretch.stands) if len(since) else False


def _block_medians(values: Floats, size: int) -> Floats:
    blocks: Floats = np.median(values[len(values) % size :].reshape(-1, size), axis=1)
    return blocks


def _range(levels: Floats) -> float:
    """How far the usual loss has come within the window."""
    low, high = np.quantile(levels, [0.1, 0.9])
    return float(high - low)
