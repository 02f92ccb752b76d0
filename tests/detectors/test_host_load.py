"""Trainings that wait for a processor, because of their own threads or of other programs, and that do not."""

import numpy as np
import pytest

from tests.detectors.simulated import SETUP, diagnose, going_well

STEPS = 600
LOOKS = np.arange(STEPS) % 20 == 7
LOUD = ("critical", "warning")


def waiting(share, *, looks=LOOKS, seed=1, noise=0.3):
    """A run whose training thread is ready and waits for a processor for a share of the time."""
    run = going_well(seed, STEPS)
    chance = np.random.default_rng(seed)
    step_s = float(np.median(run["step_seconds"]))
    waits = share * step_s * np.exp(chance.normal(0, noise, STEPS))
    run["host/queued_seconds"] = np.where(looks, waits, np.nan)
    return run


def on_machine(own, others, cores=8, **more):
    """What an agent reads of a machine that is in use by the run and by other programs."""
    return {
        ("process/cpu_ratio", ""): own,
        ("cpu/utilization_ratio", ""): min((own + others) / cores, 1.0),
        ("process/usable_cores", ""): float(cores),
        **{(key.replace("__", "/"), ""): value for key, value in more.items()},
    }


def set_up(threads, workers=0, cores=8):
    """The setup of a training as it records it: events, and facts of its process."""
    events = [("census", {**SETUP[1], "threads": threads})]
    if workers:
        loader = {"num_workers": workers, "batch_size": 64, "dataset": "Images", "persistent_workers": True}
        events.append(("loader", loader))
    return {"events": tuple(events), "facts": {"cpus": cores}}


def the_finding(diagnosis):
    [finding] = diagnosis.findings
    assert finding.id == "host.oversubscribed"
    return finding


def why_not(diagnosis):
    assert [finding.id for finding in diagnosis.findings if finding.severity in LOUD] == []
    return next(check.why_not for check in diagnosis.considered if check.id == "host.oversubscribed")


@pytest.mark.parametrize("share", [0.07, 0.2, 0.6])
def test_too_many_threads_are_reported_with_a_number_that_fits(tmp_path, share):
    diagnosis = diagnose(
        tmp_path, waiting(share), machine=on_machine(2.0, 0.0, 2), **set_up(threads=16, cores=2)
    )
    finding = the_finding(diagnosis)
    assert "16 threads on 2 processors" in finding.headline
    assert finding.share == pytest.approx(share, rel=0.2)
    assert finding.severity == ("notice" if share < 0.1 else "warning")
    assert finding.tries == ("torch.set_num_threads(2)",)
    assert "OMP_NUM_THREADS=2" in finding.remedies[0].code
    assert finding.estimate.low == 0 < finding.estimate.likely < finding.estimate.high


def test_too_many_workers_are_reported_with_fewer_and_never_with_more(tmp_path):
    run = waiting(0.3)
    run["phase/data_seconds"] = run["phase/data_seconds"] + 0.02
    run["step_seconds"] = run["step_seconds"] + 0.02
    diagnosis = diagnose(
        tmp_path, run, machine=on_machine(1.95, 0.0, 2), **set_up(threads=2, workers=12, cores=2)
    )
    finding = the_finding(diagnosis)
    assert "2 threads and 12 loader workers on 2 processors" in finding.headline
    assert finding.tries == ("num_workers=1", "torch.set_num_threads(1)")
    hidden = next(check for check in diagnosis.considered if check.id == "input.exposed_wait")
    assert "Explained by" in hidden.why_not


def test_advice_on_workers_is_for_the_framework_in_use(tmp_path):
    setup = set_up(threads=2, workers=12, cores=2)
    setup["facts"]["libraries"] = {"torch": "2.9", "transformers": "5.0"}
    finding = the_finding(diagnose(tmp_path, waiting(0.3), machine=on_machine(2.0, 0.0, 2), **setup))
    assert "dataloader_num_workers=1" in finding.remedies[0].code


