"""NVIDIA GPUs: units, figures that stand alone, boards that go, slices."""

from __future__ import annotations

from types import SimpleNamespace

import pynvml
import pytest

from stepscope.devices.gpu import THROTTLE_REASONS, GpuLost, GpuProcess
from stepscope.devices.nvidia.driver import NvidiaDriver
from stepscope.devices.nvidia.nvidia import OpenOptions
from tests.devices.nvidia.nvml_stand_in import (
    GIB,
    LOST,
    NOT_SUPPORTED,
    TIMEOUT,
    Refusal,
    StandInBoard,
    StandInNvml,
    an_h200,
    busy,
    process,
)


class HandClock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def open_all(*boards: StandInBoard, **options):
    nvml = StandInNvml(*boards, **options)
    return nvml, NvidiaDriver(OpenOptions(nvml)).gpus


def test_what_does_not_change_is_known_at_once():
    _, (gpu,) = open_all(an_h200())
    facts = gpu.facts
    assert facts.uuid == "GPU-00000000-aaaa-bbbb-cccc-dddddddddddd"
    assert (facts.index, facts.name, facts.vendor, facts.driver) == (0, "NVIDIA H200", "NVIDIA", "580.95.05")
    assert facts.cuda == "13.2"
    assert (facts.pci_bus_id, facts.memory_total_bytes) == ("00000000:1B:00.0", 140 * GIB)
    assert (facts.power_limit_watts, facts.parent_uuid) == (700.0, None)


def test_figures_come_in_base_units():
    _, (gpu,) = open_all(an_h200())
    reading = gpu.read(thorough=True)
    assert (reading.utilization_ratio, reading.memory_utilization_ratio) == (0.97, 0.41)
    assert (reading.temperature_celsius, reading.memory_temperature_celsius) == (61, 70)
    assert (reading.power_watts, reading.power_limit_watts) == (612.345, 700.0)
    assert (reading.sm_clock_hertz, reading.memory_clock_hertz) == (1.98e9, 3.201e9)
    assert reading.energy_joules_total == 5000.0
    assert (reading.ecc_corrected_total, reading.ecc_uncorrected_total) == (3, 0)
    assert (reading.ecc_corrected_lifetime_total, reading.ecc_uncorrected_lifetime_total) == (14, 1)
    assert (reading.remapped_rows_total, reading.remap_pending, reading.remap_failed) == (3, True, False)
    assert (reading.pcie_generation, reading.pcie_generation_most) == (5, 5)
    assert (reading.pcie_width, reading.pcie_width_most, reading.pcie_replays_total) == (8, 16, 6)
    assert (reading.encoder_ratio, reading.decoder_ratio) == (0.12, 0.0)


def test_used_memory_leaves_out_what_the_driver_keeps_as_nvidia_smi_does():
    _, (gpu,) = open_all(an_h200())
    reading = gpu.read(thorough=False)
    assert (reading.memory_used_bytes, reading.memory_total_bytes) == (60 * GIB, 140 * GIB)


def test_a_driver_without_the_newer_call_still_reports_its_memory():
    board = an_h200()
    board.answers["nvmlDeviceGetMemoryInfo", pynvml.nvmlMemory_v2] = Refusal(
        pynvml.NVML_ERROR_FUNCTION_NOT_FOUND
    )
    nvml, (gpu,) = open_all(board)
    assert gpu.read(thorough=False).memory_used_bytes == 61 * GIB
    nvml.calls.clear()
    assert gpu.read(thorough=False).memory_used_bytes == 61 * GIB
    assert nvml.calls["nvmlDeviceGetMemoryInfo"] == 1


def test_a_library_without_a_function_uses_the_older_one():
    board = an_h200()
    board.answers["nvmlDeviceGetCurrentClocksThrottleReasons"] = 0x40
    _, (gpu,) = open_all(board, lacking=("nvmlDeviceGetCurrentClocksEventReasons",))
    assert gpu.read(thorough=False).throttle_reasons == {"hardware_thermal"}


@pytest.mark.parametrize(
    ("mask", "reasons"),
    [
        (0x0, set()),
        (0x1 | 0x2 | 0x100, set()),
        (0x4, {"power_cap"}),
        (0x8 | 0x80, {"hardware_slowdown", "power_brake"}),
        (0x10 | 0x20 | 0x40, {"sync_boost", "software_thermal", "hardware_thermal"}),
        (0xFFF, set(THROTTLE_REASONS)),
    ],
)
def test_throttle_reasons_are_named_and_idleness_is_none(mask, reasons):
    board = an_h200()
    board.answers["nvmlDeviceGetCurrentClocksEventReasons"] = mask
    _, (gpu,) = open_all(board)
    assert gpu.read(thorough=False).throttle_reasons == reasons


