"""Leaks are found, and series that only look like one are not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import stepscope
from stepscope.analysis.memory_growth import Growth, LeakVerdict, growth_of
from stepscope.schema.record import Event
from stepscope.schema.series import Source
from stepscope.store.sqlite import SqliteStore
from stepscope.views.machine.leaks import leaks_of
from tests.store.run_samples import BEGUN_NS, NS, RUN, process

GB = 1e9
HOUR = 3600


def series(count: int = 1000, growth: float = 0.0, noise: float = 0.05 * GB, seed: int = 0) -> np.ndarray:
    """Memory sampled once a second, with a total growth."""
    drawn = np.random.default_rng(seed).normal(0.0, noise, count)
    return 8 * GB + np.linspace(0.0, growth, count) + drawn


def grown(values: np.ndarray) -> Growth:
    return growth_of(np.arange(float(len(values))), values)


class TestWhatIsALeak:
    @pytest.mark.parametrize("seed", range(5))
    def test_growth_under_noise_is_found_with_its_rate(self, seed: int) -> None:
        growth = grown(series(3600, growth=GB, noise=0.5 * GB, seed=seed))
        assert growth.goes_on
        assert growth.per_hour is not None
        assert growth.per_hour.low < GB < growth.per_hour.high
        assert growth.per_hour.value == pytest.approx(GB, rel=0.2)

    def test_growth_under_a_garbage_collection_sawtooth_is_found(self) -> None:
        teeth = 0.5 * GB * ((np.arange(2000) / 130) % 1)
        growth = grown(series(2000, growth=4 * GB) + teeth)
        assert growth.goes_on

    @pytest.mark.parametrize("period", [40, 90, 300])
    def test_a_leak_of_varying_speed_is_found(self, period: int) -> None:
        seconds = np.arange(150.0)
        pace = 8e6 * (1 + 0.3 * np.sin(2 * np.pi * seconds / period))
        growth = grown(0.4 * GB + np.cumsum(pace))
        assert growth.goes_on
        assert growth.per_hour is not None
        assert np.isfinite([growth.per_hour.low, growth.per_hour.high]).all()
        assert growth.per_hour.value == pytest.approx(8e6 * HOUR, rel=0.3)

    def test_growth_by_many_steps_is_found(self) -> None:
        epochs = np.floor(np.linspace(0, 19.99, 2000)) * 0.2 * GB
        assert grown(series(2000) + epochs).goes_on

    def test_growth_is_also_reported_per_thousand_steps(self) -> None:
        times = np.arange(1000.0)
        growth = growth_of(times, series(1000, growth=GB), steps=times * 4)
        assert growth.per_thousand_steps is not None
        assert growth.per_thousand_steps.value == pytest.approx(0.25 * GB, rel=0.1)

    def test_a_nan_reading_is_ignored(self) -> None:
        values = series(1000, growth=4 * GB)
        values[::50] = np.nan
        assert grown(values).goes_on


class TestWhatIsNone:
    @pytest.mark.parametrize("seed", range(20))
    def test_noise_is_not_growth(self, seed: int) -> None:
        assert not grown(series(300, seed=seed)).goes_on

    def test_a_random_walk_is_not_growth(self) -> None:
        wandering = [
            8 * GB + 5e6 * np.cumsum(np.random.default_rng(seed).normal(0, 1, 300)) for seed in range(60)
        ]
        assert sum(grown(walk).goes_on for walk in wandering) <= 2

    @pytest.mark.parametrize("teeth", [1.5, 3, 7.5, 40])
    @pytest.mark.parametrize("count", [100, 1000, 5000])
    def test_a_sawtooth_is_not_growth(self, teeth: float, count: int) -> None:
        tooth = GB * ((np.arange(count) / count * teeth + 0.3) % 1)
        assert not grown(series(count) + tooth).goes_on

    @pytest.mark.parametrize("place", [0.05, 0.3, 0.5, 0.62, 0.7, 0.9])
    @pytest.mark.parametrize("noise", [0.0, 0.05 * GB, 1.5 * GB])
    def test_a_single_jump_is_not_growth(self, place: float, noise: float) -> None:
        values = series(1000, noise=noise)
        values[int(1000 * place) :] += 2 * GB
        assert not grown(values).goes_on

    @pytest.mark.parametrize("noise", [0.05 * GB, 0.8 * GB])
    def test_two_jumps_are_not_growth(self, noise: float) -> None:
        values = series(1000, noise=noise)
        values[400:] += GB
        values[700:] += GB
        assert not grown(values).goes_on

    @pytest.mark.parametrize("lasts", [0.05, 0.15, 0.3])
    def test_a_finished_warm_up_is_not_growth(self, lasts: float) -> None:
        filling = 3 * GB * (1 - np.exp(-np.arange(1000) / (1000 * lasts)))
        assert not grown(series(1000) + filling).goes_on

    def test_a_constant_is_not_growth(self) -> None:
        assert not grown(np.full(500, 8 * GB)).goes_on

    def test_shrinking_memory_is_not_growth(self) -> None:
        growth = grown(series(1000, growth=-4 * GB))
        assert not growth.goes_on
        assert growth.per_hour is not None
        assert growth.per_hour.high < 0

    @pytest.mark.parametrize("count", [0, 1, 5, 25])
    def test_too_few_readings_give_no_verdict(self, count: int) -> None:
        growth = grown(series(count, growth=4 * GB))
        assert growth.per_hour is None
        assert not growth.goes_on

    def test_growth_before_a_warm_up_ends_does_not_raise_the_rate_after_it(self) -> None:
        values = series(2000, growth=2 * GB, noise=0.01 * GB)
        values += 5 * GB * np.minimum(np.arange(2000) / 300, 1.0)
        growth = grown(values)
        assert growth.goes_on
        assert growth.per_hour is not None
        assert growth.per_hour.value == pytest.approx(2 * GB * HOUR / 2000, rel=0.1)


class RunBuilder:
    """Writes one run of two hours to a store."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._store = SqliteStore(folder / "store.sqlite")
        self._opened: list = []

    def segment(self, name: str = "a1", start: int = 0, **fields: object) -> None:
        with self._store.transaction():
            self._store.put_process(process(segment=name, started_ns=BEGUN_NS + start * NS, **fields))

    def read(self, key: str, values: np.ndarray | float, device: str = "", **labels: object) -> None:
        column = np.atleast_1d(np.asarray(values, float))[:, None]
        times_ns = BEGUN_NS + np.arange(1, len(column) + 1) * NS
        of = Source(
            **{
                "run_id": RUN,
                "segment": "a1",
                "rank": 0,
                "host": "node1",
                "device": device,
                "axis": "seconds",
                **labels,
            }
        )
        with self._store.transaction():
            self._store.append(of, [key], np.arange(len(column)), times_ns, column)

    def training_setup(self, total_bytes: float) -> None:
        fields = {"devices": [{"index": 0, "name": "NVIDIA H200", "total_bytes": total_bytes}]}
        with self._store.transaction():
            self._store.put_event(RUN, Event("census", BEGUN_NS, 0, 0, "a1", fields))

    def judged(self, **options: float) -> list[LeakVerdict]:
        store = stepscope.open_store(self._folder)
        try:
            return leaks_of(store.run(RUN), now_ns=BEGUN_NS + 2 * HOUR * NS, **options)
        finally:
            store.close()

    def close(self) -> None:
        self._store.close()


