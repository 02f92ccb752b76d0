"""A window has the newest steps of every rank, aligned, and knows what it leaves out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from stepscope.analysis.build import WindowRequest, build_window
from stepscope.schema.record import Event
from stepscope.schema.run import Process
from stepscope.schema.series import Source
from stepscope.store.sqlite import SqliteStore

S = 10**9
BEGUN = 1_760_000_000 * S
REQUEST = WindowRequest(
    frozenset({"loss", "phase/data_seconds", "gc/pause_seconds", "process/usable_cores"}),
    frozenset({"loss"}),
    frozenset({"loader"}),
)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    opened = SqliteStore(tmp_path / "store.sqlite")
    yield opened
    opened.close()


def begin(
    store: SqliteStore, segment: str = "a", rank: int = 0, started_ns: int = BEGUN, **facts: object
) -> None:
    with store.transaction():
        store.put_process(
            Process("r", "r", "p", segment, rank, "h", 7 + rank, "rank", started_ns, facts=dict(facts))
        )


def log(
    store: SqliteStore,
    columns: dict[str, np.ndarray],
    steps: np.ndarray | range,
    of: Source | None = None,
    first_ns: int = BEGUN,
) -> None:
    rows = np.array(list(columns.values()), np.float64).T
    times = first_ns + (1 + np.arange(len(rows))) * S
    with store.transaction():
        store.append(of or Source("r", "a", 0, "h"), list(columns), np.asarray(steps, np.int64), times, rows)


def test_a_window_begins_where_another_model_is_trained(store) -> None:
    begin(store)
    log(store, {"step_seconds": np.ones(100), "loss": np.arange(100.0)}, range(100))
    with store.transaction():
        for step in (30, 60):
            store.put_event("r", Event("another_training", BEGUN + step * S, step, 0, "a", {}))
    [rank] = build_window(store, "r", REQUEST).ranks
    assert rank.steps.tolist() == list(range(60, 100))
    assert rank.is_whole


def test_keys_recorded_at_different_steps_are_aligned(store) -> None:
    begin(store)
    log(store, {"step_seconds": np.ones(100), "phase/data_seconds": np.full(100, 0.1)}, range(100))
    log(store, {"loss": np.arange(10.0)}, range(0, 100, 10))
    log(
        store,
        {"step_seconds": np.ones(5), "gc/pause_seconds": np.full(5, 0.5)},
        range(100, 105),
        first_ns=BEGUN + 100 * S,
    )
    [rank] = build_window(store, "r", REQUEST).ranks
    assert rank.steps.tolist() == list(range(105))
    (losses,) = rank.aligned("loss", steady=False)
    assert losses.tolist() == list(range(10))
    assert rank.steps[rank.columns["loss"].present].tolist() == list(range(0, 100, 10))
    assert rank.steps[rank.columns["gc/pause_seconds"].present].tolist() == list(range(100, 105))
    assert rank.columns["step_seconds"].present.all()
    assert rank.is_whole


def test_a_long_run_has_a_window_and_a_course_since_its_beginning(store) -> None:
    begin(store)
    losses = np.linspace(9, 1, 10_000)
    log(store, {"step_seconds": np.ones(10_000), "loss": losses}, range(10_000))
    [rank] = build_window(store, "r", REQUEST).ranks
    assert (rank.steps[0], rank.steps[-1]) == (10_000 - 2048, 9_999)
    assert not rank.is_whole
    assert rank.course["loss"].mean[0] == pytest.approx(9, abs=0.1)
    assert rank.warm_up == 0


def test_a_recorded_nan_is_distinguished_from_a_missing_value(store) -> None:
    begin(store)
    log(store, {"step_seconds": np.ones(4)}, range(4))
    log(store, {"loss": np.array([1.0, np.nan, np.inf])}, [0, 1, 3])
    [rank] = build_window(store, "r", REQUEST).ranks
    assert rank.columns["loss"].present.tolist() == [True, True, False, True]
    assert rank.columns["loss"].finite.tolist() == [True, False, False, False]


def test_steps_with_compilation_are_not_steady(store) -> None:
    begin(store)
    log(store, {"step_seconds": np.r_[np.full(3, 30.0), np.ones(97)]}, range(100))
    log(store, {"compile/seconds": np.array([20.0, 3.0])}, [0, 50])
    [rank] = build_window(store, "r", REQUEST).ranks
    assert rank.warm_up == 3
    assert rank.compiled == 1
    assert np.flatnonzero(~rank.steady).tolist() == [0, 1, 2, 50]


def test_a_restarted_step_count_starts_a_new_window(store) -> None:
    begin(store)
    log(store, {"step_seconds": np.full(50, 5.0), "loss": np.ones(50)}, range(50))
    log(store, {"step_seconds": np.ones(30), "loss": np.zeros(30)}, range(20, 50), first_ns=BEGUN + 50 * S)
    [rank] = build_window(store, "r", REQUEST).ranks
    assert rank.steps.tolist() == list(range(20, 50))
    assert rank.columns["loss"].values.tolist() == [0.0] * 30


def test_only_the_newest_segment_is_examined(store) -> None:
    begin(store, "a")
    log(store, {"loss": np.ones(10)}, range(10))
    begin(store, "b", started_ns=BEGUN + 100 * S)
    log(store, {"loss": np.zeros(5)}, range(10, 15), Source("r", "b", 0, "h"), BEGUN + 100 * S)
    window = build_window(store, "r", REQUEST)
    assert window.segment == "b"
    assert window.ranks[0].steps.tolist() == list(range(10, 15))


def test_every_rank_has_its_window_and_workers_have_none(store) -> None:
    for rank in range(3):
        begin(store, rank=rank, cpus=8)
        log(store, {"step_seconds": np.full(20, 1.0 + rank)}, range(20), Source("r", "a", rank, "h"))
    log(store, {"step_seconds": np.ones(20)}, range(20), Source("r", "a", 0, "h", "worker-1"))
    window = build_window(store, "r", REQUEST)
    assert [rank.rank for rank in window.ranks] == [0, 1, 2]
    assert window.facts[2] == {"cpus": 8}


def test_machine_metrics_are_those_during_the_steps(store) -> None:
    begin(store)
    log(store, {"step_seconds": np.ones(10)}, range(10), first_ns=BEGUN + 50 * S)
    machine = Source("r", "a", 0, "h", axis="seconds")
    log(store, {"process/usable_cores": np.arange(100.0)}, np.zeros(100), machine)
    window = build_window(store, "r", REQUEST)
    [found] = window.figures("process/usable_cores", "h", 0)
    assert found.values.tolist() == list(range(50, 60))
    assert window.figures("process/usable_cores", "elsewhere") == []


def test_requested_events_are_those_of_the_segment(store) -> None:
    begin(store)
    log(store, {"step_seconds": np.ones(10)}, range(10))
    with store.transaction():
        for kind, segment in (("loader", "a"), ("loader", "old"), ("console", "a")):
            store.put_event("r", Event(kind, BEGUN, 0, 0, segment, {"num_workers": 2}))
    window = build_window(store, "r", REQUEST)
    assert [(event.kind, event.segment) for event in window.events] == [("loader", "a")]


def test_a_run_without_a_rank_has_no_window_and_one_without_steps_an_empty_one(store) -> None:
    assert build_window(store, "nobody", REQUEST) is None
    begin(store)
    assert build_window(store, "r", REQUEST).ranks == ()


def test_a_key_that_ends_in_an_asterisk_stands_for_all_keys_with_this_beginning(store) -> None:
    begin(store)
    layers = {f"norm/layer.{number}": np.full(10, float(number)) for number in (2, 0, 1)}
    others = {"norm": np.ones(10), "normal": np.ones(10), "norms/a": np.ones(10), "loss": np.ones(10)}
    log(store, {"step_seconds": np.ones(10), **layers, **others}, range(10))
    [rank] = build_window(store, "r", WindowRequest(frozenset({"norm/*"}))).ranks
    assert rank.columns.keys() == {"step_seconds", *layers}
    assert list(rank.below("norm")) == ["layer.2", "layer.0", "layer.1"]  # in the order of the model
    assert rank.below("norm")["layer.2"].values.tolist() == [2.0] * 10
    assert rank.below("nor") == {}


def test_of_thousands_of_keys_with_one_beginning_only_the_first_64_are_read(store) -> None:
    begin(store)
    many = {f"norm/{number:05}": np.ones(1) for number in range(5000)}
    log(store, {"step_seconds": np.ones(1)}, range(1))
    log(store, many, range(1))
    [rank] = build_window(store, "r", WindowRequest(frozenset({"norm/*", "other/*"}))).ranks
    assert list(rank.below("norm")) == [f"{number:05}" for number in range(64)]
    assert rank.below("other") == {}
