"""Selects the summaries of a run's series by key, rank, device and axis."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepscope.schema.keys import LOSS_KEYS
from stepscope.views.steps.workload import STEP_KEYS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from stepscope.store.base import SeriesSummary

HostDevice = tuple[str, str]
"""Host name and device id."""


class SeriesSummaries:
    """The summaries of all series of a run; a rank or device has one for each segment."""

    def __init__(self, summaries: Iterable[SeriesSummary]) -> None:
        self._by_key: dict[str, list[SeriesSummary]] = {}
        for summary in summaries:
            self._by_key.setdefault(summary.key, []).append(summary)

    def __contains__(self, key: str) -> bool:
        return key in self._by_key

    @property
    def keys(self) -> list[str]:
        """All keys of the run."""
        return list(self._by_key)

    def logged(self, key: str, rank: int | None = None) -> list[SeriesSummary]:
        """Returns what ranks logged under a key, of one rank or of all, oldest segment first."""
        logged = [
            summary
            for summary in self._by_key.get(key, ())
            if summary.source.axis == "step"
            and not summary.source.device
            and (rank is None or summary.source.rank == rank)
        ]
        return sorted(logged, key=lambda summary: summary.last_ns)

    def ranks(self, key: str) -> list[int]:
        """Returns the ranks that logged a key."""
        return sorted(
            {summary.source.rank for summary in self.logged(key) if summary.source.rank is not None}
        )

    def by_first_rank(self, key: str) -> list[SeriesSummary]:
        """Returns what the lowest rank logged under a key; the other ranks do the same steps."""
        ranks = self.ranks(key)
        return self.logged(key, ranks[0]) if ranks else self.logged(key)

    def with_minimum(self, key: str) -> SeriesSummary | None:
        """Returns the series of the lowest rank with the smallest finite value, which is its best loss.

        A value counts even if a resumed run did its step again.
        """
        known = [summary for summary in self.by_first_rank(key) if summary.minimum is not None]
        return min(known, key=lambda summary: summary.minimum or 0.0, default=None)

    def sampled(self, key: str) -> list[SeriesSummary]:
        """Returns what was sampled on hosts under a key."""
        return [summary for summary in self._by_key.get(key, ()) if summary.source.axis == "seconds"]

    def total(self, key: str) -> tuple[float, int]:
        """Returns the sum of all that ranks logged under a key, and the number of values."""
        logged = self.logged(key)
        return sum(summary.total for summary in logged), sum(summary.finite for summary in logged)

    def mean_by_device(self, key: str) -> dict[HostDevice, float]:
        """Returns the mean of what was sampled on each device."""
        sums: dict[HostDevice, list[float]] = {}
        for summary in self.sampled(key):
            if summary.finite > 0:
                device_sums = sums.setdefault((summary.source.host, summary.source.device), [0.0, 0.0])
                device_sums[0] += summary.total
                device_sums[1] += summary.finite
        return {host_device: total / count for host_device, (total, count) in sums.items()}

    def max_by_device(self, key: str) -> dict[HostDevice, float]:
        """Returns the maximum that was sampled on each device or logged on each host."""
        maxima: dict[HostDevice, float] = {}
        for summary in self._by_key.get(key, ()):
            if summary.maximum is not None:
                host_device = summary.source.host, summary.source.device
                maxima[host_device] = max(maxima.get(host_device, summary.maximum), summary.maximum)
        return maxima

    def step_key(self) -> str | None:
        """Returns the key logged once a step: step time or loss, otherwise the most frequent key."""
        known = next((key for key in STEP_KEYS if self.logged(key)), None)
        if known is not None:
            return known
        counts = {key: sum(summary.points for summary in self.by_first_rank(key)) for key in self._by_key}
        return max((key for key, count in counts.items() if count), key=counts.__getitem__, default=None)

    def loss_key(self) -> str | None:
        """Returns the key of the loss: a usual name first, otherwise a key that ends like one."""
        known = next((key for key in LOSS_KEYS if self.logged(key)), None)
        if known is not None:
            return known
        candidates = [key for key in self._by_key if is_loss(key) and self.logged(key)]
        return min(candidates, key=lambda key: (is_evaluation(key), len(key), key), default=None)


def is_loss(key: str) -> bool:
    """Returns whether a key is named like a loss."""
    name = key.rpartition("/")[2].lower()
    return name in ("loss", "nll", "cross_entropy") or name.endswith(("_loss", ".loss", "-loss"))


def is_evaluation(key: str) -> bool:
    """Returns whether a key is named like a result of an evaluation."""
    words = key.lower().replace("/", "_").replace("-", "_").replace(".", "_").split("_")
    return not {"val", "valid", "validation", "eval", "evaluation", "test", "dev"}.isdisjoint(words)
