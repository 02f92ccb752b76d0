"""Sorts the summaries of a run's series by what is asked of them: whose, of which key, on which axis."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepscope.schema.keys import LOSS_KEYS
from stepscope.views.steps.workload import STEP_KEYS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from stepscope.store.base import SeriesSummary

HostDevice = tuple[str, str]
"""Host and device."""


class SeriesSummaries:
    """The summaries of a run; those of one rank or device over all its segments."""

    def __init__(self, summaries: Iterable[SeriesSummary]) -> None:
        self._by_key: dict[str, list[SeriesSummary]] = {}
        for summary in summaries:
            self._by_key.setdefault(summary.key, []).append(summary)

    def __contains__(self, key: str) -> bool:
        return key in self._by_key

    @property
    def keys(self) -> list[str]:
        """All keys there are."""
        return list(self._by_key)

    def logged(self, key: str, rank: int | None = None) -> list[SeriesSummary]:
        """What ranks logged under a key, by a rank or by all of them, oldest segment first."""
        logged = [
            summary
            for summary in self._by_key.get(key, ())
            if summary.source.axis == "step"
            and not summary.source.device
            and (rank is None or summary.source.rank == rank)
        ]
        return sorted(logged, key=lambda summary: summary.last_ns)

    def ranks(self, key: str) -> list[int]:
        """The ranks that logged a key."""
        return sorted(
            {summary.source.rank for summary in self.logged(key) if summary.source.rank is not None}
        )

    def by_first_rank(self, key: str) -> list[SeriesSummary]:
        """What the lowest rank logged under a key: the others do the same steps."""
        ranks = self.ranks(key)
        return self.logged(key, ranks[0]) if ranks else self.logged(key)

    def with_minimum(self, key: str) -> SeriesSummary | None:
        """Where the least finite value of the lowest rank is, in whichever segment: that is its best loss.

        Steps that a resumed run made again do not take the first ones back: both were made.
        """
        known = [summary for summary in self.by_first_rank(key) if summary.minimum is not None]
        return min(known, key=lambda summary: summary.minimum or 0.0, default=None)

    def read(self, key: str) -> list[SeriesSummary]:
        """What was read from machines under a key."""
        return [summary for summary in self._by_key.get(key, ()) if summary.source.axis == "seconds"]

    def total(self, key: str) -> tuple[float, int]:
        """The sum of all that ranks logged under a key, and of how many numbers."""
        logged = self.logged(key)
        return sum(summary.total for summary in logged), sum(summary.finite for summary in logged)

    def mean_by_device(self, key: str) -> dict[HostDevice, float]:
        """The mean of what was read of each device."""
        sums: dict[HostDevice, list[float]] = {}
        for summary in self.read(key):
            if summary.finite > 0:
                device_sums = sums.setdefault((summary.source.host, summary.source.device), [0.0, 0.0])
                device_sums[0] += summary.total
                device_sums[1] += summary.finite
        return {host_device: total / count for host_device, (total, count) in sums.items()}

    def max_by_device(self, key: str) -> dict[HostDevice, float]:
        """The greatest that was read of each device, or logged on each host."""
        maxima: dict[HostDevice, float] = {}
        for summary in self._by_key.get(key, ()):
            if summary.maximum is not None:
                host_device = summary.source.host, summary.source.device
                maxima[host_device] = max(maxima.get(host_device, summary.maximum), summary.maximum)
        return maxima

    def step_key(self) -> str | None:
        """What is logged once a step: its time, or the loss; else what was logged most often."""
        known = next((key for key in STEP_KEYS if self.logged(key)), None)
        if known is not None:
            return known
        counts = {key: sum(summary.points for summary in self.by_first_rank(key)) for key in self._by_key}
        return max((key for key, count in counts.items() if count), key=counts.__getitem__, default=None)

    def loss_key(self) -> str | None:
        """What people call the loss: the usual names first, then whatever ends like one."""
        known = next((key for key in LOSS_KEYS if self.logged(key)), None)
        if known is not None:
            return known
        candidates = [key for key in self._by_key if is_loss(key) and self.logged(key)]
        return min(candidates, key=lambda key: (is_evaluation(key), len(key), key), default=None)


def is_loss(key: str) -> bool:
    """Whether a key is named as a loss is."""
    name = key.rpartition("/")[2].lower()
    return name in ("loss", "nll", "cross_entropy") or name.endswith(("_loss", ".loss", "-loss"))


def is_evaluation(key: str) -> bool:
    """Whether a key is named as something found by an evaluation is."""
    words = key.lower().replace("/", "_").replace("-", "_").replace(".", "_").split("_")
    return not {"val", "valid", "validation", "eval", "evaluation", "test", "dev"}.isdisjoint(words)
