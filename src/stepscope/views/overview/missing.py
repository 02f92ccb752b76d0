"""Says what cannot be shown for a run, why, and how to enable it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from stepscope.schema.keys import EXPORTER_EVENT, STEP_SECONDS, phase_key
from stepscope.views.json_values import clean
from stepscope.views.logs.console_lines import was_launched
from stepscope.views.run_exporters import exporters_of
from stepscope.views.run_figures import UTILIZATION

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stepscope.views.run_context import RunContext

NO_BATCHES = "the data loader is not wrapped: write for x, y in monitor.batches(loader)"
NO_WATCH = "the model is not watched: call monitor.watch(model, optimizer) before the loop"
NO_LOSS = "no loss was logged: call monitor.log_training_step(loss=loss) in the loop"
NO_RATE = "no learning rate was logged: add optimizer=optimizer to monitor.log_training_step(...)"
NO_TOTAL = 'the number of steps is not known: call monitor.event("total_steps", value=50_000)'
NO_CONSOLE = "the console was not captured: start the training with stepscope run -- python train.py"
NO_GPU = "no GPU was seen on its hosts"
NO_MONITOR = "nothing in this run logs steps: add stepscope.TrainingMonitor to the training script"
NO_STEPS = "the training logged no step: call monitor.log_training_step(loss=loss) in the loop"


@dataclass(frozen=True)
class Missing:
    """Something that a page cannot show, and why."""

    what: str
    why: str


def missing_of(context: RunContext) -> tuple[Missing, ...]:
    """Returns what is missing; a run that only watches a machine gets one sentence."""
    processes = [process for segment in context.run.segments for process in segment.processes]
    if all(process.role == "machine" for process in processes):
        return (Missing("Training", "this run only watches a machine, nothing is trained"),)
    return (*_missing_parts(context), *_failing_exporters(context))


def _missing_parts(context: RunContext) -> Iterator[Missing]:
    summaries = context.summaries
    if summaries.step_key() is None:
        if not context.is_live:
            # Only a process with its own monitor is recorded as a rank.
            processes = [process for segment in context.run.segments for process in segment.processes]
            has_monitor = any(process.role == "rank" for process in processes)
            yield Missing("Steps", NO_STEPS if has_monitor else NO_MONITOR)
    else:
        yield from _of_steps(context)
    if UTILIZATION not in summaries:
        notices = [str(event.fields.get("text", "")) for event in context.own_events.get("notice", ())]
        why = next((text for text in notices if "gpu" in text.lower()), "")
        yield Missing("GPU", clean(why, 400) or NO_GPU)
    if "console" not in context.own_events and not was_launched(context.run):
        yield Missing("Console", NO_CONSOLE)


def _failing_exporters(context: RunContext) -> Iterator[Missing]:
    if EXPORTER_EVENT in context.own_events:
        for exporter in exporters_of(context.run):
            if exporter.is_failing or exporter.dropped:
                yield Missing(f"Exporter {exporter.name}", exporter.text)


def _of_steps(context: RunContext) -> Iterator[Missing]:
    summaries = context.summaries
    if not summaries.logged(STEP_SECONDS):
        yield Missing("Step time", NO_BATCHES)
    if not summaries.logged(phase_key("data")):
        yield Missing("Wait for data", NO_BATCHES)
    if not summaries.logged(phase_key("forward")):
        yield Missing("Step phases", NO_WATCH)
    if summaries.loss_key() is None:
        yield Missing("Loss", NO_LOSS)
    if not summaries.logged("learning_rate"):
        yield Missing("Learning rate", NO_RATE)
    if context.figures.total_steps is None and context.is_live:
        yield Missing("Time left", NO_TOTAL)
