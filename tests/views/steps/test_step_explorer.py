"""Steps one by one, with bars, slowest steps and histogram."""

from __future__ import annotations

import numpy as np
import pytest

from stepscope.views.steps.step_explorer import MAX_BARS, steps_of
from stepscope.views.steps.step_values import step_values
from tests.views.made import PHASES, Made, as_json, at, trained


def test_all_steps_of_a_short_run_are_bars_with_phases(made: Made) -> None:
    made.process()
    trained(made, 50, data=0.01)
    window = steps_of(made.run())
    assert (window.from_, window.to, window.count) == (0, 49, 50)
    assert [bar.step for bar in window.bars] == list(range(50))
    assert window.bars[0].phases == pytest.approx({"data": 0.01, "forward": 0.005, "backward": 0.005})
    assert window.phase_order == PHASES
    assert sum(bin_.count for bin_ in window.histogram) == 50
    assert window.percentiles.p50 == pytest.approx(0.02)
    assert window.sampled_ratio is None


def test_the_json_has_the_fields_that_the_page_reads(made: Made) -> None:
    made.process()
    trained(made, 5)
    steps_json = as_json(steps_of(made.run()))
    assert list(steps_json) == [
        "from_", "to", "bars", "phase_order", "slowest", "histogram", "percentiles", "count", "ranks",
        "sampled_ratio",
        "overhead_ratio",
    ]  # fmt: skip
    assert list(steps_json["percentiles"]) == ["p50", "p90", "p95", "p99", "max"]


def test_the_slowest_of_many_steps_are_drawn_with_their_slow_phase(made: Made) -> None:
    made.process()
    data = np.zeros(20_000)
    slow = np.arange(7, 20_000, 1000)
    data[slow] = 1.0 + np.arange(20) / 100
    trained(made, 20_000, data=data)
    window = steps_of(made.run())
    assert len(window.bars) <= MAX_BARS
    assert set(slow) <= {bar.step for bar in window.bars}
    assert [slow_step.step for slow_step in window.slowest] == slow[::-1].tolist()
    assert {slow_step.worst_phase for slow_step in window.slowest} == {"data"}
    assert window.slowest[0].ratio_to_median == pytest.approx(1.2 / 0.01)
    steps = np.array([bar.step for bar in window.bars])
    assert np.diff(steps).max() <= 60
    assert window.percentiles.max == pytest.approx(1.2)


def test_a_few_slow_steps_do_not_put_all_others_into_one_bin(made: Made) -> None:
    made.process()
    data = np.random.default_rng(0).normal(0.01, 0.002, 400).clip(0.004)
    data[:6] = np.linspace(0.2, 2.0, 6)
    trained(made, 400, data=data)
    histogram = steps_of(made.run()).histogram
    assert sum(bin_.count for bin_ in histogram) == 400
    assert sum(bin_.count > 0 for bin_ in histogram[:-1]) > 20
    assert histogram[-1].high == pytest.approx(2.01)


def test_a_range_shows_only_its_steps(made: Made) -> None:
    made.process()
    trained(made, 9000)
    window = steps_of(made.run(), 5000, 5009)
    assert [bar.step for bar in window.bars] == list(range(5000, 5010))
    assert (window.from_, window.to) == (5000, 5009)
    assert window.bars[0].phases["forward"] == pytest.approx(0.005)


def test_repeated_steps_of_a_resumed_run_show_their_last_values(made: Made) -> None:
    made.process(status="crashed")
    made.process(segment="b2", started_ns=at(500), end=600)
    made.log({"step_seconds": np.full(100, 1.0)})
    made.log({"step_seconds": np.full(60, 2.0)}, np.arange(80, 140), segment="b2", begin=500)
    window = steps_of(made.run())
    assert window.count == 140
    assert [bar.seconds for bar in window.bars] == [1.0] * 80 + [2.0] * 60


