"""Trainings in float32 on GPUs that are faster in other formats, and trainings where that changes nothing."""

import pytest

from tests.detectors.on_gpu import alarming, diagnosed, finding_of, on_gpu, readings, why_not

FLOAT32 = {"autocast": "off", "tf32_matmul": False, "float32_matmul_precision": "highest"}
A100 = [{"index": 0, "name": "NVIDIA A100-SXM4-80GB", "total_bytes": 85_094_000_000}]
CONVOLUTIONS = {
    "layers": {"Conv2d": 23_000_000, "Linear": 2_000_000, "BatchNorm2d": 53_000},
    "channels_last": False,
}
IN_FLOAT32 = readings(tensor_active_ratio=0.0)
WITHOUT_COUNTERS = readings(
    sm_active_ratio=None,
    tensor_active_ratio=None,
    dram_active_ratio=None,
    power_watts=380,
    power_limit_watts=400,
)
STARVED = {"lags": {"transfer": 0.01, "forward": 0.002, "backward": 0.01}}


def gpu_named(name):
    return [{"index": 0, "name": name, "total_bytes": 24e9}]


@pytest.mark.parametrize(
    ("name", "machine", "ratio"),
    [
        ("NVIDIA H200", IN_FLOAT32, "8×"),
        ("NVIDIA A100-SXM4-80GB", WITHOUT_COUNTERS, "8×"),
        ("NVIDIA A10", WITHOUT_COUNTERS, "2×"),
        ("NVIDIA RTX 6000 Ada Generation", WITHOUT_COUNTERS, "2×"),
    ],
)
def test_matrix_products_without_tf32_are_reported_with_an_interval(tmp_path, name, machine, ratio):
    diagnosis = diagnosed(tmp_path, on_gpu(), FLOAT32, machine, devices=gpu_named(name))
    finding = finding_of(diagnosis, "prec.tf32_off")
    assert finding.severity == "warning"
    assert f"on the {name}: TF32 is up to {ratio}" in finding.headline
    assert 0 < finding.estimate.low < finding.estimate.likely < finding.estimate.high < 0.9
    assert 'set_float32_matmul_precision("high")' in finding.remedies[0].code
    assert alarming(diagnosis) == ["prec.tf32_off"]


def test_bfloat16_is_a_notice_beside_tf32_and_estimated_after_it(tmp_path):
    finding = finding_of(diagnosed(tmp_path, on_gpu(), FLOAT32, IN_FLOAT32), "prec.no_amp")
    assert finding.severity == "notice"
    assert "up to 2× as fast as TF32" in finding.headline
    assert "after TF32 is allowed" in finding.detail


@pytest.mark.parametrize("dose", [0.5, 0.7, 0.95])
@pytest.mark.parametrize("machine", [readings(tensor_active_ratio=0.3), WITHOUT_COUNTERS])
def test_bfloat16_is_advised_to_a_float32_model_with_tf32(tmp_path, dose, machine):
    run = on_gpu(lags={"forward": dose, "backward": dose + 0.03})
    diagnosis = diagnosed(tmp_path, run, autocast="off", machine=machine)
    [finding] = diagnosis.findings
    assert (finding.id, finding.severity) == ("prec.no_amp", "warning")
    assert "torch.bfloat16" in finding.remedies[0].code
    assert finding.estimate.high < 0.5


def test_a_gpu_whose_compute_units_are_full_needs_no_lag(tmp_path):
    diagnosis = diagnosed(tmp_path, on_gpu(lags={}), FLOAT32, IN_FLOAT32)
    assert alarming(diagnosis) == ["prec.tf32_off"]


def test_advice_is_for_the_framework_in_use(tmp_path):
    facts = {"libraries": {"torch": "2.9", "pytorch_lightning": "2.5"}}
    diagnosis = diagnosed(tmp_path, on_gpu(), FLOAT32, IN_FLOAT32, facts)
    assert (
        finding_of(diagnosis, "prec.no_amp").remedies[0].code == 'trainer = Trainer(precision="bf16-mixed")'
    )
    assert finding_of(diagnosis, "prec.tf32_off").remedies[0].framework == "Lightning"


def test_a_variable_that_disables_tf32_is_to_be_unset(tmp_path):
    setup = {"autocast": "off", "environment": {"NVIDIA_TF32_OVERRIDE": "0"}}
    finding = finding_of(diagnosed(tmp_path, on_gpu(), setup, IN_FLOAT32), "prec.tf32_off")
    assert finding.remedies[0].code == "unset NVIDIA_TF32_OVERRIDE"
    assert finding.tries == ("unset NVIDIA_TF32_OVERRIDE",)


