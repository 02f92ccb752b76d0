"""Which rank of which run a process is, by what its launcher left in the environment."""

from __future__ import annotations

import sys

import pytest

from stepscope.recorder.identity import rank_detection
from stepscope.recorder.identity.rank_detection import identify
from stepscope.schema.identity import run_id

TORCHRUN = {"RANK": "3", "WORLD_SIZE": "8", "MASTER_ADDR": "n1", "MASTER_PORT": "29500"}


def test_a_plain_process_is_rank_0_of_1_and_each_start_is_a_segment_of_its_own() -> None:
    first, second = identify("a", "p", {}), identify("a", "p", {})
    assert (first.rank, first.world_size) == (0, 1)
    assert first.segment != second.segment
    assert first.run_id == second.run_id == run_id("p", "a")


@pytest.mark.parametrize(
    "environment",
    [
        {**TORCHRUN, "TORCHELASTIC_RUN_ID": "job7", "TORCHELASTIC_RESTART_COUNT": "0"},
        {**TORCHRUN, "TORCHELASTIC_RUN_ID": "none"},
        {"SLURM_JOB_ID": "9", "SLURM_STEP_ID": "0", "SLURM_NTASKS": "8", "SLURM_PROCID": "3"},
        {"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "8"},
    ],
    ids=["torchrun with an id", "torchrun", "SLURM", "MPI"],
)
def test_ranks_of_one_launch_agree_on_run_and_segment_without_talking(
    environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import itertools

    others = {**environment}
    for name in ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK"):
        if name in others:
            others[name] = "5"
    identities = []
    for variables in (environment, others):
        monkeypatch.setattr(rank_detection, "_starts", itertools.count())  # as each process begins
        identities.append(identify(None, "p", variables, parent=1))
    mine, other = identities
    assert (mine.rank, other.rank, mine.world_size) == (3, 5, 8)
    assert mine.segment == other.segment
    assert mine.name == other.name


def test_an_elastic_restart_is_a_new_segment_of_the_same_run() -> None:
    first = identify(None, "p", {**TORCHRUN, "TORCHELASTIC_RUN_ID": "j", "TORCHELASTIC_RESTART_COUNT": "0"})
    again = identify(None, "p", {**TORCHRUN, "TORCHELASTIC_RUN_ID": "j", "TORCHELASTIC_RESTART_COUNT": "1"})
    assert first.name == again.name
    assert first.segment != again.segment


def test_one_task_of_slurm_is_not_taken_for_a_launch_of_many() -> None:
    environment = {"SLURM_JOB_ID": "9", "SLURM_NTASKS": "1", "SLURM_PROCID": "0"}
    assert identify("a", "p", environment).segment != identify("a", "p", environment).segment


def test_nonsense_in_the_environment_is_rank_0() -> None:
    assert identify("a", "p", {"RANK": "first", "WORLD_SIZE": "-2"}).rank == 0


@pytest.mark.parametrize("name", ["../../etc", "a/b", ".", "", "CON", "x" * 500, "\ud800", "a\0b", "-r0-1.2"])
def test_a_run_id_is_a_plain_file_name_whatever_the_run_is_called(name: str) -> None:
    identifier = run_id("p", name)
    assert "/" not in identifier
    assert not identifier.startswith(".")
    assert identifier.isascii()
    assert len(identifier) < 60
    assert identifier != run_id("q", name)


@pytest.mark.parametrize("words", [None, [], [1], [b"\xff"], "gone"])
def test_a_process_without_arguments_has_a_run_of_some_name(words: object, monkeypatch) -> None:
    if words == "gone":
        monkeypatch.delattr(sys, "argv")
    else:
        monkeypatch.setattr(sys, "argv", words)
    assert identify(None, "default").name.startswith("run-")
