"""What `TrainingMonitor.watch` sets up for a model: timing of its steps, and statistics of the model."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from stepscope.guard import shown
from stepscope.model_stats.metric_sink import MetricSink
from stepscope.steps.evidence.stack_sampler import StackSampler
from stepscope.steps.loader_passes import LoaderPasses
from stepscope.steps.memory.out_of_memory import describe_out_of_memory
from stepscope.steps.step_phases import StepPhases
from stepscope.steps.step_writer import StepRecorder

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from stepscope.config.sections import Settings
    from stepscope.guard import Guard
    from stepscope.recorder.recording import Recording
    from stepscope.steps.evidence.observers import Observer


GRADIENT_SHARE = 0.2
"""Share of the allowed overhead that gradient samples may use."""

MAX_WRAPPERS = 4
"""Maximum number of wrappers around an optimizer."""

_INTERVALS = ("histograms", "activations", "attention")
"""Options that are numbers of steps between samples, and off by default."""


@dataclass(frozen=True)
class StatsOptions:
    """Which statistics of a model are recorded; each number is that of steps between two samples."""

    gradients: bool = True
    histograms: int | None = None
    activations: int | None = None
    attention: int | None = None


def watch(
    model: Any,
    optimizer: Any,
    options: StatsOptions,
    watched: Watched | None,
    recorder: Recorder,
    guard: Guard,
) -> Watched | None:
    """Watches a model in addition to those already watched; returns None if nothing is watched."""
    model, optimizer, options = _checked(model, optimizer, options, guard)
    if model is None:
        return watched
    watching = watched or Watched(recorder, guard)
    try:
        watching.add(model, optimizer, options)
    except Exception:
        if watched is None:
            watching.close()  # a partial setup would count steps differently
        raise
    return watching


def _checked(
    model: Any, optimizer: Any, options: StatsOptions, guard: Guard
) -> tuple[Any, Any, StatsOptions]:
    """Checks the arguments of `watch`; the model is None if it cannot be watched."""
    if not _has_method(model, "register_forward_pre_hook"):
        guard.complain("watch", f"model is {shown(model)}; expected a torch.nn.Module. It is not watched.")
        return None, None, options
    passed = list(optimizer) if isinstance(optimizer, list | tuple) else [optimizer]
    optimizers = [inner for wrapped in passed if (inner := _with_hooks(wrapped)) is not None]
    if len(optimizers) < len(passed) and optimizer is not None:
        guard.complain(
            "optimizer",
            f"optimizer is {shown(optimizer)}; expected a torch.optim.Optimizer or a list of them. "
            "The model is watched with any optimizer that steps.",
        )
        optimizers = []
    for name in _INTERVALS:
        options = replace(options, **{name: _checked_interval(name, getattr(options, name), guard)})  # type: ignore[arg-type]  # of three numbers
    return model, optimizers or None, options


def _has_method(value: Any, name: str) -> bool:
    try:
        return callable(getattr(value, name, None)) and not isinstance(value, type)
    except Exception:  # noqa: BLE001 - an object of the user's own may raise anything
        return False


def _with_hooks(optimizer: Any) -> Any:
    """The optimizer, or the one inside a framework's wrapper, that accepts hooks; None if there is none.

    A wrapper may have the methods of an optimizer but ignore hooks, as that of Accelerate does.
    """
    for _ in range(MAX_WRAPPERS):
        try:
            optimizer.register_step_post_hook(_do_nothing).remove()
            optimizer.register_step_pre_hook(_do_nothing).remove()
        except Exception:  # noqa: BLE001 - users may pass anything
            optimizer = getattr(optimizer, "optimizer", None)
        else:
            return optimizer
    return None


def _do_nothing(*_: Any) -> None: ...


def _checked_interval(name: str, steps: Any, guard: Guard) -> int | None:
    if steps is None or steps is False:
        return None
    if isinstance(steps, int) and not isinstance(steps, bool) and steps >= 0:
        return int(steps)
    message = f"{name} is {shown(steps)}; expected the number of steps between two samples, such as 1000."
    guard.complain(name, f"{message} They are not recorded.")
    return None


class Recorder(StepRecorder, Protocol):
    """The monitor, as the watching code uses it."""

    settings: Settings

    def open_recording(self) -> Recording | None:
        """The current recording."""

    def begin_pass(self, number: int) -> None:
        """Sets the epoch to the number of a pass over a loader, from 0."""


class Watched:
    """Everything that watches a training: the timing of its steps, and the statistics of each model."""

    def __init__(self, recorder: Recorder, guard: Guard) -> None:
        self._recorder, self._guard = recorder, guard
        self.step_phases = StepPhases(recorder, guard)
        self._stacks = StackSampler(
            self.step_phases.sampled,
            recorder.own_event,
            recorder.overhead,
            has_gpu=sys.modules["torch"].cuda.is_available(),
        )
        recording = recorder.open_recording()
        if recording is not None and recorder.settings.recorder.escalation:
            recording.sample_by(self._stacks.tick)
        self.loader_passes = LoaderPasses(
            sys.modules["torch"], self.step_phases.looks_like_training, self._begin_loader_pass
        )
        self._sink = MetricSink(
            record_tensor=self._record_tensor,
            record_array=self._record_array,
            event=recorder.own_event,
            read_later=self._read_later,
            optimizer_steps=self.step_phases.optimizers,
            current_step=recorder.current_step,
            now_ns=recorder.overhead.now_ns,
            guard=guard,
        )
        self._follows_replica = False
        torch = sys.modules["torch"]
        if torch.cuda.is_available():
            from stepscope.steps.evidence.attention_calls import AttentionCalls  # lazy: only with a GPU

            self.step_phases.observe(AttentionCalls(torch, recorder.own_event))

    def _begin_loader_pass(self, number: int) -> None:
        self.step_phases.begin_loader_pass()
        self._recorder.begin_pass(number)

    def add(self, model: Any, optimizer: Any, options: StatsOptions) -> None:
        """Watches a model with one or several optimizers; without one, with any optimizer that steps."""
        self.step_phases.watch(model, optimizer)
        for observer in self._stats_observers(model, optimizer, options):
            self.step_phases.observe(observer)
        if not self._follows_replica:
            self._follow_replica(model)

    def _follow_replica(self, model: Any) -> None:
        """Records checksums of the parameters of the first model that all ranks have a replica of."""
        torch, recorder = sys.modules["torch"], self._recorder
        group = torch.distributed
        if not (group.is_available() and group.is_initialized() and group.get_world_size() > 1):
            return
        from stepscope.steps.ranks import replica_checksums  # lazy: only several ranks have replicas

        replica = replica_checksums.replica_of(model, torch)
        if isinstance(replica, str):
            name = "may_differ" if replica in replica_checksums.MAY_DIFFER else "unknown"
            recorder.own_event(replica_checksums.EVENT, **{name: replica})
            return
        self._follows_replica = True
        self.step_phases.observe(
            replica_checksums.ReplicaChecksums(
                torch, replica, recorder.timer, self._record_tensor_at, recorder.own_event
            )
        )

    def close(self) -> None:
        """Removes all hooks and patches."""
        self._stacks.close()
        self.loader_passes.close()
        self.step_phases.close()

    def describe_failure(self, error: BaseException) -> dict[str, Any] | None:
        """Describes an out-of-memory error that ends the training; None for other errors."""
        return describe_out_of_memory(error, self.step_phases.watched_objects)

    def _record_tensor(self, keys: Sequence[str], values: Any) -> None:
        self._record_tensor_at(keys, values, self._recorder.current_step())

    def _record_tensor_at(self, keys: Sequence[str], values: Any, step: int) -> None:
        recording = self._recorder.open_recording()
        if recording is not None:
            recording.record_tensor(keys, values, step)

    def _record_array(self, key: str, values: Any) -> None:
        recording = self._recorder.open_recording()
        if recording is not None:
            recording.record_array(key, values, self._recorder.current_step())

    def _read_later(self, values: Any, then: Callable[[list[float]], None]) -> None:
        recording = self._recorder.open_recording()
        if recording is not None:
            recording.read_later(values, then)

    def _stats_observers(self, model: Any, optimizer: Any, options: StatsOptions) -> list[Observer]:
        """The observers of a model's statistics, as the options select them."""
        observers: list[Observer] = []
        sink = self._sink
        if options.gradients:
            from stepscope.model_stats.gradient_monitor import (
                GradientMonitor,  # lazy: imported only if used
            )
            from stepscope.model_stats.gradient_watch import Pace  # lazy: as the monitor is

            pace = Pace(budget_ratio=GRADIENT_SHARE * self._recorder.overhead.max_ratio)
            observers.append(GradientMonitor(model, optimizer, pace=pace, outlets=sink))
        if options.histograms:
            from stepscope.model_stats.histograms import Histograms  # lazy: rarely used

            observers.append(Histograms(model, optimizer, every_steps=options.histograms, outlets=sink))
        if options.activations:
            from stepscope.model_stats.activations import Activations  # lazy: rarely used

            observers.append(Activations(model, every_steps=options.activations, outlets=sink))
        if options.attention:
            from stepscope.model_stats.attention import Attention  # lazy: rarely used

            observers.append(Attention(model, every_steps=options.attention, outlets=sink))
        return observers
