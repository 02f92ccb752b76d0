"""The energy, emissions and cost of a run, read from a real store."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import stepscope
from stepscope.cli.output.text import to_json
from stepscope.config.sections import Energy
from stepscope.schema.record import Event
from stepscope.schema.series import Source
from stepscope.store.sqlite import SqliteStore
from stepscope.views.energy.energy import EnergyReport, energy_of
from tests.store.run_samples import BEGUN_NS, NS, RUN, process

GPU, OTHER_GPU = "GPU-aaaa", "GPU-bbbb"
H200 = "NVIDIA H200"


class RunBuilder:
    """Writes one run to a store."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._store = SqliteStore(folder / "store.sqlite")
        self._transaction = self._store.transaction()
        self._transaction.__enter__()

    def segment(self, segment: str = "a1", start: int = 0, end: int | None = 3600, **fields: object) -> None:
        ending = {} if end is None else {"status": "finished", "ended_ns": BEGUN_NS + end * NS}
        running = process(segment=segment, started_ns=BEGUN_NS + start * NS, **{**ending, **fields})
        self._store.put_process(running)

    def gpu(self, device: str = GPU, name: str = H200, index: int = 0, host: str = "node1") -> None:
        facts = {"uuid": device, "index": index, "name": name, "vendor": "NVIDIA", "absent": []}
        fields = {"device": device, "host": host, **facts}
        self._store.put_event(RUN, Event("device", BEGUN_NS, None, None, "a1", fields))

    def read(
        self,
        key: str,
        seconds: Sequence[float] | np.ndarray,
        values: float | Sequence[float] | np.ndarray,
        device: str = "",
        segment: str = "a1",
        rank: int | None = None,
        host: str = "node1",
    ) -> None:
        """Writes what a sampler read."""
        times_ns = BEGUN_NS + (np.asarray(seconds) * NS).astype(np.int64)
        column = np.broadcast_to(np.asarray(values, float), times_ns.shape)[:, None]
        of = Source(RUN, segment, rank, host, device, "seconds")
        self._store.append(of, [key], np.zeros(len(times_ns), np.int64), times_ns, column)

    def log(self, key: str, steps: Sequence[int], value: float, rank: int = 0, segment: str = "a1") -> None:
        """Writes what training logged, one step per second."""
        times_ns = BEGUN_NS + np.arange(1, len(steps) + 1) * NS
        of = Source(RUN, segment, rank, "node1")
        self._store.append(of, [key], np.asarray(steps), times_ns, np.full((len(steps), 1), value))

    def report(self, settings: Energy | None = None, now: int = 3600) -> EnergyReport:
        self._transaction.__exit__(None, None, None)
        self._store.close()
        store = stepscope.open_store(self._folder)
        report = energy_of(store.run(RUN), settings or Energy(), BEGUN_NS + now * NS)
        store.close()
        return report


@pytest.fixture
def builder(folder: Path) -> RunBuilder:
    folder.mkdir()
    return RunBuilder(folder)


def every_second(start: float = 0, end: float = 3600) -> np.ndarray:
    return np.arange(start + 0.5, end)