@pytest.mark.parametrize(("share", "others"), [(0.07, 3.0), (0.3, 5.0), (0.7, 7.5)])
@pytest.mark.parametrize("threads", [1, 8])
def test_a_busy_neighbour_is_reported_as_such_and_not_as_too_many_threads(tmp_path, share, others, threads):
    machine = on_machine(8 - others, others)
    finding = the_finding(diagnose(tmp_path, waiting(share), machine=machine, **set_up(threads)))
    assert "other programs use" in finding.headline
    assert finding.severity == "warning"
    assert finding.tries == ("stop other programs", "a machine or processors of its own")
    assert not any("set_num_threads" in (remedy.code or "") for remedy in finding.remedies)


def test_a_wait_for_data_beside_a_busy_neighbour_is_not_blamed_on_the_loader(tmp_path):
    run = waiting(0.4)
    run["phase/data_seconds"] = run["phase/data_seconds"] + 0.01
    run["step_seconds"] = run["step_seconds"] + 0.01
    diagnosis = diagnose(tmp_path, run, machine=on_machine(3.0, 5.0), **set_up(threads=4, workers=2))
    assert "other programs" in the_finding(diagnosis).headline


@pytest.mark.parametrize("share", [0.0, 0.01, 0.03])
@pytest.mark.parametrize("workers", [0, 2, 12])
def test_threads_that_hardly_wait_are_fine_however_many(tmp_path, share, workers):
    diagnosis = diagnose(
        tmp_path, waiting(share), machine=on_machine(2.0, 0.0, 2), **set_up(8, workers, cores=2)
    )
    assert "threshold: 5.0%" in why_not(diagnosis)


@pytest.mark.parametrize("busy", [0.05, 0.2, 0.4])
def test_a_burst_of_load_beside_a_run_is_fine(tmp_path, busy):
    run = waiting(0.6)
    in_burst = (np.arange(STEPS) > 100) & (np.arange(STEPS) < 100 + busy * STEPS)
    run["host/queued_seconds"] = np.where(in_burst, 1.0, 0.02) * run["host/queued_seconds"]
    diagnosis = diagnose(tmp_path, run, machine=on_machine(3.0, 3.0), **set_up(threads=8))
    assert "in most readings" in why_not(diagnosis)


def test_a_wait_that_nothing_explains_is_not_blamed_on_anything(tmp_path):
    diagnosis = diagnose(tmp_path, waiting(0.2), machine=on_machine(3.0, 0.2), **set_up(threads=4))
    assert "but processors are idle" in why_not(diagnosis)
    diagnosis = diagnose(tmp_path, waiting(0.2), machine=on_machine(1.0, 0.2), **set_up(threads=16))
    assert "but processors are idle" in why_not(diagnosis)


def test_a_quota_that_stops_the_run_is_reported_as_that(tmp_path):
    machine = on_machine(
        2.0,
        0.0,
        cpu__cgroup_throttled_periods_ratio=0.1,
        cpu__cgroup_limit_cores=2.0,
        cpu__cgroup_used_cores=2.0,
    )
    diagnosis = diagnose(tmp_path, waiting(0.3), machine=machine, **set_up(threads=16))
    assert [finding.id for finding in diagnosis.findings] == ["host.cpu_quota"]


def test_a_wait_that_a_busy_gpu_hides_is_fine(tmp_path):
    machine = on_machine(2.0, 0.0, 2) | {
        ("gpu/process_memory_bytes", "GPU-1"): 4e9,
        ("gpu/utilization_ratio", "GPU-1"): 0.98,
    }
    diagnosis = diagnose(tmp_path, waiting(0.2), machine=machine, **set_up(threads=16, cores=2))
    assert "the GPU was busy meanwhile" in why_not(diagnosis)
    machine[("gpu/utilization_ratio", "GPU-1")] = 0.4
    the_finding(diagnose(tmp_path, waiting(0.2), machine=machine, **set_up(threads=16, cores=2)))


def test_a_slow_loader_with_few_workers_is_reported_as_a_wait_for_data(tmp_path):
    run = waiting(0.1)
    run["phase/data_seconds"] = run["phase/data_seconds"] + 0.1
    run["step_seconds"] = run["step_seconds"] + 0.1
    diagnosis = diagnose(tmp_path, run, machine=on_machine(2.0, 0.0, 2), **set_up(2, 2, cores=2))
    assert [finding.id for finding in diagnosis.findings] == ["input.exposed_wait"]