@pytest.fixture
def builder(folder: Path) -> Iterator[RunBuilder]:
    folder.mkdir()
    run_builder = RunBuilder(folder)
    yield run_builder
    run_builder.close()


ONE_AN_HOUR = series(2 * HOUR, growth=2 * GB)


class TestTheVerdict:
    def test_memory_that_will_be_full_before_the_end_is_a_leak(self, builder: RunBuilder) -> None:
        builder.segment()
        builder.read("process/rss_bytes", ONE_AN_HOUR)
        builder.read("memory/total_bytes", 16 * GB, rank=None)
        [verdict] = builder.judged(remaining_seconds=5.0 * HOUR)
        assert verdict.is_leak
        assert verdict.limit is not None
        assert (verdict.limit.whose, verdict.limit.limit_bytes) == ("host", 16 * GB)
        assert verdict.seconds_to_limit == pytest.approx(6 * HOUR, rel=0.05)
        assert verdict.projected_ratio == pytest.approx(15 / 16, rel=0.02)
        assert "over 80%" in verdict.why

    def test_growth_that_fits_until_the_end_is_not_a_leak(self, builder: RunBuilder) -> None:
        builder.segment()
        builder.read("process/rss_bytes", ONE_AN_HOUR)
        builder.read("memory/total_bytes", 500 * GB, rank=None)
        [verdict] = builder.judged(remaining_seconds=5.0 * HOUR)
        assert verdict.is_leak is False
        assert verdict.growth.goes_on
        assert verdict.seconds_to_limit is not None

    def test_a_run_of_unknown_length_is_assumed_to_run_another_day(self, builder: RunBuilder) -> None:
        builder.segment()
        builder.read("process/rss_bytes", ONE_AN_HOUR)
        builder.read("memory/total_bytes", 40 * GB, rank=None)
        [verdict] = builder.judged()
        assert verdict.is_leak
        assert verdict.horizon_seconds == 24 * HOUR

    def test_the_limit_of_a_container_counts_if_it_is_lower(self, builder: RunBuilder) -> None:
        builder.segment()
        builder.read("process/uss_bytes", ONE_AN_HOUR)
        builder.read("memory/total_bytes", 500 * GB, rank=None)
        builder.read("memory/cgroup_limit_bytes", 12 * GB, rank=None)
        [verdict] = builder.judged(remaining_seconds=1.0 * HOUR)
        assert verdict.limit is not None
        assert verdict.limit.whose == "container"
        assert verdict.is_leak

    def test_a_gpus_memory_is_judged_by_the_size_of_the_gpu(self, builder: RunBuilder) -> None:
        builder.segment()
        builder.read("memory/allocated_bytes", ONE_AN_HOUR, axis="step")
        builder.training_setup(12 * GB)
        [verdict] = builder.judged(remaining_seconds=3600.0)
        assert verdict.limit is not None
        assert (verdict.limit.whose, verdict.limit.limit_bytes) == ("device", 12 * GB)
        assert verdict.is_leak
        assert verdict.growth.per_thousand_steps is not None
        assert verdict.growth.per_thousand_steps.value == pytest.approx(GB / 3.6, rel=0.05)

    def test_without_a_training_setup_event_the_gpu_reading_is_the_limit(self, builder: RunBuilder) -> None:
        builder.segment()
        builder.read("memory/allocated_bytes", ONE_AN_HOUR, axis="step")
        builder.read("gpu/memory_total_bytes", 24 * GB, device="GPU-a", rank=None)
        [verdict] = builder.judged()
        assert verdict.limit is not None
        assert verdict.limit.limit_bytes == 24 * GB

    def test_growth_without_a_known_limit_is_neither_called_a_leak_nor_cleared(
        self, builder: RunBuilder
    ) -> None:
        builder.segment()
        builder.read("process/rss_bytes", ONE_AN_HOUR)
        [verdict] = builder.judged()
        assert verdict.growth.goes_on
        assert verdict.is_leak is None
        assert verdict.projected_ratio is None

    def test_an_ended_run_is_judged_by_its_last_value(self, builder: RunBuilder) -> None:
        builder.segment(status="finished", ended_ns=BEGUN_NS + 2 * HOUR * NS)
        builder.read("process/rss_bytes", ONE_AN_HOUR)
        builder.read("memory/total_bytes", 16 * GB, rank=None)
        [verdict] = builder.judged()
        assert verdict.is_leak is False
        assert verdict.horizon_seconds == 0
        assert verdict.projected_ratio == pytest.approx(10 / 16, rel=0.02)

    def test_processes_are_judged_one_by_one_and_leaks_come_first(self, builder: RunBuilder) -> None:
        builder.segment()
        builder.read("memory/total_bytes", 16 * GB, rank=None)
        builder.read("process/rss_bytes", series(2 * HOUR))
        builder.read("process/rss_bytes", ONE_AN_HOUR, device="loader-1")
        verdicts = builder.judged()
        assert [(verdict.device, verdict.is_leak) for verdict in verdicts] == [
            ("loader-1", True),
            ("", False),
        ]

    def test_only_the_newest_segment_is_judged(self, builder: RunBuilder) -> None:
        builder.segment("a0", status="crashed", ended_ns=BEGUN_NS)
        builder.segment("a1")
        builder.read("process/rss_bytes", ONE_AN_HOUR, segment="a0")
        assert builder.judged() == []
