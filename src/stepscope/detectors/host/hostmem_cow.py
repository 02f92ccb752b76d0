"""Detects loader workers that copy the Python objects of a dataset, which they could share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, NamedTuple

import numpy as np

from stepscope.analysis.memory_growth import HOST_LIMITS
from stepscope.analysis.wording import percent
from stepscope.config.bounds import Range
from stepscope.detectors.base import MachineDetector, TooLittleEvidence
from stepscope.number_format import number, size
from stepscope.schema.finding import NOTICE, Chart, Evidence, Finding, Remedy

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stepscope.schema.finding import Severity
    from stepscope.schema.window import MachineFigures, RankWindow, Window

LOADER_EVENT = "loader"
OWN, ALL = "process/uss_bytes", "process/rss_bytes"
"""Memory of a process that no other one shares, and including what it shares."""

FLAT = 0.25
"""Copies do not change the memory that a process uses: it may grow by at most this part of its own memory."""


class _Worker(NamedTuple):
    """The memory of one worker, in bytes."""

    own: float
    """The most that it had for itself."""
    own_growth: float
    growth: float
    """How much more it used at most than at the first reading, including what it shares."""


@dataclass(frozen=True)
class CopiedObjects(MachineDetector):
    """Compares the memory that only a worker has with all that it uses, which copying does not change."""

    id: ClassVar[str] = "hostmem.cow"
    title: ClassVar[str] = "Loader workers copy the dataset"
    sentence: ClassVar[str] = (
        "the dataset of forked loader workers is a large collection of Python objects, and workers have as "
        "much memory of their own, while what they use in all hardly grows; or their own memory has grown so "
        "by twice as much"
    )
    requires: ClassVar[tuple[tuple[str, ...], ...]] = ((ALL,),)
    reads: ClassVar[tuple[str, ...]] = (OWN, *HOST_LIMITS)
    courses: ClassVar[tuple[str, ...]] = (ALL, OWN)
    events: ClassVar[tuple[str, ...]] = (LOADER_EVENT,)

    least_bytes: Annotated[float, Range(0)] = 64 * 2.0**20
    """Minimum size of the copies of a typical worker, in bytes."""

    least_share: Annotated[float, Range(0, 1)] = 0.2
    """Minimum share of the memory of the host or container that complete copies would take, for a warning."""

    def examine(self, rank: RankWindow, window: Window) -> Finding | str:
        """Examines the workers of each rank, and reports the rank whose workers copy most."""
        loaders = {each.rank: _forked_loader(window, each.rank) for each in window.ranks}
        if not any(loaders.values()):
            return "No loader has workers that were forked."
        copies: list[tuple[float, RankWindow, list[_Worker]]] = []
        reasons: list[str] = []
        for each in window.ranks:
            loader = loaders[each.rank]
            if loader is None:
                continue
            workers = _workers(window, each)
            copied = self._copied(loader, workers) if workers else "Needs the memory that only a worker has."
            if isinstance(copied, str):
                reasons.append(copied if workers else TooLittleEvidence(copied))
            else:
                copies.append((copied, each, workers))
        if not copies:
            return reasons[0]
        copied, worst, workers = max(copies, key=lambda item: item[0])
        return self._finding(window, worst, loaders[worst.rank] or {}, copied, workers)

    def _copied(self, loader: Mapping[str, Any], workers: list[_Worker]) -> float | str:
        """Returns the bytes that a typical worker has copied; or why they are no copies."""
        objects = loader.get("python_objects")
        if objects is not None:
            sizes = [min(worker.own - worker.growth, float(objects["bytes"])) for worker in workers]
            least = self.least_bytes
        else:
            sizes = [worker.own_growth - worker.growth for worker in workers]
            least = 2 * self.least_bytes
        own = float(np.median([worker.own for worker in workers]))
        grown = float(np.median([worker.growth for worker in workers]))
        copied = float(np.median(sizes))
        if copied < least:
            return f"Workers have copied {size(max(copied, 0.0))} each; threshold: {size(least)}."
        if grown > FLAT * own:
            return f"Workers use {size(grown)} more than in the beginning: they keep objects of their own."
        return copied

    def _finding(
        self,
        window: Window,
        rank: RankWindow,
        loader: Mapping[str, Any],
        copied: float,
        workers: list[_Worker],
    ) -> Finding:
        objects = loader.get("python_objects")
        together = copied * int(loader["num_workers"])
        limits = [
            float(figures.values[-1]) for name in HOST_LIMITS for figures in window.figures(name, rank.host)
        ]
        projected = together if objects is None else float(objects["bytes"]) * int(loader["num_workers"])
        share = projected / min(limits) if limits else None
        dataset = f"`{loader.get('dataset')}`"
        what = dataset if objects is None else f"`{objects['place']}` of {dataset}"
        times = [
            figures.times for figures in window.machine if figures.key == OWN and figures.rank == rank.rank
        ]
        evidence = [
            Evidence("copied by a worker", size(copied), f"median of {len(workers)} workers"),
            Evidence("copied by all workers", size(together), "until now"),
            *(
                (Evidence("copies in the end", size(projected), f"{percent(share)} of the memory"),)
                if share is not None
                else ()
            ),
            Evidence(
                "growth of what a worker uses", size(max(float(np.median([w.growth for w in workers])), 0.0))
            ),
        ]
        if objects is not None:
            count = f"{number(objects['count'])} objects"
            evidence.append(
                Evidence("Python objects", size(objects["bytes"]), f"{objects['kind']} of {count}")
            )
        return Finding(
            id=self.id,
            title=self.title,
            headline=f"Each of {len(workers)} loader workers has copied up to {size(copied)} of {what}.",
            detail="A forked worker shares the memory of the training until one of them writes to it. "
            "Reading a Python object counts a reference in it, so each worker copies each page of a "
            "collection of objects once. Their memory grows until they have read everything.",
            severity=self._severity(share),
            confidence=0.9 if objects is not None else 0.7,
            first_time=float(min(each[0] for each in times)),
            last_time=float(max(each[-1] for each in times)),
            rank=rank.rank if len(window.ranks) > 1 else None,
            evidence=tuple(evidence),
            chart=Chart((OWN, ALL)),
            ruled_out=("A cache in the workers: it would add to the memory that they use.",),
            remedies=_remedies(None if objects is None else str(objects["place"])),
            tries=("keep samples in arrays",),
            how="The memory that no other process shares, without what the worker uses more than at its "
            "first reading; at most the estimated size of the collection.",
            refs=("https://github.com/pytorch/pytorch/issues/13246",),
        )

    def _severity(self, share: float | None) -> Severity:
        """How much copies matter that will take this share of the memory of the host."""
        if share is not None and share >= self.least_share:
            return "warning"
        return "info" if share is not None and share < NOTICE else "notice"


def _forked_loader(window: Window, rank: int) -> Mapping[str, Any] | None:
    """Returns the loader of a rank with most objects among those with forked workers."""
    forked = [
        event.fields
        for event in window.events_of(LOADER_EVENT, rank)
        if event.fields.get("start_method") == "fork" and event.fields.get("num_workers")
    ]
    return max(forked, key=lambda fields: (fields.get("python_objects") or {}).get("bytes", 0), default=None)


def _workers(window: Window, rank: RankWindow) -> list[_Worker]:
    own, used = (_of_workers(window, rank, key) for key in (OWN, ALL))
    return [
        _Worker(
            float(own[name].values.max()),
            float(own[name].values[-1] - own[name].values[0]),
            float(max(used[name].values.max() - used[name].values[0], 0.0)),
        )
        for name in own.keys() & used.keys()
    ]


def _of_workers(window: Window, rank: RankWindow, key: str) -> dict[str, MachineFigures]:
    figures = window.figures(key, rank.host, rank.rank)
    return {each.device: each for each in figures if each.device.startswith("loader-")}


def _remedies(place: str | None) -> tuple[Remedy, ...]:
    name = place or "paths"
    return (
        Remedy(
            "Keep the samples in arrays or tensors instead of lists and dictionaries: these have one "
            "reference count for all values.",
            f"self.{name} = numpy.array({name})            # one array for each field of a record",
            "PyTorch",
        ),
        Remedy(
            "Keep records with several fields in a table that is mapped into memory.",
            "dataset = datasets.load_from_disk(path)      # or pyarrow.memory_map, for tables of one's own",
        ),
        Remedy("Use fewer workers: each has a copy of its own."),
    )