def test_a_gpu_without_a_fan_reports_nothing_for_it_and_is_not_asked_again():
    nvml, (gpu,) = open_all(an_h200())
    assert gpu.read(thorough=True).fan_ratio is None
    assert "fan_ratio" in gpu.absent()
    assert "power_watts" not in gpu.absent()
    gpu.read(thorough=True)
    assert nvml.calls["nvmlDeviceGetFanSpeed"] == 1


def test_a_fan_is_read_as_a_share():
    board = an_h200()
    board.answers["nvmlDeviceGetFanSpeed"] = 43
    _, (gpu,) = open_all(board)
    assert gpu.read(thorough=True).fan_ratio == 0.43


@pytest.mark.parametrize(
    "name",
    sorted({key if isinstance(key, str) else key[0] for key in an_h200().answers} - {"nvmlDeviceGetUUID"}),
)
@pytest.mark.parametrize("error", [NOT_SUPPORTED, TIMEOUT, Refusal(pynvml.NVML_ERROR_UNKNOWN)])
def test_no_failing_function_costs_a_figure_of_another(name, error):
    whole = open_all(an_h200())[1][0].read(thorough=True)
    board = an_h200()
    for key in list(board.answers):
        if name in (key, key[0]):
            board.answers[key] = error
    reading = open_all(board)[1][0].read(thorough=True)
    different = {field for field in vars(whole) if getattr(whole, field) != getattr(reading, field)}
    assert all(getattr(reading, field) is None for field in different)
    assert len(different) <= 2


def test_a_figure_that_fails_once_is_there_the_next_time():
    board = an_h200()
    board.answers["nvmlDeviceGetPowerUsage"] = TIMEOUT
    _, (gpu,) = open_all(board)
    assert gpu.read(thorough=False).power_watts is None
    board.answers["nvmlDeviceGetPowerUsage"] = 300_000
    assert gpu.read(thorough=False).power_watts == 300.0


def test_a_figure_one_may_not_see_is_not_asked_again():
    board = an_h200()
    board.answers["nvmlDeviceGetPowerUsage"] = Refusal(pynvml.NVML_ERROR_NO_PERMISSION)
    nvml, (gpu,) = open_all(board)
    for _ in range(3):
        assert gpu.read(thorough=False).power_watts is None
    assert nvml.calls["nvmlDeviceGetPowerUsage"] == 1


def test_one_field_that_fails_costs_no_other_and_half_a_sum_is_none():
    board = an_h200()
    board.fields |= {"ECC_SBE_VOL_TOTAL": NOT_SUPPORTED, "REMAPPED_UNC": TIMEOUT, "MEMORY_TEMP": 0}
    _, (gpu,) = open_all(board)
    reading = gpu.read(thorough=True)
    assert (reading.ecc_corrected_total, reading.remapped_rows_total) == (None, None)
    assert reading.memory_temperature_celsius is None
    assert (reading.ecc_uncorrected_total, reading.energy_joules_total) == (0, 5000.0)
    board.fields["REMAPPED_UNC"] = 5
    assert gpu.read(thorough=True).remapped_rows_total == 7
    assert "ecc_corrected_total" in gpu.absent()
    assert "remapped_rows_total" not in gpu.absent()


def test_a_driver_without_fields_has_everything_else():
    nvml, (gpu,) = open_all(an_h200(), lacking=("nvmlDeviceGetFieldValues",))
    del nvml
    reading = gpu.read(thorough=True)
    assert reading.energy_joules_total is None
    assert reading.utilization_ratio == 0.97
    assert {"energy_joules_total", "ecc_corrected_total"} <= gpu.absent()


def test_a_fast_reading_takes_about_ten_calls_and_leaves_slow_things_out():
    board = an_h200()
    board.answers["nvmlGpmQueryDeviceSupport"] = SimpleNamespace(isSupportedDevice=1)
    board.answers["nvmlGpmSampleGet"] = None
    nvml, (gpu,) = open_all(board)
    gpu.read(thorough=True)
    nvml.calls.clear()
    reading = gpu.read(thorough=False)
    assert sum(nvml.calls.values()) <= 10
    assert reading.ecc_corrected_total is None
    assert reading.pcie_width is None
    assert reading.energy_joules_total is None
    assert None not in (reading.utilization_ratio, reading.power_watts, reading.memory_temperature_celsius)


