"""Tells what lies between two passes over data: a change of epochs, or a step that goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepscope.steps.step_writer import EndedStep

if TYPE_CHECKING:
    from stepscope.steps.pass_purpose import PassPurpose
    from stepscope.steps.phase_timer import Pause, PhaseTimer
    from stepscope.steps.step_writer import StepWriter


class PassBoundaries:
    """Where passes begin and end, and what is left of one when the next begins."""

    def __init__(self, chain: PhaseTimer, writer: StepWriter) -> None:
        self._chain, self._timer, self._writer = chain, chain.timer, writer
        self._is_first = True
        self._begun_at = 0
        """Steps made when the present pass began."""
        self._unfinished: Pause | None = None
        """A step whose first batches were the last of the pass before."""
        self._left_at: int | None = None
        """Steps made when a pass was left with its first batch, as by `next(iter(loader))`."""

    def unfinished_step(self) -> Pause | None:
        """A step that goes on with the first batch of the next pass."""
        return self._unfinished if self._timer.batches else None

    def has_one_batch_in_hand(self) -> bool:
        """Whether the last pass was left with its first batch: what follows is no further epoch."""
        return self._left_at is not None

    def begin(self, unfinished: Pause | None) -> None:
        """A pass begins."""
        timer, left_at, is_first = self._timer, self._left_at, self._is_first
        self._left_at, self._unfinished, self._is_first = None, None, False
        self._begun_at = timer.steps_made
        if left_at is not None and left_at < timer.steps_made:
            return  # a loop that asks for a loader's first batch in every step: the step goes on
        gap = self._chain.restart(unfinished)
        # A look at one batch before any training is part of the start-up.
        if not is_first and (left_at is None or timer.steps_made):
            self._writer.add(EndedStep(timer.step, gap, gap="epoch"))

    def end(self, purpose: PassPurpose, *, is_left: bool) -> None:
        """The only pass under way is over, or was left early."""
        timer = self._timer
        if timer.batches and purpose.trains:
            self._unfinished = self._chain.pause()
        elif is_left and not timer.batches and timer.steps_made == self._begun_at:
            self._left_at = None if purpose.looks_like_evaluation() else timer.steps_made
