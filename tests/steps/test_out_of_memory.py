"""A training that ran out of memory says what held it, in a few kilobytes, and never fails at that."""

from __future__ import annotations

import gc
import json
import sys
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from stepscope.schema.redact import redact_mapping
from stepscope.steps.memory.oom_snapshot import host_fields, largest_sites
from stepscope.steps.memory.out_of_memory import WatchedObjects, describe_out_of_memory
from stepscope.steps.memory.tensor_bytes import largest_tensors, training_bytes
from tests.steps.test_allocator import counters

GIB = 1 << 30


def host_error() -> Exception:
    with pytest.raises(RuntimeError) as caught:
        torch.empty(10**14)
    return caught.value


def trained() -> tuple[nn.Module, torch.optim.Optimizer]:
    model = nn.Sequential(nn.Linear(100, 50), nn.Linear(50, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    model(torch.ones(4, 100)).sum().backward()
    optimizer.step()
    return model, optimizer


class TestTheHost:
    def test_pytorchs_failure_to_allocate_is_described(self) -> None:
        description = describe_out_of_memory(host_error())
        assert description is not None
        assert (description["where"], description["error"]) == ("host", "RuntimeError")
        assert description["asked_bytes"] == 4 * 10**14
        assert description["raised_at"].startswith("test_out_of_memory.py:")
        assert description["resident_bytes"] > 0
        assert description["total_bytes"] >= description["available_bytes"] > 0
        assert "not_told" not in description

    def test_numpys_error_knows_how_much_was_asked_for(self) -> None:
        with pytest.raises(MemoryError) as caught:
            np.zeros((10**9, 10**6), np.float64)
        description = describe_out_of_memory(caught.value)
        assert description is not None
        assert description["asked_bytes"] == 8 * 10**15

    def test_a_bare_memory_error_is_described_without_an_amount(self) -> None:
        description = describe_out_of_memory(MemoryError())
        assert description is not None
        assert "asked_bytes" not in description

    def test_an_error_behind_another_is_found(self) -> None:
        wrapped = RuntimeError("the trainer failed")
        wrapped.__cause__ = host_error()
        description = describe_out_of_memory(wrapped)
        assert description is not None
        assert description["asked_bytes"] == 4 * 10**14

    def test_missing_values_of_the_system_do_not_affect_the_others(self, tmp_path) -> None:
        assert "resident_bytes" not in host_fields(tmp_path)


@pytest.mark.parametrize("error", [ValueError("no"), RuntimeError("size mismatch"), KeyboardInterrupt()])
def test_other_errors_are_none_of_its_business(error: BaseException) -> None:
    assert describe_out_of_memory(error) is None


def test_errors_that_cause_each_other_in_a_ring_come_to_an_end() -> None:
    one, other = ValueError("one"), ValueError("other")
    one.__cause__, other.__cause__ = other, one
    assert describe_out_of_memory(one) is None


class TestTheTraining:
    def test_the_batch_in_hand_and_the_largest_parameters_are_named(self) -> None:
        model, optimizer = trained()
        watched_objects = WatchedObjects()
        watched_objects.add_model(model, [optimizer])
        watched_objects.batch.held = (torch.zeros(4, 100), torch.zeros(4, dtype=torch.long))
        description = describe_out_of_memory(MemoryError(), watched_objects)
        assert description is not None
        assert [tensor["shape"] for tensor in description["batch"]] == [(4, 100), (4,)]
        assert description["parameters_bytes"] == description["gradients_bytes"] == 5152 * 4
        # Two moments each, and a count of steps.
        assert description["optimizer_bytes"] == 2 * 5152 * 4 + 4 * 4
        largest = description["largest_parameters"][0]
        assert (largest["name"], largest["shape"]) == ("0.weight", (50, 100))
        assert largest["gradient_bytes"] == 50 * 100 * 4

    def test_nothing_is_kept_alive_for_it(self) -> None:
        watched_objects = WatchedObjects()
        model, optimizer = trained()
        watched_objects.add_model(model, [optimizer])
        del model, optimizer
        gc.collect()
        assert (watched_objects.models, watched_objects.optimizers) == ([], [])
        assert "parameters_bytes" not in (describe_out_of_memory(MemoryError(), watched_objects) or {})

    def test_a_section_that_fails_does_not_affect_the_others(self) -> None:
        class Broken(nn.Module):
            def named_parameters(self, *_: Any, **__: Any) -> Any:
                raise RuntimeError("gone")

        watched_objects = WatchedObjects()
        model = Broken()
        watched_objects.add_model(model)
        description = describe_out_of_memory(MemoryError(), watched_objects)
        assert description is not None
        assert description["not_told"] == {"training": "RuntimeError"}
        assert description["resident_bytes"] > 0

    def test_a_parameter_shared_by_two_models_counts_once(self) -> None:
        layer = nn.Linear(10, 10)
        assert training_bytes([layer, nn.Sequential(layer)], []).parameters_bytes == 440

    def test_state_of_parameters_without_a_name_counts_too(self) -> None:
        parameter = nn.Parameter(torch.ones(10))
        parameter.grad = torch.ones(10)
        optimizer = torch.optim.SGD([parameter], lr=0.1, momentum=0.9)
        optimizer.step()
        assert training_bytes([], [optimizer]).optimizer_bytes == 40

    def test_the_largest_tensors_come_first_and_views_of_one_memory_once(self) -> None:
        large = torch.zeros(3_000_000)
        views = [large[:10], large.view(3, -1)[:1]]
        tensors = largest_tensors(torch, "cpu")
        assert tensors[0].held_bytes >= 12_000_000
        assert [tensor.shape for tensor in tensors if tensor.held_bytes == 12_000_000] == [large.shape]
        assert len(views) == 2

    def test_all_of_it_is_a_few_kilobytes_of_json(self) -> None:
        model = nn.Sequential(*[nn.Linear(4, 4) for _ in range(200)])
        watched_objects = WatchedObjects()
        watched_objects.add_model(model)
        watched_objects.batch.held = {
            f"a_rather_long_name_of_an_input_{n}": torch.zeros(2, 2) for n in range(300)
        }
        description = describe_out_of_memory(host_error(), watched_objects)
        assert description is not None
        assert len(json.dumps(redact_mapping(description))) < 16_000


class Device:
    """A PyTorch with a GPU, as far as a post-mortem asks it."""

    class OutOfMemoryError(RuntimeError):
        """As PyTorch's own."""

    class AcceleratorError(RuntimeError):
        error_code = 2

    def __init__(self, history: list[dict[str, Any]] | None = None) -> None:
        self.cuda = self
        self.nn, self.Tensor, self.strided = torch.nn, torch.Tensor, torch.strided
        self._C = self
        self._history = history

    def is_initialized(self) -> bool:
        return True

    def current_device(self) -> int:
        return 1

    def mem_get_info(self, device: int) -> tuple[int, int]:
        assert device == 1
        return GIB, 80 * GIB

    def _cuda_memoryStats(self, device: int) -> dict[str, Any]:
        assert device == 1
        return counters()

    def _cuda_isHistoryEnabled(self) -> bool:
        return self._history is not None

    def memory_snapshot(self) -> list[dict[str, Any]] | None:
        return self._history


TEXT = (
    "CUDA out of memory. Tried to allocate 20.50 GiB. GPU 1 has a total capacity of 80.00 GiB of which "
    "1.00 GiB is free."
)


class TestAGpu:
    def test_the_allocators_values_are_included(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "torch", Device())
        description = describe_out_of_memory(Device.OutOfMemoryError(TEXT))
        assert description is not None
        assert (description["where"], description["asked_bytes"]) == ("cuda:1", int(20.5 * GIB))
        assert (description["free_bytes"], description["total_bytes"]) == (GIB, 80 * GIB)
        assert (description["allocated_bytes"], description["reserved_bytes"]) == (2 * GIB, 6 * GIB)
        assert (description["inactive_split_bytes"], description["alloc_retries_total"]) == (GIB, 3)
        assert (description["blocks"], description["large_pool_bytes"]) == (812, 2 * GIB)
        assert "allocation_sites" not in description
        assert "not_told" not in description

    def test_an_allocation_outside_pytorchs_allocator_is_known_by_its_code(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(sys.modules, "torch", Device())
        error = Device.AcceleratorError("CUDA error: out of memory")
        assert describe_out_of_memory(error) is not None
        error.error_code = 700
        assert describe_out_of_memory(error) is None

    def test_where_a_history_was_kept_the_lines_that_allocated_are_named(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        frames = [
            {
                "filename": "/venv/lib/python3.12/site-packages/torch/nn/functional.py",
                "line": 9,
                "name": "linear",
            },
            {"filename": "/home/me/train.py", "line": 83, "name": "forward"},
        ]
        history = [
            {
                "blocks": [
                    {"size": 3 * GIB, "state": "active_allocated", "frames": frames},
                    {"size": GIB, "state": "active_allocated", "frames": frames},
                    {"size": 9 * GIB, "state": "inactive", "frames": frames},
                    {"size": 5, "state": "active_allocated", "frames": []},
                ]
            }
        ]
        monkeypatch.setitem(sys.modules, "torch", Device(history))
        description = describe_out_of_memory(Device.OutOfMemoryError(TEXT))
        assert description is not None
        assert description["allocation_sites"] == [
            {"site": "train.py:83 in forward", "held_bytes": 4 * GIB, "blocks": 2},
            {"site": "unknown", "held_bytes": 5, "blocks": 1},
        ]

    def test_older_snapshots_are_read_as_well(self) -> None:
        frames = [{"filename": "model.py", "line": 4, "name": "attend"}]
        block = {"size": 8, "state": "active_allocated", "history": [{"frames": frames}]}
        assert largest_sites([{"blocks": [block]}])[0]["site"] == "model.py:4 in attend"
