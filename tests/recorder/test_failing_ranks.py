"""Ranks that are real processes: the one that failed by itself gives the run's reason."""

from __future__ import annotations

import json
import socket
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

TRAINING = """
    import os, signal, sys, torch, stepscope
    distributed = torch.distributed
    rank, cause = int(os.environ["RANK"]), sys.argv[1]
    distributed.init_process_group("gloo")
    with stepscope.TrainingMonitor(run="ranks") as monitor:
        for step in range(5):
            if rank == 1 and step == 3:
                if cause == "killed":
                    os.kill(os.getpid(), signal.SIGKILL)
                raise ValueError("label 12 is out of range")
            total = torch.ones(4)
            distributed.all_reduce(total)
            monitor.log({"total": total[0]})
"""


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("localhost", 0))
        return int(free.getsockname()[1])


def train(start, cause: str) -> None:
    meeting = {"MASTER_ADDR": "localhost", "MASTER_PORT": str(free_port()), "WORLD_SIZE": "2"}
    ranks = [start(TRAINING, cause, environment={**meeting, "RANK": str(rank)}) for rank in (0, 1)]
    for process in ranks:
        process.communicate(timeout=120)
    assert all(process.returncode != 0 for process in ranks)


def test_the_exception_of_rank_1_is_the_reason_and_not_the_connection_that_rank_0_lost(start, read) -> None:
    train(start, "raises")
    run = read("ranks")
    zero, one = run.segments[-1].processes
    assert "peer" in zero.reason, "rank 0 did not lose its connection: this proves nothing"
    assert one.reason == "ValueError: label 12 is out of range"
    assert (run.status, run.reason) == ("failed", "rank 1: ValueError: label 12 is out of range")


@pytest.mark.parametrize("command", ["runs", "show"])
def test_the_commands_name_the_rank_too(command: str, start, folder) -> None:
    train(start, "raises")
    named = ["ranks"] if command == "show" else []
    words = [sys.executable, "-m", "stepscope", command, *named, "--store", str(folder), "--json"]
    output = json.loads(subprocess.run(words, capture_output=True, check=True, timeout=120).stdout)
    (run,) = output if command == "runs" else [output]
    assert run["reason"] == "rank 1: ValueError: label 12 is out of range"


def test_a_rank_that_was_killed_is_the_reason(start, read) -> None:
    train(start, "killed")
    run = read("ranks")
    assert run.status == "crashed"
    assert run.reason.startswith("rank 1: process ")
