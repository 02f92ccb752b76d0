"""The tree of a watched process: who belongs to it, and which of them load data."""

from __future__ import annotations

import shutil
from pathlib import Path

from stepscope.devices.process.process_tree import ProcessTrees, Tree
from tests.devices.written import HandClock, process, watched, write

AGENT = "python -c from stepscope.agent.process.attend import main"


def look(trees: ProcessTrees, *pids: int) -> list[Tree]:
    return trees.read([watched(pid) for pid in pids])


def members(tree: Tree) -> set[int]:
    return {state.key.pid for state in tree.members}


def loaders(tree: Tree) -> dict[int, str]:
    return {key.pid: name for key, name in tree.loaders.items()}


def test_the_agent_and_what_it_started_are_no_part_of_the_training(tmp_path: Path) -> None:
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


def test_a_rank_started_by_another_watched_process_is_no_worker_of_it(tmp_path: Path) -> None:
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
