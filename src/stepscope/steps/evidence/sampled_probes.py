"""Reads probes that cost almost nothing at the end of sampled steps, within a fixed share of the time.

Each probe has a file of its own beside this one.
"""

from __future__ import annotations

from contextlib import suppress
from math import ceil
from time import perf_counter_ns
from typing import TYPE_CHECKING, NamedTuple, Protocol

from stepscope.model_stats.random_sampling import EXTRA_COST_NS
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
    from stepscope.steps.memory.out_of_memory import WatchedObjects

SHARE = 0.0002
"""Share of the training thread's time that reading all probes may take."""

FIRST_COST_S = 200e-6
"""Assumed cost of a reading until it is measured; it is high, because caches are cold after a step."""

_GOLDEN = 0.6180339887498949


class Probe(Protocol):
    """Something that can be read at the end of a step."""

    def read(self, steps: int) -> Mapping[str, float]:
        """Its values for the last `steps` steps."""

    def close(self) -> None:
        """Undoes its setup."""


class SampledProbes:
    """An observer of steps that reads all probes so rarely that it keeps to its share of the time.

    Intervals between readings vary by half in either direction: equal ones could coincide with what a loop
    does every N steps.

    A probe whose new values belong to the current step calls `mark_changed`, and is read when that step ends.
    """

    def __init__(
        self,
        guard: Guard,
        now_ns: Callable[[], int] = perf_counter_ns,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        self._guard, self._now_ns, self._on_change = guard, now_ns, on_change
        self._probes: list[Probe] = []
        self._changed: list[Probe] = []
        self.due = 1
        self._stride = 1
        self._read_ns: int | None = None
        self._typical_cost_ns = FIRST_COST_S * 1e9
        self._turn = 0.0

    def add(self, probe: Probe) -> None:
        """Adds a probe."""
        self._probes.append(probe)

    def mark_changed(self, probe: Probe) -> None:
        """Has a probe read when the current step ends; may be called in any thread."""
        if probe not in self._changed:
            self._changed.append(probe)
        self._on_change()

    def read_changed(self) -> Mapping[str, float]:
        """Values of the probes that have called `mark_changed`."""
        return self._read(self._changed, 1)

    def after_step(self, step: int) -> Mapping[str, float]:
        """Values of all probes; sets `due` to the number of steps until the next reading."""
        began = self._now_ns()
        values = self._read(self._probes, self._stride)
        self._plan(began, self._now_ns())
        return values

    def close(self) -> None:
        """Closes all probes."""
        for probe in self._probes:
            probe.close()
        self._probes.clear()

    def _read(self, probes: list[Probe], steps: int) -> dict[str, float]:
        values: dict[str, float] = {}
        for probe in tuple(probes):
            if probe not in self._probes:
                continue  # switched off; its callback may still call `mark_changed`
            try:
                values.update(probe.read(steps))
            except Exception as error:  # noqa: BLE001 - a failing probe must not stop the others
                self._probes.remove(probe)
                with suppress(Exception):
                    probe.close()
                name = type(probe).__name__
                self._guard.complain(f"observer {name}", f"{name} is switched off: {error!r}", error)
        self._changed.clear()
        return values

    def _plan(self, began_ns: int, ended_ns: int) -> None:
        """Sets after how many steps the next reading is due, from the times of readings and steps."""
        took = ended_ns - began_ns + EXTRA_COST_NS
        # Slow readings count little: the first one runs cold, and a thread may be preempted.
        self._typical_cost_ns = (
            0.5 * (self._typical_cost_ns + took)
            if took < self._typical_cost_ns
            else 1.25 * self._typical_cost_ns
        )
        self._turn = (self._turn + _GOLDEN) % 1.0
        pause_steps = 1.0  # the first reading has nothing to compare with, so the next step is read, too
        if self._read_ns is not None:
            step_ns = max(began_ns - self._read_ns, 1) / self._stride
            pause_steps = self._typical_cost_ns / SHARE / step_ns * (0.5 + self._turn)
        self._read_ns = ended_ns
        self.due = self._stride = max(ceil(pause_steps), 1)


class TrainingProbes(NamedTuple):
    """The observer of steps, and those of its probes that other code calls."""

    probes: SampledProbes
    loader: LoaderQueue
    training_setup: TrainingSetup


def training_probes(
    torch: ModuleType,
    watched_objects: WatchedObjects,
    record_event: Callable[..., None],
    guard: Guard,
    on_change: Callable[[], None] = lambda: None,
    now_ns: Callable[[], int] = perf_counter_ns,
) -> TrainingProbes:
    """Creates all probes of a training; `on_change` is called when a probe has called `mark_changed`."""
    probes = SampledProbes(guard, now_ns, on_change)
    loader = LoaderQueue(record_event)
    training_setup = TrainingSetup(torch, watched_objects, record_event, mark_changed=probes.mark_changed)
    probes.add(ThreadTime())
    probes.add(loader)
    probes.add(BatchSize(watched_objects.batch))
    probes.add(GarbagePauses(probes.mark_changed))
    probes.add(CompileCounts(record_event, probes.mark_changed))
    if torch.cuda.is_available():
        probes.add(AllocatorFigures(cuda_counters(torch)))
    probes.add(training_setup)
    return TrainingProbes(probes, loader, training_setup)
