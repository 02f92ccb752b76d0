"""What a diagnosis reads from a store and writes to it: the newest rows, and findings by key."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from stepscope.store.sqlite import SqliteReader, SqliteStore
from tests.store.run_samples import BEGUN_NS, NS, RUN, append, bits, process, seal, source, times


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    opened = SqliteStore(tmp_path / "store.sqlite")
    with opened.transaction():
        opened.put_process(process())
    yield opened
    opened.close()


@pytest.mark.parametrize("rows", [1, 100, 4096, 5000, 50_000])
def test_the_newest_points_are_the_last_of_all_points(store, rows) -> None:
    chance = np.random.default_rng(0)
    values = chance.normal(size=(11_000, 3))
    values[::7, 1] = np.nan
    for first in range(0, 11_000, 700):
        part = values[first : first + 700]
        columns = {"loss": part[:, 0], "rate": part[:, 1], "other": part[:, 2]}
        append(store, columns, first + np.arange(len(part)), times(len(part), first))
    [(found_source, points)] = store.newest(RUN, "a1", ["rate", "loss", "nothing"], rows).items()
    assert found_source == source()
    assert points.keys() == {"loss", "rate"}
    assert bits(points["rate"].values) == bits(values[-rows:, 1])
    assert points["loss"].steps.tolist() == list(range(11_000))[-rows:]
    assert points["loss"].times_ns.tolist() == times(11_000)[-rows:].tolist()


def test_a_key_of_several_key_sets_is_sorted_by_time(store) -> None:
    append(store, {"loss": [0.0, 2.0, 4.0]}, [0, 2, 4], np.array([0, 2, 4]) * NS)
    append(store, {"loss": [1.0, 3.0], "pause": [9.0, 9.0]}, [1, 3], np.array([1, 3]) * NS)
    [points] = store.newest(RUN, "a1", ["loss"], 4).values()
    assert points["loss"].values.tolist() == [1.0, 2.0, 3.0, 4.0]


def test_rows_of_other_segments_and_runs_are_left_out_and_sources_kept_apart(store) -> None:
    for of in (source(), source(rank=1), source(segment="b2"), source(device="worker-1")):
        append(store, {"loss": np.ones(300)}, of=of)
    seal(store)
    newest = store.newest(RUN, "a1", ["loss"], 10)
    assert set(newest) == {source(), source(rank=1), source(device="worker-1")}
    assert store.newest("nobody", "a1", ["loss"], 10) == {}
    assert store.newest(RUN, "a1", [], 10) == {}


def finding(key: str = "host.gc", **fields: object) -> dict[str, object]:
    return {"id": "host.gc", "key": key, "severity": "notice", "first_step": 1, "first_time": 5.0, **fields}


def test_a_stored_finding_is_read_back_and_says_whether_it_is_open(store, tmp_path) -> None:
    with store.transaction():
        store.put_finding(RUN, finding(share=0.5), BEGUN_NS)
        store.put_finding(RUN, finding("host.gc:1"), BEGUN_NS + 1)
        store.clear_finding(RUN, "host.gc:1", BEGUN_NS + 2)
    reader = SqliteReader(tmp_path / "store.sqlite")
    assert reader.findings(RUN) == [
        finding(share=0.5, open=True),
        finding("host.gc:1", open=False),
    ]
    reader.close()


def test_a_finding_that_is_stored_again_keeps_its_first_time(store) -> None:
    with store.transaction():
        store.put_finding(RUN, finding(), BEGUN_NS)
        store.clear_finding(RUN, "host.gc", BEGUN_NS + 1)
        store.put_finding(RUN, finding(severity="critical", first_step=9, first_time=9.0), BEGUN_NS + 2)
    [stored] = store.findings(RUN)
    assert (stored["severity"], stored["open"]) == ("critical", True)
    assert (stored["first_step"], stored["first_time"]) == (1, 5.0)


def test_a_finding_with_a_number_that_json_does_not_have_is_refused(store) -> None:
    with pytest.raises(ValueError, match="JSON"), store.transaction():
        store.put_finding(RUN, finding(share=float("nan")), BEGUN_NS)
    assert store.findings(RUN) == []
