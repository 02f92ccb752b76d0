"""The queue of a data loader is counted at the end of steps, and its settings are reported once."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from stepscope.steps.evidence.loader_queue import LoaderQueue, python_objects

DATA = TensorDataset(torch.zeros(64, 4))


class RecordedEvents:
    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, Any]]] = []

    def __call__(self, kind: str, **fields: Any) -> None:
        self.events.append((kind, fields))


class Numbers(IterableDataset):
    def __iter__(self):
        return iter(torch.arange(12))


def test_ready_batches_are_counted_when_workers_have_them(until: Callable[..., None]) -> None:
    recorded = RecordedEvents()
    queue = LoaderQueue(recorded)
    iterator = iter(DataLoader(DATA, batch_size=4, num_workers=2, prefetch_factor=3))
    next(iterator)

    queue.follow(iterator)
    until(lambda: queue.read(1) == {"loader/ready_batches": 6.0})
    for _ in range(15):
        next(iterator)
    assert queue.read(1) == {"loader/ready_batches": 0.0}


def test_a_batch_that_came_before_its_turn_is_ready_too() -> None:
    class Waiting:
        def qsize(self) -> int:
            return 4

    class Iterator:
        _num_workers, _index_sampler, _tasks_outstanding = 2, None, 5
        _task_info: dict = dict.fromkeys(range(6))
        _data_queue = Waiting()

    queue = LoaderQueue(RecordedEvents())
    iterator = Iterator()
    queue.follow(iterator)
    assert queue.read(1) == {"loader/ready_batches": 5.0}


def test_the_settings_of_a_loader_are_recorded_once_for_all_its_epochs() -> None:
    recorded = RecordedEvents()
    queue = LoaderQueue(recorded)
    loader = DataLoader(DATA, batch_size=16, num_workers=1, shuffle=True, drop_last=True)
    for _ in range(2):
        iterator = iter(loader)
        queue.follow(iterator)
        del iterator
    assert len(recorded.events) == 1
    kind, fields = recorded.events[0]
    assert kind == "loader"
    assert fields["num_workers"] == 1
    assert (fields["prefetch_factor"], fields["batch_size"], fields["drop_last"]) == (2, 16, True)
    assert (fields["pin_memory"], fields["persistent_workers"]) == (False, False)
    assert (fields["dataset"], fields["sampler"]) == ("TensorDataset", "RandomSampler")
    assert fields["start_method"] in ("fork", "forkserver", "spawn")


def test_a_second_loader_is_recorded_too() -> None:
    recorded = RecordedEvents()
    queue = LoaderQueue(recorded)
    queue.follow(iter(DataLoader(DATA, batch_size=16)))
    queue.follow(iter(DataLoader(DATA, batch_size=32)))
    assert [fields["batch_size"] for _, fields in recorded.events] == [16, 32]


def test_a_loader_without_workers_is_described_and_has_no_queue() -> None:
    recorded = RecordedEvents()
    queue = LoaderQueue(recorded)
    queue.follow(iter(DataLoader(DATA, batch_size=16)))
    assert recorded.events[0][1]["num_workers"] == 0
    assert recorded.events[0][1]["start_method"] is None
    assert queue.read(1) == {}


def test_an_iterable_dataset_is_described_without_asking_its_length() -> None:
    recorded = RecordedEvents()
    queue = LoaderQueue(recorded)
    iterator = iter(DataLoader(Numbers(), batch_size=3, num_workers=1))
    queue.follow(iterator)
    assert recorded.events[0][1]["dataset"] == "Numbers"
    assert len(list(iterator)) == 4
    assert queue.read(1)["loader/ready_batches"] >= 0


@pytest.mark.parametrize(
    "source", [[1, 2], (n for n in range(3)), {"a": 1}], ids=["list", "generator", "dict"]
)
def test_other_sources_of_batches_have_no_values(source: Any) -> None:
    recorded = RecordedEvents()
    queue = LoaderQueue(recorded)
    iterator = iter(source)
    queue.follow(iterator)
    queue.follow(iterator)
    assert queue.read(1) == {}
    assert recorded.events == []


@pytest.mark.slow
def test_an_iterator_is_not_kept_alive() -> None:
    queue = LoaderQueue(RecordedEvents())
    iterator = iter(DataLoader(DATA, batch_size=16, num_workers=1))
    queue.follow(iterator)
    kept = weakref.ref(iterator)
    del iterator
    gc.collect()
    assert kept() is None
    queue.close()


class Holding:
    def __init__(self, **attributes: Any) -> None:
        vars(self).update(attributes)


@pytest.mark.parametrize(
    ("attributes", "place", "kind"),
    [
        ({"rows": [{"path": f"images/{i}.png", "index": i} for i in range(60_000)]}, "rows", "list"),
        ({"small": [1.5] * 99, "table": {i: str(i) for i in range(60_000)}}, "table", "dict"),
        ({"names": {str(i) for i in range(60_000)}}, "names", "set"),
        ({"dataset": Holding(pairs=[(i, float(i)) for i in range(60_000)])}, "pairs", "list"),
        (
            {"datasets": [Holding(), Holding(pairs=tuple(Holding(i=i) for i in range(60_000)))]},
            "pairs",
            "tuple",
        ),
    ],
)
def test_a_large_collection_of_python_objects_is_described(
    attributes: dict[str, Any], place: str, kind: str
) -> None:
    description = python_objects(Holding(**attributes))
    assert description is not None
    assert (description["place"], description["kind"], description["count"]) == (place, kind, 60_000)
    assert 3e6 < description["bytes"] < 5e7


@pytest.mark.parametrize(
    "dataset",
    [
        None,
        DATA,
        object(),
        Holding(values=torch.zeros(100_000), few=["a"] * 1000),
        Holding(dataset=Holding(dataset=None), datasets=3),
    ],
)
def test_arrays_and_small_collections_are_not_described(dataset: Any) -> None:
    assert python_objects(dataset) is None


def test_a_dataset_that_refers_to_itself_is_described_once() -> None:
    holding = Holding(rows=list(range(100_000)))
    holding.dataset = holding  # type: ignore[attr-defined]
    assert python_objects(holding) == {"place": "rows", "kind": "list", "count": 100_000, "bytes": 3_600_000}


def test_code_of_a_dataset_is_not_called() -> None:
    class Touchy:
        def __getattr__(self, name: str) -> Any:
            raise RuntimeError(name)

        def __len__(self) -> int:
            raise RuntimeError("length")

    touchy = Touchy()
    vars(touchy)["rows"] = [touchy] * 60_000
    description = python_objects(touchy)
    assert description is not None
    assert description["place"] == "rows"
