"""Calls an exporter: at once, or in a thread of its own from a bounded queue; pauses it while it fails."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from stepscope.exporters.base import Unreachable

if TYPE_CHECKING:
    from collections.abc import Callable

    from stepscope.exporters.base import Feed

log = logging.getLogger("stepscope.agent")

ExporterState = Literal["working", "failing"]

PAUSE_S = 60.0
"""How long an exporter that the agent itself calls is paused after a failure."""
FIRST_PAUSE_S, MAX_PAUSE_S = 1.0, 60.0
"""Pauses of a remote exporter: each failure in a row doubles the pause."""
MAX_ATTEMPTS = 5
"""How often one piece of work is tried; after that it is dropped, so that the next one gets its turn."""
AWAY = (ConnectionError, TimeoutError, Unreachable)
"""Errors after which the next piece of work would fail as well: none is dropped unless the queue is full."""
MAX_VALUES = 1_000_000
"""How many values wait at most for a remote exporter: about 16 MB. Beyond it the oldest work is dropped."""
WORK_VALUES = 16
"""What a piece of work without values counts for, such as an event."""
SLOW_S = 30.0
"""An exporter whose call takes longer is shown as failing, until the call returns."""


@dataclass
class ExporterStatus:
    """How an exporter is doing."""

    name: str
    state: ExporterState = "working"
    exported: int = 0
    """Values that were passed on."""
    dropped: int = 0
    """Values that were given up: the exporter failed or was too slow."""
    waiting: int = 0
    """Values that wait to be passed on."""
    error: str = ""
    """Why it failed last; kept after it works again."""
    failed_at: float | None = None
    """When it failed last, in seconds since the epoch."""
    exported_at: float | None = None
    """When it last passed something on."""


class ExportCalls:
    """Calls an exporter in the agent's own thread; what comes while it is paused is dropped."""

    def __init__(self, name: str, feed: Feed, now: Callable[[], float] = time.monotonic) -> None:
        self.feed = feed
        self._status = ExporterStatus(name)
        self._now = now
        self._paused_until = float("-inf")

    def put(self, work: Callable[[], None], values: int = 0) -> None:
        """Does a piece of work that passes on this many values."""
        if self._now() < self._paused_until:
            self._status.dropped += values
            return
        try:
            work()
        except Exception as error:  # noqa: BLE001 - an exporter may come from another package
            logged = self._status.error
            reason = _record_failure(self._status, error)
            self._status.dropped += values
            if reason != logged:
                log.warning(
                    "The exporter %s failed, and is paused for a minute: %s", self._status.name, reason
                )
            self._paused_until = self._now() + PAUSE_S
        else:
            _record_success(self._status, values)

    def status(self) -> ExporterStatus:
        """How the exporter is doing."""
        return _with_own_counts(self._status, self.feed, self.feed.trouble)

    @property
    def is_behind(self) -> bool:
        """False: such an exporter has passed on everything when a call returns."""
        return False

    def begin_close(self) -> None:
        """Does nothing: closing such an exporter does not take long."""

    def close(self, timeout_s: float) -> None:
        """Closes the exporter."""
        _close(self.feed, self._status.name)