def test_constants_are_queried_once_and_always_reported():
    nvml, (gpu,) = open_all(an_h200())
    for _ in range(3):
        assert gpu.read(thorough=True).pcie_width_most == 16
    assert nvml.calls["nvmlDeviceGetMaxPcieLinkWidth"] == 1


@pytest.mark.parametrize(
    "code",
    [
        pynvml.NVML_ERROR_GPU_IS_LOST,
        pynvml.NVML_ERROR_RESET_REQUIRED,
        pynvml.NVML_ERROR_UNINITIALIZED,
        pynvml.NVML_ERROR_DRIVER_NOT_LOADED,
    ],
)
def test_a_gpu_that_is_gone_is_lost_with_any_error_text(code):
    board = an_h200()
    _, (gpu,) = open_all(board)
    gpu.read(thorough=True)
    board.answers["nvmlDeviceGetPowerUsage"] = Refusal(code)
    with pytest.raises(GpuLost, match=str(pynvml.NVMLError(code))):
        gpu.read(thorough=False)


def test_a_gpu_that_answers_nothing_is_lost_and_forgets_no_figure_for_it():
    board = an_h200()
    _, (gpu,) = open_all(board, lacking=("nvmlDeviceGetFieldValues",))
    before = gpu.read(thorough=True)
    answers = dict(board.answers)
    board.answers = dict.fromkeys(answers, NOT_SUPPORTED)
    with pytest.raises(GpuLost):
        gpu.read(thorough=True)
    board.answers = answers
    assert gpu.read(thorough=True) == before


def test_a_gpu_that_cannot_be_opened_is_named_and_the_others_are_there():
    broken = an_h200(1)
    broken.answers["nvmlDeviceGetUUID"] = LOST
    driver = NvidiaDriver(OpenOptions(StandInNvml(an_h200(0), broken, an_h200(2))))
    assert [gpu.facts.index for gpu in driver.gpus] == [0, 2]
    assert driver.unavailable_gpus == {"GPU 1": "GPU is lost"}


def test_the_driver_is_opened_and_closed_once():
    nvml = StandInNvml(an_h200(0), an_h200(1))
    driver = NvidiaDriver(OpenOptions(nvml))
    for gpu in driver.gpus:
        gpu.read(thorough=True)
    assert nvml.opened == 1
    driver.close()
    assert nvml.opened == 0


def test_processes_are_listed_with_memory_and_their_share_of_time():
    board = an_h200()
    board.answers["nvmlDeviceGetComputeRunningProcesses_v3"] = [
        process(7, 5),
        process(8, None),
        process(7, 2),
    ]
    board.answers["nvmlDeviceGetProcessUtilization"] = [busy(7, 30, 1000), busy(7, 3_000_000_000, 2000)]
    _, (gpu,) = open_all(board)
    assert gpu.read(thorough=True).processes == (GpuProcess(7, 7, 0.3), GpuProcess(8, None, 0.0))
    assert gpu.read(thorough=False).processes == (GpuProcess(7, 7), GpuProcess(8))


@pytest.mark.parametrize("code", [pynvml.NVML_SUCCESS, pynvml.NVML_ERROR_NOT_FOUND])
def test_while_the_driver_has_counted_nothing_a_share_is_not_known(code):
    board = an_h200()
    board.answers["nvmlDeviceGetComputeRunningProcesses_v3"] = [process(7, 5)]
    board.answers["nvmlDeviceGetProcessUtilization"] = Refusal(code)
    _, (gpu,) = open_all(board)
    assert gpu.read(thorough=True).processes == (GpuProcess(7, 5, None),)


def test_a_board_without_process_shares_reports_none():
    board = an_h200()
    board.answers["nvmlDeviceGetComputeRunningProcesses_v3"] = [process(7, 5)]
    board.answers["nvmlDeviceGetProcessUtilization"] = NOT_SUPPORTED
    _, (gpu,) = open_all(board)
    assert gpu.read(thorough=True).processes == (GpuProcess(7, 5, None),)


def test_traffic_over_links_is_the_growth_of_counters():
    clock, board = HandClock(), an_h200()
    board.fields |= {
        "NVLINK_LINK_COUNT": 2,
        ("NVLINK_THROUGHPUT_DATA_TX", 2**32 - 1): 1000,
        ("NVLINK_THROUGHPUT_DATA_RX", 2**32 - 1): 50,
    }
    driver = NvidiaDriver(OpenOptions(StandInNvml(board), now=clock))
    first = driver.gpus[0].read(thorough=False)
    clock.now += 2
    board.fields["NVLINK_THROUGHPUT_DATA_TX", 2**32 - 1] += 4000
    second = driver.gpus[0].read(thorough=False)
    assert first.nvlink_sent_bytes_per_second is None
    assert (second.nvlink_sent_bytes_per_second, second.nvlink_received_bytes_per_second) == (2000 * 1024, 0)


