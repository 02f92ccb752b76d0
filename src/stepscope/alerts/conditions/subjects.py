"""Finds whom a condition is about: the ranks, hosts and devices that its metrics tell of."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from stepscope.alerts.conditions.history import Subject

if TYPE_CHECKING:
    from collections.abc import Iterable

    from stepscope.alerts.conditions.history import History
    from stepscope.alerts.conditions.tree import Expression, Name

RUN = Subject()
"""The run as a whole."""


def subjects_of(expression: Expression, history: History) -> list[Subject]:
    """Everybody a condition can be judged for, in order; only the run, where it names no metric.

    What is told of something broader, such as a host, counts for each narrower one, such as its GPUs. Ranks
    are paired with the GPUs they are known to use, and where that is not known, with all of their host.
    """
    if not expression.metrics:
        return [RUN]
    # Conditions are judged twice a second; who there is changes a few times in a run.
    known = history.subjects.get(expression.metrics)
    if known is None:
        known = history.subjects[expression.metrics] = _found(expression.metrics, history)
    return known


def _found(metrics: tuple[Name, ...], history: History) -> list[Subject]:
    found: set[Subject] = set()
    for name in metrics:
        found = _joined(found, _told_of(name, history), history) if found else _told_of(name, history)
    return sorted(found, key=lambda one: (one.host, -1 if one.rank is None else one.rank, one.device))


def _told_of(name: Name, history: History) -> set[Subject]:
    return {subject for key in name.either for subject in history.of(key)}


def _joined(these: set[Subject], those: set[Subject], history: History) -> set[Subject]:
    """All that fit together, and those that nothing fits."""
    if these == those:
        return these
    found: set[Subject] = set()
    lonely = set(those)
    by_host: dict[str, list[Subject]] = {}
    for other in those:
        by_host.setdefault(other.host, []).append(other)
    for one in these:
        fitting = {one: one} if one in those else _fitting(one, by_host, history)
        found.update(_narrowest(fitting.values()) if fitting else {one})
        lonely.difference_update(fitting)
    return found | lonely


def _fitting(one: Subject, by_host: dict[str, list[Subject]], history: History) -> dict[Subject, Subject]:
    """Those that one can be joined with, and what that makes."""
    near = [*by_host.get(one.host, ()), *by_host.get("", ())] if one.host else chain(*by_host.values())
    pairs = ((other, one.joined(other)) for other in near)
    return {other: pair for other, pair in pairs if pair is not None and history.is_pair(pair)}


def _narrowest(pairs: Iterable[Subject]) -> set[Subject]:
    """Without those that cover another one: the whole of a host beside one of its disks."""
    several = set(pairs)
    return {one for one in several if not any(one != other and one.covers(other) for other in several)}