class TestGpuEnergy:
    def test_power_is_integrated_over_the_whole_run(self, builder):
        builder.segment()
        builder.gpu()
        builder.read("gpu/power_watts", every_second(), 100.0, GPU)
        report = builder.report()
        assert report.gpu.value == 0.1
        assert (report.gpu.unit, report.gpu.method) == ("kWh", "power")
        assert report.covered_ratio == 1.0

    def test_a_counter_is_preferred_to_power(self, builder):
        builder.segment()
        seconds = every_second()
        builder.read("gpu/power_watts", seconds, 999.0, GPU)
        builder.read("gpu/energy_joules_total", seconds, 5e8 + 200 * seconds, GPU)
        report = builder.report()
        assert report.gpu.value == pytest.approx(0.2)
        assert report.gpu.method == "counter"

    def test_power_is_used_where_a_counter_stops(self, builder):
        builder.segment()
        seconds = every_second()
        builder.read("gpu/power_watts", seconds, 100.0, GPU)
        builder.read("gpu/energy_joules_total", seconds[:5], 100 * seconds[:5], GPU)
        report = builder.report()
        assert (report.gpu.value, report.gpu.method) == (0.1, "power")

    def test_a_counter_that_restarts_keeps_counting(self, builder):
        builder.segment()
        seconds = every_second()
        shown = np.where(seconds < 1800, 7e8 + 100 * seconds, 100 * (seconds - 1799.5))
        builder.read("gpu/energy_joules_total", seconds, shown, GPU)
        assert builder.report().gpu.value == pytest.approx(0.1, rel=1e-3)

    def test_nothing_is_counted_between_two_segments(self, builder):
        builder.segment("a1", 0, 1000, status="crashed")
        builder.segment("b2", 50_000, 52_600)
        for segment, start, end in [("a1", 0, 1000), ("b2", 50_000, 52_600)]:
            seconds = every_second(start, end)
            builder.read("gpu/energy_joules_total", seconds, 4e8 + 100 * seconds, GPU, segment)
        builder.gpu()
        report = builder.report()
        assert report.gpu.value == pytest.approx(0.1)
        assert (report.live_seconds, report.covered_ratio) == (3600.0, 1.0)
        assert [device.live_seconds for device in report.devices if device.kind == "gpu"] == [3600.0]
        assert report.rented[0].gpu_hours == 1.0

    def test_overlapping_segments_are_counted_once(self, builder):
        builder.segment("a1", 0, 3600)
        builder.segment("b2", 1000, 2000, pid=7)
        for segment, start, end in [("a1", 0, 3600), ("b2", 1000, 2000)]:
            builder.read("gpu/power_watts", every_second(start, end), 100.0, GPU, segment)
        report = builder.report()
        assert report.gpu.value == pytest.approx(0.1)
        assert report.live_seconds == 3600.0

    def test_a_gap_is_not_filled_and_lowers_the_covered_ratio(self, builder):
        builder.segment()
        builder.read("gpu/power_watts", np.r_[every_second(0, 900), every_second(2700, 3600)], 100.0, GPU)
        report = builder.report()
        assert report.gpu.value == pytest.approx(0.05, rel=1e-2)
        assert report.covered_ratio == pytest.approx(0.5, rel=1e-2)
        assert "known for 50% of the time" in report.gpu.how

    def test_a_live_run_is_measured_until_now(self, builder):
        builder.segment(end=None)
        builder.read("gpu/power_watts", every_second(0, 1800), 100.0, GPU)
        report = builder.report(now=1800)
        assert (report.gpu.value, report.live_seconds) == (0.05, 1800.0)

    def test_a_board_without_counter_and_power_is_unknown_and_not_zero(self, builder):
        builder.segment()
        builder.gpu()
        builder.read("gpu/utilization_ratio", every_second(), 1.0, GPU)
        report = builder.report()
        assert report.gpu.value is None
        assert "neither energy nor power" in report.gpu.how
        assert report.rented[0].gpu_hours == 1.0

    def test_values_logged_by_the_training_are_not_used_as_readings(self, builder):
        builder.segment()
        builder.log("gpu/power_watts", range(3600), 100.0)
        report = builder.report()
        assert report.gpu.value is None
        assert report.gpu.how == "no GPU was read"

    def test_a_slice_has_no_energy_of_its_own_and_not_the_price_of_the_whole(self, builder):
        builder.segment()
        builder.gpu(GPU, "NVIDIA A100-SXM4-40GB")
        builder.gpu("MIG-1", "NVIDIA A100-SXM4-40GB MIG 1g.5gb")
        builder.read("gpu/power_watts", every_second(), 100.0, GPU)
        builder.read("gpu/process_memory_bytes", every_second(), 1e9, "MIG-1", rank=0)
        report = builder.report()
        assert report.gpu.value is None
        assert report.cloud.value is None
        assert "MIG 1g.5gb" in report.cloud.how

    def test_two_gpus_are_listed_separately_and_added_up(self, builder):
        builder.segment()
        builder.gpu(GPU)
        builder.gpu(OTHER_GPU, "NVIDIA L4", 1)
        builder.read("gpu/power_watts", every_second(), 100.0, GPU)
        builder.read("gpu/power_watts", every_second(), 50.0, OTHER_GPU)
        report = builder.report()
        assert {device.device: device.kwh for device in report.devices if device.kind == "gpu"} == {
            GPU: 0.1,
            OTHER_GPU: 0.05,
        }
        assert report.gpu.value == pytest.approx(0.15)


