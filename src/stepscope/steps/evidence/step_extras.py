"""Collects the values that are recorded with a step in addition to its times."""

from __future__ import annotations

from time import monotonic_ns
from typing import TYPE_CHECKING, Any

from stepscope.steps.step_writer import MICRO_STEPS

if TYPE_CHECKING:
    from stepscope.steps.evidence.observers import Observers
    from stepscope.steps.evidence.sampled_probes import SampledProbes
    from stepscope.steps.memory.out_of_memory import WatchedObjects
    from stepscope.steps.overhead import Overhead


class StepExtras:
    """Skipped updates of a loss scaler, micro-batches of a step, and the values of observers and probes."""

    def __init__(self, observers: Observers, watched_objects: WatchedObjects, overhead: Overhead) -> None:
        self._observers, self._watched_objects, self._overhead = observers, watched_objects, overhead
        self.has_changes = False
        """Whether a probe has values to record with this step."""
        self.was_skipped = False
        """Whether a loss scaler has skipped the optimizer step of this step."""

    def of_step(self, step: int, micro_steps: int, probes: SampledProbes) -> dict[str, Any] | None:
        """Further values of a step that has ended; None if there are none."""
        is_due = self._observers.left <= 0
        if not (is_due or self.has_changes or micro_steps > 1 or self.was_skipped):
            return None
        began_ns = monotonic_ns()
        row: dict[str, Any] = {}
        if micro_steps > 1:
            row[MICRO_STEPS] = micro_steps
        if self.was_skipped:
            self.was_skipped = False
            row["optimizer_skipped"] = 1
        if is_due:
            self._watched_objects.batch.micro_steps = max(micro_steps, 1)
            row.update(self._observers.ask(step))
        if self.has_changes:
            # After the reading of all probes, which includes these and leaves nothing to read twice.
            self.has_changes = False
            row.update(probes.read_changed())
        self._overhead.spend(monotonic_ns() - began_ns)
        return row
