"""Gathers what is recorded of a step beside its times."""

from __future__ import annotations

from time import monotonic_ns
from typing import TYPE_CHECKING, Any

from stepscope.steps.step_writer import MICRO_STEPS

if TYPE_CHECKING:
    from stepscope.steps.evidence.free_evidence import FreeEvidence
    from stepscope.steps.evidence.observers import Observers
    from stepscope.steps.memory.out_of_memory import Witness
    from stepscope.steps.overhead import Overhead


class StepExtras:
    """Updates that a loss scaler skipped, batches of a step, and what observers and evidence have to tell."""

    def __init__(self, observers: Observers, witness: Witness, overhead: Overhead) -> None:
        self._observers, self._witness, self._overhead = observers, witness, overhead
        self.has_news = False
        """Whether the evidence has something to tell at once."""
        self.was_skipped = False
        """Whether a loss scaler has not stepped the optimizer of this step."""

    def of_step(self, step: int, micro_steps: int, evidence: FreeEvidence) -> dict[str, Any] | None:
        """What there is to say of a step that has ended; None for nothing."""
        is_due = self._observers.left <= 0
        if not (is_due or self.has_news or micro_steps > 1 or self.was_skipped):
            return None
        began_ns = monotonic_ns()
        row: dict[str, Any] = {}
        if micro_steps > 1:
            row[MICRO_STEPS] = micro_steps
        if self.was_skipped:
            self.was_skipped = False
            row["optimizer_skipped"] = 1
        if is_due:
            self._witness.batch.micro_steps = max(micro_steps, 1)
            row.update(self._observers.ask(step))
        if self.has_news:
            # After the look at everything, which tells what is new as well and leaves nothing to tell again.
            self.has_news = False
            row.update(evidence.news())
        self._overhead.spend(monotonic_ns() - began_ns)
        return row
