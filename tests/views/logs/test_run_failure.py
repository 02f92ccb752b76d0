"""Why a run failed: exception, traceback, and how to record what is missing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import stepscope
from stepscope.views.logs.console_lines import console_of
from stepscope.views.logs.run_failure import failure_of
from stepscope.views.overview.overview import overview_of
from stepscope.views.runs.marks import NoMarks
from tests.views.made import Made, at

HEADING = "Traceback (most recent call last):"
TRACE = """Traceback (most recent call last):
  File "train.py", line 7, in <module>
    step(batch)
  File "train.py", line 3, in step
    return batch["mixup"]
KeyError: 'mixup'"""
REASON = "KeyError: 'mixup'"
SCRIPT = """
import stepscope
with stepscope.TrainingMonitor({"agent": {"mode": "thread"}, **SETTINGS}, run="named") as monitor:
    for step in range(3):
        monitor.log_training_step(loss=1.0)
    print("the last words", flush=True)
    raise KeyError("mixup")
"""


def failed(made: Made, printed: str | None = None, reason: str = REASON, status: str = "failed") -> None:
    made.process(end=90, status=status, reason=reason)
    if printed is not None:
        made.event("console", 89, text=printed)


def test_a_run_that_ended_well_has_no_failure(made: Made) -> None:
    made.process()
    assert failure_of(made.run()) is None


def test_an_exception_is_split_into_type_and_message(made: Made) -> None:
    failed(made)
    failure = failure_of(made.run())
    assert (failure.exception, failure.message, failure.reason) == ("KeyError", "'mixup'", REASON)


@pytest.mark.parametrize(
    ("reason", "exception", "message"),
    [
        ("KeyError", "KeyError", ""),
        ("my.module.Diverged: at step 3", "my.module.Diverged", "at step 3"),
        ("exit code 1", None, "exit code 1"),
        ("process 12 was killed: SIGKILL", None, "process 12 was killed: SIGKILL"),
        ("", None, "No reason was recorded."),
    ],
)
def test_a_reason_that_is_not_an_exception_is_shown_unchanged(
    made: Made, reason: str, exception: str | None, message: str
) -> None:
    failed(made, reason=reason)
    failure = failure_of(made.run())
    assert (failure.exception, failure.message) == (exception, message)


def test_the_traceback_is_taken_from_what_was_printed(made: Made) -> None:
    failed(made, f"epoch 1\nepoch 2\n{TRACE}\n")
    failure = failure_of(made.run())
    assert (failure.traceback, failure.hint) == (TRACE, None)


def test_the_cause_of_an_exception_belongs_to_its_traceback(made: Made) -> None:
    between = "\n\nThe above exception was the direct cause of the following exception:\n\n"
    later = (
        'Traceback (most recent call last):\n  File "train.py", line 9, in <module>\nRuntimeError: no batch'
    )
    failed(made, f"epoch 1\n{TRACE}{between}{later}", "RuntimeError: no batch")
    assert failure_of(made.run()).traceback == f"{TRACE}{between}{later}"


def test_the_traceback_of_a_launcher_is_not_used_for_the_training(made: Made) -> None:
    launcher = (
        'Traceback (most recent call last):\n  File "torchrun", line 1, in main\nChildFailedError: rank 0'
    )
    failed(made, f"{TRACE}\n\n{launcher}\n")
    assert failure_of(made.run()).traceback == TRACE


def test_rank_prefixes_are_removed_from_a_traceback(made: Made) -> None:
    failed(made, "\n".join(f"[rank0]: {line}" for line in TRACE.split("\n")))
    assert failure_of(made.run()).traceback == TRACE


def test_output_between_the_lines_of_a_traceback_does_not_end_it(made: Made) -> None:
    first, _, rest = TRACE.partition("\n    step(batch)")
    failed(made, f"{first}\nprinted in between\n    step(batch){rest}", "exit code 1")
    failure = failure_of(made.run())
    assert failure.traceback.endswith(REASON)
    assert (failure.exception, failure.message) == ("KeyError", "'mixup'")


def test_an_exception_group_is_shown_with_all_that_was_raised(made: Made) -> None:
    group = """  + Exception Group Traceback (most recent call last):
  |   File "train.py", line 7, in <module>
  | ExceptionGroup: two (2 sub-exceptions)
  +-+---------------- 1 ----------------
    | ValueError: a
    +---------------- 2 ----------------
    | KeyError: 'b'
    +------------------------------------"""
    failed(made, f"epoch 1\n{group}\nafter", "exit code 1")
    failure = failure_of(made.run())
    assert failure.traceback == group
    assert (failure.exception, failure.message) == ("ExceptionGroup", "two (2 sub-exceptions)")


def test_the_lines_of_a_long_message_belong_to_the_traceback(made: Made) -> None:
    failed(made, f"{TRACE}\nCompile with TORCH_USE_CUDA_DSA.\n\nand then something else")
    assert failure_of(made.run()).traceback == f"{TRACE}\nCompile with TORCH_USE_CUDA_DSA."


def test_a_launcher_with_an_exit_code_reports_the_exception_of_its_command(made: Made) -> None:
    failed(made, TRACE, "exit code 1")
    failure = failure_of(made.run())
    assert (failure.exception, failure.message, failure.reason) == ("KeyError", "'mixup'", "exit code 1")


def test_without_output_a_failure_says_how_to_record_the_traceback(made: Made) -> None:
    failed(made)
    assert "stepscope run" in failure_of(made.run()).hint


def test_a_killed_process_gets_its_own_hint(made: Made) -> None:
    failed(made, reason="process 12 was killed", status="crashed")
    assert "killed" in failure_of(made.run()).hint


def test_captured_output_without_a_traceback_gets_no_hint_to_capture(made: Made) -> None:
    failed(made, "epoch 1\nbye", "exit code 3")
    failure = failure_of(made.run())
    assert (failure.traceback, failure.hint) == (None, "The captured output has no traceback.")


def test_the_last_lines_of_a_failed_run_are_those_before_its_traceback(made: Made) -> None:
    failed(made, "\n".join(f"line {number}" for number in range(40)) + f"\n{TRACE}\n")
    ended = overview_of(made.run(), NoMarks(), at(100)).ended
    assert ended.log_lines == tuple(f"line {number}" for number in range(20, 40))
    assert ended.failure.traceback == TRACE


def test_the_hint_contains_the_command_of_the_run(made: Made) -> None:
    made.process(status="failed", facts={"command": ["python", "train.py", "--name", "two words"]})
    first, second = console_of(made.run()).how
    assert first.code == "stepscope run -- python train.py --name 'two words'"
    assert second.code == "STEPSCOPE_LOGGING__DIRECTORY=logs python train.py --name 'two words'"


def executed(folder: Path, *before: str, settings: str = "{}") -> None:
    """Runs a script that names its run and fails."""
    script = folder.parent / "train.py"
    script.write_text(SCRIPT.replace("SETTINGS", settings), encoding="utf-8")
    environment = {**os.environ, "STEPSCOPE_DIR": str(folder)}
    done = subprocess.run(
        [sys.executable, *before, *([sys.executable] if before else []), str(script)],
        env=environment, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 1, done.stderr


@pytest.mark.slow
def test_a_run_with_its_own_name_has_the_console_of_its_launcher(folder: Path) -> None:
    executed(folder, "-m", "stepscope", "run", "--")
    store = stepscope.open_store(folder)
    run = store.run("named")
    assert "the last words" in [line.text for line in console_of(run).lines]
    failure = failure_of(run)
    assert failure.traceback.startswith(HEADING)
    assert failure.traceback.endswith("KeyError: 'mixup'")
    store.close()


@pytest.mark.slow
@pytest.mark.parametrize("jsonl", [True, False])
def test_the_traceback_is_read_from_log_files(tmp_path: Path, folder: Path, jsonl: bool) -> None:
    logs = {"logging": {"directory": str(tmp_path / "logs"), "jsonl": jsonl}}
    executed(folder, settings=repr(logs))
    store = stepscope.open_store(folder)
    failure = failure_of(store.run("named"))
    assert "KeyError: 'mixup'" in failure.traceback
    assert "train.py" in failure.traceback
    assert failure.hint is None
    store.close()


def test_without_captured_output_the_traceback_of_the_monitor_is_used(start, folder: Path) -> None:
    process = start("""
        import stepscope
        monitor = stepscope.TrainingMonitor(run="plain")
        monitor.start_monitoring()
        def train():
            raise ValueError("bad value 3")
        train()
    """)
    process.communicate(timeout=120)
    failure = failure_of(stepscope.open_store(folder).run("plain"))
    assert failure.exception == "ValueError"
    assert failure.traceback.startswith("Traceback (most recent call last):")
    assert ", in train\n" in failure.traceback
    assert failure.traceback.endswith("ValueError: bad value 3")
    assert failure.hint is None


def test_the_traceback_is_that_of_the_failed_rank(made: Made) -> None:
    lost = "RuntimeError: Connection closed by peer"
    made.process(rank=0, pid=1, end=91, status="failed", reason=lost)
    made.process(rank=1, pid=2, end=90, status="failed", reason="ValueError: bad sample")
    for rank, kind, message in (
        (1, "ValueError", "bad sample"),
        (0, "RuntimeError", "Connection closed by peer"),
    ):
        trace = {"type": kind, "message": message, "frames": []}
        made.event("failure", 90, rank=rank, **trace)
    launcher = f'{HEADING}\n  File "torchrun", line 1, in <module>\nChildFailedError: train.py FAILED'
    made.event("console", 92, text=f'{HEADING}\n  File "a.py", line 1, in <module>\n{lost}\n{launcher}')
    failure = failure_of(made.run())
    assert failure.reason == "rank 1: ValueError: bad sample"
    assert (failure.exception, failure.message) == ("ValueError", "bad sample")
    assert "bad sample" in failure.traceback
    assert "closed by peer" not in failure.traceback


@pytest.mark.slow
def test_a_failure_in_the_very_first_step_is_recorded(start, folder: Path) -> None:
    process = start(
        """
        import stepscope, torch
        model = torch.nn.Linear(4, 4)
        monitor = stepscope.TrainingMonitor({"agent": {"mode": "thread"}}, run="first", params={"lr": 0.1})
        monitor.watch(model, torch.optim.SGD(model.parameters(), lr=0.1))
        model(torch.ones(2, 5))
        """
    )
    process.wait(60)
    run = stepscope.open_store(folder).run("first")
    assert (run.status, failure_of(run).exception) == ("failed", "RuntimeError")
