"""Exporters get the values of each key in the order in which they were logged."""

import numpy as np

from stepscope.agent.ingest.row_order import in_logged_order
from stepscope.exporters.base import Table
from stepscope.schema.series import Source

RANK_0, RANK_1 = (Source("run", "s", rank, "node1") for rank in (0, 1))


def table(keys: str, steps: list[int], source: Source = RANK_0) -> Table:
    numbers = np.array(steps)
    return Table(
        source, tuple(keys), numbers, numbers * 10, np.full((len(steps), len(keys)), numbers[:, None])
    )


def steps_of(key: str, tables: list[Table]) -> list[int]:
    return [step for part in tables if key in part.keys for step in part.steps.tolist()]


def test_a_key_that_is_logged_with_different_other_keys_comes_in_its_order():
    sparse = table("lv", [0, 10, 20])
    dense = table("l", [step for step in range(30) if step % 10])
    ordered = list(in_logged_order([sparse, dense]))
    assert steps_of("l", ordered) == list(range(30))
    assert steps_of("v", ordered) == [0, 10, 20]
    assert all((part.values == part.steps[:, None]).all() for part in ordered)


def test_keys_that_are_related_by_a_third_set_of_keys_stay_in_order():
    ordered = list(in_logged_order([table("a", [1, 4]), table("b", [2]), table("ab", [0, 3])]))
    assert [part.steps.tolist() for part in ordered] == [[0], [1], [2], [3], [4]]


def test_tables_without_a_common_key_and_those_of_other_ranks_stay_whole():
    tables = [table("a", [0, 2]), table("b", [1, 3]), table("a", [1, 3], RANK_1)]
    assert [part.steps.tolist() for part in in_logged_order(tables)] == [[0, 2], [1, 3], [1, 3]]
