"""Machines that slow a run down or put it at risk, and machines that do not."""

import numpy as np
import pytest

from tests.detectors.simulated import diagnose, going_well

GPU = "GPU-1111"
DESCRIBED = ("device", {"device": GPU, "index": 3, "name": "NVIDIA H200"})
BYTES = 80e9
SOUND = {
    ("gpu/utilization_ratio", GPU): 0.95,
    ("gpu/process_memory_bytes", GPU): 40e9,
    ("gpu/memory_used_bytes", GPU): 40.5e9,
    ("gpu/memory_total_bytes", GPU): BYTES,
    ("gpu/process_count", GPU): 1.0,
    ("gpu/sm_clock_hertz", GPU): 1.9e9,
    ("gpu/temperature_celsius", GPU): 60.0,
    ("gpu/throttled_power_cap", GPU): 1.0,
    ("gpu/throttled_software_thermal", GPU): 0.0,
    ("gpu/throttled_hardware_thermal", GPU): 0.0,
    ("gpu/ecc_uncorrected_total", GPU): 2.0,
    ("gpu/ecc_corrected_total", GPU): np.arange(20.0),
    ("gpu/remap_pending", GPU): 0.0,
    ("gpu/remap_failed", GPU): 0.0,
    ("gpu/pcie_generation", GPU): 5.0,
    ("gpu/pcie_generation_most", GPU): 5.0,
    ("gpu/pcie_width", GPU): 16.0,
    ("gpu/pcie_width_most", GPU): 16.0,
    ("gpu/pcie_received_bytes_per_second", GPU): 1e8,
    ("cpu/cgroup_throttled_periods_ratio", ""): 0.005,
    ("cpu/cgroup_limit_cores", ""): 4.0,
    ("cpu/cgroup_used_cores", ""): 2.0,
    ("memory/cgroup_working_set_ratio", ""): 0.6,
    ("memory/cgroup_limit_bytes", ""): 64e9,
    ("memory/pressure_some_ratio", ""): 0.001,
}
"""A machine with nothing wrong: its GPU is at the power cap, and had errors before the run."""

NEW = {"hw.throttle", "hw.errors", "hw.pcie", "gpu.foreign", "host.cpu_quota", "hostmem.limit"}


def machine(**changes):
    """The sound machine with other readings of some keys, their slashes written as double underscores."""
    named = {key.replace("__", "/"): value for key, value in changes.items()}
    return {
        **SOUND,
        **{(key, GPU if key.startswith("gpu/") else ""): value for key, value in named.items()},
    }


def diagnosed(tmp_path, **changes):
    return diagnose(tmp_path, going_well(1, 600), events=(DESCRIBED,), machine=machine(**changes))


def the_finding(tmp_path, **changes):
    [finding] = diagnosed(tmp_path, **changes).findings
    return finding


def share_of(share, readings=200):
    """Readings of which a share is 1."""
    return (np.arange(readings) % 100 < 100 * share).astype(float)


def test_a_sound_machine_has_no_findings_and_all_its_checks_run(tmp_path):
    diagnosis = diagnosed(tmp_path)
    assert diagnosis.findings == ()
    ran = {check.id for check in diagnosis.considered if check.result == "passed"}
    assert ran >= NEW


def test_a_run_without_a_gpu_or_a_container_is_not_asked_for_one(tmp_path):
    diagnosis = diagnose(tmp_path, going_well(1, 1200))
    assert diagnosis.findings == ()
    assert not NEW & set(diagnosis.checks.not_run)


@pytest.mark.parametrize("share", [0.02, 0.3, 1.0])
def test_a_hot_gpu_is_named_with_the_time_it_was_throttled(tmp_path, share):
    throttled = share_of(share)
    finding = the_finding(
        tmp_path,
        gpu__throttled_software_thermal=throttled,
        gpu__sm_clock_hertz=np.where(throttled > 0, 1.2e9, 1.9e9),
        gpu__temperature_celsius=np.where(throttled > 0, 91.0, 70.0),
    )
    assert (finding.id, finding.device) == ("hw.throttle", GPU)
    assert finding.headline.startswith("GPU 3 is throttled ")
    assert f"{share:.0%}" in finding.headline or "2.0%" in finding.headline
    if share < 1:
        assert finding.share == pytest.approx(share * (1 - 1.2 / 1.9), rel=0.1)
    else:
        assert finding.share is None, "there is no clock to compare with"
    assert finding.severity == ("warning" if share == 0.3 else "notice")
    assert "91 °C" in {evidence.value for evidence in finding.evidence}


def test_hardware_that_slows_itself_down_is_a_warning(tmp_path):
    finding = the_finding(tmp_path, gpu__throttled_hardware_thermal=share_of(0.2))
    assert finding.severity == "warning"
    assert "because the chip is too hot" in finding.headline


def test_two_hot_readings_are_no_throttling(tmp_path):
    throttled = np.zeros(100)
    throttled[40:42] = 1
    assert diagnosed(tmp_path, gpu__throttled_software_thermal=throttled).findings == ()


