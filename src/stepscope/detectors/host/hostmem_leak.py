"""Detects memory of a process on the host that grows without end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

from stepscope.analysis.leak_finding import Readings, examine_growth
from stepscope.analysis.memory_growth import HOST_LIMITS, MIN_READINGS, PROCESS_KEYS
from stepscope.config.bounds import Range
from stepscope.detectors.base import Detector
from stepscope.schema.finding import Remedy
from stepscope.schema.keys import STEP_SECONDS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from stepscope.schema.finding import Finding
    from stepscope.schema.window import MachineFigures, RankWindow, Window

IN_THE_LOOP = (
    Remedy(
        "Look for a list or dictionary that grows in the loop. Keep numbers instead of tensors.",
        "losses.append(loss.item())                 # or loss.detach(); loss itself keeps its whole graph",
        "PyTorch",
    ),
    Remedy(
        "Compare two snapshots of Python's memory: the lines that allocated more are at the top.",
        "tracemalloc.start()\nbefore = tracemalloc.take_snapshot()      # and again some steps later\n"
        "print(tracemalloc.take_snapshot().compare_to(before, 'lineno')[:10])",
    ),
)
IN_A_WORKER = (
    Remedy(
        "Keep the samples of a dataset in arrays. A worker that reads Python objects copies their pages, "
        "because it counts references in them.",
        "self.paths = numpy.array(paths)            # instead of a list of strings",
        "PyTorch",
    ),
    Remedy("Look for a cache in the dataset or its transforms that is never emptied."),
)


@dataclass(frozen=True)
class HostMemoryLeak(Detector):
    """Fits a line to the memory of each process: of the ranks and of their loader workers."""

    id: ClassVar[str] = "hostmem.leak"
    title: ClassVar[str] = "Memory of the host leaks"
    sentence: ClassVar[str] = (
        "the memory of a process grows steadily, and will be full before the run ends; if the end is not "
        "known, within a day or as long again as the run has lasted"
    )
    requires: ClassVar[tuple[tuple[str, ...], ...]] = (PROCESS_KEYS,)
    reads: ClassVar[tuple[str, ...]] = tuple(HOST_LIMITS)
    courses: ClassVar[tuple[str, ...]] = (*PROCESS_KEYS, *HOST_LIMITS, STEP_SECONDS)
    min_steps: ClassVar[int] = 0
    in_steady_state: ClassVar[bool] = False
    for_each_rank: ClassVar[bool] = False
    explains: ClassVar[tuple[str, ...]] = ("hostmem.limit",)

    least_bytes: Annotated[float, Range(0)] = 64 * 2.0**20
    """Minimum growth while it was observed, in bytes; 1% of the limit if that is less."""

    def examine(self, rank: RankWindow, window: Window) -> Finding | str:
        """Examines every process, and reports the one whose memory will be full first."""
        return examine_growth(self, window, list(_readings(rank, window)), self.least_bytes)


def _readings(rank: RankWindow, window: Window) -> Iterator[Readings]:
    begin = _first_step_time(rank)
    for figures in _one_for_each_process(window, begin):
        is_worker = bool(figures.device)
        # Memory that the set-up takes before the first step is not a leak.
        inside = figures.times >= begin
        yield Readings(
            figures,
            figures.times[inside],
            figures.values[inside],
            None,
            f"Memory of {figures.device}" if is_worker else "Process memory",
            {
                name: min(float(total.values[-1]) for total in totals)
                for name in HOST_LIMITS
                if (totals := window.figures(name, figures.host))
            },
            IN_A_WORKER if is_worker else IN_THE_LOOP,
        )


def _one_for_each_process(window: Window, begin: float) -> Collection[MachineFigures]:
    """Returns the memory of each process: its own, or that with what it shares, which is read more often."""
    chosen: dict[tuple[str, int | None, str], MachineFigures] = {}
    for key in PROCESS_KEYS:
        for figures in (figures for figures in window.machine if figures.key == key):
            process = (figures.host, figures.rank, figures.device)
            if process not in chosen or int((chosen[process].times >= begin).sum()) < MIN_READINGS:
                chosen[process] = figures
    return chosen.values()


def _first_step_time(rank: RankWindow) -> float:
    """Returns when the first step of the segment ended; 0 if there are no steps."""
    course = rank.course.get(STEP_SECONDS)
    if course is not None and len(course):
        return float(course.times[0])
    return float(rank.times[min(rank.warm_up, len(rank.times) - 1)]) if len(rank.times) else 0.0
