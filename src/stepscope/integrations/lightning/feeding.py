"""Hands the figures of a callback to the loggers of a trainer and to its monitor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stepscope.integrations.lightning.fit_clock import clock_of
from stepscope.integrations.lightning.logged_metrics import record_at
from stepscope.integrations.lightning.logger import StepscopeLogger
from stepscope.integrations.lightning.trainer_facts import batches_stepped

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stepscope.guard import Guard


def feed(trainer: Any, metrics: Mapping[str, float], guard: Guard) -> None:
    """Logs metrics with every logger of the trainer, such as W&B's, and into the run if there is one.

    Loggers take values from the first rank only; the run has those of every rank.
    """
    if not metrics:
        return
    step = batches_stepped(trainer)
    for logger in trainer.loggers:
        name = type(logger).__name__
        guard.attempt(f"Logging with {name}", logger.log_metrics, dict(metrics), step)
    monitor = clock_of(trainer).monitor
    is_fed = trainer.is_global_zero and any(isinstance(logger, StepscopeLogger) for logger in trainer.loggers)
    if monitor is not None and not is_fed:
        record_at(monitor, metrics, max(monitor.timer.step - 1, 0))
