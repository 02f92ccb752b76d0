"""Optimizers that update many tensors one by one, and optimizers whose time is well spent."""

import numpy as np
import pytest

from tests.detectors.on_gpu import TRANSFORMER, alarming, diagnosed, finding_of, on_gpu
from tests.detectors.simulated import SETUP, diagnose, going_well

STEPS = 600


def adam(name="Adam", **options):
    return {"name": name, "groups": 1, "fused": None, "foreach": None, "capturable": False, **options}


def on_processor(folder, share, optimizer, tensors=600, elements=600_000, facts=None):
    """A run on a processor whose optimizer takes a share of the step."""
    run = going_well(1, STEPS)
    others = sum(run[key] for key in run if key.startswith("phase/") and key != "phase/optimizer_seconds")
    run["phase/optimizer_seconds"] = others * share / (1 - share)
    run["step_seconds"] = others + run["phase/optimizer_seconds"]
    fields = {
        **SETUP[1],
        "optimizers": [optimizer],
        "trainable_tensors": tensors,
        "parameters": elements,
        "trainable_parameters": elements,
    }
    return diagnose(folder, run, events=(("census", fields),), facts=facts)


@pytest.mark.parametrize(("share", "severity"), [(0.06, "notice"), (0.2, "warning"), (0.6, "warning")])
@pytest.mark.parametrize("foreach", [None, False])
def test_many_small_tensors_in_a_loop_on_a_processor_are_reported(tmp_path, share, severity, foreach):
    [finding] = on_processor(tmp_path, share, adam(foreach=foreach)).findings
    assert (finding.id, finding.severity) == ("opt.unfused", severity)
    assert "in Adam, which updates 600 tensors one by one" in finding.headline
    assert finding.share == pytest.approx(0.6 * share, rel=0.05)
    assert "torch.optim.Adam(parameters, ..., fused=True)" in finding.remedies[0].code
    assert ("`foreach=False` was set" in finding.detail) is (foreach is False)


@pytest.mark.parametrize("option", ["fused=True", "foreach=True"])
def test_a_loop_that_was_chosen_on_a_gpu_is_reported_with_the_form_that_exists(tmp_path, option):
    optimizer = adam("AdamW", foreach=False)
    if option == "foreach=True":
        del optimizer["fused"]
    phases = {"forward": 0.3, "backward": 0.4, "optimizer": 0.27, "other": 0.03}
    diagnosis = diagnosed(tmp_path, on_gpu(phases=phases), optimizers=[optimizer])
    [finding] = diagnosis.findings
    assert (finding.id, finding.tries) == ("opt.unfused", (option,))
    assert finding.share == pytest.approx(0.8 * 0.27, rel=0.1)
    assert alarming(diagnosis) == ["opt.unfused"]


def test_advice_for_transformers_is_its_own_option(tmp_path):
    phases = {"forward": 0.3, "backward": 0.4, "optimizer": 0.27, "other": 0.03}
    facts = {"libraries": {"torch": "2.9", "transformers": "5.0"}}
    setup = {**TRANSFORMER, "optimizers": [adam("AdamW", foreach=False)]}
    finding = finding_of(diagnosed(tmp_path, on_gpu(phases=phases), setup, facts=facts), "opt.unfused")
    assert [remedy.framework for remedy in finding.remedies] == ["Transformers", "PyTorch"]
    assert 'optim="adamw_torch_fused"' in finding.remedies[0].code


@pytest.mark.parametrize(
    ("share", "optimizer", "options"),
    [
        (0.04, adam(foreach=False), {}),
        (0.3, adam(fused=True), {}),
        (0.3, adam(foreach=True), {}),
        (0.3, adam(), {"tensors": 150}),
        (0.3, adam(), {"elements": 25_000_000}),
        (0.3, adam("RMSprop"), {}),
        (0.3, {"name": "Muon", "groups": 1}, {}),
        (0.3, adam(), {"facts": {"libraries": {"torch": "2.3.1"}}}),
    ],
    ids=[
        "little time", "fused", "foreach", "few tensors", "large tensors", "no fused form here", "no options",
        "PyTorch without fused forms for processors",
    ],
)  # fmt: skip
def test_other_optimizers_on_a_processor_are_fine(tmp_path, share, optimizer, options):
    diagnosis = on_processor(tmp_path, share, optimizer, **options)
    assert diagnosis.findings == ()
    assert "opt.unfused" not in diagnosis.checks.not_run


@pytest.mark.parametrize("optimizer", [adam(), adam(fused=True), adam(foreach=False, fused=True)])
def test_the_default_on_a_gpu_is_fine(tmp_path, optimizer):
    phases = {"forward": 0.3, "backward": 0.4, "optimizer": 0.27, "other": 0.03}
    assert diagnosed(tmp_path, on_gpu(phases=phases), optimizers=[optimizer]).findings == ()


def test_an_optimizer_that_is_not_watched_is_not_judged(tmp_path):
    run = going_well(1, STEPS)
    run["phase/optimizer_seconds"] = np.full(STEPS, 0.01)
    diagnosis = diagnose(tmp_path, run, events=(("census", {**SETUP[1], "optimizers": []}),))
    assert "opt.unfused" in diagnosis.checks.not_run
