"""AMD GPUs: units, values that are not available, figures that stand alone."""

from __future__ import annotations

import pytest

from stepscope.devices.amd.driver import AmdDriver
from stepscope.devices.gpu import GpuLost, GpuProcess
from tests.devices.amd.amdsmi_stand_in import (
    AmdSmiClkType,
    AmdSmiLibraryException,
    AmdSmiParameterException,
    AmdSmiRetCode,
    AmdSmiTemperatureType,
    StandInAmdsmi,
    an_mi300x,
)

MIB = 1 << 20


def open_one(**options):
    amdsmi = StandInAmdsmi(**options)
    return amdsmi, amdsmi.gpus[0], AmdDriver(amdsmi).gpus[0]


def test_what_does_not_change_is_known_at_once():
    _, _, gpu = open_one()
    facts = gpu.facts
    assert (facts.uuid, facts.index, facts.runtime_index) == ("GPU-d4a1b2c3d4e5f607", 0, 0)
    assert (facts.name, facts.vendor, facts.driver) == ("AMD Instinct MI300X", "AMD", "6.12.12")
    assert (facts.pci_bus_id, facts.memory_total_bytes) == ("0000:0c:00.0", 196608 * MIB)
    assert facts.power_limit_watts == 750.0


def test_an_older_library_names_a_gpu_by_its_serial_number():
    _, _, gpu = open_one(lacking=("amdsmi_get_gpu_enumeration_info",))
    assert (gpu.facts.uuid, gpu.facts.runtime_index) == ("GPU-d4a1", None)


def test_figures_come_in_base_units():
    _, _, gpu = open_one()
    reading = gpu.read(thorough=True)
    assert (reading.utilization_ratio, reading.memory_utilization_ratio) == (0.88, 0.3)
    assert (reading.memory_used_bytes, reading.memory_total_bytes) == (1024 * MIB, 196608 * MIB)
    assert (reading.temperature_celsius, reading.memory_temperature_celsius) == (67, 58)
    assert (reading.power_watts, reading.power_limit_watts) == (640, 750.0)
    assert (reading.sm_clock_hertz, reading.memory_clock_hertz) == (2.1e9, 1.3e9)
    assert reading.energy_joules_total == pytest.approx(30.6)
    assert (reading.ecc_corrected_total, reading.ecc_uncorrected_total) == (2, 0)
    assert (reading.pcie_generation, reading.pcie_generation_most) == (4, 5)
    assert (reading.pcie_width, reading.pcie_width_most, reading.pcie_replays_total) == (8, 16, 5)
    assert reading.throttle_reasons == {"power_cap"}
    assert reading.processes == (GpuProcess(7, 4096), GpuProcess(8, None))


def test_older_libraries_count_in_other_units():
    _, answers, gpu = open_one()
    answers["amdsmi_get_temp_metric", AmdSmiTemperatureType.JUNCTION] = 67000
    answers["amdsmi_get_clock_info", AmdSmiClkType.GFX] = {"cur_clk": 1700}
    answers["amdsmi_get_energy_count"] = {"power": 2_000_000, "counter_resolution": 15.3}
    reading = gpu.read(thorough=False)
    assert (reading.temperature_celsius, reading.sm_clock_hertz) == (67, 1.7e9)
    assert reading.energy_joules_total == pytest.approx(30.6)


def test_what_is_not_available_is_none():
    _, answers, gpu = open_one()
    answers["amdsmi_get_power_info"] = dict.fromkeys(("current_socket_power", "average_socket_power"), "N/A")
    answers["amdsmi_get_gpu_activity"] = {"gfx_activity": "N/A", "umc_activity": 3}
    answers["amdsmi_get_violation_status"] = {"active_ppt_pwr": "N/A"}
    reading = gpu.read(thorough=True)
    assert (reading.power_watts, reading.utilization_ratio, reading.throttle_reasons) == (None, None, None)
    assert reading.memory_utilization_ratio == 0.03
    assert {"power_watts", "fan_ratio", "sm_active_ratio"} <= gpu.absent()
    assert "memory_utilization_ratio" not in gpu.absent()


def test_a_fan_is_read_as_a_share_and_one_that_is_not_there_is_asked_for_once():
    amdsmi, answers, gpu = open_one()
    assert gpu.read(thorough=True).fan_ratio is None
    gpu.read(thorough=True)
    assert amdsmi.calls["amdsmi_get_gpu_fan_speed"] == 1
    _, answers, gpu = open_one()
    answers["amdsmi_get_gpu_fan_speed"] = 51
    assert gpu.read(thorough=True).fan_ratio == 0.2


@pytest.mark.parametrize(
    "question", [key for key in an_mi300x() if "info" not in str(key) or "power" in str(key)]
)
@pytest.mark.parametrize(
    "error",
    [
        AmdSmiLibraryException(AmdSmiRetCode.ERR_NOT_SUPPORTED),
        AmdSmiLibraryException(AmdSmiRetCode.TIMEOUT),
        AmdSmiParameterException("wrong"),
    ],
    ids=["not supported", "timeout", "parameter"],
)
def test_no_failing_function_costs_a_figure_of_another(question, error):
    whole = open_one()[2].read(thorough=True)
    _, answers, gpu = open_one()
    answers[question] = error
    reading = gpu.read(thorough=True)
    different = {field for field in vars(whole) if getattr(whole, field) != getattr(reading, field)}
    assert all(getattr(reading, field) is None for field in different)
    assert len(different) <= 5


def test_a_figure_that_fails_once_is_there_the_next_time():
    _, answers, gpu = open_one()
    was = answers["amdsmi_get_power_info"]
    answers["amdsmi_get_power_info"] = AmdSmiLibraryException(AmdSmiRetCode.TIMEOUT)
    assert gpu.read(thorough=False).power_watts is None
    answers["amdsmi_get_power_info"] = was
    assert gpu.read(thorough=False).power_watts == 640


def test_a_library_without_a_function_has_everything_else():
    _, _, gpu = open_one(lacking=("amdsmi_get_violation_status", "amdsmi_get_pcie_info"))
    reading = gpu.read(thorough=True)
    assert (reading.throttle_reasons, reading.pcie_width, reading.power_watts) == (None, None, 640)


@pytest.mark.parametrize("code", [AmdSmiRetCode.NOT_INIT, AmdSmiRetCode.ERR_NOT_SUPPORTED])
def test_a_gpu_that_answers_nothing_is_lost_and_comes_back_whole(code):
    _, answers, gpu = open_one()
    before, kept = gpu.read(thorough=True), dict(answers)
    answers.update(dict.fromkeys(answers, AmdSmiLibraryException(code)))
    with pytest.raises(GpuLost):
        gpu.read(thorough=True)
    answers.update(kept)
    assert gpu.read(thorough=True) == before