class ExportQueue:
    """Calls a remote exporter in a thread of its own. What fails is tried again, later and later."""

    def __init__(
        self,
        name: str,
        feed: Feed,
        max_values: int = MAX_VALUES,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.feed = feed
        self._status = ExporterStatus(name)
        """What waits includes the piece of work in progress."""
        self._max_values, self._now = max_values, now
        self._called_at: float | None = None
        """When the call in progress began."""
        self._changed = threading.Condition()
        self._waiting: deque[tuple[Callable[[], None], int]] = deque()
        self._is_closing = False
        self._given_up: ExporterStatus | None = None
        """How it was doing when the agent no longer waited for it."""
        self._thread = threading.Thread(target=self._run, name=f"stepscope-export-{name}", daemon=True)
        self._thread.start()

    def put(self, work: Callable[[], None], values: int = 0) -> None:
        """Queues a piece of work that passes on this many values; a full queue drops its oldest values."""
        with self._changed:
            self._waiting.append((work, values))
            self._status.waiting += values
            while len(self._waiting) > 1 and self._load() > self._max_values:
                self._drop_oldest()
            self._changed.notify()

    def status(self) -> ExporterStatus:
        """How the exporter is doing."""
        if self._given_up is not None:
            return self._given_up
        trouble, called_at = self.feed.trouble, self._called_at
        if not trouble and called_at is not None and self._now() - called_at > SLOW_S:
            trouble = f"It has not answered for more than {SLOW_S:g} s."
        return _with_own_counts(self._status, self.feed, trouble)

    @property
    def is_behind(self) -> bool:
        """Whether something waits that the exporter is passing on; not while it fails."""
        has_work = bool(self._waiting) or self._called_at is not None
        return has_work and self.status().state == "working"

    def begin_close(self) -> None:
        """Ends the thread once the queue is empty, or at the next failure; does not wait for it."""
        with self._changed:
            self._is_closing = True
            self._changed.notify()

    def close(self, timeout_s: float) -> None:
        """Waits until the queue is empty and the exporter closed, for as long as the timeout allows."""
        self.begin_close()
        if not timeout_s:
            return
        self._thread.join(timeout_s)
        left = self.status()
        if self._thread.is_alive() or left.waiting:
            text = f"did not end within {timeout_s:.3g} s: {left.waiting:,} values were not exported."
            if self._thread.is_alive():  # else the thread has logged it
                log.warning("The exporter %s %s", left.name, text)
            self._given_up = replace(
                left,
                state="failing",
                error=left.error or f"It {text}",
                dropped=left.dropped + left.waiting,
                waiting=0,
            )

    def _load(self) -> int:
        return self._status.waiting + WORK_VALUES * len(self._waiting)

    def _drop_oldest(self) -> None:
        """Drops the oldest work with values: without its end, a run would stay open in the other program."""
        place = next((place for place, (_, values) in enumerate(self._waiting) if values), 0)
        _, values = self._waiting[place]
        del self._waiting[place]
        self._status.waiting -= values
        self._status.dropped += values

    def _run(self) -> None:
        attempts, pause_s = 0, FIRST_PAUSE_S
        while (piece := self._next_piece()) is not None:
            work, values = piece
            try:
                self._call(work)
            except Exception as error:  # noqa: BLE001 - an exporter may come from another package
                attempts += 1
                self._report_failure(error)
                with self._changed:
                    if attempts < MAX_ATTEMPTS or isinstance(error, AWAY):
                        self._waiting.appendleft(piece)
                    else:
                        attempts = 0
                        self._status.waiting -= values
                        self._status.dropped += values
                    if self._is_closing:
                        break
                    self._changed.wait_for(lambda: self._is_closing, pause_s)
                pause_s = min(MAX_PAUSE_S, 2 * pause_s)
            else:
                attempts, pause_s = 0, FIRST_PAUSE_S
                with self._changed:
                    self._status.waiting -= values
                _record_success(self._status, values)
        _close(self.feed, self._status.name)
        if left := self.status().waiting:
            log.warning(
                "The exporter %s has ended: %s values were not exported.", self._status.name, f"{left:,}"
            )

    def _call(self, work: Callable[[], None]) -> None:
        self._called_at = self._now()
        try:
            work()
        finally:
            self._called_at = None

    def _next_piece(self) -> tuple[Callable[[], None], int] | None:
        """Waits for work; None when the queue is closing and empty."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._is_closing)
            return self._waiting.popleft() if self._waiting else None

    def _report_failure(self, error: Exception) -> None:
        was_working = self._status.state == "working"
        reason = _record_failure(self._status, error)
        if was_working:
            log.warning("The exporter %s failed, and is tried again: %s", self._status.name, reason)


def _close(feed: Feed, name: str) -> None:
    try:
        feed.close()
    except Exception as error:  # noqa: BLE001 - an exporter may come from another package
        log.warning("The exporter %s could not be completed: %s", name, error)


def _with_own_counts(status: ExporterStatus, feed: Feed, trouble: str) -> ExporterStatus:
    """Counts apart what an exporter has taken and not passed on; trouble is kept as its last failure."""
    if trouble:
        status.error, status.failed_at = trouble, time.time()
    held, dropped = feed.held, feed.dropped
    exported = max(status.exported - held - dropped - feed.skipped, 0)
    return replace(
        status,
        state="failing" if trouble else status.state,
        exported=exported,
        dropped=status.dropped + dropped,
        waiting=status.waiting + held,
        exported_at=status.exported_at if exported else None,
    )


def _record_failure(status: ExporterStatus, error: Exception) -> str:
    status.state, status.error, status.failed_at = "failing", str(error) or repr(error), time.time()
    return status.error


def _record_success(status: ExporterStatus, values: int) -> None:
    status.state, status.exported_at = "working", time.time()
    status.exported += values
