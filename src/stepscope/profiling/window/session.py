"""One recording of torch's profiler, in the thread that calls it."""

from __future__ import annotations

import contextlib
import os
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stepscope.errors import StepscopeError
from stepscope.profiling.torch_library import torch_for
from stepscope.profiling.window.events import Timeline, timeline_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_LOG_LEVEL = "KINETO_LOG_LEVEL"
_SILENT = "99"


class ProfilerBusy(StepscopeError):
    """torch has one profiler per process, and other code uses it."""

    def __init__(self) -> None:
        super().__init__("torch's profiler is already in use in this process.")


@dataclass(frozen=True)
class Detail:
    """What to record in addition to names and times; each of the first three adds overhead."""

    shapes: bool = False
    """Shapes of inputs."""
    stacks: bool = False
    """Python functions."""
    memory: bool = False
    """Allocations and deallocations."""
    activities: tuple[str, ...] = ("cpu", "cuda")
    """The activities to record if available; the CPU is always recorded."""


class Session:
    """A profiler session: prepare, record, mark steps and stop, in this order and once."""

    def __init__(self, detail: Detail) -> None:
        torch = torch_for("The profiler")
        if torch.autograd._profiler_enabled():  # noqa: SLF001 - starting a second one would end the first
            raise ProfilerBusy
        self.detail = detail
        self._torch = torch
        self._action = torch.profiler.ProfilerAction.WARMUP
        activities = _activities(torch, detail.activities)
        self._uses_device = len(activities) > 1
        self._profiler = torch.profiler.profile(
            activities=activities,
            schedule=lambda _step: self._action,
            record_shapes=detail.shapes,
            with_stack=detail.stacks,
            profile_memory=detail.memory,
        )

    def prepare(self) -> None:
        """Warms up the profiler, so that the first recorded step does not include its setup."""
        with _quietly():
            self._profiler.start()

    def record(self) -> None:
        """Starts recording, with a step.

        It first waits for the device: work queued before would not be recorded, and would look like idle
        time.
        """
        if self._uses_device:
            self._torch.cuda.synchronize()
        self._action = self._torch.profiler.ProfilerAction.RECORD
        self._profiler.step()

    def mark(self) -> None:
        """Ends a step and starts another."""
        self._profiler.step()

    def stop(self) -> Timeline:
        """Ends the recording and returns its events."""
        self._profiler.stop()
        results = self._profiler.profiler.kineto_results
        host = self._torch.autograd.DeviceType.CPU
        return timeline_of(results.events(), host, with_shapes=self.detail.shapes)

    def abandon(self) -> None:
        """Ends the recording in any state, and discards it."""
        with contextlib.suppress(Exception):  # it has already failed, and that was reported
            self._profiler.stop()

    def write_trace(self, path: Path) -> None:
        """Writes the recording as an uncompressed Chrome trace."""
        self._profiler.export_chrome_trace(str(path))


def _activities(torch: Any, requested: tuple[str, ...]) -> list[Any]:
    """The CPU, and the device if one is available."""
    activity = torch.profiler.ProfilerActivity
    supported = torch.profiler.supported_activities()
    use_device = "cuda" in requested and torch.cuda.is_available() and activity.CUDA in supported
    return [activity.CPU, activity.CUDA] if use_device else [activity.CPU]


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """Silences the warnings of the profiler, and of its library through an environment variable."""
    is_set = _LOG_LEVEL in os.environ
    os.environ.setdefault(_LOG_LEVEL, _SILENT)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        if not is_set:
            os.environ.pop(_LOG_LEVEL, None)
