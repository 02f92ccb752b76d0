"""The newest points of a run: what is kept, what is dropped, and the baseline."""

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepscope.alerts.conditions.recent_points import MIN_KEPT, quantile
from stepscope.alerts.conditions.run_history import History, spark
from stepscope.alerts.conditions.subjects import Subject
from stepscope.alerts.conditions.tree import Reach
from tests.alerts.made_up import BEGAN, SECOND, feed, gpu, source

RANK_0 = Subject(0, "node")


def test_points_of_a_series_are_kept_in_order():
    history = History()
    feed(history, "loss", [3.0, 2.0])
    feed(history, "loss", [1.0], begin_s=2.0, first_step=3)
    recent = history.of("loss")[RANK_0]
    assert recent.values.tolist() == [3.0, 2.0, 1.0]
    assert recent.steps.tolist() == [1, 2, 3]
    assert recent.times_ns.tolist() == [BEGAN, BEGAN + SECOND, BEGAN + 2 * SECOND]


def test_ranks_hosts_and_devices_have_separate_series():
    history = History()
    feed(history, "x", [1.0], of=source(0))
    feed(history, "x", [2.0], of=source(1))
    feed(history, "x", [3.0], of=gpu(0))
    assert {source: series.values[-1] for source, series in history.of("x").items()} == {
        Subject(0, "node"): 1.0,
        Subject(1, "node"): 2.0,
        Subject(None, "node", "GPU-0"): 3.0,
    }


def test_the_number_of_points_is_limited():
    history = History(limit_points=50)
    for begin in range(0, 1000, 7):
        feed(history, "loss", np.arange(begin, begin + 7), every_s=0.01, begin_s=begin * 0.01)
    recent = history.of("loss")[RANK_0]
    assert recent.values.tolist() == list(range(951, 1001))
    assert recent.total == 1001


def test_old_points_are_dropped_except_for_a_minimum():
    history = History(keep_seconds=60)
    feed(history, "slow", np.arange(2000), every_s=3600)
    feed(history, "fast", np.arange(2000), every_s=0.05)
    assert len(history.of("slow")[RANK_0]) == MIN_KEPT
    assert history.of("fast")[RANK_0].values.tolist() == list(range(799, 2000))


def test_memory_does_not_grow_with_the_length_of_a_run():
    history = History(limit_points=100)
    sizes = []
    for begin in range(0, 20_000, 10):
        feed(history, "loss", np.zeros(10), every_s=0.01, begin_s=begin * 0.01)
        sizes.append(len(history.of("loss")[RANK_0]._values))
    assert max(sizes) < 300


def test_a_window_is_the_points_of_the_last_seconds_or_the_last_points():
    history = History()
    now_ns = feed(history, "loss", np.arange(100))
    recent = history.of("loss")[RANK_0]
    assert recent.values[recent.since(now_ns - 3 * SECOND)].tolist() == [96, 97, 98, 99]
    assert recent.values[recent.newest(2)].tolist() == [98, 99]
    assert len(recent.values[recent.since(now_ns + SECOND)]) == 0
    assert np.shares_memory(recent.values[recent.newest(2)], recent._values)


def test_late_points_are_sorted_by_time():
    history = History()
    feed(history, "loss", [1.0, 2.0, 5.0], every_s=1.0)
    feed(history, "loss", [1.5, 4.0], begin_s=0.5, every_s=1.0)
    assert history.of("loss")[RANK_0].values.tolist() == [1.0, 1.5, 2.0, 4.0, 5.0]


def test_series_beyond_the_limit_are_left_out_and_counted():
    history = History(max_series=2)
    for key in ("a", "b", "c", "d", "c"):
        feed(history, key, [1.0])
    feed(history, "a", [2.0])
    assert history.left_out == 2
    assert history.of("c") == {}
    assert history.of("a")[RANK_0].total == 2


def test_only_the_given_keys_are_kept():
    history = History(keys={"loss"})
    feed(history, "loss", [1.0])
    feed(history, "accuracy", [1.0])
    assert history.latest(0) == {"loss": 1.0}


def test_wide_windows_extend_the_history():
    history = History(limit_points=10, keep_seconds=1)
    feed(history, "loss", [0.0])
    history.widen({"loss": Reach(7200.0, 3000)})
    feed(history, "loss", np.arange(5000), every_s=1.0, begin_s=1.0)
    feed(history, "slow", np.arange(5000), every_s=3600.0)
    assert len(history.of("loss")[RANK_0]) == len(history.of("slow")[RANK_0]) == 3000


def test_a_baseline_leaves_out_the_warm_up_and_is_then_fixed():
    history = History()
    feed(history, "x", [1000.0] * 10 + [5.0] * 29)
    assert history.of("x")[RANK_0].baseline is None
    feed(history, "x", [5.0], begin_s=100)
    assert history.of("x")[RANK_0].baseline == 5.0
    feed(history, "x", [7.0] * 70, begin_s=200)
    assert history.of("x")[RANK_0].baseline == 7.0
    feed(history, "x", [9.0] * 5000, begin_s=300)
    assert history.of("x")[RANK_0].baseline == 7.0


def test_a_baseline_is_the_same_however_points_arrive():
    values = np.random.default_rng(1).normal(size=500)
    values[::7] = np.nan
    at_once, one_by_one = History(), History()
    feed(at_once, "x", values)
    for number, value in enumerate(values):
        feed(one_by_one, "x", [value], begin_s=number)
    finite = values[np.isfinite(values)]
    assert at_once.of("x")[RANK_0].baseline == pytest.approx(np.median(finite[10:110]))
    assert one_by_one.of("x")[RANK_0].baseline == at_once.of("x")[RANK_0].baseline


@given(st.lists(st.floats(-1e150, 1e150), min_size=1, max_size=50), st.sampled_from([0.5, 0.9, 0.95, 0.99]))
def test_quantiles_are_those_of_numpy(values, share):
    expected = np.quantile(values, share)
    assert quantile(np.array(values), share) == pytest.approx(
        expected, rel=1e-9, abs=1e-9 * max(map(abs, values))
    )


def test_a_quantile_of_equal_values_is_that_value():
    assert quantile(np.full(37, 0.1), 0.95) == 0.1


def test_the_last_values_are_available_for_a_sparkline():
    history = History()
    feed(history, "x", np.arange(100))
    assert spark(history.of("x")[RANK_0]) == tuple(range(80, 100))


def test_the_latest_values_are_those_of_the_closest_subject():
    history = History()
    feed(history, "loss", [1.0], of=source(0))
    feed(history, "loss", [2.0], of=source(1), begin_s=5)
    feed(history, "gpu/temperature_celsius", [60.0], of=gpu(0))
    feed(history, "gpu/temperature_celsius", [70.0], of=gpu(1))
    assert history.latest(0) == {"loss": 1.0, "gpu/temperature_celsius": 60.0}
    assert history.latest(None, "GPU-1") == {"loss": 2.0, "gpu/temperature_celsius": 70.0}


def test_many_rows_are_added_quickly():
    history = History()
    keys = [f"key{number}" for number in range(20)]
    rows = 10_000
    steps = np.arange(rows)
    times = BEGAN + steps * 1000
    values = np.random.default_rng(1).normal(size=(rows, len(keys)))
    began = time.process_time()
    for _ in range(10):
        history.add(source(), keys, steps, times, values)
        times = times + rows * 1000
    assert time.process_time() - began < 1.0
    assert history.of("key3")[RANK_0].total == 10 * rows
