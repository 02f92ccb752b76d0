"""The checks of `make strangers` pass what is right, and fail each thing that is wrong."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from strangers.attempts import Attempt, Outcome
from strangers.catalogue import SCRIPTS, TRAINERS, Trainer
from strangers.checks import failures
from strangers.recorded import Recorded, read
from strangers.table import Line, drawn

import stepscope

STEPS = 60
TRAINER = Trainer("plain_loop", "torch")
LOSSES = tuple((1.0 / (step + 1)).hex() for step in range(STEPS))


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """What a store has of a loop that logs every step."""
    folder = tmp_path_factory.mktemp("recorded")
    with stepscope.TrainingMonitor({"agent": {"mode": "none"}}, run="trial", directory=folder) as monitor:
        for loss in LOSSES:
            monitor.log_training_step(loss=float.fromhex(loss))
    return read(folder)


def attempt_of(recorded: Recorded, mode: str = "run", stderr: str = "", **changes: object) -> Attempt:
    outcome = Outcome(STEPS, LOSSES, "digest", recorded.loop_seconds, 1.0)
    return Attempt(mode, Path("trial"), 0, stderr, replace(outcome, **changes))


def wrong_with(recorded: Recorded, other: Attempt | None = None, trainer: Trainer = TRAINER) -> list[str]:
    bare = attempt_of(recorded, "bare")
    return failures(trainer, bare, other or attempt_of(recorded), recorded)


def test_a_training_that_was_recorded_as_it_was_passes(recorded: Recorded) -> None:
    assert wrong_with(recorded) == []


@pytest.mark.parametrize("truth", [STEPS - 1, STEPS + 1, 2 * STEPS])
def test_a_wrong_number_of_steps_fails(recorded: Recorded, truth: int) -> None:
    wrong = wrong_with(recorded, attempt_of(recorded, steps=truth))
    assert f"rank 0: {STEPS} steps, but the trainer took {truth}" in wrong


def test_steps_that_repeat_fail(recorded: Recorded) -> None:
    repeated = replace(recorded, steps={0: recorded.steps[0] // 2})
    assert wrong_with(repeated) == ["rank 0: step numbers repeat or have gaps"]


def test_a_missing_rank_fails(recorded: Recorded) -> None:
    assert wrong_with(recorded, trainer=replace(TRAINER, ranks=2)) == ["steps of ranks [0], expected 2"]


def test_other_bits_fail(recorded: Recorded) -> None:
    last = attempt_of(recorded, losses=(*LOSSES[:-1], (0.5).hex()))
    assert f"losses differ from the bare training, first at {STEPS - 1}" in wrong_with(recorded, last)
    other = attempt_of(recorded, weights="another digest")
    assert wrong_with(recorded, other) == ["the weights differ from those of the bare training"]


def test_losses_under_the_wrong_steps_fail(recorded: Recorded) -> None:
    late = replace(recorded, losses={step + 1: loss for step, loss in recorded.losses.items()})
    assert any("recorded losses are not those of their steps" in line for line in wrong_with(late))
    assert wrong_with(replace(recorded, losses={})) == ["no loss was recorded"]


def test_time_that_is_not_explained_fails(recorded: Recorded) -> None:
    assert wrong_with(replace(recorded, explained=0.94)) == ["only 94% of the loop's time is explained"]
    other = attempt_of(recorded, seconds=3 * recorded.loop_seconds)
    assert any(" s recorded of a loop of " in line for line in wrong_with(recorded, other))


@pytest.mark.parametrize(
    "line", ["stepscope: The loss is lost.", "ValueError: no", "a.py:3: UserWarning: slow"]
)
def test_a_line_that_the_bare_training_does_not_print_fails(recorded: Recorded, line: str) -> None:
    other = attempt_of(recorded, stderr=f"stepscope: Run trial in /tmp/store\n{line}\nstep 3 of 9\n")
    assert len(wrong_with(recorded, other)) == 1


def test_alerts_and_findings_fail_unless_they_are_true(recorded: Recorded) -> None:
    alarmed = replace(recorded, alerts=("stalled: silent",), findings=("host.gc: pauses",))
    assert wrong_with(alarmed) == ["alert stalled: silent", "finding host.gc: pauses"]
    right = replace(TRAINER, true_findings=("host.gc",))
    assert wrong_with(alarmed, trainer=right) == ["alert stalled: silent"]


def test_a_resumed_training_is_one_run_with_two_segments(recorded: Recorded) -> None:
    resumed = attempt_of(recorded, "run, resumed")
    assert wrong_with(recorded, resumed) == ["1 segments with steps instead of two"]
    assert wrong_with(replace(recorded, starts=2), resumed) == []
    assert wrong_with(replace(recorded, starts=2, runs=("trial", "trial-2")), resumed) != []


def test_a_training_that_failed_or_was_not_recorded_fails(recorded: Recorded) -> None:
    bare = attempt_of(recorded, "bare")
    broken = Attempt("run", Path("trial"), 3, "Traceback\nValueError: no\n", None)
    assert failures(TRAINER, bare, broken, recorded) == ["exit code 3: ValueError: no"]
    assert failures(TRAINER, bare, attempt_of(recorded), None) == ["nothing was recorded"]


def test_the_table_marks_the_line_that_fails(recorded: Recorded) -> None:
    bare, other = attempt_of(recorded, "bare"), attempt_of(recorded, steps=STEPS + 1)
    wrong = failures(TRAINER, bare, other, recorded)
    table = drawn([Line(TRAINER, "1.0", bare, bare), Line(TRAINER, "1.0", bare, other, recorded, wrong)])
    head, first, second, *notes = table.splitlines()
    assert head.startswith("trainer")
    assert first.endswith("ok")
    assert second.endswith("FAIL")
    assert any(f"{STEPS} steps, but the trainer took {STEPS + 1}" in line for line in notes)


def test_every_script_belongs_to_a_trainer_and_every_trainer_has_one() -> None:
    scripts = {path.stem for path in SCRIPTS.glob("*.py")} - {"trial"}
    assert scripts == {trainer.file.stem for trainer in TRAINERS.values()}
