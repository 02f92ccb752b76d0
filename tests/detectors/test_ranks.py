"""Ranks that exchange gradients slowly, too often or in a slow way, and ranks that do not."""

import numpy as np
import pytest

from tests.detectors.simulated import SETUP, diagnose, going_well

STEPS = 600
NUMBER = np.arange(STEPS)
STEP_S = 0.05


def exchanging(*waits, steps=STEPS, every=1, seed=1):
    """Ranks that wait so many seconds in each step, after their own last gradient."""
    chance = np.random.default_rng(seed)
    ranks = []
    for waited in waits:
        run = going_well(seed, steps)
        for key in ("phase/backward_seconds", "step_seconds"):
            run[key] = run[key] + np.mean([np.mean(each) for each in waits])
        noisy = waited * np.exp(chance.normal(0, 0.1, steps))
        run["ranks/wait_seconds"] = np.where(np.arange(steps) % every == 0, noisy, np.nan)
        ranks.append(run)
    return ranks


def setup(**changes):
    return (("census", {**SETUP[1], **changes}),)


def the_finding(diagnosis, kind):
    assert [finding.id for finding in diagnosis.findings] == [kind]
    return diagnosis.findings[0]


def why_not(diagnosis, kind):
    assert diagnosis.findings == ()
    return next(check.why_not for check in diagnosis.considered if check.id == kind)


@pytest.mark.parametrize("share", [0.13, 0.3, 0.6])
@pytest.mark.parametrize("count", [2, 4])
def test_an_exchange_that_all_ranks_wait_for_is_reported(tmp_path, share, count):
    waited = STEP_S * share / (1 - share)
    finding = the_finding(diagnose(tmp_path, *exchanging(*[waited] * count)), "dist.comm_exposed")
    assert finding.share == pytest.approx(share, rel=0.2)
    assert finding.severity == "warning"
    assert finding.headline.startswith("All ranks wait ")
    assert "bf16_compress_hook" in finding.remedies[0].code


def test_waits_of_sharded_models_are_named_as_such(tmp_path):
    ranks = exchanging(0.02, 0.02)
    finding = the_finding(
        diagnose(tmp_path, *ranks, events=setup(wrappers=["FSDPModule"])), "dist.comm_exposed"
    )
    assert "parameters and gradients" in finding.headline
    assert not any("no_sync" in (remedy.code or "") for remedy in finding.remedies)


def test_a_late_rank_is_not_a_slow_exchange(tmp_path):
    diagnosis = diagnose(tmp_path, *exchanging(0.02, 0.02, 0.0005))
    finding = the_finding(diagnosis, "dist.straggler")
    assert finding.rank == 2


def test_ranks_that_are_late_in_turn_are_not_a_slow_exchange(tmp_path):
    is_late = NUMBER % 2 == 0
    ranks = exchanging(np.where(is_late, 0.02, 0.0005), np.where(is_late, 0.0005, 0.02))
    assert "threshold: 10%" in why_not(diagnose(tmp_path, *ranks), "dist.comm_exposed")


@pytest.mark.parametrize("share", [0.0, 0.03, 0.08])
def test_a_short_exchange_is_fine(tmp_path, share):
    ranks = exchanging(STEP_S * share, STEP_S * share)
    assert "threshold: 10%" in why_not(diagnose(tmp_path, *ranks), "dist.comm_exposed")


def test_a_rank_that_is_missing_may_be_the_one_that_waits_least(tmp_path):
    diagnosis = diagnose(tmp_path, *exchanging(0.02, 0.02), facts={"world_size": 4})
    assert diagnosis.findings == ()
    assert "dist.comm_exposed" in diagnosis.checks.not_run


def accumulating(exchanges, batches=4.0, waited=0.004):
    ranks = exchanging(waited, waited)
    for run in ranks:
        run["micro_steps"] = np.full(STEPS, batches)
        run["ranks/exchanges"] = np.where(NUMBER % 5 == 0, exchanges, np.nan)
    return ranks


@pytest.mark.parametrize(("batches", "waited"), [(2.0, 0.004), (4.0, 0.004), (8.0, 0.001)])
def test_an_exchange_in_each_micro_batch_is_reported(tmp_path, batches, waited):
    ranks = accumulating(batches, batches, waited)
    finding = the_finding(diagnose(tmp_path, *ranks), "dist.redundant_allreduce")
    assert f"{batches:g} times in a step" in finding.headline
    assert finding.share == pytest.approx((batches - 1) * waited / (STEP_S + waited), rel=0.2)
    assert "no_sync" in finding.remedies[0].code
    assert finding.severity in ("notice", "warning")


