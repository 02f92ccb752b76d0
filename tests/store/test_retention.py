"""Old runs go under the limits they were recorded with, oldest first; a live run never does."""

from dataclasses import replace

import numpy as np
import pytest

from stepscope.store.retention import DAY_NS, apply
from stepscope.store.sqlite import SqliteStore
from tests.store.run_samples import append, points, process, source

NOW_NS = 1_760_000_000 * 10**9
MIB = 1 << 20


@pytest.fixture
def store(tmp_path):
    opened = SqliteStore(tmp_path / "store.sqlite")
    yield opened
    opened.close()


def put(store, run_id, days_ago, status="finished", **fields):
    """A run whose last sign was so many days ago."""
    at_ns = NOW_NS - int(days_ago * DAY_NS)
    ended = None if status in {"running", "stalled"} else at_ns
    values = {"started_ns": at_ns - 10**9, "last_ns": at_ns, "ended_ns": ended, **fields}
    with store.transaction():
        store.put_process(process(run_id, status=status, **values))


def fill(store, run_id, points=200_000):
    """About a megabyte and a half."""
    append(store, {"loss": np.random.default_rng(1).normal(size=points)}, of=source(run_id))


def tidy(store, **limits):
    """Applies limits that every run was recorded with."""
    for run in store.runs():
        limit(store, run.id, **limits)
    return apply(store, now_ns=lambda: NOW_NS)


def limit(store, run_id, **limits):
    with store.transaction():
        for process in store.processes(run_id):
            store.put_process(replace(process, facts={"retention": limits}))


def left(store):
    return {run.id for run in store.runs()}


def test_without_limits_everything_stays(store):
    put(store, "ancient-1", days_ago=9999)
    assert tidy(store) == []
    assert left(store) == {"ancient-1"}


def test_runs_that_ended_too_long_ago_are_deleted_oldest_first(store):
    put(store, "young-1", days_ago=29.9)
    put(store, "old-1", days_ago=30.1)
    put(store, "oldest-1", days_ago=400)
    assert tidy(store, max_age_days=30) == ["oldest-1", "old-1"]
    assert left(store) == {"young-1"}


def test_a_run_of_exactly_the_age_stays(store):
    put(store, "edge-1", days_ago=30)
    assert tidy(store, max_age_days=30) == []


def test_the_newest_segment_decides_how_old_a_run_is(store):
    put(store, "resumed-1", days_ago=90)
    put(store, "resumed-1", days_ago=1, segment="b2")
    assert tidy(store, max_age_days=30) == []


def test_a_process_that_recorded_nothing_is_as_old_as_its_end(store):
    put(store, "silent-1", days_ago=1, last_ns=0)
    assert tidy(store, max_age_days=30) == []


def test_the_oldest_beyond_the_number_are_deleted(store):
    for age in (5, 1, 3, 2, 4):
        put(store, f"run{age}-1", days_ago=age)
    assert tidy(store, max_runs=2) == ["run5-1", "run4-1", "run3-1"]
    assert left(store) == {"run1-1", "run2-1"}


def test_live_runs_count_but_stay(store):
    put(store, "live-1", days_ago=100, status="running")
    put(store, "stalled-1", days_ago=90, status="stalled")
    put(store, "ended-1", days_ago=1)
    assert tidy(store, max_runs=1, max_age_days=2, max_bytes=MIB) == ["ended-1"]
    assert left(store) == {"live-1", "stalled-1"}


def test_a_run_one_rank_of_which_crashed_is_live_while_another_records(store):
    put(store, "half-1", days_ago=50, status="crashed")
    put(store, "half-1", days_ago=50, status="running", rank=1)
    assert store.runs()[0].status == "crashed"
    assert tidy(store, max_runs=1, max_age_days=1) == []


def test_a_run_whose_older_segment_still_records_is_live(store):
    put(store, "both-1", days_ago=50, status="running")
    put(store, "both-1", days_ago=40, status="finished", segment="b2")
    assert tidy(store, max_age_days=1) == []


def test_the_oldest_are_deleted_until_the_rest_fits(store):
    for age in (3, 2, 1):
        put(store, f"run{age}-1", days_ago=age)
        fill(store, f"run{age}-1")
    limit = store.bytes_used() - MIB
    assert tidy(store, max_bytes=limit) == ["run3-1"]
    assert store.bytes_used() <= limit
    assert len(points(store, run_id="run2-1")) == 200_000


def test_nothing_is_deleted_from_a_store_that_fits(store):
    put(store, "run-1", days_ago=1)
    assert tidy(store, max_bytes=MIB) == []


def test_what_one_limit_deleted_another_does_not_count_again(store):
    for age in (3, 2, 1):
        put(store, f"run{age}-1", days_ago=age)
        fill(store, f"run{age}-1")
    assert tidy(store, max_runs=2, max_bytes=4 * MIB) == ["run3-1"]
    assert tidy(store, max_runs=1, max_bytes=MIB) == ["run2-1", "run1-1"]


def test_a_live_run_stays_even_when_the_store_is_too_large(store):
    put(store, "live-1", days_ago=0, status="running")
    fill(store, "live-1")
    assert tidy(store, max_bytes=MIB) == []
    assert store.bytes_used() > MIB


def test_the_files_on_disk_become_smaller_while_the_store_is_open(store, tmp_path):
    put(store, "old-1", days_ago=9)
    put(store, "live-1", days_ago=0, status="running")
    fill(store, "old-1")
    append(store, {"loss": [1, 2]}, of=source("live-1"))

    def on_disk():
        return sum(path.stat().st_size for path in tmp_path.iterdir())

    before = on_disk()
    assert before > MIB
    assert tidy(store, max_age_days=1) == ["old-1"]
    assert on_disk() < before / 4
    assert points(store, run_id="live-1").values.tolist() == [1, 2]


def test_the_clock_of_the_machine_is_used_when_none_is_given(store):
    put(store, "old-1", days_ago=1)
    limit(store, "old-1", max_age_days=1)
    assert apply(store) == ["old-1"]


def test_the_limits_of_one_run_delete_no_other(store):
    for age in (4, 3, 2, 1):
        put(store, f"run{age}-1", days_ago=age)
        fill(store, f"run{age}-1")
    limit(store, "run3-1", max_age_days=2)
    limit(store, "run2-1", max_age_days=9, max_runs=1, max_bytes=MIB)
    assert apply(store, now_ns=lambda: NOW_NS) == ["run3-1", "run2-1"]
    assert left(store) == {"run4-1", "run1-1"}


def test_limits_that_are_not_numbers_delete_nothing(store):
    put(store, "odd-1", days_ago=100)
    limit(store, "odd-1", max_age_days="1", max_runs=True, colour=3)
    assert apply(store, now_ns=lambda: NOW_NS) == []
