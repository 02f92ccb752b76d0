"""`TrackerRun`: a recorded run with the methods that people know from W&B and trackio."""

from __future__ import annotations

import enum
import time
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stepscope.facade.not_kept import (
    Artifact,
    Histogram,
    NotKept,
    guard,
    say_ignored,
    say_not_kept,
)
from stepscope.facade.run_facts import RunFacts
from stepscope.facade.run_values import RunConfig, RunSummary, flattened
from stepscope.guard import shown
from stepscope.recorder.values import as_number, as_step, is_on_device

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from stepscope.recorder.monitor import TrainingMonitor

WAIT_S = 60.0
"""Minimum time between two alerts with the same title, unless a call sets another."""
_PLAIN = frozenset({int, float})

_SEVERITIES = {
    "INFO": "info", "WARN": "warning", "WARNING": "warning", "ERROR": "critical", "CRITICAL": "critical",
}  # fmt: skip

_IGNORED = (
    "display", "finish_artifact", "link_artifact", "link_model", "log_code", "mark_preempting", "status",
    "to_html", "upsert_artifact", "write_logs",
)  # fmt: skip
"""Methods that scripts call and that have no effect here."""


class AlertLevel(enum.Enum):
    """How urgent an alert is."""

    INFO = "INFO"
    WARN = "WARN"
    ERROR = "ERROR"


