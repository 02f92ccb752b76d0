"""What `TrainingMonitor.watch` puts around a model: the anatomy of its steps, and looks inside."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from stepscope.insides.outlets import Outlets
from stepscope.steps.anatomy import Anatomy, StepRecorder
from stepscope.steps.out_of_memory import describe_out_of_memory

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from stepscope.guard import Guard
    from stepscope.recorder.recording import Recording
    from stepscope.steps.observers import Observer
    from stepscope.steps.overhead import Overhead


GRADIENT_SHARE = 0.2
"""The part of the allowed overhead that looks at gradients may take."""


@dataclass(frozen=True)
class Looks:
    """What of the inside of a model is looked at; each number is that of steps between two looks."""

    gradients: bool = True
    histograms: int | None = None
    activations: int | None = None
    attention: int | None = None


class Recorder(StepRecorder, Protocol):
    """What a monitor offers to those who watch for it."""

    def open_recording(self) -> Recording | None:
        """What records now."""


class Watched:
    """All that watches a training: one chain of phases, and for each model what looks inside it."""

    def __init__(self, recorder: Recorder, guard: Guard, overhead: Overhead) -> None:
        self._recorder, self._guard, self._overhead = recorder, guard, overhead
        self.anatomy = Anatomy(recorder, guard, overhead)
        self._outlets = Outlets(
            record_tensor=self._record_tensor,
            record_array=self._record_array,
            event=recorder.event,
            read_later=self._read_later,
            optimizer_steps=self.anatomy,
            step_in_hand=recorder.step_in_hand,
            guard=guard,
        )

    def add(self, model: Any, optimizer: Any, looks: Looks) -> None:
        """Watches a model, and an optimizer or several; without one, whichever steps."""
        self.anatomy.watch(model, optimizer)
        for observer in self._inside(model, optimizer, looks):
            self.anatomy.observe(observer)

    def describe_failure(self, error: BaseException) -> dict[str, Any] | None:
        """What is to be told of an error that ends the training, if it is one of memory."""
        return describe_out_of_memory(error, self.anatomy.witness)

    def _record_tensor(self, keys: Sequence[str], values: Any) -> None:
        recording = self._recorder.open_recording()
        if recording is not None:
            recording.record_tensor(keys, values, self._recorder.step_in_hand())

    def _record_array(self, key: str, values: Any) -> None:
        recording = self._recorder.open_recording()
        if recording is not None:
            recording.record_array(key, values, self._recorder.step_in_hand())

    def _read_later(self, values: Any, then: Callable[[list[float]], None]) -> None:
        recording = self._recorder.open_recording()
        if recording is not None:
            recording.read_later(values, then)

    def _inside(self, model: Any, optimizer: Any, looks: Looks) -> list[Observer]:
        """Those that look inside a model, as far as it is asked for."""
        found: list[Observer] = []
        outlets = self._outlets
        if looks.gradients:
            from stepscope.insides.gradient_monitor import GradientMonitor  # lazy: each brings what it needs
            from stepscope.insides.gradient_watch import Pace  # lazy: as the monitor is

            pace = Pace(budget_ratio=GRADIENT_SHARE * self._overhead.max_ratio)
            found.append(GradientMonitor(model, optimizer, pace=pace, outlets=outlets))
        if looks.histograms:
            from stepscope.insides.histograms import Histograms  # lazy: few ask for it

            found.append(Histograms(model, optimizer, every_steps=looks.histograms, outlets=outlets))
        if looks.activations:
            from stepscope.insides.activations import Activations  # lazy: few ask for it

            found.append(Activations(model, every_steps=looks.activations, outlets=outlets))
        if looks.attention:
            from stepscope.insides.attention import Attention  # lazy: few ask for it

            found.append(Attention(model, every_steps=looks.attention, outlets=outlets))
        return found
