"""For which recording process another one works."""

from __future__ import annotations

import os
from pathlib import Path

from stepscope.devices.process.process_tree import owners_of, parent_of
from stepscope.schema.sample import Watched


def watched(run: str, pid: int, rank: int = 0) -> Watched:
    return Watched(run, "seg", rank, pid, "rank")


PARENTS = {10: 1, 11: 10, 12: 11, 20: 1, 21: 20}


def test_a_process_works_for_the_one_that_started_it_near_or_far():
    ranks = [watched("a", 10), watched("b", 20)]
    assert owners_of(12, ranks, PARENTS.get) == [ranks[0]]
    assert owners_of(10, ranks, PARENTS.get) == [ranks[0]]
    assert owners_of(21, ranks, PARENTS.get) == [ranks[1]]
    assert owners_of(30, ranks, PARENTS.get) == []


def test_of_one_run_the_nearest_owns_and_of_two_runs_each():
    outer, inner, other = watched("a", 10), watched("a", 11, rank=1), watched("b", 10)
    assert owners_of(12, [outer, inner, other], PARENTS.get) == [inner, other]


def test_a_number_that_comes_again_ends_the_search():
    assert owners_of(5, [watched("a", 9)], {5: 6, 6: 5}.get) == []


def test_the_parent_is_read_from_proc(tmp_path: Path):
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "stat").write_text("7 (a ) R 99 (b) S 42 7 7 0 -1\n")
    assert parent_of(7, tmp_path) == 42
    assert parent_of(8, tmp_path) is None
    assert parent_of(os.getpid()) == os.getppid()