class TestWhichGpus:
    def test_only_gpus_that_a_process_of_the_run_used_count(self, builder):
        builder.segment()
        for device in (GPU, OTHER_GPU):
            builder.read("gpu/power_watts", every_second(), 100.0, device)
        builder.read("gpu/process_memory_bytes", every_second(), 1e9, OTHER_GPU, rank=0)
        report = builder.report()
        assert [used.device for used in report.devices if used.kind == "gpu"] == [OTHER_GPU]
        assert "a process of the run used" in report.gpu.how

    @pytest.mark.parametrize(
        ("visible", "counted"),
        [
            ("1", [OTHER_GPU]),
            (GPU, [GPU]),
            ("0,1", [GPU, OTHER_GPU]),
            ("1,-1,0", [OTHER_GPU]),
            ("", []),
            (None, [GPU, OTHER_GPU]),
        ],
    )
    def test_if_use_is_unknown_visible_gpus_count(self, builder, visible, counted):
        environment = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
        builder.segment(facts={"environment": environment})
        for index, device in enumerate((GPU, OTHER_GPU)):
            builder.gpu(device, index=index)
            builder.read("gpu/power_watts", every_second(), 100.0, device)
        report = builder.report()
        assert [used.device for used in report.devices if used.kind == "gpu"] == counted
        assert report.gpu.value == pytest.approx(0.1 * len(counted))
        assert ("could see" in report.gpu.how) or not counted

    def test_if_visibility_is_unknown_all_gpus_of_the_host_count(self, builder):
        builder.segment(facts={"environment": {"CUDA_VISIBLE_DEVICES": "0"}})
        # Only CUDA knows which of two different models it counts as the first.
        for index, (device, name) in enumerate([(GPU, H200), (OTHER_GPU, "NVIDIA L4")]):
            builder.gpu(device, name, index)
            builder.read("gpu/power_watts", every_second(), 100.0, device)
        report = builder.report()
        assert report.gpu.value == pytest.approx(0.2)
        assert "not known which of them it could see" in report.gpu.how

    def test_each_segment_counts_the_gpus_it_used(self, builder):
        builder.segment("a1", 0, 1800)
        builder.segment("b2", 1800, 3600)
        for segment, used, start in [("a1", GPU, 0), ("b2", OTHER_GPU, 1800)]:
            seconds = every_second(start, start + 1800)
            for device in (GPU, OTHER_GPU):
                builder.read("gpu/power_watts", seconds, 100.0, device, segment)
            builder.read("gpu/process_memory_bytes", seconds, 1e9, used, segment, rank=0)
        report = builder.report()
        assert {used.device: used.live_seconds for used in report.devices if used.kind == "gpu"} == {
            GPU: 1800.0,
            OTHER_GPU: 1800.0,
        }

    def test_gpus_with_the_same_id_on_two_hosts_are_different(self, builder):
        builder.segment(rank=0)
        builder.segment(rank=1, host="node2")
        for host in ("node1", "node2"):
            builder.read("gpu/power_watts", every_second(), 100.0, GPU, host=host)
        assert builder.report().gpu.value == pytest.approx(0.2)


