"""Buckets say the same as the points they stand for, however the points came in."""

import contextlib
import itertools
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stepscope.schema.series import Buckets, Selection
from stepscope.store.base import Store
from stepscope.store.sqlite import SqliteStore, history
from stepscope.store.sqlite.sealing import BLOCK_ROWS
from tests.store.run_samples import (
    NS,
    RUN,
    append,
    assert_buckets_match,
    bits,
    points,
    process,
    seal,
    source,
    times,
)

LOSS = Selection(RUN, "loss")

ordinary = settings(max_examples=40, deadline=None, database=None)
thorough = settings(max_examples=1500, deadline=None, database=None)

seeds = st.integers(0, 2**32)
most = st.sampled_from([1, 2, 3, 10, 63, 64, 65, 500, 10**6])
batches = st.lists(
    st.sampled_from([1, 2, 7, 100, 1000, 4095, 4096, 4097, 9000]) | st.integers(1, 300),
    min_size=1,
    max_size=5,
)


@contextlib.contextmanager
def new_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    store = SqliteStore(tmp_path_factory.mktemp("history") / "store.sqlite")
    with store.transaction():
        store.put_process(process())
    yield store
    store.close()


def monotone(rng, count):
    return np.cumsum(rng.integers(0, 4, count))


def repeated(rng, count):
    return np.repeat(np.arange(count), rng.integers(1, 5))[:count]


def going_back(rng, count):
    """Resumes from older checkpoints, a few times."""
    back = np.zeros(count, np.int64)
    back[rng.integers(0, count, 3)] = rng.integers(0, count + 1, 3)
    return np.arange(count) - np.cumsum(back)


def strided(rng, count):
    return rng.integers(-(10**6), 10**6) + np.arange(count) * rng.integers(1, 1000)


def negative(rng, count):
    return np.arange(count) - rng.integers(0, 2 * count)


def scattered(rng, count):
    return rng.integers(-(2**63), 2**63 - 1, count)


def with_gaps(rng, count):
    return np.cumsum(np.where(rng.random(count) < 0.01, 10**7, 1))


walks = st.sampled_from([monotone, repeated, going_back, strided, negative, scattered, with_gaps])


def some_values(rng, count):
    values = rng.normal(size=count) * 10.0 ** rng.integers(-3, 4)
    spoiled = rng.random(count) < rng.choice([0, 0.02, 0.6])
    values[spoiled] = rng.choice([np.nan, np.inf, -np.inf], spoiled.sum())
    return values


def tell_in_batches(store, steps, values, sizes, *, sealed=()):
    begin = 0
    for at, size in enumerate(sizes):
        stop = begin + size
        part = slice(begin, stop)
        append(store, {"loss": values[part]}, steps[part], times(size, after=begin))
        if at in sealed:
            seal(store)
        begin = stop


def bounds(rng, steps):
    """A range of steps: both ends open, one of them, or none; within what was logged or beyond it."""
    low, high = int(steps.min()), int(steps.max())
    first, last = sorted(low + int((high - low) * share) for share in rng.random(2))
    return [(None, None), (None, last), (first, None), (first, last), (low - 5, high + 5)][rng.integers(5)]


def assert_agrees(store, steps, values, limit, low, high):
    buckets = store.buckets(LOSS, limit, low, high)
    everything = (-(2**70), 2**70)
    assert_buckets_match(
        buckets,
        steps,
        values,
        limit,
        everything[0] if low is None else low,
        everything[1] if high is None else high,
    )


def check_batches(tmp_path_factory, walk, seed, sizes, limit):
    rng = np.random.default_rng(seed)
    count = sum(sizes)
    steps, values = walk(rng, count).astype(np.int64), some_values(rng, count)
    with new_store(tmp_path_factory) as store:
        tell_in_batches(store, steps, values, sizes)
        series = points(store)
        assert series.steps.tolist() == steps.tolist()
        assert series.times_ns.tolist() == times(count).tolist()
        assert bits(series.values) == bits(values)
        assert_agrees(store, steps, values, limit, *bounds(rng, steps))


