"""The throughput of loaders whose pace is known."""

from __future__ import annotations

import itertools
import json
import random
import subprocess
import sys
import time

import pytest

from stepscope.errors import ConfigError, StepscopeError
from stepscope.profiling.loader.batch_timing import BatchTimer, Limits, samples_in
from stepscope.profiling.loader.loader import loader_throughput
from stepscope.profiling.model.held_memory import TreeMemory, held_bytes

torch = pytest.importorskip("torch")
DataLoader = torch.utils.data.DataLoader


class PlayedClock:
    """Stands still but for what data take."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def batches(self, *seconds: float, size: int = 4):
        for taken in seconds:
            self.now += taken
            yield torch.zeros(size, 2)


class Timed(torch.utils.data.Dataset):
    """Samples that take a played time, most of it in a transform."""

    def __init__(self, clock: PlayedClock, length: int = 64) -> None:
        self._clock, self._length = clock, length
        self.transform = self._transform
        self.images = torch.zeros(10, 5)
        self.cache = {0: torch.zeros(100), 1: b"x" * 50}

    def _transform(self, sample):
        self._clock.now += 0.003
        return sample

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int):
        self._clock.now += 0.002
        return self.transform(torch.ones(3))


class Sleeping(torch.utils.data.Dataset):
    """Samples that take five milliseconds."""

    def __len__(self) -> int:
        return 160

    def __getitem__(self, index: int):
        time.sleep(0.005)
        return torch.ones(2), index


def no_memory() -> None:
    return None


def test_pace_and_waits_leave_out_the_first_batch() -> None:
    clock = PlayedClock()
    profile = loader_throughput(clock.batches(5.0, 0.1, 0.3, 0.1), clock=clock, memory=no_memory)
    assert profile.first_batch_seconds == 5.0
    assert (profile.batches, profile.samples) == (3, 12)
    assert profile.seconds == pytest.approx(0.5)
    assert profile.samples_per_second == pytest.approx(24)
    assert profile.batches_per_second == pytest.approx(6)
    assert profile.batch_load.p50_seconds == pytest.approx(0.1)
    assert profile.batch_load.max_seconds == pytest.approx(0.3)
    assert profile.ended_by == "data"
    assert profile.method.startswith("3 batches")


def test_the_batches_allowed_end_it() -> None:
    clock = PlayedClock()
    endless = clock.batches(*[0.1] * 1000)
    profile = loader_throughput(endless, Limits(batches=11), clock=clock, memory=no_memory)
    assert (profile.batches, profile.ended_by) == (10, "batches")


def test_the_seconds_allowed_end_it() -> None:
    clock = PlayedClock()
    endless = clock.batches(*[0.5] * 1000)
    profile = loader_throughput(endless, Limits(seconds=3), clock=clock, memory=no_memory)
    assert (profile.batches, profile.ended_by) == (6, "seconds")


def test_a_single_batch_is_used_as_the_result() -> None:
    clock = PlayedClock()
    profile = loader_throughput(clock.batches(2.0, size=8), clock=clock, memory=no_memory)
    assert (profile.batches, profile.samples_per_second) == (1, 4.0)


def test_a_loader_without_batches_raises_an_error() -> None:
    with pytest.raises(StepscopeError, match="returned no batch"):
        loader_throughput([])


def test_samples_of_five_milliseconds_come_at_two_hundred_a_second() -> None:
    profile = loader_throughput(DataLoader(Sleeping(), batch_size=8), Limits(batches=8, items=4))
    assert 50 < profile.samples_per_second <= 200
    assert profile.batches_per_second == pytest.approx(profile.samples_per_second / 8)
    assert profile.batch_load.p50_seconds >= 0.04
    assert profile.ceiling.samples_per_second > 1000
    assert profile.efficiency_ratio < 0.2
    assert profile.workers == 0


@pytest.mark.slow
def test_workers_load_in_parallel_and_their_memory_is_counted() -> None:
    alone = TreeMemory().read()
    loader = DataLoader(Sleeping(), batch_size=8, num_workers=2)
    profile = loader_throughput(loader, Limits(items=2))
    assert profile.workers == 2
    assert profile.samples == 152
    assert profile.memory.peak_bytes > 1.5 * alone


def test_transform_time_is_separated_from_the_time_of_the_sample() -> None:
    clock = PlayedClock()
    profile = loader_throughput(DataLoader(Timed(clock), batch_size=8), clock=clock, memory=no_memory)
    assert profile.transforms.transform.mean_seconds == pytest.approx(0.003)
    assert profile.transforms.item.mean_seconds == pytest.approx(0.005)
    assert profile.transforms.transform.count == 32
    assert profile.samples_per_second == pytest.approx(200)


def test_the_transform_of_a_wrapped_dataset_is_found_and_not_replaced_for_good() -> None:
    clock = PlayedClock()
    dataset = Timed(clock)
    subset = torch.utils.data.Subset(dataset, range(5))
    profile = loader_throughput(DataLoader(subset, batch_size=2), clock=clock, memory=no_memory)
    assert profile.transforms.transform.mean_seconds == pytest.approx(0.003)
    assert dataset.transform == dataset._transform


def test_a_dataset_without_transforms_has_only_the_time_of_its_samples() -> None:
    profile = loader_throughput(DataLoader(torch.utils.data.TensorDataset(torch.ones(9, 2)), batch_size=3))
    assert profile.transforms.transform is None
    assert profile.transforms.item.count == 9


def test_a_stream_has_neither_transforms_nor_a_ceiling() -> None:
    class Stream(torch.utils.data.IterableDataset):
        def __iter__(self):
            return iter(range(100))

    profile = loader_throughput(DataLoader(Stream(), batch_size=10))
    assert (profile.samples, profile.efficiency_ratio) == (90, None)
    assert "its dataset is a stream" in profile.ceiling.method
    assert "by index" in profile.transforms.method


def test_efficiency_can_be_against_a_consumer() -> None:
    clock = PlayedClock()
    profile = loader_throughput(
        clock.batches(*[0.1] * 9), consumer_samples_per_second=80, clock=clock, memory=no_memory
    )
    assert profile.efficiency_ratio == pytest.approx(0.5)
    assert profile.ceiling.method == "the consumer's samples per second, as passed"


def test_memory_of_dataset_and_cache_is_separated() -> None:
    profile = loader_throughput(
        DataLoader(Timed(PlayedClock()), batch_size=4), Limits(batches=3), memory=itertools.count(7).__next__
    )
    assert profile.memory.dataset_bytes == 10 * 5 * 4
    assert profile.memory.cache_bytes == 100 * 4 + 50
    assert profile.memory.peak_bytes >= 7


def test_shared_and_circular_memory_is_counted_once() -> None:
    class Holder:
        def __init__(self) -> None:
            self.first = self.second = torch.zeros(10)
            self.me = self

    assert held_bytes(Holder()) == (40, 0)


def test_random_numbers_continue_as_if_nothing_had_been_measured() -> None:
    generator = torch.Generator().manual_seed(3)
    loader = DataLoader(list(range(20)), batch_size=5, shuffle=True, generator=generator)
    torch.manual_seed(1)
    random.seed(1)
    expected = (torch.rand(2).tolist(), random.random(), generator.get_state().tolist())
    torch.manual_seed(1)
    random.seed(1)
    loader_throughput(loader)
    assert (torch.rand(2).tolist(), random.random(), generator.get_state().tolist()) == expected


@pytest.mark.parametrize(
    ("batch", "expected", "samples"),
    [
        (torch.zeros(7, 2), 8, 7),
        ([torch.zeros(7, 2), torch.zeros(7)], 8, 7),
        ({"x": torch.zeros(6, 2), "y": "text"}, None, 6),
        ([torch.zeros(3, 5), torch.zeros(3, 5)], 2, 2),
        (["a", "b", "c"], None, 3),
        ("one thing", None, 1),
        ([[torch.zeros(4, 2)], torch.zeros(4)], None, 4),
    ],
)
def test_samples_of_a_batch_are_counted_however_it_is_made(batch, expected, samples) -> None:
    assert samples_in(batch, expected) == samples


def test_a_slow_dataset_is_not_asked_for_more_samples_than_time_allows() -> None:
    clock = PlayedClock()

    class Slow:
        def __len__(self) -> int:
            return 1000

        def __getitem__(self, index: int):
            clock.now += 2.0
            return torch.ones(1)

    profile = loader_throughput(
        DataLoader(Slow(), batch_size=2), Limits(batches=3), clock=clock, memory=no_memory
    )
    assert profile.transforms.item.count == 3


def test_a_plain_iterable_needs_no_torch() -> None:
    code = (
        "import sys; from stepscope.profiling.loader.loader import loader_throughput\n"
        "print(loader_throughput([[1, 2], [3]] * 5).samples, 'torch' in sys.modules)"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "13 False\n"


def test_a_profile_is_plain_data() -> None:
    fields = json.loads(json.dumps(loader_throughput([[1, 2]] * 5).described()))
    assert fields["samples"] == 8
    assert fields["ceiling"]["samples_per_second"] is None


def test_wrong_limits_are_named() -> None:
    with pytest.raises(ConfigError, match="batches is 1; it must be at least 2"):
        Limits(batches=1)
    with pytest.raises(ConfigError, match="seconds is 0"):
        Limits(seconds=0)


def test_an_exception_of_the_loader_is_raised() -> None:
    def broken():
        yield [1]
        raise OSError("the disk is gone")

    with pytest.raises(OSError, match="the disk is gone"):
        BatchTimer(Limits()).take(broken())