def test_the_slowest_steps_are_of_all_ranks_unless_one_is_given(made: Made) -> None:
    for rank, slow in ((0, 5), (1, 9)):
        made.process(rank=rank, pid=rank)
        seconds = np.full(50, 0.1)
        seconds[slow] = 1.0 + rank
        made.log({"step_seconds": seconds}, rank=rank)
    every = steps_of(made.run())
    assert [(slow_step.step, slow_step.rank) for slow_step in every.slowest[:2]] == [(9, 1), (5, 0)]
    slow_step = steps_of(made.run(), rank=1)
    assert {slow.rank for slow in slow_step.slowest} == {1}
    assert (slow_step.bars[9].seconds, every.bars[9].seconds) == (2.0, 0.1)
    assert every.ranks == slow_step.ranks == (0, 1)


def test_steps_that_were_not_sampled_show_their_known_phases(made: Made) -> None:
    made.process()
    made.log({"step_seconds": np.full(1000, 0.1), "phase/data_seconds": 0.02})
    kept = np.arange(3, 1000, 10)
    made.log({"phase/forward_seconds": np.full(100, 0.05), "phase/sampled_ratio": 0.1}, kept)
    window = steps_of(made.run())
    assert window.sampled_ratio == pytest.approx(0.1)
    with_all = [bar for bar in window.bars if "forward" in bar.phases]
    assert len(with_all) == 100, "steps with all phases are preferred"
    assert all(bar.phases["data"] == pytest.approx(0.02) for bar in window.bars)


def test_other_events_in_a_step_are_marked(made: Made) -> None:
    made.process()
    checkpoint = np.zeros(50)
    checkpoint[10] = 0.5
    trained(made, 50, checkpoint=checkpoint)
    made.log({"gc/pause_seconds": [0.3], "compile/recompiles": [2.0]}, [20])
    made.event("evaluation", step=30)
    made.event("console", step=31, text="no mark")
    marks = {bar.step: bar.marks for bar in steps_of(made.run()).bars if bar.marks}
    assert marks == {
        10: ("checkpoint",),
        20: ("compiled again", "garbage collection"),
        30: ("evaluation",),
    }


def test_step_times_follow_from_log_calls_if_nothing_else_is_known(made: Made) -> None:
    made.process()
    made.log({"loss": np.ones(10)}, np.arange(0, 20, 2), every=1.0)
    window = steps_of(made.run())
    assert {bar.seconds for bar in window.bars} == {0.5}
    assert window.count == 9


@pytest.mark.parametrize("values", [[], [np.nan, np.inf], [0.1]])
def test_few_or_no_steps_are_allowed(made: Made, values: list[float]) -> None:
    made.process()
    if values:
        made.log({"step_seconds": values})
    window = as_json(steps_of(made.run(), 0, 10))
    known = [value for value in values if np.isfinite(value)]
    assert window["count"] == len(known)
    assert (window["percentiles"] is None) == (not known)


def test_a_range_of_a_long_series_is_read_as_exactly_as_the_whole(made: Made) -> None:
    made.process()
    values = np.random.default_rng(0).random(20_000)
    made.log({"step_seconds": values}, seal=True)
    run = made.run()
    part, whole = step_values(run, "step_seconds", 0, 7000, 7500), step_values(run, "step_seconds", 0)
    assert part.values.tolist() == whole.values[7000:7501].tolist()
    assert part.times.tolist() == pytest.approx(whole.times[7000:7501].tolist())


def test_only_the_newest_steps_of_a_very_long_series_are_read(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stepscope.views.steps.step_values.MAX_POINTS", 1000)
    monkeypatch.setattr("stepscope.views.steps.step_values.MAX_STEPS", 500)
    made.process()
    made.log({"step_seconds": np.arange(5000) / 1000}, seal=True)
    window = steps_of(made.run())
    assert (window.from_, window.to, window.count) == (4500, 4999, 500)
    assert window.percentiles.max == pytest.approx(4.999)