def check_short_blocks(tmp_path_factory, walk, seed, parts, limit):
    """A process that ends and goes on makes short blocks: many of them make a tall pyramid."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 12, parts).tolist()
    count = sum(sizes)
    steps, values = walk(rng, count).astype(np.int64), some_values(rng, count)
    sealed = set(range(parts - int(rng.integers(0, 3))))
    with new_store(tmp_path_factory) as store:
        tell_in_batches(store, steps, values, sizes, sealed=sealed)
        assert bits(points(store).values) == bits(values)
        assert_agrees(store, steps, values, limit, *bounds(rng, steps))
        assert_agrees(store, steps, values, limit, None, None)


@pytest.mark.slow
@ordinary
@given(walks, seeds, batches, most)
def test_points_and_buckets_of_any_batches_are_exact(tmp_path_factory, walk, seed, sizes, limit):
    check_batches(tmp_path_factory, walk, seed, sizes, limit)


@pytest.mark.slow
@ordinary
@given(walks, seeds, st.integers(1, 40), most)
def test_points_and_buckets_of_any_blocks_are_exact(tmp_path_factory, walk, seed, parts, limit):
    check_short_blocks(tmp_path_factory, walk, seed, parts, limit)


@pytest.mark.slow
@thorough
@given(walks, seeds, batches, most)
def test_points_and_buckets_of_any_batches_are_exact_in_a_long_search(
    tmp_path_factory, walk, seed, sizes, limit
):
    check_batches(tmp_path_factory, walk, seed, sizes, limit)


@pytest.mark.slow
@settings(max_examples=100, deadline=None, database=None)
@given(walks, seeds, st.integers(1, 300), most)
def test_points_and_buckets_of_any_blocks_are_exact_in_a_long_search(
    tmp_path_factory, walk, seed, parts, limit
):
    check_short_blocks(tmp_path_factory, walk, seed, parts, limit)


@pytest.mark.slow
@ordinary
@given(seeds, st.integers(2, 6), most)
def test_a_series_spread_over_key_sets_ranks_and_segments_is_bucketed_as_one(
    tmp_path_factory, seed, parts, limit
):
    rng = np.random.default_rng(seed)
    steps, values = going_back(rng, 100 * parts), some_values(rng, 100 * parts)
    with new_store(tmp_path_factory) as store:
        for at in range(parts):
            part = slice(100 * at, 100 * at + 100)
            columns = {"loss": values[part]} | ({"extra": values[part]} if at % 2 else {})
            place = source(segment=f"s{rng.integers(2)}", rank=int(rng.integers(2)))
            append(store, columns, steps[part], times(100, after=100 * at), place)
            if rng.random() < 0.5:
                seal(store, place)
        assert_agrees(store, steps, values, limit, *bounds(rng, steps))


ROWS = 4096 * 16 * 16 + 4096 * 17 + 1000


@pytest.fixture(scope="module")
def tall(tmp_path_factory):
    """More than a million rows: three full levels of the pyramid, incomplete ones beside them, a tail."""
    rng = np.random.default_rng(11)
    values = np.cumsum(rng.normal(size=ROWS))
    values[[5, 700_000, ROWS - 1]] = [np.nan, np.inf, -np.inf]
    steps = np.arange(ROWS) * 3
    with new_store(tmp_path_factory) as store:
        append(store, {"loss": values}, steps)
        yield store, steps, values


@pytest.mark.parametrize(
    ("limit", "low", "high"),
    [
        (1, None, None),
        (70, None, None),
        (2000, None, None),
        (2000, 0, 3 * 4096 * 16 - 1),
        (500, 2_000_000, 2_400_000),
        (100, 3 * (ROWS - 2000), None),
        (50, 1_234_567, 1_234_667),
        (5000, 30, 300),
    ],
)
def test_a_million_points_are_thinned_at_every_zoom(tall, limit, low, high):
    store, steps, values = tall
    buckets = store.buckets(LOSS, limit, low, high)
    first = 0 if low is None else low
    last = int(steps[-1]) if high is None else high
    width = buckets.width
    inside = (steps // width >= first // width) & (steps // width <= last // width)
    x, members = steps[inside] // width, values[inside]
    edges = np.flatnonzero(np.r_[True, x[1:] != x[:-1]])
    finite = np.isfinite(members)
    assert len(buckets) <= limit
    assert (buckets.starts == x[edges] * width).all()
    assert buckets.count.sum() == inside.sum()
    assert (buckets.count == np.diff(np.r_[edges, len(x)])).all()
    assert (buckets.minimum == np.minimum.reduceat(np.where(finite, members, np.inf), edges)).all()
    assert (buckets.maximum == np.maximum.reduceat(np.where(finite, members, -np.inf), edges)).all()
    assert (buckets.nonfinite == np.add.reduceat((~finite).astype(int), edges)).all()
    totals = np.add.reduceat(np.where(finite, members, 0), edges)
    np.testing.assert_allclose(buckets.mean, totals / (buckets.count - buckets.nonfinite), rtol=1e-9)
    np.testing.assert_equal(buckets.last, members[np.r_[edges[1:], len(x)] - 1])


def test_no_extreme_of_a_million_points_is_hidden(tall):
    store, _, values = tall
    finite = values[np.isfinite(values)]
    for count in (1, 10, 1000):
        buckets = store.buckets(LOSS, count)
        assert (buckets.minimum.min(), buckets.maximum.max()) == (finite.min(), finite.max())
        assert buckets.nonfinite.sum() == 3


def test_a_million_points_come_back_bit_for_bit(tall):
    store, steps, values = tall
    series = points(store)
    assert (series.steps == steps).all()
    assert (series.values.view(np.int64) == values.view(np.int64)).all()
    assert (series.times_ns == times(ROWS)).all()


def as_lists(buckets: Buckets, count: int | None = None) -> list[list[float]]:
    exact = (buckets.starts, buckets.count, buckets.minimum, buckets.maximum, buckets.last, buckets.nonfinite)
    return [column[:count].tolist() for column in (*exact, buckets.times)]


def test_history_does_not_change_while_points_come_in(tmp_path_factory):
    rng = np.random.default_rng(13)
    steps, values = np.arange(30_000) * 2, rng.normal(size=30_000)
    sizes = [1500, 800, 1800, 4096, 5000, 1, 7000, 9803]
    before: dict[tuple[int, int], Buckets] = {}
    with new_store(tmp_path_factory) as store:
        begin = 0
        for size in sizes:
            part = slice(begin, begin + size)
            append(store, {"loss": values[part]}, steps[part], times(size, after=begin))
            begin += size
            before[begin, 0] = store.buckets(LOSS, 200)
            finished = store.buckets(LOSS, 100, 100, 2500)
            before.setdefault((0, 0), finished)
            assert as_lists(finished) == as_lists(before[0, 0])
            np.testing.assert_allclose(finished.mean, before[0, 0].mean, rtol=1e-12)
    live = [buckets for key, buckets in before.items() if key[0]]
    for earlier, later in itertools.pairwise(live):
        if earlier.width == later.width:
            done = len(earlier) - 1
            assert as_lists(earlier, done) == as_lists(later, done)


def test_wider_buckets_are_the_union_of_narrower_ones(tmp_path_factory):
    rng = np.random.default_rng(17)
    with new_store(tmp_path_factory) as store:
        append(store, {"loss": rng.normal(size=20_000)}, monotone(rng, 20_000))
        narrow, wide = store.buckets(LOSS, 4000), store.buckets(LOSS, 60)
        home = narrow.starts // wide.width * wide.width
        for at, start in enumerate(wide.starts):
            members = home == start
            assert narrow.count[members].sum() == wide.count[at]
            assert narrow.minimum[members].min() == wide.minimum[at]
            assert narrow.last[members][-1] == wide.last[at]


def test_of_points_logged_in_one_moment_the_last_logged_is_the_last(tmp_path_factory):
    """Across blocks too, of which some are read from the pyramid and some point by point."""
    with new_store(tmp_path_factory) as store:
        for at in range(40):
            wide_then_narrow = [0, 10**6] if at < 3 else [5, 6]
            append(store, {"loss": [2.0 * at, 2.0 * at + 1]}, wide_then_narrow, times(1)[[0, 0]])
            seal(store)
        buckets = store.buckets(LOSS, 2**18)
        assert buckets.last[buckets.starts == 4].tolist() == [79]


def test_seconds_are_walked_like_steps(tmp_path_factory):
    rng = np.random.default_rng(19)
    moments = 1_760_000_000 * NS + np.cumsum(rng.integers(0, 3 * NS, 20_000))
    values = some_values(rng, 20_000)
    place = source(device="gpu0", axis="seconds")
    with new_store(tmp_path_factory) as store:
        append(store, {"loss": values}, np.zeros(20_000), moments, place)
        for count in (1, 300, 19_000):
            assert_agrees(store, moments // NS, values, count, None, None)
        low = int(moments[9000] // NS)
        assert_agrees(store, moments // NS, values, 40, low, low + 100)


def test_a_store_needs_few_bytes_for_each_point(tmp_path: Path):
    rng = np.random.default_rng(23)
    store = SqliteStore(tmp_path / "store.sqlite")
    with store.transaction():
        store.put_process(process())
    rows = 4096 * 20
    columns = {f"metric{at}": rng.normal(size=rows).astype(np.float32).astype(float) for at in range(10)}
    jitter = np.cumsum(rng.integers(4_000_000, 6_000_000, rows))
    append(store, columns, times_ns=times(1) + jitter)
    assert store.bytes_used() / (10 * rows) < 6
    store.close()


def test_only_the_newest_block_is_unpacked_for_what_is_new(tmp_path_factory, monkeypatch):
    with new_store(tmp_path_factory) as store:
        append(store, {"loss": np.arange(5.0 * BLOCK_ROWS)})
        unpacked = []
        unpack = history.unpack_floats
        monkeypatch.setattr(history, "unpack_floats", lambda *given: unpacked.append(1) or unpack(*given))
        assert len(store.points_since(LOSS, 5 * BLOCK_ROWS - 10)) == 10
        assert len(unpacked) == 1