class TestHostEnergy:
    def test_without_energy_counters_the_processors_are_unknown_and_the_total_says_so(self, builder):
        builder.segment()
        builder.read("gpu/power_watts", every_second(), 100.0, GPU)
        report = builder.report()
        assert report.cpu.value is None
        assert report.dram.value is None
        assert report.total.value == 0.1
        assert "without CPU (no energy counter (RAPL)" in report.total.how

    def test_the_whole_host_counts_where_the_share_is_unknown(self, builder):
        builder.segment()
        seconds = every_second()
        builder.read("energy/cpu_joules_total", seconds, 100 * seconds)
        builder.read("energy/cpu_joules_total", seconds, 60 * seconds, "package-0")
        builder.read("energy/dram_joules_total", seconds, 10 * seconds)
        report = builder.report()
        assert report.cpu.value == pytest.approx(0.1)
        assert report.dram.value == pytest.approx(0.01)
        assert report.total.value == pytest.approx(0.11)
        assert report.cpu.method == "RAPL"
        assert "all of it" in report.cpu.how

    def test_the_share_of_processor_time_is_attributed_to_the_run(self, builder):
        builder.segment(facts={"cpus": 16})
        seconds = every_second()
        builder.read("energy/cpu_joules_total", seconds, 100 * seconds)
        builder.read("cpu/utilization_ratio", seconds, 0.5)
        builder.read("tree/cpu_ratio", seconds, 1.5, rank=0)
        builder.read("tree/cpu_ratio", seconds, 0.5, rank=1)
        report = builder.report()
        assert report.cpu.value == pytest.approx(0.1 * 2 / 8)
        assert report.devices[0].share_ratio == pytest.approx(0.25)
        assert "share of the processor time" in report.cpu.how

    def test_a_restarted_agent_loses_only_the_time_in_between(self, builder):
        builder.segment()
        first, second = every_second(0, 1800), every_second(1900, 3600)
        builder.read("energy/cpu_joules_total", first, 100 * (first - 0.5))
        builder.read("energy/cpu_joules_total", second, 100 * (second - 1900.5))
        report = builder.report()
        assert report.cpu.value == pytest.approx(3500 * 100 / 3.6e6, rel=1e-3)
        assert report.covered_ratio == pytest.approx(3500 / 3600, rel=1e-3)

    def test_a_host_without_counters_is_reported_next_to_one_with_them(self, builder):
        builder.segment(rank=0)
        builder.segment(rank=1, host="node2")
        seconds = every_second()
        builder.read("energy/cpu_joules_total", seconds, 100 * seconds)
        report = builder.report()
        assert report.cpu.value == pytest.approx(0.1)
        assert "1 of 2 not measured" in report.cpu.how

    def test_without_readings_the_total_is_unknown_with_the_reasons(self, builder):
        builder.segment()
        report = builder.report(Energy(region="DE", electricity_price_per_kwh=0.3))
        assert report.total.value is report.covered_ratio is None
        assert "no GPU was read" in report.total.how
        for figure in (report.carbon_dioxide, report.electricity, report.cloud, report.per_step):
            assert figure.value is None
            assert figure.how


class TestPerStepAndSample:
    @pytest.fixture
    def tenth(self, builder):
        """A run that used 0.1 kWh."""
        builder.segment()
        builder.read("gpu/power_watts", every_second(), 100.0, GPU)
        return builder

    def test_steps_are_those_of_the_loss_by_one_rank(self, tenth):
        for rank in (0, 1):
            tenth.log("loss", range(1000), 1.0, rank)
        report = tenth.report()
        assert report.workload.steps.value == 1000
        assert (report.per_step.value, report.per_step.unit) == (pytest.approx(360.0), "J")

    def test_steps_between_logged_steps_are_counted(self, tenth):
        tenth.log("loss", range(0, 1000, 9), 1.0)
        assert tenth.report().workload.steps.value == 1000

    def test_steps_that_restart_each_epoch_are_all_counted(self, tenth):
        tenth.log("loss", [*range(100), *range(100)], 1.0)
        assert tenth.report().workload.steps.value == 200

    def test_steps_repeated_after_a_crash_are_counted_again(self, tenth):
        tenth.segment("b2", 5000, 5001)
        tenth.log("loss", range(100), 1.0)
        tenth.log("loss", range(50, 150), 1.0, segment="b2")
        assert tenth.report().workload.steps.value == 200

    def test_samples_are_the_batch_sizes_of_all_ranks(self, tenth):
        for rank in (0, 1):
            tenth.log("loss", range(1000), 1.0, rank)
            tenth.log("batch_size", range(1000), 5.0, rank)
        report = tenth.report()
        assert report.workload.samples.value == 10_000
        assert (report.per_thousand_samples.value, report.per_thousand_samples.unit) == (
            pytest.approx(10.0),
            "Wh",
        )

    def test_a_batch_size_logged_once_applies_to_every_step(self, tenth):
        tenth.log("loss", range(1000), 1.0)
        tenth.log("batch_size", [0], 32.0)
        assert tenth.report().workload.samples.value == 32_000

    def test_samples_per_step_count_once_for_any_number_of_ranks(self, tenth):
        for rank in (0, 1):
            tenth.log("loss", range(1000), 1.0, rank)
            tenth.log("samples_per_step", range(1000), 64.0, rank)
        assert tenth.report().workload.samples.value == 64_000

    def test_throughput_is_added_up_over_time(self, tenth):
        tenth.log("throughput", range(1001), 50.0)
        report = tenth.report()
        assert report.workload.samples.value == 50_000
        assert "samples per second" in report.per_thousand_samples.how

    def test_without_a_batch_size_the_report_says_what_to_log(self, tenth):
        tenth.log("loss", range(10), 1.0)
        report = tenth.report()
        assert report.per_thousand_samples.value is None
        assert "log batch_size" in report.per_thousand_samples.how


