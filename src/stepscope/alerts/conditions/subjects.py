"""The subjects of a condition: the ranks, hosts and devices that have its metrics."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from stepscope.alerts.conditions.run_history import History
    from stepscope.alerts.conditions.tree import Expression, Name


class Subject(NamedTuple):
    """The rank, host or device that a series belongs to; what does not apply is None or empty."""

    rank: int | None = None
    host: str = ""
    device: str = ""

    def covers(self, other: Subject) -> bool:
        """Whether its series apply to the other subject as well: it has no label that differs."""
        return (
            self.rank in (None, other.rank)
            and self.host in ("", other.host)
            and self.device in ("", other.device)
        )

    def joined(self, other: Subject) -> Subject | None:
        """Returns the labels of both; None if they contradict each other."""
        if not (
            (self.rank is None or other.rank is None or self.rank == other.rank)
            and (not self.host or not other.host or self.host == other.host)
            and (not self.device or not other.device or self.device == other.device)
        ):
            return None
        rank = other.rank if self.rank is None else self.rank
        return Subject(rank, self.host or other.host, self.device or other.device)

    def from_narrow_to_broad(self) -> Iterator[Subject]:
        """Yields itself, then all subjects that cover it."""
        yield self
        rank, host, device = self
        yield from (Subject(rank, host), Subject(None, host, device), Subject(rank, "", device))
        yield from (Subject(None, host), Subject(rank), Subject(None, "", device), Subject())


RUN = Subject()
"""The run as a whole."""


def subjects_of(expression: Expression, history: History) -> list[Subject]:
    """Returns all subjects of a condition, in order; only the run itself if it names no metric.

    A metric of a host applies to each of its GPUs as well. Ranks are paired with the GPUs that they are known
    to use, or with all GPUs of their host if that is unknown.
    """
    if not expression.metrics:
        return [RUN]
    # Conditions are evaluated twice a second; their subjects change a few times in a run.
    subjects = history.subjects.get(expression.metrics)
    if subjects is None:
        subjects = history.subjects[expression.metrics] = _find_subjects(expression.metrics, history)
    return subjects


def _find_subjects(metrics: tuple[Name, ...], history: History) -> list[Subject]:
    subjects: set[Subject] = set()
    for name in metrics:
        of_metric = {subject for key in name.either for subject in history.of(key)}
        subjects = _joined(subjects, of_metric, history) if subjects else of_metric
    return sorted(
        subjects,
        key=lambda subject: (subject.host, -1 if subject.rank is None else subject.rank, subject.device),
    )


def _joined(left: set[Subject], right: set[Subject], history: History) -> set[Subject]:
    """Joins the subjects of both sets that fit together, and keeps those without a match."""
    if left == right:
        return left
    joined: set[Subject] = set()
    unmatched = set(right)
    by_host: dict[str, list[Subject]] = {}
    for subject in right:
        by_host.setdefault(subject.host, []).append(subject)
    for subject in left:
        matches = {subject: subject} if subject in right else _matches(subject, by_host, history)
        joined.update(_narrowest(matches.values()) if matches else {subject})
        unmatched.difference_update(matches)
    return joined | unmatched


def _matches(subject: Subject, by_host: dict[str, list[Subject]], history: History) -> dict[Subject, Subject]:
    """Returns the subjects that this one can be joined with, and the joined subject of each."""
    host = subject.host
    near = [*by_host.get(host, ()), *by_host.get("", ())] if host else chain(*by_host.values())
    pairs = ((other, subject.joined(other)) for other in near)
    return {other: pair for other, pair in pairs if pair is not None and history.can_pair(pair)}


def _narrowest(subjects: Iterable[Subject]) -> set[Subject]:
    """Removes subjects that cover another one, such as a whole host beside one of its disks."""
    unique = set(subjects)
    return {
        subject
        for subject in unique
        if not any(subject != other and subject.covers(other) for other in unique)
    }
