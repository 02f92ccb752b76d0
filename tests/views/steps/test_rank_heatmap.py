"""A key by rank and step."""

from __future__ import annotations

import numpy as np
import pytest

from stepscope.views.steps.rank_heatmap import heatmap_of
from tests.views.made import Made, as_json


def test_ranks_are_rows_and_ranges_of_steps_are_columns(made: Made) -> None:
    for rank in range(3):
        made.process(rank=rank, pid=rank, host=f"node{rank % 2}")
        made.log({"step_seconds": np.full(8, rank + 1.0)}, rank=rank, host=f"node{rank % 2}")
    heatmap_json = as_json(heatmap_of(made.run(), "step_seconds", columns=4))
    assert (heatmap_json["ranks"], heatmap_json["hosts"]) == ([0, 1, 2], ["node0", "node1", "node0"])
    assert (heatmap_json["starts"], heatmap_json["width"], heatmap_json["unit"]) == (
        [0, 2, 4, 6],
        2,
        "seconds",
    )
    assert heatmap_json["values"] == [[1.0] * 4, [2.0] * 4, [3.0] * 4]
    assert heatmap_json["late"] is None


def test_a_rank_with_fewer_steps_lines_up_with_the_others(made: Made) -> None:
    for rank, count in ((0, 1000), (1, 10)):
        made.process(rank=rank, pid=rank)
        made.log({"step_seconds": np.arange(count, dtype=float)}, rank=rank, every=0.1)
    heatmap = heatmap_of(made.run(), "step_seconds", columns=10)
    assert {len(row) for row in heatmap.values} == {len(heatmap.starts)}
    assert len(heatmap.starts) <= 10
    assert heatmap.values[1][0] == pytest.approx(4.5)
    assert set(heatmap.values[1][1:]) == {None}
    assert heatmap.values[0][0] == pytest.approx((heatmap.width - 1) / 2)


def test_values_that_are_not_finite_are_left_out_of_means(made: Made) -> None:
    made.process()
    made.log({"loss": [1.0, np.nan, np.inf, np.nan]})
    assert heatmap_of(made.run(), "loss", columns=2).values == ((1.0, None),)


def test_the_rank_the_others_wait_for_is_named(made: Made) -> None:
    for rank, (wait, forward) in enumerate(((0.05, 0.01), (0.05, 0.01), (0.001, 0.06))):
        made.process(rank=rank, pid=rank)
        phases = {"phase/data_seconds": 0.0, "phase/forward_seconds": forward, "phase/backward_seconds": 0.06}
        made.log({**phases, "ranks/wait_seconds": wait, "step_seconds": np.full(20, 0.13)}, rank=rank)
    late = heatmap_of(made.run(), "step_seconds").late
    assert (late.rank, late.phase) == (2, "forward")
    assert late.seconds == pytest.approx(0.049)
    assert (
        late.text == "Rank 2 is 49 ms later than the others in a median step; its forward takes 50 ms longer."
    )


def test_a_rank_that_is_late_outside_the_phases_is_explained_in_words(made: Made) -> None:
    for rank, (wait, other) in enumerate(((0.05, 0.01), (0.05, 0.01), (0.001, 0.06))):
        made.process(rank=rank, pid=rank)
        phases = {"phase/forward_seconds": 0.01, "phase/backward_seconds": 0.06, "phase/other_seconds": other}
        made.log({**phases, "ranks/wait_seconds": wait, "step_seconds": np.full(20, 0.13)}, rank=rank)
    late = heatmap_of(made.run(), "step_seconds").late
    assert late.text.endswith("in a median step; its time outside the phases takes 50 ms longer.")


@pytest.mark.parametrize("key", ["nothing", "x' OR 1=1 --"])
def test_a_key_without_values_is_an_empty_map(made: Made, key: str) -> None:
    made.process()
    made.log({"loss": [1.0]})
    heatmap_json = as_json(heatmap_of(made.run(), key, 0, 10, 5))
    assert (heatmap_json["ranks"], heatmap_json["values"], heatmap_json["starts"]) == ([], [], [])


def test_a_range_limits_the_columns(made: Made) -> None:
    made.process()
    made.log({"loss": np.arange(100.0)})
    heatmap = heatmap_of(made.run(), "loss", 40, 49, 100)
    assert (heatmap.starts, heatmap.values[0][0]) == (tuple(range(40, 50)), 40.0)
