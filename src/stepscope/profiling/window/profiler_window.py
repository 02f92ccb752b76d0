"""Records chosen steps of a training with torch's profiler; idle in all other steps."""

from __future__ import annotations

import math
import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from stepscope.config.find import expanded
from stepscope.errors import ConfigError, StepscopeError
from stepscope.profiling.window.finish import finish_session, warn
from stepscope.profiling.window.session import Detail, Session
from stepscope.profiling.window.window_profile import Place, WindowProfile

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from types import TracebackType

FOLDER = "profiles"
"""The folder of profiles in a store folder."""
STORE_FOLDER = ".stepscope"


@dataclass(frozen=True)
class WindowOptions:
    """Rarely used options of a window."""

    wait: int = 0
    """Steps to skip before the warm-up."""
    detail: Detail = field(default_factory=Detail)
    top: int = 15
    """Number of operations in each ranking."""
    write_files: bool = True
    """Whether trace and summary are written to files."""
    rank: int | None = None
    """Part of the file names, so that ranks can share a folder."""
    told: Callable[[WindowProfile], None] | None = None
    """Called with each profile when it is complete."""


class ProfilerWindow:
    """Windows of torch's profiler in a training loop.

        window = ProfilerWindow(epochs=(1,), active=20, warmup=5)
        for step, batch in enumerate(loader):
            train(batch)
            window.step(epoch, step)
        window.close()

    A window begins with the first step of each chosen epoch and at each chosen step, lasts for `wait`,
    `warmup` and `active` steps, and ends early with the epoch. While no window is open, `step` only compares
    two numbers. No method raises into the loop: the first failure is logged once, and switches profiling off.
    """

    def __init__(
        self,
        epochs: Collection[int] = (1,),
        steps: Collection[int] | None = None,
        active: int = 20,
        warmup: int = 5,
        directory: str | os.PathLike[str] | None = None,
        options: WindowOptions | None = None,
    ) -> None:
        self._options = options or WindowOptions()
        _check("active", active, minimum=1)
        _check("warmup", warmup, minimum=0)
        _check("wait", self._options.wait, minimum=0)
        _check("top", self._options.top, minimum=1)
        self._epochs, self._steps = set(epochs), set(steps or ())
        self._warm_up_at = self._options.wait
        self._record_at = self._warm_up_at + warmup
        self._end_at = self._record_at + active
        store = expanded(os.environ.get("STEPSCOPE_DIR") or STORE_FOLDER)
        self._folder = Path(directory) if directory is not None else Path(store, FOLDER)
        self._profiles: list[WindowProfile] = []
        self._session: Session | None = None
        self._epoch: int | None = None
        self._idle_until: float = -math.inf
        self._passed: int | None = None
        """Calls since a window began; None while there is none."""
        self._after_step = 0
        self._is_closed = False

    @property
    def profiles(self) -> tuple[WindowProfile, ...]:
        """The profiles of the windows that have ended."""
        return tuple(self._profiles)

    def step(self, epoch: float, step: int) -> None:
        """Call it once at the end of each step."""
        if step < self._idle_until and epoch == self._epoch:
            return
        if self._is_closed:
            return
        try:
            self._advance(int(epoch), step)
        except Exception as error:  # noqa: BLE001 - a failure of the profiler must not stop the training
            self._switch_off(error)

    def close(self) -> None:
        """Ends an open window, keeping its complete steps; nothing is recorded after it."""
        if self._is_closed:
            return
        try:
            self._end()
        except Exception as error:  # noqa: BLE001 - a failure of the profiler must not stop the training
            self._switch_off(error)
        self._is_closed = True

    def __enter__(self) -> ProfilerWindow:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _advance(self, epoch: int, step: int) -> None:
        if self._recorded_steps() > 0 and epoch != self._epoch:
            # The current step includes the time between two epochs: it is not counted.
            self._end()
            self._idle_until = step
        if self._passed is not None:
            self._passed += 1
            self._go_on(step)
        elif self._is_due(epoch, step):
            self._passed = 0
            self._go_on(step)
        self._epoch = epoch
        self._idle_until = self._next_chosen(step) if self._passed is None else -math.inf

    def _is_due(self, epoch: int, step: int) -> bool:
        """Whether a chosen epoch or step has been reached; each is used once."""
        crossed = {chosen for chosen in self._steps if self._idle_until <= chosen <= step}
        if self._epoch is None:
            crossed &= {step}  # at the first call, earlier steps are past, not due
        is_due = bool(crossed) or epoch in self._epochs
        self._steps -= crossed
        self._epochs.discard(epoch)
        return is_due

    def _next_chosen(self, step: int) -> float:
        return min((chosen for chosen in self._steps if chosen > step), default=math.inf)

    def _go_on(self, step: int) -> None:
        """Runs the part of the window that is due after this many steps."""
        if self._passed == self._end_at:
            self._end()
            return
        if self._passed == self._warm_up_at:
            self._session = Session(self._options.detail)
            self._session.prepare()
        if self._session is None or self._passed is None or self._passed < self._record_at:
            return
        if self._passed == self._record_at:
            self._after_step = step
            self._session.record()
        else:
            self._session.mark()

    def _recorded_steps(self) -> int:
        """Number of completely recorded steps so far."""
        return max((self._passed or 0) - self._record_at, 0)

    def _end(self) -> None:
        steps, session = self._recorded_steps(), self._session
        self._passed = self._session = None
        if session is None:
            return
        if steps == 0:
            session.abandon()
            return
        place = Place(self._epoch, self._after_step, steps)
        base = self._folder / self._name(place) if self._options.write_files else None
        profile = finish_session(session, place, self._options.top, base)
        self._profiles.append(profile)
        if self._options.told is not None:
            self._options.told(profile)

    def _name(self, place: Place) -> str:
        """A unique name: from time, position, rank and process."""
        moment = time.strftime("%Y%m%d-%H%M%S")
        rank = "" if self._options.rank is None else f"-rank{self._options.rank}"
        return f"{moment}-epoch{place.epoch}-step{place.after_step}{rank}-{os.getpid()}"

    def _switch_off(self, error: Exception) -> None:
        """Switches profiling off, and logs the reason once."""
        self._is_closed = True
        session, self._session = self._session, None
        if session is not None:
            session.abandon()
        reason = str(error) if isinstance(error, StepscopeError) else repr(error)
        warn(f"Profiling is switched off for this run: {reason}")


def _check(name: str, value: int, minimum: int) -> None:
    if value < minimum:
        raise ConfigError(f"{name} is {value}; it must be at least {minimum}.")
