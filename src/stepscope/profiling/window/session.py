"""One recording of torch's profiler, on the thread that calls it."""

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
    """torch has one profiler in a process, and somebody else uses it."""

    def __init__(self) -> None:
        super().__init__("torch's profiler is already in use in this process.")


@dataclass(frozen=True)
class Detail:
    """What is recorded besides names and times; each of the three makes recording dearer."""

    shapes: bool = False
    """Shapes of inputs."""
    stacks: bool = False
    """Python functions."""
    memory: bool = False
    """Memory taken and given back."""
    activities: tuple[str, ...] = ("cpu", "cuda")
    """What to record of what there is; the processor's part is always recorded."""


class Session:
    """Prepares, records, marks steps, stops; in this order and once."""

    def __init__(self, detail: Detail) -> None:
        torch = torch_for("The profiler")
        if torch.autograd._profiler_enabled():  # noqa: SLF001 - to start a second one would end the first
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
        """Sets up what recording needs, so that the first step recorded does not pay for it."""
        with _quietly():
            self._profiler.start()

    def record(self) -> None:
        """Begins to record, with a step.

        What the device still works on from before would not be recorded and look like idling: it is waited
        for.
        """
        if self._uses_device:
            self._torch.cuda.synchronize()
        self._action = self._torch.profiler.ProfilerAction.RECORD
        self._profiler.step()

    def mark(self) -> None:
        """Ends a step and begins another."""
        self._profiler.step()

    def stop(self) -> Timeline:
        """Ends the recording and reads it."""
        self._profiler.stop()
        results = self._profiler.profiler.kineto_results
        host = self._torch.autograd.DeviceType.CPU
        return timeline_of(results.events(), host, with_shapes=self.detail.shapes)

    def abandon(self) -> None:
        """Ends the recording whatever state it is in, and forgets it."""
        with contextlib.suppress(Exception):  # it has failed already, and that was said
            self._profiler.stop()

    def write_trace(self, path: Path) -> None:
        """Writes all that was recorded as a Chrome trace, not compressed."""
        self._profiler.export_chrome_trace(str(path))


def _activities(torch: Any, wanted: tuple[str, ...]) -> list[Any]:
    """The processor, and the device where torch can see one."""
    known = torch.profiler.ProfilerActivity
    supported = torch.profiler.supported_activities()
    use_device = "cuda" in wanted and torch.cuda.is_available() and known.CUDA in supported
    return [known.CPU, known.CUDA] if use_device else [known.CPU]


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """Keeps the profiler's advice off the console, and its library, which reads a variable at first use."""
    is_set = _LOG_LEVEL in os.environ
    os.environ.setdefault(_LOG_LEVEL, _SILENT)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        if not is_set:
            os.environ.pop(_LOG_LEVEL, None)
