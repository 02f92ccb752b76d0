"""What `TrainingMonitor.watch` puts around a model: the anatomy of its steps, and looks inside."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from stepscope.guard import shown
from stepscope.model_stats.metric_sink import MetricSink
from stepscope.steps.loader_passes import LoaderPasses
from stepscope.steps.memory.out_of_memory import describe_out_of_memory
from stepscope.steps.step_phases import StepPhases
from stepscope.steps.step_writer import StepRecorder

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from stepscope.guard import Guard
    from stepscope.recorder.recording import Recording
    from stepscope.steps.evidence.observers import Observer


GRADIENT_SHARE = 0.2
"""The part of the allowed overhead that looks at gradients may take."""

MAX_WRAPPERS = 4
"""How deep inside wrappers an optimizer is looked for."""

_EVERY = ("histograms", "activations", "attention")
"""What is looked at every so many steps, and only where that is asked for."""


@dataclass(frozen=True)
class Looks:
    """What of the inside of a model is looked at; each number is that of steps between two looks."""

    gradients: bool = True
    histograms: int | None = None
    activations: int | None = None
    attention: int | None = None


def watch(
    model: Any, optimizer: Any, looks: Looks, watched: Watched | None, recorder: Recorder, guard: Guard
) -> Watched | None:
    """Watches a model besides those watched already; gives what watches them all, None where nothing does."""
    model, optimizer, looks = _checked(model, optimizer, looks, guard)
    if model is None:
        return watched
    watching = watched or Watched(recorder, guard)
    try:
        watching.add(model, optimizer, looks)
    except Exception:
        if watched is None:
            watching.close()  # half a watch would count steps in a way of its own
        raise
    return watching


def _checked(model: Any, optimizer: Any, looks: Looks, guard: Guard) -> tuple[Any, Any, Looks]:
    """What can be watched of what was handed over; None for a model that cannot be."""
    if not _has_method(model, "register_forward_pre_hook"):
        guard.complain("watch", f"model is {shown(model)}; expected a torch.nn.Module. It is not watched.")
        return None, None, looks
    several = list(optimizer) if isinstance(optimizer, list | tuple) else [optimizer]
    known = [found for one in several if (found := _with_hooks(one)) is not None]
    if len(known) < len(several) and optimizer is not None:
        guard.complain(
            "optimizer",
            f"optimizer is {shown(optimizer)}; expected a torch.optim.Optimizer or a list of them. "
            "The model is watched with whichever optimizer steps.",
        )
        known = []
    for name in _EVERY:
        looks = replace(looks, **{name: _every(name, getattr(looks, name), guard)})  # type: ignore[arg-type]  # of three numbers
    return model, known or None, looks


def _has_method(value: Any, name: str) -> bool:
    try:
        return callable(getattr(value, name, None)) and not isinstance(value, type)
    except Exception:  # noqa: BLE001 - an object of the user's own may raise anything
        return False


def _with_hooks(optimizer: Any) -> Any:
    """The optimizer itself or, where a framework has wrapped it, the one inside; None where none takes hooks.

    A wrapper may have the methods of an optimizer and still take no hooks, as that of Accelerate.
    """
    for _ in range(MAX_WRAPPERS):
        try:
            optimizer.register_step_post_hook(_do_nothing).remove()
            optimizer.register_step_pre_hook(_do_nothing).remove()
        except Exception:  # noqa: BLE001 - anything may be handed over
            optimizer = getattr(optimizer, "optimizer", None)
        else:
            return optimizer
    return None


def _do_nothing(*_: Any) -> None: ...


def _every(name: str, steps: Any, guard: Guard) -> int | None:
    if steps is None or steps is False:
        return None
    if isinstance(steps, int) and not isinstance(steps, bool) and steps >= 0:
        return int(steps)
    said = f"{name} is {shown(steps)}; expected the number of steps between two looks, such as 1000."
    guard.complain(name, f"{said} They are not looked at.")
    return None


class Recorder(StepRecorder, Protocol):
    """What a monitor offers to those who watch for it."""

    def open_recording(self) -> Recording | None:
        """What records now."""

    def begin_pass(self, number: int) -> None:
        """A pass over a loader begins, the first being 0."""


class Watched:
    """All that watches a training: one chain of phases, and for each model what looks inside it."""

    def __init__(self, recorder: Recorder, guard: Guard) -> None:
        self._recorder, self._guard = recorder, guard
        self.step_phases = StepPhases(recorder, guard)
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

    def _begin_loader_pass(self, number: int) -> None:
        self.step_phases.begin_loader_pass()
        self._recorder.begin_pass(number)

    def add(self, model: Any, optimizer: Any, looks: Looks) -> None:
        """Watches a model, and an optimizer or several; without one, whichever steps."""
        self.step_phases.watch(model, optimizer)
        for observer in self._inside(model, optimizer, looks):
            self.step_phases.observe(observer)

    def close(self) -> None:
        """Takes everything away: model, optimizer and PyTorch are as they were."""
        self.loader_passes.close()
        self.step_phases.close()

    def describe_failure(self, error: BaseException) -> dict[str, Any] | None:
        """What is to be told of an error that ends the training, if it is one of memory."""
        return describe_out_of_memory(error, self.step_phases.watched_objects)

    def _record_tensor(self, keys: Sequence[str], values: Any) -> None:
        recording = self._recorder.open_recording()
        if recording is not None:
            recording.record_tensor(keys, values, self._recorder.current_step())

    def _record_array(self, key: str, values: Any) -> None:
        recording = self._recorder.open_recording()
        if recording is not None:
            recording.record_array(key, values, self._recorder.current_step())

    def _read_later(self, values: Any, then: Callable[[list[float]], None]) -> None:
        recording = self._recorder.open_recording()
        if recording is not None:
            recording.read_later(values, then)

    def _inside(self, model: Any, optimizer: Any, looks: Looks) -> list[Observer]:
        """Those that look inside a model, as far as it is asked for."""
        found: list[Observer] = []
        sink = self._sink
        if looks.gradients:
            from stepscope.model_stats.gradient_monitor import (
                GradientMonitor,  # lazy: each brings what it needs
            )
            from stepscope.model_stats.gradient_watch import Pace  # lazy: as the monitor is

            pace = Pace(budget_ratio=GRADIENT_SHARE * self._recorder.overhead.max_ratio)
            found.append(GradientMonitor(model, optimizer, pace=pace, outlets=sink))
        if looks.histograms:
            from stepscope.model_stats.histograms import Histograms  # lazy: few ask for it

            found.append(Histograms(model, optimizer, every_steps=looks.histograms, outlets=sink))
        if looks.activations:
            from stepscope.model_stats.activations import Activations  # lazy: few ask for it

            found.append(Activations(model, every_steps=looks.activations, outlets=sink))
        if looks.attention:
            from stepscope.model_stats.attention import Attention  # lazy: few ask for it

            found.append(Attention(model, every_steps=looks.attention, outlets=sink))
        return found