def test_processors_of_a_subset_of_the_machine_are_not_compared_with_all_of_it(tmp_path):
    machine = on_machine(2.0, 30.0, 64) | {("process/usable_cores", ""): 2.0}
    diagnosis = diagnose(tmp_path, waiting(0.3), machine=machine, **set_up(threads=2, cores=64))
    assert "neither its own threads nor other programs" in why_not(diagnosis)


@pytest.mark.parametrize(("share", "found"), [(0.08, 0), (0.3, 1)])
def test_a_short_run_has_to_wait_more_to_be_reported(tmp_path, share, found):
    run = waiting(share, looks=np.arange(STEPS) % 100 == 50)
    diagnosis = diagnose(tmp_path, run, machine=on_machine(2.0, 0.0, 2), **set_up(16, cores=2))
    assert len(diagnosis.findings) == found


def test_what_an_agent_reads_of_the_thread_is_enough(tmp_path):
    run = waiting(0.3, looks=np.arange(STEPS) % 300 == 150)
    machine = on_machine(2.0, 0.0, 2, process__queued_ratio=0.4)
    assert the_finding(diagnose(tmp_path, run, machine=machine, **set_up(16, cores=2))).share == 0.4


def test_programs_that_the_script_has_started_are_not_part_of_the_training(tmp_path):
    machine = on_machine(0.5, 1.5, 2, tree__cpu_ratio=2.0)
    diagnosis = diagnose(tmp_path, waiting(0.5), machine=machine, **set_up(2, cores=2))
    assert "other programs use 1.5 of 2 busy processors" in the_finding(diagnosis).headline


def test_a_few_readings_are_not_enough_unless_they_are_clear(tmp_path):
    run = waiting(0.5, looks=np.arange(STEPS) % 200 == 150)
    diagnosis = diagnose(tmp_path, run, machine=on_machine(2.0, 0.0, 2), **set_up(16, cores=2))
    assert the_finding(diagnosis).share == pytest.approx(0.5, abs=0.1)
    run = waiting(0.15, looks=np.arange(STEPS) % 200 == 150)
    diagnosis = diagnose(tmp_path, run, machine=on_machine(2.0, 0.0, 2), **set_up(16, cores=2))
    assert diagnosis.findings == ()
    assert "host.oversubscribed" in diagnosis.checks.not_run


def test_a_busy_neighbour_beside_too_many_threads_is_reported_with_both(tmp_path):
    machine = on_machine(0.6, 1.4, 2)
    finding = the_finding(diagnose(tmp_path, waiting(0.5), machine=machine, **set_up(16, cores=2)))
    assert "other programs" in finding.headline
    assert "The run itself has too many as well: 16 threads on 2 processors." in finding.detail
    assert finding.tries[-1] == "torch.set_num_threads(2)"


@pytest.mark.parametrize(("threads", "workers"), [(16, 0), (2, 12)])
def test_a_neighbour_that_takes_less_does_not_excuse_too_many_threads(tmp_path, threads, workers):
    machine = on_machine(1.1, 0.9, 2)
    setup = set_up(threads, workers, cores=2)
    finding = the_finding(diagnose(tmp_path, waiting(0.5), machine=machine, **setup))
    assert f"{threads} threads" in finding.headline
    assert "Other programs keep 0.9 processors busy as well." in finding.detail


def test_usual_threads_and_workers_are_not_blamed_for_a_neighbour(tmp_path):
    machine = on_machine(1.2, 0.8, 2)
    diagnosis = diagnose(tmp_path, waiting(0.4), machine=machine, **set_up(2, 2, cores=2))
    finding = the_finding(diagnosis)
    assert "other programs" in finding.headline
    assert not any("set_num_threads" in hint for hint in finding.tries)


def test_threads_of_several_ranks_on_a_host_compete_for_all_its_processors(tmp_path):
    machine = on_machine(3.9, 0.0, 8)
    runs = [waiting(0.3, seed=seed) for seed in (1, 2)]
    finding = the_finding(diagnose(tmp_path, *runs, machine=machine, **set_up(8, cores=8)))
    assert "8 threads on 4 processors" in finding.headline
    idle = on_machine(1.5, 0.0, 8)
    assert diagnose(tmp_path, *runs, machine=idle, **set_up(8, cores=8)).findings == ()
