"""Series in a few numbers each, packed or not, against what their points say."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from stepscope.schema.record import Event
from stepscope.schema.series import Selection
from stepscope.store.sqlite import SqliteReader, SqliteStore
from stepscope.store.sqlite.connecting import IN_MEMORY
from tests.golden import make
from tests.store.run_samples import RUN, append, process, seal, source, times


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    opened = SqliteStore(tmp_path / "store.sqlite")
    with opened.transaction():
        opened.put_process(process())
    yield opened
    opened.close()


@pytest.mark.parametrize("count", [1, 100, 300, 4095, 4096, 5000, 9000])
@pytest.mark.parametrize("sealed", [False, True])
def test_a_summary_says_what_the_points_say_wherever_they_are_kept(
    store: SqliteStore, count: int, sealed: bool
) -> None:
    values = np.random.default_rng(0).normal(size=(count, 2))
    values[::7, 1] = np.nan
    values[::11, 1] = -np.inf
    append(store, {"loss": values[:, 0], "odd": values[:, 1]})
    if sealed:
        seal(store)
    for summary in store.summaries(RUN):
        points = store.points(Selection(RUN, summary.key))
        finite = points.values[np.isfinite(points.values)]
        assert (summary.points, summary.nonfinite) == (count, count - len(finite))
        assert (summary.last_step, summary.last_ns) == (count - 1, points.times_ns[-1])
        np.testing.assert_equal(float("nan") if summary.last is None else summary.last, points.values[-1])
        if len(finite):
            assert (summary.minimum, summary.maximum) == (finite.min(), finite.max())
            assert summary.total == pytest.approx(finite.sum(), abs=1e-9)
            assert summary.mean == pytest.approx(finite.mean(), abs=1e-9)


def test_a_series_without_a_finite_value_has_no_extremes_and_no_mean(store: SqliteStore) -> None:
    append(store, {"loss": [np.nan, np.inf, -np.inf]})
    (summary,) = store.summaries(RUN)
    assert (summary.minimum, summary.maximum, summary.mean) == (None, None, None)
    assert (summary.finite, summary.nonfinite) == (0, 3)


def test_a_key_of_several_key_sets_is_summed_up_over_all_of_them(store: SqliteStore) -> None:
    append(store, {"loss": np.full(5000, 2.0)})
    append(store, {"loss": [1.0, 5.0], "accuracy": [0.1, 0.2]}, [5000, 5001])
    loss, accuracy = store.summaries(RUN)
    assert (loss.points, loss.minimum, loss.maximum, loss.total) == (5002, 1.0, 5.0, 10_006.0)
    assert (accuracy.points, accuracy.maximum) == (2, 0.2)


def test_ranks_segments_and_devices_are_summed_up_apart(store: SqliteStore) -> None:
    with store.transaction():
        store.put_process(process(rank=1))
    for place in (source(), source(rank=1), source(segment="b2"), source(device="loader-0")):
        append(store, {"loss": [1.0]}, of=place)
    sources = [
        (summary.source.rank, summary.source.segment, summary.source.device)
        for summary in store.summaries(RUN)
    ]
    assert sources == [(0, "a1", ""), (1, "a1", ""), (0, "b2", ""), (0, "a1", "loader-0")]


def test_only_the_keys_that_are_asked_for_are_answered(store: SqliteStore) -> None:
    append(store, {"a": [1.0], "b' OR 1=1 --": [2.0], "c": [3.0]})
    assert [summary.key for summary in store.summaries(RUN, ["c", "b' OR 1=1 --", "none"])] == [
        "b' OR 1=1 --",
        "c",
    ]
    assert store.summaries(RUN, []) == store.summaries("nobody") == []


@pytest.mark.slow
@given(hnp.arrays(np.float64, st.integers(1, 40), elements=st.floats(width=64)))
def test_any_numbers_at_all_can_be_summed_up(values: np.ndarray) -> None:
    store = SqliteStore(IN_MEMORY)
    with store.transaction():
        store.put_process(process())
    append(store, {"loss": values})
    (summary,) = store.summaries(RUN)
    finite = values[np.isfinite(values)]
    assert summary.finite == len(finite)
    if len(finite):
        assert (summary.minimum, summary.maximum) == (finite.min(), finite.max())
    store.close()


def test_events_of_several_kinds_are_asked_for_at_once(store: SqliteStore) -> None:
    with store.transaction():
        for number, kind in enumerate(("b", "a", "c", "a")):
            store.put_event(RUN, Event(kind, number, None, 0, "a1", {}))
    assert [event.kind for event in store.events(RUN, ("a", "b"))] == ["b", "a", "a"]
    assert [event.kind for event in store.events(RUN, "c")] == ["c"]
    assert store.events(RUN, ()) == []
    assert len(store.events(RUN)) == 4


def test_counters_are_exact_at_any_time_and_in_the_table_when_the_source_has_ended(
    store: SqliteStore,
) -> None:
    def in_table() -> list[tuple[str, int, float, int]]:
        connection = sqlite3.connect(store.path)
        rows = connection.execute("SELECT key, points, last, last_step FROM series ORDER BY key").fetchall()
        connection.close()
        return rows

    append(store, {"loss": [3.0, 2.0], "lr": [0.5, 0.25]})
    assert in_table() == [("loss", 2, 2.0, 1), ("lr", 2, 0.25, 1)]
    append(store, {"loss": [1.0]}, [2], times(1, after=5))
    append(store, {"loss": [7.0], "lr": [0.125]}, [3], times(1, after=9))
    known = [(info.key, info.points, info.last, info.last_step) for info in store.keys(RUN)]
    assert known == [("loss", 4, 7.0, 3), ("lr", 3, 0.125, 3)]
    assert [(counter.key, counter.points, counter.last_step) for counter in store.counters(RUN)] == [
        (key, points, step) for key, points, _, step in known
    ]
    seal(store)
    assert in_table() == known


def test_summaries_of_an_older_store_are_the_same_once_it_is_up_to_date(tmp_path: Path) -> None:
    path = Path(shutil.copy(make.STORE, tmp_path / "store.sqlite"))
    reader = SqliteReader(path)
    older = reader.summaries(make.RUN)
    reader.close()
    assert older
    SqliteStore(path).close()
    reader = SqliteReader(path)
    newer = reader.summaries(make.RUN)
    reader.close()
    assert [replace(summary, total=0.0) for summary in newer] == [
        replace(summary, total=0.0) for summary in older
    ]
    assert [summary.total for summary in newer] == pytest.approx([summary.total for summary in older])
