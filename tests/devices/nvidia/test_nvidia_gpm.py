"""Performance counters: what happened between two samples, where the board lets them be read."""

from __future__ import annotations

from types import SimpleNamespace

import pynvml
import pytest

from stepscope.devices.nvidia.driver import NvidiaDriver
from stepscope.devices.nvidia.nvidia import OpenOptions
from tests.devices.nvidia.nvml_stand_in import (
    NOT_SUPPORTED,
    TIMEOUT,
    Refusal,
    StandInBoard,
    StandInNvml,
    an_h200,
)
from tests.devices.nvidia.test_nvidia import a_sliced_board

MIB = 1 << 20
ACTIVITY = {
    pynvml.NVML_GPM_METRIC_GRAPHICS_UTIL: 96.0,
    pynvml.NVML_GPM_METRIC_SM_UTIL: 80.0,
    pynvml.NVML_GPM_METRIC_SM_OCCUPANCY: 25.0,
    pynvml.NVML_GPM_METRIC_ANY_TENSOR_UTIL: 50.0,
    pynvml.NVML_GPM_METRIC_DRAM_BW_UTIL: 100.5,
    pynvml.NVML_GPM_METRIC_PCIE_TX_PER_SEC: 3.0,
    pynvml.NVML_GPM_METRIC_PCIE_RX_PER_SEC: 4.0,
    pynvml.NVML_GPM_METRIC_NVLINK_TOTAL_TX_PER_SEC: 5.0,
    pynvml.NVML_GPM_METRIC_NVLINK_TOTAL_RX_PER_SEC: 6.0,
}


def a_counting_board() -> StandInBoard:
    board = an_h200()
    board.answers["nvmlGpmQueryDeviceSupport"] = SimpleNamespace(isSupportedDevice=1)
    board.answers["nvmlGpmSampleGet"] = None
    board.gpm = dict(ACTIVITY)
    return board


def open_one(board: StandInBoard):
    nvml = StandInNvml(board)
    return nvml, NvidiaDriver(OpenOptions(nvml)).gpus[0]


def test_activity_is_known_from_the_second_reading_on():
    board = a_counting_board()
    _, gpu = open_one(board)
    assert gpu.read(thorough=False).sm_active_ratio is None
    for _ in range(3):
        reading = gpu.read(thorough=False)
        assert (reading.sm_active_ratio, reading.sm_occupancy_ratio) == (0.8, 0.25)
        assert (reading.tensor_active_ratio, reading.dram_active_ratio) == (0.5, 1.0)
        assert (reading.pcie_sent_bytes_per_second, reading.pcie_received_bytes_per_second) == (
            3 * MIB,
            4 * MIB,
        )


def test_ordinary_utilisation_stays_what_the_driver_counts():
    _, gpu = open_one(a_counting_board())
    gpu.read(thorough=False)
    assert gpu.read(thorough=False).utilization_ratio == 0.97


def test_link_traffic_is_reported_only_for_boards_with_links():
    without = a_counting_board()
    having = a_counting_board()
    having.fields["NVLINK_LINK_COUNT"] = 18
    rates = []
    for board in (without, having):
        _, gpu = open_one(board)
        gpu.read(thorough=False)
        rates.append(gpu.read(thorough=False).nvlink_received_bytes_per_second)
    assert rates == [None, 6 * MIB]


def test_two_readings_so_close_that_nothing_was_counted_give_no_figures_and_lose_none():
    board = a_counting_board()
    _, gpu = open_one(board)
    gpu.read(thorough=False)
    board.gpm |= {pynvml.NVML_GPM_METRIC_SM_UTIL: 0.0, pynvml.NVML_GPM_METRIC_DRAM_BW_UTIL: float("nan")}
    too_soon = gpu.read(thorough=False)
    assert (too_soon.sm_active_ratio, too_soon.dram_active_ratio) == (None, None)
    board.gpm |= ACTIVITY
    assert gpu.read(thorough=False).sm_active_ratio == 0.8


def test_a_metric_the_board_lacks_costs_no_other():
    board = a_counting_board()
    del board.gpm[pynvml.NVML_GPM_METRIC_ANY_TENSOR_UTIL]
    _, gpu = open_one(board)
    gpu.read(thorough=False)
    assert gpu.read(thorough=False).tensor_active_ratio is None
    assert gpu.read(thorough=False).dram_active_ratio == 1.0
    assert "tensor_active_ratio" in gpu.absent()


def test_a_sample_that_fails_leaves_a_gap_and_is_not_compared_with():
    board = a_counting_board()
    _, gpu = open_one(board)
    gpu.read(thorough=False)
    board.answers["nvmlGpmSampleGet"] = TIMEOUT
    assert gpu.read(thorough=False).sm_active_ratio is None
    board.answers["nvmlGpmSampleGet"] = None
    assert gpu.read(thorough=False).sm_active_ratio is None
    assert gpu.read(thorough=False).sm_active_ratio == 0.8


def test_counters_one_may_not_read_are_replaced_by_ordinary_ones():
    board = a_counting_board()
    board.answers["nvmlGpmSampleGet"] = Refusal(pynvml.NVML_ERROR_NO_PERMISSION)
    board.answers["nvmlDeviceGetPcieThroughput"] = 7
    nvml, gpu = open_one(board)
    gpu.read(thorough=True)
    reading = gpu.read(thorough=True)
    assert reading.sm_active_ratio is None
    assert reading.pcie_sent_bytes_per_second == 7000
    assert nvml.calls["nvmlGpmSampleGet"] == 1
    assert "sm_active_ratio" in gpu.absent()


@pytest.mark.parametrize("answer", [NOT_SUPPORTED, SimpleNamespace(isSupportedDevice=0)])
def test_an_older_board_is_never_asked_for_samples(answer):
    board = a_counting_board()
    board.answers["nvmlGpmQueryDeviceSupport"] = answer
    nvml, gpu = open_one(board)
    gpu.read(thorough=True)
    assert nvml.calls["nvmlGpmSampleAlloc"] == nvml.calls["nvmlGpmSampleGet"] == 0


def test_counters_can_be_left_to_another_profiler():
    nvml = StandInNvml(a_counting_board())
    gpu = NvidiaDriver(OpenOptions(nvml, performance_counters=False)).gpus[0]
    gpu.read(thorough=True)
    assert nvml.calls["nvmlGpmQueryDeviceSupport"] == nvml.calls["nvmlGpmSampleGet"] == 0


def test_a_slice_has_its_utilisation_from_the_counters_of_the_whole():
    board = a_sliced_board()
    board.answers["nvmlGpmQueryDeviceSupport"] = SimpleNamespace(isSupportedDevice=1)
    board.answers["nvmlGpmSampleGet"] = NOT_SUPPORTED
    board.slices[0].gpm = dict(ACTIVITY)
    driver = NvidiaDriver(OpenOptions(StandInNvml(board)))
    part = driver.gpus[1]
    part.read(thorough=True)
    reading = part.read(thorough=True)
    assert (reading.utilization_ratio, reading.sm_active_ratio) == (0.96, 0.8)
    assert "utilization_ratio" not in part.absent()


def test_samples_are_given_back_when_the_driver_is_closed():
    nvml = StandInNvml(a_counting_board())
    driver = NvidiaDriver(OpenOptions(nvml))
    driver.close()
    driver.close()
    assert nvml.calls["nvmlGpmSampleFree"] == nvml.calls["nvmlGpmSampleAlloc"] == 2
    assert nvml.opened == 0
