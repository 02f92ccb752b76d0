"""Decides which log calls of a rank belong in one row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from stepscope.schema.series import Points

    Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Calls:
    """Steps and times, in the order logged: of the calls that logged a key, or of rows."""

    steps: Ints
    times_ns: Ints

    def is_that_of(self, points: Points) -> bool:
        """Whether a key was logged by these calls and no others."""
        if len(self.steps) != len(points) or self.times_ns[-1] != points.times_ns[-1]:
            return False
        return np.array_equal(self.times_ns, points.times_ns) and np.array_equal(self.steps, points.steps)

    def repeat_steps(self) -> bool:
        """Whether a step comes more than once."""
        if (np.diff(self.steps) > 0).all():
            return False
        return len(np.unique(self.steps)) < len(self.steps)


def line_up(distinct: Sequence[Calls]) -> tuple[Calls, list[Ints]]:
    """Rows, and for each series of calls the row that every call goes to.

    A row is filled with what is logged for its step until a key comes that it has already. Rows are in the
    order of their first call.
    """
    if len(distinct) < 2:
        return _alone(distinct)
    owners = np.repeat(np.arange(len(distinct)), [len(calls.steps) for calls in distinct])
    steps = np.concatenate([calls.steps for calls in distinct])
    times_ns = np.concatenate([calls.times_ns for calls in distinct])
    order = np.lexsort((owners, times_ns, steps))
    steps, times_ns = steps[order], times_ns[order]
    begins = np.r_[True, steps[1:] != steps[:-1]]
    if any(calls.repeat_steps() for calls in distinct):
        begins[_further_rows(steps, times_ns, owners[order])] = True
    firsts = np.flatnonzero(begins)
    by_time = np.argsort(times_ns[firsts], kind="stable")
    rank_of_row = np.empty(len(firsts), np.int64)
    rank_of_row[by_time] = np.arange(len(firsts))
    goes_to = np.empty(len(order), np.int64)
    goes_to[order] = rank_of_row[np.cumsum(begins) - 1]
    ends = np.cumsum([len(calls.steps) for calls in distinct])
    ordered = firsts[by_time]
    return Calls(steps[ordered], times_ns[ordered]), np.split(goes_to, ends[:-1])


def _alone(distinct: Sequence[Calls]) -> tuple[Calls, list[Ints]]:
    """Where all keys are logged together, every call is a row."""
    if not distinct:
        return Calls(np.empty(0, np.int64), np.empty(0, np.int64)), []
    return distinct[0], [np.arange(len(distinct[0].steps))]


def _further_rows(steps: Ints, times_ns: Ints, owners: Ints) -> list[int]:
    """Where further rows of a step begin, among calls sorted by step and time.

    What was logged in one moment is one call and stays together, unless a key is in it twice.
    """
    same = np.r_[False, (steps[1:] == steps[:-1]) & (times_ns[1:] == times_ns[:-1])]
    moment_begins = np.maximum.accumulate(np.where(same, 0, np.arange(len(steps))))
    order = np.lexsort((owners, steps))
    again = (steps[order][1:] == steps[order][:-1]) & (owners[order][1:] == owners[order][:-1])
    before, repeated = order[:-1][again], order[1:][again]
    in_turn = np.argsort(repeated)
    begin, found = -1, []
    for call, earlier in zip(repeated[in_turn].tolist(), before[in_turn].tolist(), strict=True):
        if earlier >= begin:
            moment = int(moment_begins[call])
            begin = moment if moment > earlier else call
            found.append(begin)
    return found