def test_a_board_without_links_reports_none():
    _, (gpu,) = open_all(an_h200())
    reading = gpu.read(thorough=True)
    assert reading.nvlink_errors_total is None
    assert {"nvlink_errors_total", "nvlink_sent_bytes_per_second"} <= gpu.absent()


@pytest.mark.parametrize(
    "fields",
    [
        {("NVLINK_ERROR_DL_REPLAY", 0): 1, ("NVLINK_ERROR_DL_REPLAY", 1): 2, ("NVLINK_ERROR_DL_CRC", 1): 4},
        {("NVLINK_COUNT_RCV_ERRORS", 0): 3, ("NVLINK_COUNT_LINK_RECOVERY_EVENTS", 1): 4},
        {"NVLINK_CRC_DATA_ERROR_COUNT_TOTAL": 5, "NVLINK_REPLAY_ERROR_COUNT_TOTAL": 2},
    ],
    ids=["Hopper", "Blackwell", "Ampere"],
)
def test_errors_of_links_are_summed_as_each_generation_gives_them(fields):
    clock, board = HandClock(), an_h200()
    board.fields |= {"NVLINK_LINK_COUNT": 2, **fields}
    gpu = NvidiaDriver(OpenOptions(StandInNvml(board), now=clock)).gpus[0]
    totals = []
    for _ in range(3):
        totals.append(gpu.read(thorough=True).nvlink_errors_total)
        clock.now += 61
    assert totals[-1] == 7


def test_traffic_is_measured_by_the_driver_where_nothing_counts_it():
    board = an_h200()
    board.answers["nvmlDeviceGetPcieThroughput", pynvml.NVML_PCIE_UTIL_TX_BYTES] = 250
    board.answers["nvmlDeviceGetPcieThroughput", pynvml.NVML_PCIE_UTIL_RX_BYTES] = 100
    nvml, (gpu,) = open_all(board)
    reading = gpu.read(thorough=True)
    assert (reading.pcie_sent_bytes_per_second, reading.pcie_received_bytes_per_second) == (250_000, 100_000)
    nvml.calls.clear()
    assert gpu.read(thorough=False).pcie_sent_bytes_per_second is None
    assert nvml.calls["nvmlDeviceGetPcieThroughput"] == 0


def a_slice() -> StandInBoard:
    return StandInBoard(
        {
            "nvmlDeviceGetUUID": "MIG-11111111-2222-3333-4444-555555555555",
            "nvmlDeviceGetName": "NVIDIA H200 MIG 3g.71gb",
            "nvmlDeviceGetGpuInstanceId": 3,
            "nvmlDeviceGetComputeInstanceId": 0,
            "nvmlDeviceGetMemoryInfo": SimpleNamespace(used=2 * GIB, total=70 * GIB),
            "nvmlDeviceGetUtilizationRates": Refusal(pynvml.NVML_ERROR_INVALID_ARGUMENT),
            "nvmlDeviceGetComputeRunningProcesses_v3": [process(7, GIB)],
        },
        {},
    )


def a_sliced_board() -> StandInBoard:
    board = an_h200()
    board.answers["nvmlDeviceGetMigMode"] = [1, 1]
    board.answers["nvmlDeviceGetUtilizationRates"] = NOT_SUPPORTED
    board.slices = [a_slice()]
    return board


def test_slices_are_gpus_of_their_own_beside_the_whole():
    _, (whole, part) = open_all(a_sliced_board())
    assert part.facts.parent_uuid == whole.facts.uuid
    assert (part.facts.index, part.facts.pci_bus_id) == (whole.facts.index, whole.facts.pci_bus_id)
    assert (part.facts.gpu_instance, part.facts.compute_instance) == (3, 0)
    reading = part.read(thorough=True)
    assert (reading.memory_used_bytes, reading.memory_total_bytes) == (2 * GIB, 70 * GIB)
    assert reading.utilization_ratio is None
    assert reading.processes == (GpuProcess(7, GIB, None),)
    assert whole.read(thorough=True).power_watts == 612.345
    assert "utilization_ratio" in part.absent()


def test_a_slice_that_vanishes_is_lost_alone():
    board = a_sliced_board()
    _, (whole, part) = open_all(board)
    part.read(thorough=True)
    board.slices[0].fall_off()
    with pytest.raises(GpuLost):
        part.read(thorough=False)
    assert whole.read(thorough=False).memory_used_bytes == 60 * GIB
