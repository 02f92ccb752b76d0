"""Gathers what can be had for almost nothing at the end of steps, and keeps it that way."""

from __future__ import annotations

from math import ceil
from time import perf_counter_ns
from typing import TYPE_CHECKING, NamedTuple, Protocol

from stepscope.model_stats.chance import AROUND_NS
from stepscope.steps.evidence.allocator import AllocatorFigures, cuda_counters
from stepscope.steps.evidence.batch_contents import BatchSize
from stepscope.steps.evidence.compile_counts import CompileCounts
from stepscope.steps.evidence.garbage_pauses import GarbagePauses
from stepscope.steps.evidence.loader_queue import LoaderQueue
from stepscope.steps.evidence.thread_time import ThreadTime
from stepscope.steps.evidence.training_setup import TrainingSetup

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import ModuleType

    from stepscope.guard import Guard
    from stepscope.steps.memory.out_of_memory import Witness

SHARE = 0.0002
"""Of the training thread's time, for all looks together."""

USUAL_S = 200e-6
"""What a look is taken to cost until that is known: caches are cold after a step, and so it is no less."""

_GOLDEN = 0.6180339887498949


class Looker(Protocol):
    """Something that can be looked at now and then."""

    def look(self, steps: int) -> Mapping[str, float]:
        """Its figures of so many steps that have just ended."""

    def close(self) -> None:
        """Undoes what it did to be able to be looked at."""


class FreeEvidence:
    """An observer of steps that looks only so often that it takes its share of the time.

    Pauses between looks vary by half in either direction: even ones would fall in step with what a loop does
    every so many steps.

    Who has news that belong to the step in hand says so by `notice`, and is looked at when that step ends.
    """

    def __init__(
        self,
        guard: Guard,
        now_ns: Callable[[], int] = perf_counter_ns,
        hurry: Callable[[], None] = lambda: None,
    ) -> None:
        self._guard, self._now_ns, self._hurry = guard, now_ns, hurry
        self._lookers: list[Looker] = []
        self._news: list[Looker] = []
        self.due = 1
        self._stride = 1
        self._looked_ns: int | None = None
        self._usual_ns = USUAL_S * 1e9
        self._turn = 0.0

    def add(self, looker: Looker) -> None:
        """Looks at one thing more."""
        self._lookers.append(looker)

    def notice(self, looker: Looker) -> None:
        """Has it looked at when the step in hand ends; it may be called in any thread."""
        if looker not in self._news:
            self._news.append(looker)
        self._hurry()

    def news(self) -> Mapping[str, float]:
        """Figures of those that have something new."""
        return self._look(self._news, 1)

    def after_step(self, step: int) -> Mapping[str, float]:
        """Figures of all; called when it is due, it says how many steps on it is so again."""
        began = self._now_ns()
        found = self._look(self._lookers, self._stride)
        self._plan(began, self._now_ns())
        return found

    def close(self) -> None:
        """Lets go of everything."""
        for looker in self._lookers:
            looker.close()
        self._lookers.clear()

    def _look(self, lookers: list[Looker], steps: int) -> dict[str, float]:
        found: dict[str, float] = {}
        for looker in tuple(lookers):
            try:
                found.update(looker.look(steps))
            except Exception as error:  # noqa: BLE001 - one that fails must not take the others along
                self._lookers.remove(looker)
                name = type(looker).__name__
                self._guard.complain(f"observer {name}", f"{name} rests: {error!r}", error)
        self._news.clear()
        return found

    def _plan(self, began_ns: int, ended_ns: int) -> None:
        """Decides by what looks and steps take after how many steps the next look is due."""
        took = ended_ns - began_ns + AROUND_NS
        # Slow ones hardly count: the first finds nothing prepared, and a thread may be sent away meanwhile.
        self._usual_ns = 0.5 * (self._usual_ns + took) if took < self._usual_ns else 1.25 * self._usual_ns
        self._turn = (self._turn + _GOLDEN) % 1.0
        wanted = 1.0  # the first look has nothing to compare with, so the next step gets one too
        if self._looked_ns is not None:
            step_ns = max(began_ns - self._looked_ns, 1) / self._stride
            wanted = self._usual_ns / SHARE / step_ns * (0.5 + self._turn)
        self._looked_ns = ended_ns
        self.due = self._stride = max(ceil(wanted), 1)


class Gathered(NamedTuple):
    """The observer, and those of its parts that must be told something."""

    observer: FreeEvidence
    loader: LoaderQueue
    census: TrainingSetup


def gather(
    torch: ModuleType,
    witness: Witness,
    note: Callable[..., None],
    guard: Guard,
    hurry: Callable[[], None] = lambda: None,
    now_ns: Callable[[], int] = perf_counter_ns,
) -> Gathered:
    """Everything there is to look at in a training; `note` records an event, `hurry` is called at news."""
    evidence = FreeEvidence(guard, now_ns, hurry)
    loader, census = LoaderQueue(note), TrainingSetup(torch, witness, note)
    evidence.add(ThreadTime())
    evidence.add(loader)
    evidence.add(BatchSize(witness.batch))
    evidence.add(GarbagePauses(evidence.notice))
    evidence.add(CompileCounts(note, evidence.notice))
    if torch.cuda.is_available():
        evidence.add(AllocatorFigures(cuda_counters(torch)))
    evidence.add(census)
    return Gathered(evidence, loader, census)
