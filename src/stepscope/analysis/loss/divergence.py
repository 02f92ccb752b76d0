"""Detects a loss that diverges: it rises quickly and neither returns nor falls again.

Many healthy losses rise: the loss of a GAN or of a value function rises slowly; a new schedule or new data
makes a loss jump, after which it falls again. So a loss diverges only if it has come down before, rises
quickly and beyond its own noise, and does not fall again; or if it explodes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from stepscope.analysis.loss.excursions import MIN_BEFORE, Excursion
from stepscope.analysis.robust import spread, usual_range

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

BEFORE = 50
"""Losses are compared with the median of at least this many earlier losses, if there are that many."""

LIMIT = 6.0
"""Minimum distance above that median, in spreads."""

LASTING = 5
"""How many losses in a row must be that far above it."""

EXAMINED_ABOVE = 0.5
"""Only a loss that is this share above its lowest level is examined further."""

FACTOR = 2.0
"""A diverging loss is at least this factor above the earlier level."""

LAST = 20
"""The current loss is the median of this many losses at the end."""

EXPLODED, EXPLODED_WITHIN = 30.0, 100
"""A loss has exploded if it rises by this factor within this many steps, above all earlier losses."""

HIGH, MIN_HIGH = 2.5, 40
"""A loss at this factor of its highest earlier level, for this many losses, need not grow further."""

MIN_FLAT, SHARE_OF_FIRST = 100, 0.6
"""A loss back at this share of the first loss, for this many losses, has lost what was learned."""

DOUBLES_WITHIN, JUMPS_WITHIN = 60, 20
"""Maximum steps in which a diverging loss doubles, and in which a loss that then stays flat doubles."""

FALLEN, FELL_BY = 0.1, 3.0
"""A loss has come down if it was below the first by this share of it and by this many spreads."""

GROWS, FALLS = 1.3, 0.9
"""Ratio of a stretch's second half to its first if it grows; of its last third to its first if it falls."""

FLAT = 0.97
"""The same ratio below which a loss is not flat: one that learns slowly falls a little."""

PARTS, FELL = 6, 0.75
"""The loss still learns if, of this many parts of a stretch, one is below this share of an earlier part."""

STARTED = 5
"""Number of losses at the beginning of a run that give its first level."""


class Start(NamedTuple):
    """The loss at the beginning of a run."""

    loss: float
    is_in_window: bool
    """Whether the window holds all losses of the run."""


class _Stretch(NamedTuple):
    """The losses after a place, and those before it."""

    after: Floats
    earlier: Floats
    steps: Ints
    """Steps of the losses after the place."""
    level: float
    """The usual loss before the place."""
    size: float
    """The spread of the losses around that level."""
    current: float
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
    """Returns the stretch at the end in which the loss diverges; None if it does not. `limit` is in spreads.

    A rise to less than `least_level` is expected, such as after a restart of the learning rate.
    """
    count, first = len(losses), start.loss
    if count < MIN_BEFORE + lasting:
        return None
    # A cheap test that excludes nearly every run: is the loss high at all?
    blocks = _block_medians(losses, lasting)
    if blocks[-1] < blocks.min() + EXAMINED_ABOVE * abs(blocks.min()):
        return None
    current = float(np.median(losses[-LAST:]))
    lowest = float(blocks.min())
    may_have_exploded = current >= EXPLODED * min(first, lowest)
    if not may_have_exploded and current < max(least_level, min(SHARE_OF_FIRST * first, first)):
        return None
    length = lasting
    excursion = _exploded_at_once(losses, steps) if start.is_in_window else None
    while length <= count - MIN_BEFORE:
        level = float(np.median(losses[max(count - length - max(BEFORE, length), 0) : count - length]))
        is_far = current - level >= (FACTOR - 1) * abs(level)
        if is_far and current >= least_level and (may_have_exploded or _has_come_down(first, lowest, 0.0)):
            excursion = _rise_at(losses, steps, count - length, limit, first) or excursion
        length = max(length + 2, int(1.3 * length))
    return excursion


def _exploded_at_once(losses: Floats, steps: Ints) -> Excursion | None:
    """Returns the rise of a loss that exploded in the first steps, without earlier losses to compare with."""
    first = float(losses[:STARTED].min())
    current = float(np.median(losses[-LAST:]))
    if first <= 0 or current < EXPLODED * first or _falls(losses[STARTED:]):
        return None
    low = np.flatnonzero(losses <= FACTOR * first)
    begin = int(low[-1]) + 1 if len(low) else 0
    if begin > MIN_BEFORE:
        return None
    size = 0.1 * first
    stretch = _Stretch(losses[begin:], losses[:begin], steps[begin:], first, size, current)
    if not _explodes(stretch):
        return None
    return Excursion(begin, len(losses), len(losses) - 1, first, current, (current - first) / size)


def has_exploded(excursion: Excursion) -> bool:
    """Whether the rise is too large to be explained by a schedule or by new data."""
    return excursion.level > 0 and excursion.value >= EXPLODED * excursion.level


