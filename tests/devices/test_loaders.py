"""Workers of a data loader are told from other children, and keep their names."""

from __future__ import annotations

import pytest

from stepscope.devices.process.loaders import MAX_SLOTS, Kin, LoaderSlots, is_agent, is_loader
from stepscope.devices.process.processes import ProcessKey

TRAIN = "python train.py"
SPAWN = "python -c from multiprocessing.spawn import spawn_main; spawn_main(...) --multiprocessing-fork"
SERVER = "python -c from multiprocessing.forkserver import main; main(...)"
TRACKER = "python -c from multiprocessing.resource_tracker import main;main(14)"


@pytest.mark.parametrize(
    ("kin", "expected"),
    [
        (Kin("pt_data_worker", "python", "renamed by the user", TRAIN, is_child=True), True),
        (Kin("pt_data_worker", "python", SERVER, SERVER, is_child=False), True),
        (Kin("pt_data_worker", "pt_data_worker", TRAIN, TRAIN, is_child=False), False),
        (Kin("python", "python", TRAIN, TRAIN, is_child=True), True),
        (Kin("python", "python", TRAIN, TRAIN, is_child=False), False),
        (Kin("python", "python", SPAWN, TRAIN, is_child=True), True),
        (Kin("python", "python", SERVER, TRAIN, is_child=True), False),
        (Kin("python", "python", SERVER, SERVER, is_child=False), True),
        (Kin("python", "python", TRACKER, TRAIN, is_child=True), False),
        (Kin("nvidia-smi", "python", "nvidia-smi", TRAIN, is_child=True), False),
        (Kin("kworker", "kthreadd", "", "", is_child=True), False),
    ],
    ids=[
        "named by PyTorch",
        "named by PyTorch, of a server",
        "started by a worker",
        "forked",
        "forked by a child",
        "spawned",
        "the server itself",
        "of a server",
        "the resource tracker",
        "another program",
        "no command",
    ],
)
def test_a_worker_is_known_by_its_name_or_its_making(kin: Kin, expected: bool) -> None:
    assert is_loader(kin) is expected


def test_the_agent_is_known_by_its_command() -> None:
    assert is_agent("python -c import sys; from stepscope.agent.process.attend import main; sys.exit(main())")
    assert not is_agent("python train.py --stepscope")


def keys(*pids: int, start: int = 5) -> list[ProcessKey]:
    return [ProcessKey(pid, start) for pid in pids]


def test_names_follow_the_order_of_start_not_of_numbers() -> None:
    late, early = ProcessKey(10, 60), ProcessKey(99, 50)
    assert LoaderSlots().names([late, early]) == {early: "loader-0", late: "loader-1"}


def test_a_worker_keeps_its_name_and_that_of_one_which_ended_goes_to_the_next() -> None:
    slots = LoaderSlots()
    first, second, third = keys(10, 11, 12)
    slots.names([first, second])
    assert slots.names([second, third]) == {second: "loader-1", third: "loader-0"}


def test_a_hundred_epochs_use_the_same_names_again() -> None:
    slots = LoaderSlots()
    seen = set()
    for epoch in range(100):
        seen |= set(slots.names(keys(10, 11, start=epoch)).values())
    assert seen == {"loader-0", "loader-1"}


def test_workers_beyond_the_most_have_no_name() -> None:
    workers = keys(*range(100, 100 + MAX_SLOTS + 5))
    names = LoaderSlots().names(workers)
    assert len(names) == MAX_SLOTS
    assert workers[-1] not in names
