"""Conditions evaluated with synthetic points."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepscope.alerts.conditions.evaluation import evaluate
from stepscope.alerts.conditions.expression import OVER_A_WINDOW, parse
from stepscope.alerts.conditions.run_history import History
from tests.alerts.made_up import BEGAN, SECOND, feed, gpu, machine, source


def judged(text, history, now_ns, status=None):
    [outcome] = evaluate(parse(text), history, now_ns, status)
    return outcome


def truth(text, history, now_ns, status=None):
    return judged(text, history, now_ns, status).is_true


@pytest.fixture
def history():
    """`x` counts from 0 to 99, a second apart; `bad` has one value in four that is not finite."""
    made = History()
    feed(made, "x", np.arange(100))
    bad = np.arange(20.0)
    bad[::4] = [np.nan, np.inf, -np.inf, np.nan, np.nan]
    feed(made, "bad", bad, begin_s=80)
    feed(made, "zero", np.zeros(50), begin_s=50)
    return made


NOW = BEGAN + 99 * SECOND


@pytest.mark.parametrize(
    "text",
    [
        "x == 99",
        "last(x) == 99 and last(x, 10 points) == 99",
        "first(x, 10 points) == 90 and first(x, 10s) == 89",
        "mean(x, 3 points) == 98 and avg(x, 2s) == 98",
        "min(x, 5 points) == 95 and max(x, 5 points) == 99 and median(x, 5 points) == 97",
        "p90(x, 2m) > 89 and p95(x, 2m) > 94 and p99(x, 2m) > 98",
        "sum(x, 2 points) == 197 and count(x, 10s) == 11",
        "std(x, 1 points) == 0 and std(x, 2m) > 28",
        "delta(x, 11 points) == 10 and rate(x, 11 points) == 1",
        "abs(slope(x, 2m) - 1) < 1e-9",
        "nonfinite(bad, 8 points) == 2 and count(bad, 8 points) == 8 and nonfinite(x, 1h) == 0",
        "max(bad, 20s) == 19 and mean(bad, 4 points) == 18",
        "age(x) == 0",
        "min(x, 5, 7) == 5 and max(x, 100) == 100 and abs(-x) == 99",
        "baseline(x) == 54.5 and x > baseline and x < 2 * baseline",
        "x - 9 == 90 and x / 3 == 33 and 2 * x + 1 == 199 and -x < 0",
        "missing|x == 99",
        "not (x < 5) and (x < 5 or x > 5)",
        "count(x, 1ms) == 1",
    ],
)
def test_a_condition_is_true(text, history):
    assert truth(text, history, NOW) is True


@pytest.mark.parametrize("function", ["mean", "median", "p90", "min", "max", "std", "slope", "rate"])
def test_a_window_of_time_is_not_evaluated_before_most_of_it_has_passed(function):
    history = History()
    now_ns = feed(history, "load", 0.95 + 0.001 * np.arange(20))
    assert truth(f"{function}(load, 30s) > -1", history, now_ns) is None
    now_ns = feed(history, "load", 0.97 + 0.001 * np.arange(10), begin_s=20)
    assert truth(f"{function}(load, 30s) > -1", history, now_ns) is True


def test_a_mean_over_30_seconds_is_unknown_after_one_sample():
    history = History()
    now_ns = feed(history, "cpu/utilization_ratio", [1.0])
    assert truth("mean(cpu/utilization_ratio, 30s) > 90%", history, now_ns) is None
    assert truth("mean(cpu/utilization_ratio, 30s) > 90%", history, now_ns + 29 * SECOND) is None


def test_a_metric_that_is_logged_rarely_is_evaluated_with_the_points_there_are():
    history = History()
    now_ns = feed(history, "val/loss", [3.0, 2.0, 1.0], every_s=60)
    assert truth("mean(val/loss, 30s) < 2", history, now_ns) is True


def test_a_window_of_points_is_not_evaluated_before_it_has_a_fifth_of_them():
    history = History()
    now_ns = feed(history, "x", np.ones(19))
    assert truth("mean(x, 100 points) == 1", history, now_ns) is None
    assert truth("count(x, 100 points) == 19 and sum(x, 100 points) == 19", history, now_ns) is True
    assert truth("mean(x, 2 points) == 1", history, now_ns) is True
    now_ns = feed(history, "x", [1.0], begin_s=19)
    assert truth("mean(x, 100 points) == 1", history, now_ns) is True


def test_a_series_of_which_points_were_dropped_fills_every_window():
    history = History(limit_points=1200)
    now_ns = feed(history, "x", np.ones(3000), every_s=0.001)
    assert truth("mean(x, 30s) == 1", history, now_ns) is True


def test_the_start_of_a_series_is_the_median_of_its_first_five_points():
    history = History()
    now_ns = feed(history, "batch/samples", [8, 64, 64, 64, 1, 500, 500])
    assert truth("start(batch/samples) == 64", history, now_ns) is True


def test_the_highest_value_before_a_window_excludes_the_window():
    history = History()
    now_ns = feed(history, "x", [5, np.inf, 7, 1, 2, 300])
    assert truth("highest_before(x, 3 points) == 7", history, now_ns) is True
    assert truth("highest_before(x, 10 points) > 0", history, now_ns) is None


def test_divergence_is_the_rise_of_a_diverging_loss_and_otherwise_zero():
    history = History()
    falling = 2.5 * np.exp(-np.arange(300) / 40) + 0.5
    now_ns = feed(history, "loss", falling)
    assert truth("divergence(loss, 1000 points) == 0", history, now_ns) is True
    now_ns = feed(history, "loss", 0.5 * 1.3 ** np.arange(30), begin_s=300, first_step=301)
    assert truth("divergence(loss, 1000 points) > 2", history, now_ns) is True


@pytest.mark.parametrize(
    "text", ["x < 99", "x != 99", "x > 5 and x < 6", "not (x > 5)", "mean(x, 3 points) > 98"]
)
def test_a_condition_is_false(text, history):
    assert truth(text, history, NOW) is False


@pytest.mark.parametrize(
    "text",
    [
        "first(bad, 20 points) < 5",
        "first(bad, 20 points) != 5",
        "x / zero > 1",
        "x + missing > 1",
        "delta(x, 1 points) >= 0",
        "median(x, 1m) > 0 and missing > 1",
        "missing > 1 or x < 5",
        "not (missing > x)",
        "max(x, missing) > 1",
        'x > 5 and status == "running"',
        "baseline(bad) > 0",
    ],
)
def test_a_condition_is_unknown(text, history):
    assert truth(text, history, NOW) is None


def test_a_known_side_may_decide_without_the_other(history):
    assert truth("missing > 1 and x < 5", history, NOW) is False
    assert truth("x < 5 and missing > 1", history, NOW) is False
    assert truth("missing > 1 or x > 5", history, NOW) is True


def test_a_nan_value_is_neither_above_nor_below(history):
    feed(history, "loss", [1.0, math.nan])
    assert truth("loss > 5", history, NOW) is None
    assert truth("loss <= 5", history, NOW) is None
    assert truth("max(loss, 0, 3) > 2", history, NOW) is None
    assert truth("nonfinite(loss, 20 points) > 0", history, NOW) is True


def test_an_infinite_value_is_above(history):
    feed(history, "loss", [1.0, math.inf])
    assert truth("loss > 5", history, NOW) is True


def test_an_empty_window_is_unknown_and_its_count_is_zero(history):
    later = NOW + 3600 * SECOND
    assert truth("mean(x, 1m) > 1", history, later) is None
    assert truth("count(x, 1m) == 0 and nonfinite(x, 1m) == 0", history, later) is True
    assert truth("age(x) == 3600 and x == 99", history, later) is True


def test_a_slope_is_robust_against_outliers():
    history = History()
    values = 3.0 * np.arange(500.0)
    values[::5] += 10_000
    now_ns = feed(history, "x", values, every_s=0.5)
    assert truth("abs(slope(x, 5m) - 6) < 0.5", history, now_ns) is True


def test_the_status_of_the_run_is_compared(history):
    condition = parse('status == "crashed" or status == "failed"')
    [outcome] = evaluate(condition, History(), NOW, "crashed")
    assert (outcome.is_true, outcome.rank, outcome.device, outcome.key) == (True, None, "", "")
    assert evaluate(condition, History(), NOW, "running")[0].is_true is False
    assert evaluate(condition, History(), NOW)[0].is_true is None
    assert truth('status != "crashed"', history, NOW, "running") is True


def test_a_metric_that_was_never_logged_has_no_outcomes(history):
    assert evaluate(parse("missing > 1"), history, NOW) == []


def test_an_outcome_shows_what_decided(history):
    outcome = judged("missing > 3 or mean(x, 3 points) > 90 or x < 5", history, NOW)
    assert (outcome.value, outcome.threshold, outcome.key) == (98.0, 90.0, "x")
    assert outcome.recent == tuple(range(80, 100))
    assert (outcome.step, outcome.points, outcome.rank, outcome.host) == (100, 100, 0, "node")


def test_the_side_with_the_metric_is_the_value(history):
    outcome = judged("5 < x", history, NOW)
    assert (outcome.value, outcome.threshold, outcome.key) == (99.0, 5.0, "x")


def test_each_rank_and_device_is_evaluated_separately():
    history = History()
    for rank, loss in enumerate([1.0, 9.0, 1.0]):
        now_ns = feed(history, "loss", [loss], of=source(rank))
    outcomes = evaluate(parse("loss > 5"), history, now_ns)
    assert [(outcome.rank, outcome.is_true) for outcome in outcomes] == [(0, False), (1, True), (2, False)]


def test_a_metric_of_a_host_applies_to_each_of_its_gpus():
    history = History()
    for host, cpu in (("a", 0.2), ("b", 0.99)):
        feed(history, "cpu/utilization_ratio", [cpu], of=machine(host))
        for number in (0, 1):
            now_ns = feed(history, "gpu/utilization_ratio", [0.1 * number], of=gpu(number, host))
    outcomes = evaluate(
        parse("cpu/utilization_ratio > 0.9 and gpu/utilization_ratio < 0.05"), history, now_ns
    )
    by_device = {(outcome.host, outcome.device): outcome.is_true for outcome in outcomes}
    assert by_device == {
        ("a", "GPU-0"): False,
        ("a", "GPU-1"): False,
        ("b", "GPU-0"): True,
        ("b", "GPU-1"): False,
    }


def test_ranks_are_paired_with_the_gpus_they_use():
    history = History()
    for number in (0, 1):
        feed(history, "step_seconds", [1.0 + number], of=source(number))
        now_ns = feed(history, "gpu/utilization_ratio", [0.5], of=gpu(number))
    condition = parse("gpu/utilization_ratio < 0.9 and step_seconds > 1.5")
    pairs = {
        (outcome.rank, outcome.device): outcome.is_true for outcome in evaluate(condition, history, now_ns)
    }
    assert pairs == {(0, "GPU-0"): False, (0, "GPU-1"): False, (1, "GPU-0"): True, (1, "GPU-1"): True}
    for number in (0, 1):
        feed(history, "gpu/process_memory_bytes", [1.0], of=source(number, device=f"GPU-{number}"))
    pairs = {
        (outcome.rank, outcome.device): outcome.is_true for outcome in evaluate(condition, history, now_ns)
    }
    assert pairs == {(0, "GPU-0"): False, (1, "GPU-1"): True}


def test_a_subject_that_appears_later_is_evaluated_too():
    history = History()
    condition = parse("loss > 1 and gpu/power_watts > 1")
    for rank in (0, 1):
        now_ns = feed(history, "loss", [2.0], of=source(rank))
    assert [outcome.rank for outcome in evaluate(condition, history, now_ns)] == [0, 1]
    feed(history, "gpu/power_watts", [2.0], of=gpu(0))
    assert [(outcome.rank, outcome.device) for outcome in evaluate(condition, history, now_ns)] == [
        (0, "GPU-0"),
        (1, "GPU-0"),
    ]
    feed(history, "gpu/memory_used_bytes", [2.0], of=source(1, device="GPU-0", axis="seconds"))
    assert [(outcome.rank, outcome.device) for outcome in evaluate(condition, history, now_ns)] == [
        (0, ""),
        (1, "GPU-0"),
    ]


def test_a_rank_without_a_metric_does_not_use_that_of_another_rank():
    history = History()
    feed(history, "a", [1.0], of=source(0))
    feed(history, "a", [1.0], of=source(1))
    now_ns = feed(history, "b", [1.0], of=source(0))
    outcomes = evaluate(parse("a == 1 and b == 1"), history, now_ns)
    assert [(outcome.rank, outcome.is_true) for outcome in outcomes] == [(0, True), (1, None)]


def test_hundreds_of_ranks_and_gpus_are_evaluated_quickly():
    import time

    history = History()
    for host in range(64):
        for number in range(8):
            feed(history, "step_seconds", np.ones(100), of=source(host * 8 + number, f"h{host}"))
            now_ns = feed(history, "gpu/utilization_ratio", np.ones(100), of=gpu(number, f"h{host}"))
    began = time.process_time()
    outcomes = evaluate(parse("step_seconds > 2 and mean(gpu/utilization_ratio, 1m) < 0.5"), history, now_ns)
    assert len(outcomes) == 64 * 8 * 8
    assert time.process_time() - began < 2.0


@given(
    st.sampled_from(OVER_A_WINDOW),
    st.lists(st.floats(), min_size=1, max_size=300),
    st.sampled_from(["10 points", "1m", "1h"]),
)
def test_no_values_make_a_function_fail(function, values, window):
    history = History()
    now_ns = feed(history, "x", values)
    [outcome] = evaluate(parse(f"{function}(x, {window}) > 1"), history, now_ns)
    assert outcome.is_true in (True, False, None)