def _rise_at(losses: Floats, steps: Ints, begin: int, limit: float, first: float) -> Excursion | None:
    after = losses[begin:]
    before = losses[max(begin - max(BEFORE, len(after)), 0) : begin]
    level = float(np.median(before))
    size = max(float(spread(before)), 1e-3 * abs(level), 1e-12)
    current = float(np.median(after[-LAST:]))
    if current - level < (FACTOR - 1) * usual_range(losses[:begin]) / FACTOR:
        return None
    if ((after - level) / size > limit).mean() < 0.95:
        return None
    begin = _rise_begin(losses[:begin], level + limit * size)
    stretch = _Stretch(losses[begin:], losses[:begin], steps[begin:], level, size, current)
    if not _diverges(stretch, first):
        return None
    return Excursion(begin, len(losses), len(losses) - 1, level, current, (current - level) / size)


def _diverges(stretch: _Stretch, first: float) -> bool:
    if not len(stretch.earlier) or _falls(stretch.after):
        return False
    blocks = _block_medians(stretch.earlier, min(LASTING, len(stretch.earlier)))
    highest, lowest = max(first, float(blocks.max())), float(np.quantile(blocks, 0.1))
    if stretch.current >= HIGH * highest and _explodes(stretch):
        return True
    took = _steps_until(stretch, stretch.level + (FACTOR - 1) * abs(stretch.level))
    is_quick = took <= DOUBLES_WITHIN and not _falls_in_between(stretch.after)
    if not is_quick or not _has_come_down(first, lowest, stretch.size):
        return False
    count = len(stretch.after)
    is_growing = stretch.current >= highest and _grows(stretch.after)
    is_high = stretch.current >= HIGH * highest and count >= MIN_HIGH
    is_flat = count >= MIN_FLAT and took <= JUMPS_WITHIN and stretch.current >= SHARE_OF_FIRST * first
    is_flat = is_flat and not _falls(stretch.after, FLAT)
    return is_growing or is_high or (is_flat and not _was_as_high(stretch))


def _has_come_down(first: float, level: float, size: float) -> bool:
    return first - level >= max(FALLEN * abs(first), FELL_BY * size)


def _explodes(stretch: _Stretch) -> bool:
    # Compare with the level right before it: a loss that rises slowly was much lower long ago.
    near = stretch.earlier[-MIN_BEFORE:]
    level = max(stretch.level, float(np.median(near)) if len(near) else stretch.level)
    if level <= 0 or stretch.current < EXPLODED * level or len(stretch.after) < LASTING:
        return False
    return _steps_until(stretch, EXPLODED * level) <= EXPLODED_WITHIN


def _steps_until(stretch: _Stretch, value: float) -> int:
    """Returns how many steps after the begin of the rise the median of three losses reached a value."""
    after = stretch.after
    if len(after) >= 3:
        after = np.median(np.lib.stride_tricks.sliding_window_view(after, 3), axis=1)
    reached = np.flatnonzero(after >= value)
    return int(stretch.steps[reached[0]] - stretch.steps[0]) if len(reached) else np.iinfo(np.int64).max


def _falls(after: Floats, share: float = FALLS) -> bool:
    """Whether the loss is falling again."""
    third = max(len(after) // 3, 1)
    return float(np.median(after[-third:])) < share * float(np.median(after[:third]))


def _falls_in_between(after: Floats) -> bool:
    """Whether the loss fell clearly at any time, as it does after new data: then it still learns."""
    if len(after) < PARTS:
        return False
    parts = np.array([np.median(part) for part in np.array_split(after, PARTS)])
    return bool((parts < FELL * np.maximum.accumulate(parts)).any())


def _grows(after: Floats) -> bool:
    """Whether the loss still grows in the second half of the stretch."""
    quarters = [float(np.median(quarter)) for quarter in np.array_split(after, 4)]
    if min(quarters) <= 0:
        return quarters[0] < quarters[1] < quarters[2] < quarters[3]
    early, late = np.log(quarters[1] / quarters[0]), np.log(quarters[3] / quarters[2])
    return bool(late >= np.log(GROWS) and late >= 0.5 * early)


def _rise_begin(earlier: Floats, limit: float) -> int:
    """Returns the place after the last two losses in a row that are below the limit."""
    usual = earlier <= limit
    together = np.flatnonzero(usual[1:] & usual[:-1])
    return int(together[-1]) + 2 if len(together) else 0


def _was_as_high(stretch: _Stretch) -> bool:
    """Whether the loss has been as high before, after it had come down: then it may come down again."""
    earlier, level = stretch.earlier, stretch.level
    low = np.flatnonzero(_block_medians(earlier, LASTING) <= level + 0.1 * abs(level))
    since = earlier[len(earlier) % LASTING :][int(low[0]) * LASTING :] if len(low) else earlier
    return bool(np.sort(since)[-min(3, len(since))] >= 0.7 * stretch.current) if len(since) else False


def _block_medians(values: Floats, size: int) -> Floats:
    """Returns the median of each block of that size; none where there is no whole block."""
    blocks: Floats = np.median(values[len(values) % size :].reshape(-1, size), axis=1)
    return blocks
