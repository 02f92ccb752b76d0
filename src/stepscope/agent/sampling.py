"""Polls samplers, each in its own thread, so that a driver call that hangs blocks nothing else."""

from __future__ import annotations

import functools
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stepscope import plugins
from stepscope.samplers.base import Sampler
from stepscope.schema.sample import Notice

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from stepscope.schema.sample import Reading, Watched

log = logging.getLogger("stepscope.agent")

SamplerFactory = Callable[[str, Mapping[str, object]], Sampler]

BUDGET_RATIO = 0.05
"""The share of one core a sampler may take before it is polled less often."""

MAX_INTERVAL_S = 600.0
HANGING_AFTER_S = 10.0
MAX_UNCOLLECTED = 10_000
"""Readings that wait to be collected; beyond it the oldest are dropped, so that memory stays bounded."""

_JOIN_S = 0.5


@dataclass(frozen=True)
class SamplerReadings:
    """The readings of one poll of a sampler, and when it was."""

    sampler: str
    time_ns: int
    readings: Sequence[Reading]


@dataclass(frozen=True)
class Cost:
    """What a sampler has cost so far."""

    polls: int
    cpu_seconds: float
    wall_seconds: float
    missed: int
    """Polls left out because the one before them took too long."""


class Poller:
    """One sampler and the thread that polls it."""

    def __init__(
        self, name: str, sampler: Sampler, interval_s: float, on_readings: Callable[[SamplerReadings], None]
    ) -> None:
        self.name = name
        self._sampler, self._on_readings = sampler, on_readings
        self._requested_s = self._interval_s = interval_s
        self._watched: Sequence[Watched] = ()
        self._is_paused = True
        self._polls = self._missed = 0
        self._cpu_s = self._wall_s = self._average_cpu_s = 0.0
        self._began_at: float | None = None
        self._is_hanging = False
        self._changed = threading.Event()
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name=f"stepscope-{name}", daemon=True)
        self._thread.start()

    @property
    def cost(self) -> Cost:
        """What it has cost so far."""
        return Cost(self._polls, self._cpu_s, self._wall_s, self._missed)

    def configure(self, interval_s: float, watched: Sequence[Watched]) -> None:
        """Sets how often to poll, and which processes are watched."""
        self._watched = watched
        if interval_s != self._requested_s or self._is_paused:
            self._requested_s = self._interval_s = interval_s
            self._is_paused = False
            self._changed.set()

    def check(self) -> None:
        """Emits a notice when a poll does not return."""
        began_at = self._began_at
        silent_s = 0.0 if began_at is None else time.monotonic() - began_at
        if silent_s > max(HANGING_AFTER_S, 10 * self._interval_s) and not self._is_hanging:
            self._is_hanging = True
            self._notify(
                "wedged", f"has not come back for {silent_s:.0f} s; a driver hangs; other samplers continue."
            )

    def pause(self) -> None:
        """Stops polling until it is configured again."""
        self._is_paused = True
        self._changed.set()

    def ask_to_stop(self) -> None:
        """Ends the thread after the current poll."""
        self._stopped = True
        self._changed.set()

    def join(self) -> None:
        """Waits a moment for the thread; one that hangs in a driver cannot be ended and is left running."""
        self._thread.join(_JOIN_S)

    def _run(self) -> None:
        due = time.monotonic()
        while not self._stopped:
            if self._is_paused:
                self._changed.wait()
                due = time.monotonic()
            elif (left := due - time.monotonic()) > 0:
                self._changed.wait(left)
            if self._changed.is_set():
                self._changed.clear()
                due = min(due, time.monotonic() + self._interval_s)
                continue
            self._poll()
            due += self._interval_s
            behind = int((time.monotonic() - due) / self._interval_s)
            if behind > 0:
                self._missed += behind
                due += behind * self._interval_s
        self._sampler.close()

    def _poll(self) -> None:
        began, began_cpu = time.monotonic(), time.thread_time()
        self._began_at = began
        time_ns = time.time_ns()
        try:
            readings = list(self._sampler.sample(self._watched))
        except Exception as error:
            log.exception("The sampler %s failed", self.name)
            readings = [Notice(f"{self.name}: failed", f"The sampler {self.name} failed: {error!r}")]
        self._began_at = None
        if self._is_hanging:
            self._is_hanging = False
            self._notify("wedged", "has come back.")
        self._on_readings(SamplerReadings(self.name, time_ns, readings))
        self._add_cost(time.thread_time() - began_cpu, time.monotonic() - began)

    def _add_cost(self, cpu_s: float, wall_s: float) -> None:
        """Adds up the cost, and polls less often where it is too high; the first poll opens devices."""
        self._polls += 1
        self._cpu_s += cpu_s
        self._wall_s += wall_s
        if self._polls == 1:
            return
        self._average_cpu_s = cpu_s if self._polls == 2 else 0.8 * self._average_cpu_s + 0.2 * cpu_s
        min_interval_s = min(self._average_cpu_s / BUDGET_RATIO, MAX_INTERVAL_S)
        if min_interval_s > self._interval_s and self._polls > 5:
            slower_s = min(max(2 * self._interval_s, min_interval_s), MAX_INTERVAL_S)
            self._notify(
                "slowed",
                f"took {self._average_cpu_s * 1e3:.1f} ms of processor time a poll, more than "
                f"{BUDGET_RATIO:.0%} of a core at one every {self._interval_s:g} s; "
                f"it is now polled every {slower_s:g} s.",
            )
            self._interval_s = slower_s

    def _notify(self, subject: str, what: str) -> None:
        notice = Notice(f"{self.name}: {subject}", f"The sampler {self.name} {what}")
        self._on_readings(SamplerReadings(self.name, time.time_ns(), [notice]))


