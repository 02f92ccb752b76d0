"""Settings that make convolutions slower, and settings that are fine."""

import numpy as np
import pytest

from tests.detectors.on_gpu import alarming, diagnosed, finding_of, on_gpu, readings

RESNET = {
    "parameters": 25_600_000,
    "parameter_dtypes": {"float32": 25_600_000},
    "layers": {"Conv2d": 23_500_000, "Linear": 2_050_000, "BatchNorm2d": 53_000},
    "channels_last": False,
    "cudnn_benchmark": True,
    "cudnn_enabled": True,
}
STARVED = {"lags": {"backward": 0.02, "optimizer": 0.02, "other": 0.01}}
HALF_IDLE = readings(utilization_ratio=0.6, sm_active_ratio=0.3, tensor_active_ratio=0.1)


def images(sizes=64.0, **options):
    """A training on batches of images."""
    run = on_gpu(**options)
    chosen = np.arange(600) % 20 == 1
    run["batch/samples"] = np.where(chosen, sizes, np.nan)
    return run


@pytest.mark.parametrize("autocast", ["cuda float16", "cuda bfloat16"])
@pytest.mark.parametrize("lag", [0.55, 0.95])
def test_convolutions_with_channels_first_are_a_notice(tmp_path, autocast, lag):
    run = images(lags=dict.fromkeys(("forward", "backward", "optimizer", "other"), lag))
    diagnosis = diagnosed(tmp_path, run, RESNET, autocast=autocast)
    [finding] = diagnosis.findings
    assert (finding.id, finding.severity) == ("cfg.channels_last", "notice")
    assert "memory_format=torch.channels_last" in finding.remedies[0].code
    assert finding.estimate.low == 0
    assert finding.estimate.high < 0.25


@pytest.mark.parametrize(
    ("setup", "run", "machine"),
    [
        ({"channels_last": True}, {}, None),
        ({"channels_last": None}, {}, None),
        ({"compiled": True}, {}, None),
        ({"layers": {"Linear": 85_000_000, "Conv2d": 600_000}}, {}, None),
        ({"devices": [{"index": 0, "name": "Tesla K80", "total_bytes": 12e9}]}, {}, None),
        ({}, STARVED, HALF_IDLE),
    ],
    ids=["channels last", "only 1×1", "compiled", "a vision transformer", "an old GPU", "an idle GPU"],
)
def test_other_models_keep_their_memory_format(tmp_path, setup, run, machine):
    diagnosis = diagnosed(tmp_path, images(**run), {**RESNET, **setup}, machine)
    assert finding_of(diagnosis, "cfg.channels_last") is None
    assert alarming(diagnosis) == []


def test_channels_last_is_advised_to_float32_convolutions_only_after_autocast(tmp_path):
    diagnosis = diagnosed(tmp_path, images(), RESNET, autocast="off")
    assert finding_of(diagnosis, "cfg.channels_last") is None
    assert finding_of(diagnosis, "prec.no_amp") is not None


@pytest.mark.parametrize("last", [64.0, 17.0])
def test_batches_of_one_size_are_worth_a_hint_to_search(tmp_path, last):
    sizes = np.where(np.arange(600) == 401, last, 64.0)
    fields = {**RESNET, "channels_last": True, "cudnn_benchmark": False}
    [finding] = diagnosed(tmp_path, images(sizes), fields).findings
    assert (finding.id, finding.severity) == ("cfg.cudnn_benchmark", "info")
    assert finding.headline.startswith("Batches always have 64 samples")


@pytest.mark.parametrize(
    ("setup", "sizes", "run", "machine"),
    [
        ({"cudnn_benchmark": True}, 64.0, {}, None),
        ({"cudnn_deterministic": True}, 64.0, {}, None),
        ({"deterministic_algorithms": True}, 64.0, {}, None),
        ({"layers": {"Linear": 85_000_000, "Conv2d": 600_000}}, 64.0, {}, None),
        ({}, 32.0 + np.arange(600) % 7, {}, None),
        ({}, 64.0, STARVED, HALF_IDLE),
    ],
    ids=["on", "deterministic", "all deterministic", "a transformer", "several sizes", "an idle GPU"],
)
def test_a_search_is_not_proposed_where_it_is_on_or_does_not_help(tmp_path, setup, sizes, run, machine):
    fields = {**RESNET, "channels_last": True, "cudnn_benchmark": False, **setup}
    diagnosis = diagnosed(tmp_path, images(sizes, **run), fields, machine)
    assert finding_of(diagnosis, "cfg.cudnn_benchmark") is None
    assert "cfg.cudnn_benchmark" not in diagnosis.checks.not_run
