"""Moments are turned into the training steps that were in progress then."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from stepscope.schema.run import Process
from stepscope.schema.series import Points, Source
from stepscope.store import step_clock
from stepscope.store.buckets import Limits, bucket_by_step
from stepscope.store.sqlite import SqliteStore
from stepscope.store.step_clock import Timeline

NS = 10**9


def numbers(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


@pytest.mark.parametrize(("moment", "step"), [(0, 10), (100, 10), (101, 11), (250, 12), (300, 12), (999, 12)])
def test_the_step_in_progress_is_the_next_to_be_logged_or_the_last(moment: int, step: int) -> None:
    logged = Timeline(numbers(100, 200, 300), numbers(10, 11, 12))
    assert logged.steps_at(numbers(moment)).tolist() == [step]


def test_steps_that_go_back_are_joined_in_the_order_of_time() -> None:
    logged = Timeline(numbers(100, 200, 300), numbers(5, 3, 4))
    assert logged.steps_at(numbers(50, 150, 250)).tolist() == [5, 3, 4]


def test_a_segment_that_logged_no_step_has_step_zero() -> None:
    assert Timeline(numbers(), numbers()).steps_at(numbers(1, 2)).tolist() == [0, 0]


@pytest.fixture
def store(tmp_path: Path):
    opened = SqliteStore(tmp_path / "store.sqlite")
    yield opened
    opened.close()


def tell(store: SqliteStore, key: str, steps: list[int], rank: int = 0, **labels: str) -> None:
    with store.transaction():
        store.put_process(Process("r", "r", "p", "s", rank, "h", 1 + rank, "rank", 1))
        column = np.array(steps, np.int64)
        times_ns = (column + 1) * NS
        store.append(Source("r", "s", rank, "h", **labels), [key], column, times_ns, column[:, None] * 1.0)


def steps_in(reader, *times_ns: int) -> list[int]:
    return reader.step_clock("r").steps_at(numbers(*times_ns)).tolist()


def test_the_first_rank_and_what_it_logged_most_often_are_the_clock(store: SqliteStore) -> None:
    tell(store, "val_loss", [0, 50])
    tell(store, "loss", list(range(0, 100, 10)))
    tell(store, "loss", [7], rank=1)
    tell(store, "x", [3], device="worker-5")
    assert steps_in(store, 1, NS + 1, 40 * NS, 10**15) == [0, 10, 40, 90]
    assert store.step_clock("r").first_step("s") == 0


def test_a_run_that_logged_no_step_has_none(store: SqliteStore) -> None:
    with store.transaction():
        store.put_process(Process("r", "r", "p", "s", 0, "h", 1, "rank", 1))
    clock = store.step_clock("r")
    assert (clock.has_steps, clock.first_step("s"), clock.steps_at(numbers(5)).tolist()) == (False, None, [0])


def test_a_time_belongs_to_the_segment_that_ran_then(store: SqliteStore) -> None:
    for segment, began_s, steps in (("s", 1, range(10)), ("t", 100, range(5, 10))):
        with store.transaction():
            store.put_process(Process("r", "r", "p", segment, 0, "h", 1, "rank", began_s * NS))
            column = np.array(steps, np.int64)
            times_ns = began_s * NS + (column + 1) * NS
            store.append(Source("r", segment, 0, "h"), ["loss"], column, times_ns, column[:, None] * 1.0)
    assert steps_in(store, 99 * NS, 100 * NS, 107 * NS) == [9, 5, 6]
    assert store.step_clock("r").first_step("t") == 5


def test_recent_times_need_the_newest_records_alone_and_older_ones_change_nothing(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(step_clock, "NEWEST_ROWS", 10)
    tell(store, "loss", list(range(1000)))
    read = []
    points = store.points
    monkeypatch.setattr(store, "points", lambda *given: read.append(1) or points(*given))
    clock = store.step_clock("r")
    assert clock.steps_at(numbers(995 * NS, 999 * NS + 1)).tolist() == [994, 999]
    assert read == []
    assert clock.steps_at(numbers(3 * NS, 995 * NS)).tolist() == [2, 994]
    assert read == [1]


def test_a_run_of_very_many_records_is_joined_by_buckets(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(step_clock, "MAX_EXACT", 100)
    monkeypatch.setattr(step_clock, "BUCKETS", 64)
    tell(store, "loss", list(range(1000)))
    exact = np.arange(1000)
    near = store.step_clock("r").steps_at((exact + 1) * NS)
    assert (near >= exact).all()
    assert (near - exact).max() < 16
    assert near[-1] == 999


def test_points_are_bucketed_by_step_within_bounds() -> None:
    points = Points(np.arange(100), np.arange(100) * 1.0, lambda: np.arange(100) * NS)
    buckets = bucket_by_step(points, Limits(4))
    assert (buckets.width, buckets.starts.tolist()) == (32, [0, 32, 64, 96])
    assert buckets.maximum.tolist() == [31.0, 63.0, 95.0, 99.0]
    part = bucket_by_step(points, Limits(100, 40, 42))
    assert (part.starts.tolist(), part.mean.tolist()) == ([40, 41, 42], [40.0, 41.0, 42.0])
    assert len(bucket_by_step(points, Limits(10, 500))) == 0