class SamplerPool:
    """All samplers; each is created when a run first needs it, and paused while no run does."""

    def __init__(
        self,
        names: Sequence[str] | None = None,
        make: SamplerFactory | None = None,
        folder: Path | None = None,
    ) -> None:
        self.names = plugins.names("samplers") if names is None else names
        self._make = make or functools.partial(_make_sampler, folder)
        self._samplers: dict[str, Sampler] = {}
        self._pollers: dict[str, Poller] = {}
        self._readings: deque[SamplerReadings] = deque(maxlen=MAX_UNCOLLECTED)

    def usual_interval(self, name: str, options: Mapping[str, object]) -> float:
        """The default interval of a sampler, which is created with these options.

        Raises StepscopeError where the sampler or an option does not exist.
        """
        if name not in self._samplers:
            self._samplers[name] = self._make(name, options)
        return self._samplers[name].interval_s

    def configure(self, intervals: Mapping[str, float], watched: Sequence[Watched]) -> None:
        """Polls these samplers at these intervals, and pauses the others."""
        for name, interval_s in intervals.items():
            if name not in self._pollers:
                poller = Poller(name, self._samplers[name], interval_s, self._readings.append)
                self._pollers[name] = poller
            self._pollers[name].configure(interval_s, watched)
        for name in self._pollers.keys() - intervals.keys():
            self._pollers[name].pause()

    def collect(self) -> Iterator[SamplerReadings]:
        """All readings since the last call."""
        for poller in self._pollers.values():
            poller.check()
        while self._readings:
            yield self._readings.popleft()

    def costs(self) -> dict[str, Cost]:
        """What each sampler has cost so far."""
        return {name: poller.cost for name, poller in self._pollers.items()}

    def close(self) -> None:
        """Ends all threads that can be ended."""
        for poller in self._pollers.values():
            poller.ask_to_stop()
        for poller in self._pollers.values():
            poller.join()


def _make_sampler(folder: Path | None, name: str, options: Mapping[str, object]) -> Sampler:
    """Creates a sampler with the options of the settings, and the store folder if it takes one."""
    context = {} if folder is None else {"_folder": folder}
    return plugins.make("samplers", name, Sampler, options, context)  # type: ignore[type-abstract]  # only its members
