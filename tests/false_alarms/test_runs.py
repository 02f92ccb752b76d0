"""Runs of minutes on a hand clock: silent while they are healthy, heard when something is wrong."""

import numpy as np
import pytest

from tests.false_alarms.runs import PlayedRun, healthy_run, play


@pytest.mark.slow
@pytest.mark.parametrize("seed", [9, 14, 19])
def test_a_healthy_run_of_minutes_raises_no_alarm(tmp_path, seed):
    run = healthy_run(seed)
    assert run.ends[-1] > 60
    assert play(run, tmp_path) == set()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_none_of_20_healthy_runs_of_minutes_raises_an_alarm(tmp_path, seed):
    run = healthy_run(seed)
    assert run.ends[-1] > 60
    assert play(run, tmp_path) == set()


def plain_run(steps=400, step_s=0.5, size=64.0, seed=0) -> PlayedRun:
    """A run without epochs, for one fault to be planted in."""
    chance = np.random.default_rng(seed)
    jitter = np.exp(chance.normal(0, 0.04, steps))
    figures = {
        "phase/data_seconds": 0.01 * step_s * jitter,
        "phase/forward_seconds": 0.4 * step_s * jitter,
        "phase/backward_seconds": 0.59 * step_s * jitter,
        "step_seconds": step_s * jitter,
        "loss": (2 * np.exp(-np.arange(steps) / 80) + 0.5) * jitter,
        "batch/samples": np.full(steps, size),
    }
    return PlayedRun(figures, np.zeros(steps))


def slower(run, factor, since=200):
    for key in ("phase/forward_seconds", "phase/backward_seconds", "step_seconds"):
        run.figures[key][since:] *= factor
    return run


@pytest.mark.slow
@pytest.mark.parametrize(
    ("factor", "found"), [(1.2, set()), (1.8, {"throughput_drop"}), (3.0, {"throughput_drop"})]
)
def test_steps_that_take_longer_for_the_same_batch_are_a_drop(tmp_path, factor, found):
    assert play(slower(plain_run(), factor), tmp_path) == found


@pytest.mark.slow
def test_steps_that_take_three_times_as_long_for_three_times_the_batch_are_no_drop(tmp_path):
    run = slower(plain_run(), 2.8)
    run.figures["batch/samples"][200:] *= 3
    run.figures["batch/samples"][np.arange(400) % 3 != 0] = np.nan  # sizes are not recorded at every step
    assert play(run, tmp_path) == set()


@pytest.mark.slow
def test_steps_that_take_longer_are_no_drop_where_their_work_is_not_known(tmp_path):
    run = slower(plain_run(), 2.8)
    del run.figures["batch/samples"]
    assert play(run, tmp_path) == set()


def test_a_run_whose_processes_do_nothing_for_100_seconds_is_stalled_and_one_that_works_is_not(tmp_path):
    run = plain_run(steps=100)
    run.pauses[60] = 100
    assert play(run, tmp_path) == set()
    run.works_in_pauses = False
    assert play(run, tmp_path) == {"stalled"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("wait_s", "found"),
    [(0.005, set()), (0.06, {"input.exposed_wait"}), (0.3, {"input.exposed_wait", "input_bound"})],
)
def test_a_wait_for_data_is_found_by_its_share(tmp_path, wait_s, found):
    run = plain_run()
    for key in ("phase/data_seconds", "step_seconds"):
        run.figures[key] = run.figures[key] + wait_s
    assert play(run, tmp_path) == found


@pytest.mark.parametrize(("growth", "found"), [(0.03, set()), (0.3, {"step.creep"})])
def test_steps_that_slow_down_bit_by_bit_are_found(tmp_path, growth, found):
    run = plain_run(steps=600, step_s=0.2)
    more = growth * 0.2 * np.arange(600) / 600
    for key in ("phase/backward_seconds", "step_seconds"):
        run.figures[key] = run.figures[key] + more
    assert play(run, tmp_path) == found


def test_a_loss_that_is_not_a_number_is_found_and_alerted(tmp_path):
    run = plain_run(steps=200)
    run.figures["loss"][150:] = np.nan
    assert play(run, tmp_path) == {"num.nonfinite", "nonfinite_loss"}