@pytest.mark.parametrize(("exchanges", "batches"), [(1.0, 4.0), (1.0, 1.0), (2.0, 4.0)])
def test_one_exchange_in_a_step_is_fine(tmp_path, exchanges, batches):
    assert why_not(diagnose(tmp_path, *accumulating(exchanges, batches)), "dist.redundant_allreduce")


def test_a_needless_search_for_unused_parameters_is_mentioned(tmp_path):
    events = setup(
        wrappers=["DistributedDataParallel(find_unused_parameters)"],
        replicas={"backend": "nccl", "unused_bytes": 0},
    )
    finding = the_finding(diagnose(tmp_path, *exchanging(0.001, 0.001), events=events), "dist.ddp_config")
    assert finding.severity == "info"
    assert finding.tries == ("find_unused_parameters=False",)


@pytest.mark.parametrize(
    "changes",
    [
        {"wrappers": []},
        {"wrappers": ["DistributedDataParallel"], "replicas": {"backend": "nccl", "unused_bytes": 0}},
        {
            "wrappers": ["DistributedDataParallel(find_unused_parameters)"],
            "replicas": {"backend": "gloo", "unused_bytes": 48},
        },
        {"wrappers": ["DistributedDataParallel(find_unused_parameters)"], "replicas": {"backend": "gloo"}},
        {
            "wrappers": ["DistributedDataParallel"],
            "replicas": {"backend": "gloo"},
            "parameter_devices": {"cpu": 9},
        },
        {"wrappers": ["DataParallel"], "parameter_devices": {"cuda:0": 9}},
    ],
)
def test_usual_settings_of_replicas_are_fine(tmp_path, changes):
    diagnosis = diagnose(tmp_path, *exchanging(0.001, 0.001), events=setup(**changes))
    assert "No setting" in why_not(diagnosis, "dist.ddp_config")


def test_a_search_that_found_something_once_is_needed(tmp_path):
    wrappers = ["DistributedDataParallel(find_unused_parameters)"]
    events = [
        *setup(wrappers=wrappers, replicas={"unused_bytes": 12}),
        *setup(wrappers=wrappers, replicas={"unused_bytes": 0}),
    ]
    diagnosis = diagnose(tmp_path, *exchanging(0.001, 0.001), events=tuple(events))
    assert why_not(diagnosis, "dist.ddp_config")


def test_a_search_is_judged_after_a_hundred_steps(tmp_path):
    events = setup(wrappers=["DistributedDataParallel(find_unused_parameters)"], replicas={"unused_bytes": 0})
    assert diagnose(tmp_path, *exchanging(0.001, 0.001, steps=90), events=events).findings == ()


def test_gloo_between_gpus_is_reported(tmp_path):
    events = setup(
        wrappers=["DistributedDataParallel"],
        replicas={"backend": "gloo"},
        parameter_devices={"cuda:0": 1000},
    )
    finding = the_finding(diagnose(tmp_path, *exchanging(0.001, 0.001), events=events), "dist.ddp_config")
    assert (finding.severity, finding.tries) == ("warning", ("nccl",))


def test_several_gpus_driven_from_one_process_are_reported(tmp_path):
    machine = {("gpu/process_memory_bytes", f"GPU-{index}"): 4e9 for index in range(4)}
    events = setup(wrappers=["DataParallel"])
    finding = the_finding(
        diagnose(tmp_path, going_well(1, STEPS), events=events, machine=machine), "dist.ddp_config"
    )
    assert "4 GPUs from one process" in finding.headline


def test_ranks_that_were_timed_in_different_steps_are_compared(tmp_path):
    ranks = exchanging(0.002, 0.03, steps=STEPS)
    for place, rank in enumerate(ranks):
        is_timed = np.arange(STEPS) % 20 == 5 * place
        rank["ranks/wait_seconds"] = np.where(is_timed, rank["ranks/wait_seconds"], np.nan)
    finding = the_finding(diagnose(tmp_path, *ranks), "dist.straggler")
    assert finding.rank == 0
    assert "in its backward pass" in finding.headline


@pytest.mark.parametrize(("step_s", "count"), [(0.01, 1), (0.2, 0)])
def test_a_needless_search_matters_to_short_steps(tmp_path, step_s, count):
    events = setup(wrappers=["DistributedDataParallel(find_unused_parameters)"], replicas={"unused_bytes": 0})
    runs = [going_well(seed, 300, step_s=step_s) for seed in (1, 2)]
    findings = [f for f in diagnose(tmp_path, *runs, events=events).findings if f.severity != "info"]
    assert [finding.severity for finding in findings] == ["notice"] * count
