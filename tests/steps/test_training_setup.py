"""The setup of a training is reported after its first step, and again when it changes."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch import nn

from stepscope.steps.evidence.training_setup import (
    TrainingSetup,
    is_compiled,
    layers,
    output_features,
    parameters,
    switches,
)
from stepscope.steps.memory.out_of_memory import WatchedObjects


class RecordedEvents:
    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, Any]]] = []

    def __call__(self, kind: str, **fields: Any) -> None:
        self.events.append((kind, fields))


@pytest.fixture
def recorded() -> RecordedEvents:
    return RecordedEvents()


def setup_of(
    recorded: RecordedEvents, model: nn.Module, *optimizers: Any, **environment: str
) -> TrainingSetup:
    watched_objects = WatchedObjects()
    watched_objects.add_model(model, optimizers)
    return TrainingSetup(torch, watched_objects, recorded, environment, now=itertools.count(0, 3600).__next__)


def test_the_setup_is_recorded_after_the_first_step(recorded: RecordedEvents) -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 2).to(torch.bfloat16))
    model[0].requires_grad_(requires_grad=False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, foreach=True)
    training_setup = setup_of(recorded, model, optimizer, CUDA_LAUNCH_BLOCKING="1", HF_TOKEN="hf_not_told")
    assert training_setup.read(1) == {}
    [(kind, fields)] = recorded.events
    assert kind == "census"
    assert fields["parameter_dtypes"] == {"float32": 40, "bfloat16": 18}
    assert fields["parameter_devices"] == {"cpu": 58}
    assert (fields["parameters"], fields["trainable_parameters"]) == (58, 18)
    assert fields["environment"] == {"CUDA_LAUNCH_BLOCKING": "1"}
    assert fields["optimizers"] == [
        {"name": "AdamW", "groups": 1, "fused": None, "foreach": True, "capturable": False}
    ]
    assert (fields["compiled"], fields["wrappers"]) == (False, [])
    assert fields["threads"] == torch.get_num_threads()
    assert fields["default_dtype"] == "float32"


def test_parameters_are_counted_by_the_class_of_their_layer() -> None:
    shared = nn.Linear(4, 4, bias=False)
    model = nn.Sequential(nn.Conv2d(3, 2, 3, bias=False), shared, shared, nn.Linear(4, 1))
    assert layers([model]) == {"layers": {"Conv2d": 54, "Linear": 21}, "channels_last": False}
    model.to(memory_format=torch.channels_last)
    assert layers([model])["channels_last"] is True
    assert layers([nn.Conv2d(3, 2, 1)]) == {"layers": {"Conv2d": 8}}, "both formats are the same"


def test_only_the_classes_with_most_parameters_are_recorded() -> None:
    parts = [type(f"Layer{width}", (nn.Linear,), {})(width, 1) for width in range(1, 12)]
    assert list(layers([nn.Sequential(*parts)])["layers"]) == [f"Layer{width}" for width in range(11, 3, -1)]


def test_an_unchanged_setup_is_not_recorded_again(recorded: RecordedEvents) -> None:
    training_setup = setup_of(recorded, nn.Linear(2, 2))
    training_setup.read(1)
    training_setup.read(1)
    assert len(recorded.events) == 1


def test_a_changed_switch_is_recorded_with_its_name(recorded: RecordedEvents) -> None:
    training_setup = setup_of(recorded, nn.Linear(2, 2))
    training_setup.read(1)
    with torch.autograd.set_detect_anomaly(mode=True):
        training_setup.read(1)
    assert recorded.events[1][1]["changed"] == ["detect_anomaly"]
    assert recorded.events[1][1]["detect_anomaly"] is True
    training_setup.read(1)
    assert recorded.events[2][1]["detect_anomaly"] is False


def test_a_changed_number_format_of_a_model_is_recorded(recorded: RecordedEvents) -> None:
    model = nn.Linear(2, 2)
    training_setup = setup_of(recorded, model)
    training_setup.read(1)
    model.to(torch.bfloat16)
    training_setup.read(1)
    assert "parameter_dtypes" in recorded.events[1][1]["changed"]


def test_autocast_is_seen_in_the_forward_pass_alone(recorded: RecordedEvents) -> None:
    model = nn.Linear(2, 2)
    training_setup = setup_of(recorded, model)
    training_setup.read(1)
    assert "autocast" not in recorded.events[0][1]
    assert training_setup.needs_forward
    with torch.autocast("cpu", dtype=torch.bfloat16):
        training_setup.read_autocast()
    assert not training_setup.needs_forward
    training_setup.read(1)
    assert recorded.events[1][1]["autocast"] == "cpu bfloat16"


def test_a_compiled_model_is_known_by_either_way_of_compiling() -> None:
    assert not is_compiled(nn.Linear(2, 2))
    assert is_compiled(torch.compile(nn.Linear(2, 2), backend="eager"))
    inner = nn.Sequential(nn.Linear(2, 2))
    inner[0].compile(backend="eager")
    assert is_compiled(inner)


def test_the_outputs_of_the_last_linear_layer_are_recorded() -> None:
    assert output_features([nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 3), nn.Softmax(1))]) == {
        "output_features": 3
    }
    assert output_features([nn.Conv2d(3, 2, 1)]) == {}


def test_a_wrapper_is_known_by_its_name_with_the_options_that_are_on() -> None:
    class DistributedDataParallel(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.module = nn.Linear(2, 2)
            self.find_unused_parameters = True
            self.static_graph = False

    assert parameters([DistributedDataParallel()])["wrappers"] == [
        "DistributedDataParallel(find_unused_parameters)"
    ]
    assert parameters([nn.DataParallel(nn.Linear(2, 2))])["wrappers"] == ["DataParallel"]


def test_a_switch_set_by_its_newer_name_is_read_all_the_same() -> None:
    matmul = torch.backends.cuda.matmul
    if not hasattr(matmul, "fp32_precision"):
        pytest.skip("this PyTorch has the older name alone")
    before = matmul.fp32_precision
    try:
        matmul.fp32_precision = "tf32"
        switched = switches(torch)
    finally:
        matmul.fp32_precision = before
    assert switched["tf32_matmul"] is True
    assert "cudnn_benchmark" in switched


def test_without_models_the_switches_are_recorded() -> None:
    recorded = RecordedEvents()
    TrainingSetup(torch, WatchedObjects(), recorded, {}).read(1)
    assert recorded.events[0][1]["parameters"] == 0
    assert recorded.events[0][1]["deterministic_algorithms"] is False


def test_changes_are_checked_at_intervals(recorded: RecordedEvents) -> None:
    now = [1.0]
    watched_objects = WatchedObjects()
    training_setup = TrainingSetup(torch, watched_objects, recorded, {}, now=lambda: now[0])
    training_setup.read(1)
    model = nn.Linear(2, 2)
    watched_objects.add_model(model)
    training_setup.read(1)
    assert len(recorded.events) == 1
    now[0] += 100
    training_setup.read(1)
    assert recorded.events[1][1]["parameters"] == 6
