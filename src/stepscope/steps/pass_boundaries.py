"""Decides what is between two passes over data: a change of epochs, or a step that continues."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepscope.steps.step_writer import EndedStep

if TYPE_CHECKING:
    from stepscope.steps.pass_purpose import PassPurpose
    from stepscope.steps.phase_timer import Pause, PhaseTimer
    from stepscope.steps.step_writer import StepWriter


class PassBoundaries:
    """Follows the start and end of passes over data, and a step that spans two of them."""

    def __init__(self, phase_timer: PhaseTimer, writer: StepWriter) -> None:
        self._phase_timer, self._timer, self._writer = phase_timer, phase_timer.timer, writer
        self._is_first = True
        self._begun_at = 0
        """Steps made when the current pass began."""
        self._unfinished: Pause | None = None
        """A step that began with the last batches of the previous pass."""
        self._left_at: int | None = None
        """Steps made when a pass was left with its first batch, as by `next(iter(loader))`."""

    def unfinished_step(self) -> Pause | None:
        """The step that continues with the first batch of the next pass; None if there is none."""
        return self._unfinished if self._timer.batches else None

    def took_only_first_batch(self) -> bool:
        """Whether the loop took only the first batch of the last pass: the next one is no new epoch."""
        return self._left_at is not None

    def begin(self, unfinished: Pause | None) -> None:
        """Starts a pass."""
        timer, left_at, is_first = self._timer, self._left_at, self._is_first
        self._left_at, self._unfinished, self._is_first = None, None, False
        self._begun_at = timer.steps_made
        if left_at is not None and left_at < timer.steps_made:
            return  # the loop takes a loader's first batch in every step: the step continues
        gap = self._phase_timer.restart(unfinished)
        # Taking one batch before the training starts is part of the start-up.
        if not is_first and (left_at is None or timer.steps_made):
            self._writer.add(EndedStep(timer.step, gap, gap="epoch"))

    def end(self, purpose: PassPurpose, *, is_left: bool) -> None:
        """Ends the only pass in progress; `is_left` if the loop left it early."""
        timer = self._timer
        if timer.batches and purpose.trains:
            self._unfinished = self._phase_timer.pause()
        elif is_left and not timer.batches and timer.steps_made == self._begun_at:
            self._left_at = None if purpose.looks_like_evaluation() else timer.steps_made