class TestCarbonAndMoney:
    @pytest.fixture
    def tenth(self, builder):
        builder.segment()
        builder.gpu()
        builder.read("gpu/power_watts", every_second(), 100.0, GPU)
        return builder

    def test_carbon_dioxide_is_energy_times_pue_times_grid_intensity(self, tenth):
        carbon_dioxide = tenth.report(Energy(region="de", pue=1.5)).carbon_dioxide
        assert carbon_dioxide.value == pytest.approx(0.1 * 1.5 * 0.34414)
        assert (carbon_dioxide.unit, carbon_dioxide.method) == ("kg", "DE, 2024")
        assert "Ember" in carbon_dioxide.source

    def test_an_intensity_in_the_settings_comes_before_the_table(self, tenth):
        carbon_dioxide = tenth.report(Energy(region="DE", carbon_grams_per_kwh=50.0)).carbon_dioxide
        assert carbon_dioxide.value == pytest.approx(0.005)
        assert carbon_dioxide.source == "energy.carbon_grams_per_kwh"

    @pytest.mark.parametrize(("region", "said"), [(None, "set energy.region"), ("ATLANTIS", "'ATLANTIS'")])
    def test_an_unknown_region_leaves_it_unknown_and_says_what_to_set(self, tenth, region, said):
        carbon_dioxide = tenth.report(Energy(region=region)).carbon_dioxide
        assert carbon_dioxide.value is None
        assert said in carbon_dioxide.how

    def test_electricity_cost_is_energy_times_pue_times_price(self, tenth):
        electricity = tenth.report(Energy(electricity_price_per_kwh=0.3, currency="EUR", pue=2.0)).electricity
        assert (electricity.value, electricity.unit) == (pytest.approx(0.06), "EUR")

    def test_cloud_cost_is_gpu_hours_times_list_price_with_its_source(self, tenth):
        report = tenth.report()
        (item,) = report.rented
        assert (item.gpu, item.gpu_hours) == (H200, 1.0)
        assert item.amount == item.per_hour == report.cloud.value > 0
        assert item.provider
        assert item.date
        assert item.source.startswith("https://")
        assert report.cloud.unit == "USD"

    def test_a_price_in_the_settings_comes_before_the_table(self, tenth):
        report = tenth.report(Energy(gpu_price_per_hour={"H200": 2.0}, currency="EUR"))
        assert (report.cloud.value, report.cloud.unit) == (2.0, "EUR")
        assert report.rented[0].provider == "settings"

    def test_a_gpu_without_a_price_is_named_and_leaves_the_cost_unknown(self, builder):
        builder.segment()
        builder.gpu(name="NVIDIA Imaginary 9000")
        builder.read("gpu/power_watts", every_second(), 100.0, GPU)
        report = builder.report()
        assert report.cloud.value is None
        assert "NVIDIA Imaginary 9000" in report.cloud.how
        assert report.rented[0].amount is None

    def test_two_currencies_are_not_added_up(self, builder):
        builder.segment()
        for index, (device, name) in enumerate([(GPU, H200), (OTHER_GPU, "NVIDIA L4")]):
            builder.gpu(device, name, index)
            builder.read("gpu/power_watts", every_second(), 100.0, device)
        report = builder.report(Energy(gpu_price_per_hour={"L4": 1.0}, currency="EUR"))
        assert report.cloud.value is None
        assert "EUR and USD" in report.cloud.how
        assert {rental.currency for rental in report.rented} == {"EUR", "USD"}


def test_the_report_is_plain_data_for_json(builder):
    builder.segment()
    builder.gpu()
    builder.read("gpu/power_watts", every_second(), 100.0, GPU)
    plain = json.loads(to_json(builder.report(Energy(region="FR")).described()))
    assert plain["gpu"]["value"] == 0.1
    assert plain["devices"][0]["covered_ratio"] == 1.0
    assert plain["rented"][0]["gpu"] == H200
    assert plain["carbon_dioxide"]["method"] == "FR, 2024"
    assert plain["cpu"]["value"] is None
