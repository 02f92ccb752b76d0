"""Compares a recorded training with the bare one: each check returns what is wrong, in a sentence."""

from collections.abc import Iterator

import numpy as np

from strangers.attempts import Attempt, Outcome
from strangers.catalogue import Trainer
from strangers.recorded import Recorded

MIN_EXPLAINED = 0.95
MAX_LOOP, MIN_LOOP, MIN_LOOP_WITH_PROCESSES = 1.1, 0.5, 0.2
"""How the recorded time of the loop may differ from the time that the script has measured around it, which
also includes what a framework does before its first step."""

LOSS_TOLERANCE = 1e-3
"""Frameworks round the losses that they log."""


def failures(trainer: Trainer, bare: Attempt, other: Attempt, recorded: Recorded | None) -> list[str]:
    """Everything that is wrong with a recorded training; empty if all is well."""
    if other.outcome is None or bare.outcome is None:
        return [f"exit code {other.exit_code}: {last_line(other.stderr)}"]
    if recorded is None:
        return ["nothing was recorded"]
    wrong = [*_ending(other, recorded), *_steps(trainer, other.outcome, recorded)]
    if other.mode.endswith("resumed"):
        wrong += _resumed(recorded)
    else:
        wrong += _identical(bare.outcome, other.outcome)
        wrong += _loop_time(trainer, other.outcome, recorded)
        wrong += _losses(other.outcome, recorded)
    wrong += _explained(recorded)
    wrong += _texts(trainer, bare, other, recorded)
    return wrong


def last_line(text: str) -> str:
    """The last line of a text that says something, shortened for a table."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:160] if lines else "no message"


def is_identical(bare: Outcome, other: Outcome) -> bool:
    """Whether two trainings computed the same bits."""
    return (bare.steps, bare.losses, bare.weights) == (other.steps, other.losses, other.weights)


def warnings_of(bare: Attempt, other: Attempt) -> list[str]:
    """Lines of stepscope, and warnings of others that the bare training does not print."""
    own = other.own_lines
    return [*own, *(line for line in sorted(other.trouble - bare.trouble) if "stepscope" not in line.lower())]


def _ending(other: Attempt, recorded: Recorded) -> Iterator[str]:
    if other.exit_code != 0:
        yield f"exit code {other.exit_code}"
    if len(recorded.runs) != 1:
        yield f"{len(recorded.runs)} runs instead of one: {', '.join(recorded.runs)}"
    if recorded.status != "finished":
        yield f"the run is {recorded.status}: {recorded.reason}"
    if recorded.dropped:
        yield f"{recorded.dropped} records are missing"


def _steps(trainer: Trainer, truth: Outcome, recorded: Recorded) -> Iterator[str]:
    if len(recorded.steps) != trainer.ranks:
        yield f"steps of ranks {sorted(recorded.steps)}, expected {trainer.ranks}"
    for rank, steps in recorded.steps.items():
        if len(steps) != truth.steps:
            yield f"rank {rank}: {len(steps)} steps, but the trainer took {truth.steps}"
        if len(steps) and not np.array_equal(
            np.sort(steps), np.arange(steps.min(), steps.min() + len(steps))
        ):
            yield f"rank {rank}: step numbers repeat or have gaps"


def _resumed(recorded: Recorded) -> Iterator[str]:
    if recorded.starts != 2:
        yield f"{recorded.starts} segments with steps instead of two"


def _identical(bare: Outcome, other: Outcome) -> Iterator[str]:
    if bare.losses != other.losses:
        first = next(
            (
                place
                for place, pair in enumerate(zip(bare.losses, other.losses, strict=False))
                if len(set(pair)) > 1
            ),
            min(len(bare.losses), len(other.losses)),
        )
        yield f"losses differ from the bare training, first at {first}"
    if bare.weights != other.weights:
        yield "the weights differ from those of the bare training"
    if bare.steps != other.steps:
        yield f"{other.steps} steps, but the bare training took {bare.steps}"


def _loop_time(trainer: Trainer, truth: Outcome, recorded: Recorded) -> Iterator[str]:
    share = recorded.loop_seconds / truth.seconds
    least = MIN_LOOP_WITH_PROCESSES if trainer.starts_processes else MIN_LOOP
    if not least <= share <= MAX_LOOP:
        yield f"{recorded.loop_seconds:.2f} s recorded of a loop of {truth.seconds:.2f} s"


def _losses(truth: Outcome, recorded: Recorded) -> Iterator[str]:
    if not recorded.losses:
        yield "no loss was recorded"
        return
    if len(truth.losses) != truth.steps or not recorded.steps.get(0, np.empty(0)).size:
        return  # losses of batches or of epochs
    first = int(recorded.steps[0].min())
    expected = {first + place: float.fromhex(loss) for place, loss in enumerate(truth.losses)}
    both = expected.keys() & recorded.losses.keys()
    wrong = sum(
        not np.isclose(recorded.losses[step], expected[step], rtol=LOSS_TOLERANCE, atol=LOSS_TOLERANCE)
        for step in both
    )
    if wrong:
        yield f"{wrong} of {len(both)} recorded losses are not those of their steps"


def _explained(recorded: Recorded) -> Iterator[str]:
    if recorded.explained < MIN_EXPLAINED:
        yield f"only {recorded.explained:.0%} of the loop's time is explained"


def _texts(trainer: Trainer, bare: Attempt, other: Attempt, recorded: Recorded) -> Iterator[str]:
    for line in warnings_of(bare, other):
        yield f"warning: {line}"
    for alert in recorded.alerts:
        yield f"alert {alert}"
    for finding in recorded.findings:
        if finding.partition(":")[0] not in trainer.true_findings:
            yield f"finding {finding}"