def test_kernels_that_are_limited_by_memory_gain_less(tmp_path):
    few, many = (
        finding_of(
            diagnosed(
                tmp_path, on_gpu(), FLOAT32, readings(tensor_active_ratio=0.0, dram_active_ratio=share)
            ),
            "prec.tf32_off",
        ).estimate.low
        for share in (0.2, 0.75)
    )
    assert few > 0.3
    assert many < 0.05


@pytest.mark.parametrize(
    ("setup", "machine", "run", "facts"),
    [
        ({}, None, {}, None),
        ({"tf32_matmul": False}, None, {}, None),
        ({**FLOAT32, "parameter_dtypes": {"bfloat16": 350_000_000}}, None, {}, None),
        ({**FLOAT32, "parameter_dtypes": {"float64": 1000}}, IN_FLOAT32, {}, None),
        (FLOAT32, readings(tensor_active_ratio=0.4), {}, None),
        (FLOAT32, readings(utilization_ratio=0.4, sm_active_ratio=0.2, tensor_active_ratio=0.0), {}, None),
        (FLOAT32, readings(sm_active_ratio=0.3, tensor_active_ratio=0.0), STARVED, None),
        (FLOAT32, readings(sm_active_ratio=None, tensor_active_ratio=None, power_watts=200), STARVED, None),
        (FLOAT32, readings(sm_active_ratio=0.7, tensor_active_ratio=0.0), {"lags": {"backward": 0.45}}, None),
        ({**FLOAT32, "devices": gpu_named("Tesla V100-SXM2-16GB")}, WITHOUT_COUNTERS, {}, None),
        ({**FLOAT32, "devices": gpu_named("Tesla T4")}, WITHOUT_COUNTERS, {}, None),
        ({**FLOAT32, "devices": gpu_named("AMD Instinct MI300X")}, WITHOUT_COUNTERS, {}, None),
        ({**FLOAT32, "devices": A100}, WITHOUT_COUNTERS, {}, {"libraries": {"accelerate": "1.9"}}),
        ({**FLOAT32, "devices": A100, "wrappers": ["FullyShardedDataParallel"]}, WITHOUT_COUNTERS, {}, None),
        ({**FLOAT32, "parameters": 200_000, "tf32_matmul": True}, None, {}, None),
    ],
    ids=[
        "bfloat16 and TF32", "bfloat16 without TF32", "bfloat16 parameters", "float64",
        "tensor cores busy: autocast inside the model", "an idle GPU", "limited by the host",
        "limited by the host, without counters", "behind by less than half of a step", "V100", "T4", "AMD",
        "accelerate", "sharded with another format", "a small model",
    ],
)  # fmt: skip
def test_other_trainings_have_no_finding_of_a_number_format(tmp_path, setup, machine, run, facts):
    diagnosis = diagnosed(tmp_path, on_gpu(**run), setup, machine, facts)
    assert not {finding.id for finding in diagnosis.findings} & {"prec.tf32_off", "prec.no_amp"}
    assert alarming(diagnosis) == []


def test_convolutions_use_tf32_already(tmp_path):
    diagnosis = diagnosed(tmp_path, on_gpu(), {**FLOAT32, **CONVOLUTIONS, "devices": A100}, WITHOUT_COUNTERS)
    assert "convolutions may use TF32" in why_not(diagnosis, "prec.tf32_off")
    assert finding_of(diagnosis, "prec.no_amp") is not None


def test_on_a_geforce_board_tf32_is_no_faster_and_bfloat16_is(tmp_path):
    diagnosis = diagnosed(
        tmp_path, on_gpu(), FLOAT32, WITHOUT_COUNTERS, devices=gpu_named("NVIDIA GeForce RTX 4090")
    )
    [finding] = diagnosis.findings
    assert finding.id == "prec.no_amp"
    assert "up to 2× as fast as float32" in finding.headline


def test_a_library_that_casts_is_no_excuse_where_tensor_cores_are_idle(tmp_path):
    facts = {"libraries": {"torch": "2.9", "transformers": "5.0", "accelerate": "1.9"}}
    diagnosis = diagnosed(tmp_path, on_gpu(), FLOAT32, IN_FLOAT32, facts)
    finding = finding_of(diagnosis, "prec.tf32_off")
    assert finding.remedies[0].framework == "Transformers"


def test_a_run_without_a_gpu_or_a_setup_is_not_judged(tmp_path):
    diagnosis = diagnosed(tmp_path, on_gpu(), autocast=None)
    assert {"prec.tf32_off", "prec.no_amp"} <= set(diagnosis.checks.not_run)
    few = on_gpu(steps=60, every=1000)
    assert "prec.no_amp" in diagnosed(tmp_path, few, autocast="off").checks.not_run
