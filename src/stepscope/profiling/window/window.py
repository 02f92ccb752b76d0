"""Records chosen steps of a training with torch's profiler, and rests the remaining time."""

from __future__ import annotations

import math
import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from stepscope.config.find import expanded
from stepscope.errors import ConfigError, StepscopeError
from stepscope.profiling.window.finish import finished, warn
from stepscope.profiling.window.session import Detail, Session
from stepscope.profiling.window.window_profile import Place, WindowProfile

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from types import TracebackType

FOLDER = "profiles"
"""Where profiles lie in a store folder."""
STORE_FOLDER = ".stepscope"


@dataclass(frozen=True)
class WindowOptions:
    """What seldom needs to be said of a window."""

    wait: int = 0
    """Steps to let pass before the warm-up."""
    detail: Detail = field(default_factory=Detail)
    top: int = 15
    """How many operations are ranked."""
    write_files: bool = True
    """Whether trace and summary are kept as files."""
    rank: int | None = None
    """Goes into the names of files, so that ranks can share a folder."""
    told: Callable[[WindowProfile], None] | None = None
    """Called with each profile as soon as it is there."""


class ProfilerWindow:
    """Windows of torch's profiler in a training loop.

        window = ProfilerWindow(epochs=(1,), active=20, warmup=5)
        for step, batch in enumerate(loader):
            train(batch)
            window.step(epoch, step)
        window.close()

    A window begins with the first step of each chosen epoch and at each chosen step, lasts for `wait`,
    `warmup` and `active` steps, and ends early with the epoch. While none is open, `step` compares two
    numbers. No method raises into the loop: the first failure is said once, and the window rests.
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
        _check("active", active, least=1)
        _check("warmup", warmup, least=0)
        _check("wait", self._options.wait, least=0)
        _check("top", self._options.top, least=1)
        self._epochs, self._steps = set(epochs), set(steps or ())
        self._warm_up_at = self._options.wait
        self._record_at = self._warm_up_at + warmup
        self._end_at = self._record_at + active
        store = expanded(os.environ.get("STEPSCOPE_DIR") or STORE_FOLDER)
        self._folder = Path(directory) if directory is not None else Path(store, FOLDER)
        self._profiles: list[WindowProfile] = []
        self._session: Session | None = None
        self._epoch: int | None = None
        self._quiet_until: float = -math.inf
        self._passed: int | None = None
        """Calls since a window began; None while there is none."""
        self._after_step = 0
        self._rests = False

    @property
    def profiles(self) -> tuple[WindowProfile, ...]:
        """What the windows that are over have told."""
        return tuple(self._profiles)

    def step(self, epoch: float, step: int) -> None:
        """Tells that a step is over; call it once a step."""
        if step < self._quiet_until and epoch == self._epoch:
            return
        if self._rests:
            return
        try:
            self._advance(int(epoch), step)
        except Exception as error:  # noqa: BLE001 - whatever goes wrong in a profiler, training goes on
            self._rest(error)

    def close(self) -> None:
        """Ends a window that is open, keeping the steps it has; nothing is recorded after it."""
        if self._rests:
            return
        try:
            self._end()
        except Exception as error:  # noqa: BLE001 - whatever goes wrong in a profiler, training goes on
            self._rest(error)
        self._rests = True

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
            # The step in progress has run into whatever lies between two epochs: it does not count.
            self._end()
            self._quiet_until = step
        if self._passed is not None:
            self._passed += 1
            self._go_on(step)
        elif self._is_due(epoch, step):
            self._passed = 0
            self._go_on(step)
        self._epoch = epoch
        self._quiet_until = self._next_chosen(step) if self._passed is None else -math.inf

    def _is_due(self, epoch: int, step: int) -> bool:
        """Whether an epoch or a step that was chosen has come; each comes once."""
        crossed = {chosen for chosen in self._steps if self._quiet_until <= chosen <= step}
        if self._epoch is None:
            crossed &= {step}  # at the first call, what lies before it is past, not due
        is_due = bool(crossed) or epoch in self._epochs
        self._steps -= crossed
        self._epochs.discard(epoch)
        return is_due

    def _next_chosen(self, step: int) -> float:
        return min((chosen for chosen in self._steps if chosen > step), default=math.inf)

    def _go_on(self, step: int) -> None:
        """Does what is due after so many steps of a window."""
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
        """Steps recorded in full so far."""
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
        profile = finished(session, place, self._options.top, base)
        self._profiles.append(profile)
        if self._options.told is not None:
            self._options.told(profile)

    def _name(self, place: Place) -> str:
        """A name that no other window has: by time, place, rank and process."""
        moment = time.strftime("%Y%m%d-%H%M%S")
        rank = "" if self._options.rank is None else f"-rank{self._options.rank}"
        return f"{moment}-epoch{place.epoch}-step{place.after_step}{rank}-{os.getpid()}"

    def _rest(self, error: Exception) -> None:
        """Says once why there will be no more profiles, and records none."""
        self._rests = True
        session, self._session = self._session, None
        if session is not None:
            session.abandon()
        reason = str(error) if isinstance(error, StepscopeError) else repr(error)
        warn(f"The profiler rests for this run: {reason}")


def _check(name: str, value: int, least: int) -> None:
    if value < least:
        raise ConfigError(f"{name} is {value}; it must be at least {least}.")
