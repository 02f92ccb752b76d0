"""The tree of a watched process: who belongs to it, and which of them load data."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from stepscope.devices.process.process_tree import (
    MAX_SLOTS,
    LoaderSlots,
    ProcessRelation,
    ProcessTable,
    ProcessTrees,
    Tree,
    is_agent,
    is_loader,
)
from stepscope.devices.process.processes import ProcessKey
from tests.devices.written import HandClock, process, stat_line, watched, write

AGENT = "python -c from stepscope.agent.process.attend import main"


def look(trees: ProcessTrees, *pids: int) -> list[Tree]:
    return trees.read([watched(pid) for pid in pids])


def members(tree: Tree) -> set[int]:
    return {state.key.pid for state in tree.members}


def loaders(tree: Tree) -> dict[int, str]:
    return {key.pid: name for key, name in tree.loaders.items()}


def test_the_agent_and_what_it_started_are_not_part_of_the_training(tmp_path: Path) -> None:
    process(tmp_path, 10)
    process(tmp_path, 11, AGENT, parent=10)
    process(tmp_path, 12, "helper", parent=11)
    process(tmp_path, 13, "nvidia-smi", parent=10)
    (tree,) = look(ProcessTrees(tmp_path, HandClock()), 10)
    assert members(tree) == {10, 13}


def test_an_agent_that_has_just_been_forked_is_left_out_as_soon_as_it_shows(tmp_path: Path) -> None:
    clock = HandClock()
    trees = ProcessTrees(tmp_path, clock)
    process(tmp_path, 10)
    process(tmp_path, 11, parent=10)
    assert members(look(trees, 10)[0]) == {10, 11}
    process(tmp_path, 11, AGENT, parent=10)
    clock.now += 1
    assert members(look(trees, 10)[0]) == {10}


def test_workers_are_named_and_a_fork_only_when_it_has_lasted(tmp_path: Path) -> None:
    clock = HandClock()
    trees = ProcessTrees(tmp_path, clock)
    process(tmp_path, 10)
    process(tmp_path, 11, name="pt_data_worker", parent=10, start=200)
    process(tmp_path, 12, parent=10, start=201)
    assert loaders(look(trees, 10)[0]) == {11: "loader-0"}
    clock.now += 1
    assert loaders(look(trees, 10)[0]) == {11: "loader-0", 12: "loader-1"}


def test_a_program_that_looked_like_a_fork_for_a_moment_is_none(tmp_path: Path) -> None:
    clock = HandClock()
    trees = ProcessTrees(tmp_path, clock)
    process(tmp_path, 10)
    process(tmp_path, 11, parent=10)
    look(trees, 10)
    process(tmp_path, 11, "git status", parent=10)
    clock.now += 1
    (tree,) = look(trees, 10)
    assert members(tree) == {10, 11}
    assert loaders(tree) == {}


def test_a_rank_started_by_another_watched_process_is_not_a_worker_of_it(tmp_path: Path) -> None:
    clock = HandClock()
    trees = ProcessTrees(tmp_path, clock)
    process(tmp_path, 10)
    process(tmp_path, 20, parent=10)
    process(tmp_path, 21, name="pt_data_worker", parent=20)
    look(trees, 10, 20)
    clock.now += 1
    launcher, rank = look(trees, 10, 20)
    assert members(launcher) == {10, 20, 21}
    assert loaders(launcher) == {}
    assert loaders(rank) == {21: "loader-0"}


def test_a_process_that_took_the_number_of_the_watched_one_is_not_taken_for_it(tmp_path: Path) -> None:
    trees = ProcessTrees(tmp_path, HandClock())
    process(tmp_path, 10, start=100)
    assert look(trees, 10)
    process(tmp_path, 10, start=900)
    assert look(trees, 10) == []


def test_a_child_that_ended_is_gone_and_one_with_its_number_is_another(tmp_path: Path) -> None:
    clock = HandClock()
    trees = ProcessTrees(tmp_path, clock)
    write(tmp_path, {"loadavg": "0 0 0 1/9 11\n"})
    process(tmp_path, 1, "init", parent=0)
    process(tmp_path, 10)
    process(tmp_path, 11, parent=10, start=200)
    assert members(look(trees, 10)[0]) == {10, 11}
    process(tmp_path, 11, "another", parent=1, start=300)
    clock.now += 1
    look(trees, 10)
    clock.now += 1
    assert members(look(trees, 10)[0]) == {10}
    shutil.rmtree(tmp_path / "11")
    assert members(look(trees, 10)[0]) == {10}


def test_a_watched_process_that_has_ended_has_no_tree(tmp_path: Path) -> None:
    trees = ProcessTrees(tmp_path, HandClock())
    process(tmp_path, 10, state="Z")
    assert look(trees, 10, 11) == []


def test_two_runs_in_one_process_have_a_tree_each(tmp_path: Path) -> None:
    process(tmp_path, 10)
    process(tmp_path, 11, name="pt_data_worker", parent=10)
    both = ProcessTrees(tmp_path, HandClock()).read([watched(10, 0), watched(10, 1)])
    assert [loaders(tree) for tree in both] == [{11: "loader-0"}] * 2


def newest(proc: Path, pid: int) -> None:
    write(proc, {"loadavg": f"0.1 0.2 0.3 1/99 {pid}\n"})


def child(proc: Path, pid: int, parent: int) -> None:
    write(proc, {f"{pid}/stat": stat_line(pid, parent=parent)})


def end(proc: Path, pid: int) -> None:
    (proc / f"{pid}/stat").unlink()
    (proc / f"{pid}").rmdir()


def test_descendants_come_after_their_parents_and_others_are_left_out(tmp_path: Path) -> None:
    for pid, parent in {1: 0, 10: 1, 11: 10, 12: 10, 13: 12, 20: 1, 21: 20}.items():
        child(tmp_path, pid, parent)
    table = ProcessTable(tmp_path, HandClock())
    table.refresh()
    assert sorted(table.descendants(10)) == [11, 12, 13]
    assert table.descendants(10).index(12) < table.descendants(10).index(13)
    assert table.descendants(10, lambda pid: pid == 12) == [11]
    assert table.descendants(99) == []


def test_nothing_is_listed_while_no_process_was_started(tmp_path: Path) -> None:
    clock = HandClock()
    child(tmp_path, 10, 1)
    newest(tmp_path, 10)
    table = ProcessTable(tmp_path, clock)
    table.refresh()
    child(tmp_path, 11, 10)
    clock.now += 1
    table.refresh()
    assert table.descendants(10) == []
    newest(tmp_path, 11)
    table.refresh()
    assert table.descendants(10) == [11]


def test_without_notices_of_new_processes_the_system_is_scanned_at_intervals(tmp_path: Path) -> None:
    clock = HandClock()
    child(tmp_path, 10, 1)
    newest(tmp_path, 10)
    table = ProcessTable(tmp_path, clock)
    table.refresh()
    child(tmp_path, 11, 10)
    clock.now += 11
    table.refresh()
    assert table.descendants(10) == [11]


def test_a_system_that_never_knows_the_newest_is_looked_through_every_time(tmp_path: Path) -> None:
    child(tmp_path, 10, 1)
    newest(tmp_path, 0)
    table = ProcessTable(tmp_path, HandClock())
    table.refresh()
    child(tmp_path, 11, 10)
    table.refresh()
    assert table.descendants(10) == [11]


def test_a_child_whose_parent_has_ended_belongs_to_another(tmp_path: Path) -> None:
    for pid, parent in {1: 0, 10: 1, 11: 10, 12: 11}.items():
        child(tmp_path, pid, parent)
    table = ProcessTable(tmp_path, HandClock())
    table.refresh()
    assert sorted(table.descendants(10)) == [11, 12]
    end(tmp_path, 11)
    child(tmp_path, 12, 1)
    table.refresh()
    assert table.descendants(10) == []
    assert sorted(table.descendants(1)) == [10, 12]


def test_a_number_that_another_process_has_now_is_asked_about_again(tmp_path: Path) -> None:
    for pid, parent in {1: 0, 10: 1, 11: 10}.items():
        child(tmp_path, pid, parent)
    newest(tmp_path, 11)
    table = ProcessTable(tmp_path, HandClock())
    table.refresh()
    child(tmp_path, 11, 1)
    table.remove(11)
    assert table.descendants(10) == []
    table.refresh()
    assert sorted(table.descendants(1)) == [10, 11]


TRAIN = "python train.py"
SPAWN = "python -c from multiprocessing.spawn import spawn_main; spawn_main(...) --multiprocessing-fork"
SERVER = "python -c from multiprocessing.forkserver import main; main(...)"
TRACKER = "python -c from multiprocessing.resource_tracker import main;main(14)"


@pytest.mark.parametrize(
    ("relation", "expected"),
    [
        (ProcessRelation("pt_data_worker", "python", "renamed by the user", TRAIN, is_child=True), True),
        (ProcessRelation("pt_data_worker", "python", SERVER, SERVER, is_child=False), True),
        (ProcessRelation("pt_data_worker", "pt_data_worker", TRAIN, TRAIN, is_child=False), False),
        (ProcessRelation("python", "python", TRAIN, TRAIN, is_child=True), True),
        (ProcessRelation("python", "python", TRAIN, TRAIN, is_child=False), False),
        (ProcessRelation("python", "python", SPAWN, TRAIN, is_child=True), True),
        (ProcessRelation("python", "python", SERVER, TRAIN, is_child=True), False),
        (ProcessRelation("python", "python", SERVER, SERVER, is_child=False), True),
        (ProcessRelation("python", "python", TRACKER, TRAIN, is_child=True), False),
        (ProcessRelation("nvidia-smi", "python", "nvidia-smi", TRAIN, is_child=True), False),
        (ProcessRelation("kworker", "kthreadd", "", "", is_child=True), False),
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
def test_a_worker_is_known_by_its_name_or_its_making(relation: ProcessRelation, expected: bool) -> None:
    assert is_loader(relation) is expected


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
    names = set()
    for epoch in range(100):
        names |= set(slots.names(keys(10, 11, start=epoch)).values())
    assert names == {"loader-0", "loader-1"}


def test_workers_beyond_the_most_have_no_name() -> None:
    workers = keys(*range(100, 100 + MAX_SLOTS + 5))
    names = LoaderSlots().names(workers)
    assert len(names) == MAX_SLOTS
    assert workers[-1] not in names
