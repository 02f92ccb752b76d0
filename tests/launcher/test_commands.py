"""What a command is called after, and how its end is put into words."""

from __future__ import annotations

import signal

import pytest

from stepscope.launcher.command import ending_of, run_name_of


@pytest.mark.parametrize(
    ("command", "stem"),
    [
        (["python", "train.py", "--epochs", "3"], "train"),
        (["torchrun", "--nproc-per-node", "2", "src/fit.py"], "fit"),
        (["python", "-m", "torch.distributed.run", "fit.py"], "fit"),
        (["python", "-m", "package.train"], "train"),
        (["/usr/bin/make", "all"], "make"),
        (["program", "-m"], "program"),
    ],
)
def test_a_run_is_called_after_the_script(command: list[str], stem: str) -> None:
    assert run_name_of(command) == stem


@pytest.mark.parametrize(
    ("return_code", "exit_code", "status", "reason"),
    [
        (0, 0, "finished", ""),
        (3, 3, "failed", "exit code 3"),
        (-signal.SIGSEGV, 139, "crashed", "killed by SIGSEGV"),
        (-signal.SIGTERM, 143, "failed", "killed by SIGTERM"),
        (-signal.SIGKILL, 137, "crashed", "killed by SIGKILL"),
        (
            -(signal.SIGRTMIN + 3),
            128 + signal.SIGRTMIN + 3,
            "failed",
            f"killed by signal {signal.SIGRTMIN + 3}",
        ),
    ],
)
def test_an_exit_code_is_interpreted_as_by_a_shell(
    return_code: int, exit_code: int, status: str, reason: str
) -> None:
    ending = ending_of(return_code)
    assert (ending.exit_code, ending.status, ending.reason) == (exit_code, status, reason)