class TrackerRun(RunFacts):
    """A run that `init` has started. No method raises into training or waits, except `finish`.

        run = stepscope.init(project="demo", config={"lr": 0.1})
        run.log({"loss": 0.5})
        run.finish()

    `run.monitor` is the TrainingMonitor that records it.
    """

    def __init__(
        self,
        monitor: TrainingMonitor,
        config: Mapping[str, Any],
        facts: Mapping[str, Any],
        on_finish: Callable[[TrackerRun], None],
    ) -> None:
        super().__init__(monitor, facts)
        self.config = RunConfig(config, monitor.log_params)
        self.summary = RunSummary(None, self._record_summary)
        self._on_finish: Callable[[TrackerRun], None] | None = on_finish
        self._open_step: Any = None
        """The step of the last call with `step=`, which a call without one still belongs to."""
        self._alerted_at: dict[str, float] = {}

    @property
    def step(self) -> int:
        """The step that the next call of `log` belongs to."""
        number = None if self._open_step is None else as_step(self._open_step)
        return self.monitor.timer.step if number is None else number

    def log(
        self,
        data: Any = None,
        step: Any = None,
        commit: Any = None,
        sync: Any = None,
        *,
        metrics: Any = None,
    ) -> None:
        """Records numbers of a step.

        Without `step`, each call is one step, or belongs to the current one while a watched optimizer counts
        steps. With `commit=False` the next call belongs to the same step. After a call with `step`, a call
        without one belongs to that step, too. A lower `step` than before is recorded as well.
        """
        del sync  # every call returns immediately
        values = metrics if data is None else data
        if type(values) is dict and _PLAIN.issuperset(map(type, values.values())):
            dict.update(self.summary, values)
            if step is commit is self._open_step is None:
                self.monitor.log(values)
                return
        elif isinstance(values, Mapping):
            try:
                values = self._numbers(values)
            except Exception as error:  # noqa: BLE001 - users may log anything, training goes on
                guard.warn_once("log", f"log() was given {shown(values)}, which raised {shown(error)}.")
                return
        self._log(values, step, commit)

    def _log(self, values: Any, step: Any, commit: Any) -> None:
        monitor = self.monitor
        counts = monitor.timer.stride > 0
        if step is not None:
            self._open_step = step if counts and not commit else None
            monitor.log(values, step)
        elif self._open_step is not None:
            monitor.log(values, self._open_step)
            if commit is not False:
                self._open_step = None
        elif commit is False and counts:
            monitor.record_now(values)
        else:
            monitor.log(values)

    def _numbers(self, metrics: Mapping[Any, Any]) -> dict[Any, Any]:
        """The metrics as the recorder takes them: flat, without media; the summary follows them."""
        numbers: dict[Any, Any] = {}
        for name, value in flattened(metrics):
            if isinstance(value, NotKept):
                say_not_kept(name, value)
            elif isinstance(value, Histogram):
                numbers[name] = value.values
            elif isinstance(value, list | tuple) and any(isinstance(part, NotKept) for part in value):
                say_not_kept(name, value[0])
            else:
                number = None if is_on_device(value) else as_number(value)
                numbers[name] = value if number is None else number
                self._follow(name, numbers[name])
        return numbers

    def _follow(self, name: str, value: Any) -> None:
        """Keeps a value for the summary, without the graph that a tensor may hold."""
        if is_on_device(value):
            self.summary.follow({name: value.detach()} if value.numel() == 1 else {})
        elif isinstance(value, float | str):
            self.summary.follow({name: value})

    def _record_summary(self, entries: dict[str, Any]) -> None:
        self.monitor.record_now({f"summary/{name}": value for name, value in flattened(entries)})

    def alert(
        self,
        title: Any,
        text: Any = "",
        level: Any = AlertLevel.INFO,
        wait_duration: Any = WAIT_S,
        **_: Any,
    ) -> None:
        """Sends an alert by the channels of the settings; `level` is INFO, WARN or ERROR.

        Another alert with the same title is sent after `wait_duration`: seconds, or a timedelta.
        """
        seconds = wait_duration.total_seconds() if isinstance(wait_duration, timedelta) else wait_duration
        wait_s = as_number(seconds)
        name = str(getattr(level, "value", level)).upper()
        if name not in _SEVERITIES:
            guard.warn_once(
                "level", f"level is {shown(level)}; it must be INFO, WARN or ERROR. INFO is used."
            )
        now, key = time.monotonic(), shown(title)
        if now - self._alerted_at.get(key, float("-inf")) >= (WAIT_S if wait_s is None else wait_s):
            self._alerted_at[key] = now
            if not self.disabled:
                self.monitor.alert_system.send_alert(title, text or "", _SEVERITIES.get(name, "info"))

    def watch(  # noqa: PLR0913, PLR0917 - as people call it
        self,
        models: Any,
        criterion: Any = None,
        log: Any = "gradients",
        log_freq: int = 1000,
        idx: Any = None,
        log_graph: Any = None,
        optimizer: Any = None,
    ) -> None:
        """Times steps and phases, and measures gradients; `log_freq` is for histograms.

        `log` is "gradients", "parameters", "all" (each with histograms by layer) or None.
        """
        del criterion, idx, log_graph
        for model in models if isinstance(models, list | tuple) else [models]:
            self.monitor.watch(
                model, optimizer, gradients=log is not None, histograms=None if log is None else log_freq
            )

    def unwatch(self, models: Any = None) -> None:
        """Removes all hooks."""
        del models
        self.monitor.unwatch()

    def define_metric(self, name: Any, step_metric: Any = None, *_: Any, **options: Any) -> NotKept:
        """Accepts the description of a metric; the page chooses axes and summaries itself."""
        if step_metric is not None or options:
            say_ignored(f"define_metric({shown(name)})", "all metrics are recorded by step and time.")
        return NotKept()

    def log_artifact(
        self,
        artifact_or_path: Any,
        name: Any = None,
        type: Any = None,  # noqa: A002 - their name
        *_: Any,
        **__: Any,
    ) -> Artifact:
        """Records the name and the paths of an artifact as an event; no file is copied."""
        artifact = artifact_or_path
        if not isinstance(artifact, Artifact):
            artifact = Artifact(name or Path(str(artifact_or_path)).name, type or "")
            artifact.add_file(artifact_or_path)
        guard.warn_once("artifact", "Files of artifacts stay where they are; stepscope records their paths.")
        self.monitor.event("artifact", name=artifact.name, type=artifact.type, files=list(artifact.files))
        return artifact

    def log_model(self, path: Any, name: Any = None, *_: Any, **__: Any) -> None:
        """Records the path of a model as an event."""
        self.log_artifact(path, name, "model")

    def use_artifact(self, artifact_or_name: Any, *_: Any, **fields: Any) -> Artifact:
        """Records the name of an artifact that the run uses; `download` raises, as none is kept."""
        artifact = artifact_or_name
        if not isinstance(artifact, Artifact):
            artifact = Artifact(artifact_or_name, fields.get("type") or "")
        self.monitor.event("uses_artifact", name=artifact.name, type=artifact.type)
        return artifact

    def save(self, glob_str: Any = None, *_: Any, **__: Any) -> list[str]:
        """Records the path of a file as an event; no file is copied."""
        if glob_str is not None:
            guard.warn_once("save", "save() copies no file; stepscope records its path.")
            self.monitor.event("saved_file", path=str(glob_str))
        return []

    def log_system(self, metrics: Any) -> None:
        """Records numbers at the current step without counting one."""
        self.monitor.record_now(metrics)

    def finish(self, exit_code: int | None = None, quiet: Any = None) -> None:
        """Ends the run; when it returns, everything is in the store. An exit code other than 0: failed."""
        del quiet
        if exit_code:
            self.monitor.stop_monitoring("failed", f"exit code {exit_code}")
        else:
            self.monitor.stop_monitoring()
        self._left()

    join = finish

    def __enter__(self) -> TrackerRun:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.monitor.__exit__(kind, error, trace)
        self._left()

    def _left(self) -> None:
        if self._on_finish is not None:
            self._on_finish(self)

    def __getattr__(self, name: str) -> Any:
        if name in _IGNORED:
            say_ignored(f"run.{name}", "stepscope does not keep what it is for.")
            return NotKept()
        raise AttributeError(f"A run of stepscope has no attribute {name!r}.")

    def __repr__(self) -> str:
        return f"<Run {self.name!r} in {self.monitor.directory}>"

    def __getstate__(self) -> dict[str, Any]:
        """What a spawned worker needs to record into the same run."""
        return {**self.__dict__, "_on_finish": None, "summary": None, "config": dict(self.config)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.config = RunConfig(state["config"], self.monitor.log_params)
        self.summary = RunSummary(None, self._record_summary)
