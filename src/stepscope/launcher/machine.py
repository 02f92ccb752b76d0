"""Watches a machine without a training: reads its metrics, and records them as a run."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from stepscope.agent.sampling import SamplerPool
from stepscope.config.sections import Sampler as SamplerSettings
from stepscope.errors import StepscopeError
from stepscope.guard import Guard
from stepscope.recorder.anonymity import privacy_of
from stepscope.recorder.identity.rank_detection import identify
from stepscope.recorder.identity.run_names import without_secrets
from stepscope.recorder.recording import Recording

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from stepscope.agent.sampling import SamplerReadings
    from stepscope.config.sections import Settings

COLLECT_EVERY_S = 0.05


class MachineWatch:
    """Polls samplers for display, and lets the agent record the same metrics as a run.

    The display works even if nothing can be recorded, as when the store is not writable.
    """

    def __init__(self, folder: Path, settings: Settings, interval_s: float | None = None) -> None:
        self._settings = settings if interval_s is None else _with_interval(settings, interval_s)
        identity = identify(settings.run or "watch", settings.project)
        privacy = privacy_of(settings.privacy)
        self.identity = without_secrets(identity, folder, privacy, Guard(strict=False).tell)
        self._recording = Recording(self.identity, folder, self._settings, Guard(strict=False), "machine")
        self._sampling = SamplerPool(folder=folder)
        self.trouble: list[str] = []
        """Samplers that could not be created, and why."""

    def begin(self, *, recorded: bool) -> None:
        """Starts reading, and recording if `recorded`."""
        if recorded:
            self._recording.begin(on_end=self._recording.end)
        intervals = {}
        for name in self._sampling.names:
            sampler = self._settings.sampler(name)
            if sampler.enabled:
                try:
                    default_s = self._sampling.usual_interval(name, sampler.options)
                except StepscopeError as error:
                    self.trouble.append(str(error))
                else:
                    intervals[name] = sampler.interval_s or default_s
        self._sampling.configure(intervals, ())

    def readings(
        self, seconds: float | None, sleep: Callable[[float], None] = time.sleep
    ) -> Iterator[SamplerReadings]:
        """Yields all readings as they arrive, for a number of seconds or endlessly."""
        deadline = float("inf") if seconds is None else time.monotonic() + seconds
        while time.monotonic() < deadline:
            yield from self._sampling.collect()
            sleep(COLLECT_EVERY_S)
        yield from self._sampling.collect()

    def end(self) -> None:
        """Stops; when it returns, the recording is complete."""
        self._sampling.close()
        self._recording.end("finished", "")


def _with_interval(settings: Settings, interval_s: float) -> Settings:
    """The same settings with one interval for all samplers."""
    samplers = {"default": SamplerSettings(), **settings.samplers}
    return replace(
        settings,
        samplers={name: replace(sampler, interval_s=interval_s) for name, sampler in samplers.items()},
    )
