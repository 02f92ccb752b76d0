"""Processes, sources and series that tests write to a store, and comparisons of what is read back."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from stepscope.schema.run import Process
from stepscope.schema.series import Buckets, Points, Selection, Source
from stepscope.store.base import Store

RUN = "mnist-0badcafe"
NS = 10**9
BEGUN_NS = 1_760_000_000 * NS

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


def process(run_id: str = RUN, segment: str = "a1", rank: int = 0, **fields: object) -> Process:
    return Process(
        **{
            "run_id": run_id,
            "name": run_id.rpartition("-")[0],
            "project": "demo",
            "segment": segment,
            "rank": rank,
            "host": "node1",
            "pid": 100 + rank,
            "role": "rank",
            "started_ns": BEGUN_NS,
            **fields,
        }
    )


def source(run_id: str = RUN, segment: str = "a1", rank: int = 0, **labels: str) -> Source:
    return Source(run_id, segment, rank, **{"host": "node1", **labels})


def times(count: int, after: int = 0) -> Ints:
    """One moment a millisecond."""
    return BEGUN_NS + (after + np.arange(1, count + 1, dtype=np.int64)) * 10**6


def append(
    store: Store,
    columns: dict[str, Sequence[float] | Floats],
    steps: Sequence[int] | Ints | None = None,
    times_ns: Ints | None = None,
    of: Source | None = None,
) -> None:
    """Tells of rows in a transaction of their own."""
    values = np.array(list(columns.values()), np.float64).T
    steps = np.arange(len(values)) if steps is None else steps
    with store.transaction():
        store.append(
            of or source(),
            list(columns),
            np.asarray(steps, np.int64),
            times(len(values)) if times_ns is None else times_ns,
            values,
        )


def seal(store: Store, of: Source | None = None) -> None:
    of = of or source()
    with store.transaction():
        store.seal(of)


def points(store: Store, key: str = "loss", run_id: str = RUN, **labels: object) -> Points:
    return store.points(Selection(run_id, key, **labels))


def bits(values: Sequence[float] | Floats) -> list[int]:
    """What tells one NaN from another, and -0.0 from 0.0."""
    return np.ascontiguousarray(values, np.float64).view(np.int64).tolist()


def assert_buckets_match(buckets: Buckets, x: Ints, values: Floats, most: int, low: int, high: int) -> None:
    """Compares buckets with what a loop over all points makes of them."""
    low, high = max(low, int(x.min())), min(high, int(x.max()))
    if low > high:
        assert len(buckets) == 0
        return
    width = buckets.width
    assert width & (width - 1) == 0
    assert _needed(low, high, width) <= max(most, 2 if low < 0 <= high else 1)
    assert width == 1 or _needed(low, high, width // 2) > most, "narrower buckets would have done"
    groups: dict[int, list[float]] = {}
    for at, value in zip(x.tolist(), values.tolist(), strict=True):
        if low // width <= at // width <= high // width:
            groups.setdefault(at // width * width, []).append(value)
    assert buckets.starts.tolist() == sorted(groups)
    for at, start in enumerate(buckets.starts.tolist()):
        _assert_bucket_matches(buckets, at, np.array(groups[start]))


def _needed(low: int, high: int, width: int) -> int:
    return high // width - low // width + 1


def _assert_bucket_matches(buckets: Buckets, at: int, members: Floats) -> None:
    finite = members[np.isfinite(members)]
    assert buckets.count[at] == len(members)
    assert buckets.nonfinite[at] == len(members) - len(finite)
    np.testing.assert_equal(buckets.last[at], members[-1])
    if len(finite) == 0:
        assert np.isnan([buckets.minimum[at], buckets.maximum[at], buckets.mean[at]]).all()
        return
    assert buckets.minimum[at] == finite.min()
    assert buckets.maximum[at] == finite.max()
    scale = np.abs(finite).max()
    assert abs(buckets.mean[at] - finite.mean()) <= 1e-9 * scale