def test_memory_errors_during_the_run_are_critical(tmp_path):
    errors = np.where(np.arange(50) < 30, 2.0, 5.0)
    finding = the_finding(tmp_path, gpu__ecc_uncorrected_total=errors)
    assert (finding.id, finding.severity) == ("hw.errors", "critical")
    assert finding.headline == "GPU 3 has had 3 memory errors in this run that could not be corrected."
    finding = the_finding(tmp_path, gpu__ecc_uncorrected_total=np.minimum(errors, 3.0))
    assert "has had a memory error in this run" in finding.headline


def test_damaged_memory_is_named_by_what_can_still_be_done(tmp_path):
    assert the_finding(tmp_path, gpu__remap_pending=1.0).severity == "notice"
    assert the_finding(tmp_path, gpu__remap_failed=1.0, gpu__remap_pending=1.0).severity == "warning"


def test_a_narrow_link_is_named_and_weighed_by_its_traffic(tmp_path):
    finding = the_finding(tmp_path, gpu__pcie_width=8.0, gpu__pcie_generation=4.0)
    assert (finding.id, finding.severity) == ("hw.pcie", "notice")
    assert finding.headline == (
        "The link of GPU 3 runs at generation 4 with 8 lanes although generation 5 with 16 lanes is possible."
    )
    busy = the_finding(tmp_path, gpu__pcie_width=4.0, gpu__pcie_received_bytes_per_second=9e9)
    assert busy.severity == "warning"
    assert "57% of what the link carries" in {evidence.note for evidence in busy.evidence}


def test_an_idle_gpu_may_lower_its_link(tmp_path):
    idle = np.where(np.arange(100) % 10 == 0, 0.9, 0.05)
    link = np.where(idle > 0.5, 5.0, 1.0)
    assert diagnosed(tmp_path, gpu__utilization_ratio=idle, gpu__pcie_generation=link).findings == ()
    diagnosis = diagnosed(tmp_path, gpu__utilization_ratio=0.1, gpu__pcie_generation=1.0)
    assert "hw.pcie" in diagnosis.checks.not_run


def test_another_program_on_the_gpu_is_named_with_what_it_takes(tmp_path):
    finding = the_finding(
        tmp_path,
        gpu__memory_used_bytes=60e9,
        gpu__process_count=2.0,
        gpu__process_utilization_ratio=0.7,
    )
    assert (finding.id, finding.severity) == ("gpu.foreign", "warning")
    assert (
        finding.headline == "Another program holds 25% of the memory of GPU 3 and computes 25% of the time."
    )
    quiet = the_finding(tmp_path, gpu__memory_used_bytes=60e9, gpu__process_count=2.0)
    assert quiet.severity == "notice"


def test_a_second_process_of_the_run_is_not_another_program(tmp_path):
    assert diagnosed(tmp_path, gpu__process_count=2.0).findings == ()
    assert diagnosed(tmp_path, gpu__memory_used_bytes=60e9).findings == ()


@pytest.mark.parametrize(("share", "severity"), [(0.05, "notice"), (0.6, "warning")])
def test_a_quota_that_is_used_up_is_named_with_the_threads_that_fit(tmp_path, share, severity):
    finding = the_finding(tmp_path, cpu__cgroup_throttled_periods_ratio=share)
    assert (finding.id, finding.severity) == ("host.cpu_quota", severity)
    assert "quota of 4 processors" in finding.headline
    assert "torch.set_num_threads(2)" in finding.remedies[1].code


@pytest.mark.parametrize(("used", "severity"), [(0.92, "warning"), (0.99, "critical")])
def test_a_container_that_is_nearly_full_is_reported(tmp_path, used, severity):
    finding = the_finding(tmp_path, memory__cgroup_working_set_ratio=used)
    assert (finding.id, finding.severity) == ("hostmem.limit", severity)
    assert f"{used:.0%} of the memory of 59.6 GiB" in finding.headline


def test_memory_that_was_full_for_a_while_and_freed_again_is_fine(tmp_path):
    used = np.where((np.arange(100) > 20) & (np.arange(100) < 60), 0.95, 0.5)
    assert diagnosed(tmp_path, memory__cgroup_working_set_ratio=used).findings == ()


def test_threads_that_wait_for_memory_are_reported_without_a_container(tmp_path):
    reads = {("memory/pressure_some_ratio", ""): 0.3}
    [finding] = diagnose(tmp_path, going_well(1, 600), machine=reads).findings
    assert finding.headline == "Threads wait for memory 30% of the time."


@pytest.mark.parametrize(("share", "is_found"), [(0.004, False), (0.015, False), (0.04, True), (0.2, True)])
def test_recording_that_takes_noticeable_time_is_reported_by_itself(tmp_path, share, is_found):
    run = going_well(1, 1500)
    run["stepscope/overhead_ratio"] = np.where(np.arange(1500) % 20 == 0, share, np.nan)
    findings = diagnose(tmp_path, run).findings
    assert [finding.id for finding in findings] == (["cfg.monitor_cost"] if is_found else [])
    if is_found:
        assert findings[0].share == pytest.approx(share)
        assert findings[0].severity == ("warning" if share >= 0.05 else "notice")


def test_what_recording_costs_at_the_start_of_a_run_is_not_judged(tmp_path):
    run = going_well(1, 600)
    run["stepscope/overhead_ratio"] = np.where(np.arange(600) % 20 == 0, 0.2, np.nan)
    diagnosis = diagnose(tmp_path, run)
    assert diagnosis.findings == ()
    assert "cfg.monitor_cost" in diagnosis.checks.not_run
