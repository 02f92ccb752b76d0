"""Memory on a real GPU: figures agree with PyTorch's own, nothing is reset, and a refusal is explained."""

from __future__ import annotations

import json

import pytest

from stepscope.steps.evidence.allocator import AllocatorFigures, cuda_counters
from stepscope.steps.evidence.training_setup import TrainingSetup
from stepscope.steps.memory import oom_snapshot
from stepscope.steps.memory.out_of_memory import WatchedObjects, describe_out_of_memory

torch = pytest.importorskip("torch")

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

MIB = 1 << 20


def looking() -> AllocatorFigures:
    return AllocatorFigures(cuda_counters(torch))


def test_figures_agree_with_pytorchs_own_and_the_peak_is_not_changed() -> None:
    torch.cuda.init()
    kept = torch.zeros(64 * MIB, dtype=torch.uint8, device="cuda")
    peak = torch.zeros(256 * MIB, dtype=torch.uint8, device="cuda")
    del peak
    before = torch.cuda.max_memory_allocated()
    figures = looking().read(1)
    assert figures["memory/allocated_bytes"] == torch.cuda.memory_allocated() >= kept.nbytes
    assert figures["memory/reserved_bytes"] == torch.cuda.memory_reserved()
    assert figures["memory/peak_bytes"] == before == torch.cuda.max_memory_allocated()
    assert figures["memory/alloc_retries_total"] == torch.cuda.memory_stats()["num_alloc_retries"]
    assert "memory/inactive_split_bytes" in figures


def test_a_refusal_is_described_as_it_was_when_it_happened() -> None:
    torch.cuda.init()
    model = torch.nn.Linear(2000, 1000, device="cuda")
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(8, 2000, device="cuda")).sum().backward()
    optimizer.step()
    watched_objects = WatchedObjects()
    watched_objects.add_model(model, [optimizer])
    watched_objects.batch.held = torch.zeros(8, 2000)
    oom_snapshot.observe_failures(torch)

    def train() -> None:
        activations = torch.zeros(512 * MIB, dtype=torch.uint8, device="cuda")
        torch.empty(10**12, dtype=torch.uint8, device="cuda")
        del activations

    with pytest.raises(torch.cuda.OutOfMemoryError) as caught:
        train()
    description = describe_out_of_memory(caught.value, watched_objects)
    assert description is not None
    assert "not_told" not in description
    assert description["where"] == "cuda:0"
    assert 10**12 <= description["asked_bytes"] < 10**12 + 4 * MIB
    assert description["allocated_bytes"] >= 512 * MIB
    assert 0 < description["free_bytes"] < description["total_bytes"]
    assert description["total_bytes"] == torch.cuda.get_device_properties(0).total_memory
    assert description["raised_at"].endswith(" in train")
    assert description["largest_tensors"][0]["held_bytes"] == 512 * MIB
    assert description["largest_parameters"][0]["name"] == "weight"
    assert description["batch"][0]["shape"] == (8, 2000)
    assert looking().read(1)["memory/ooms_total"] >= 1
    assert len(json.dumps(description)) < 16_000


def test_with_a_history_the_lines_that_allocated_are_named() -> None:
    torch.cuda.memory._record_memory_history(max_entries=1000)
    try:
        kept = torch.zeros(128 * MIB, dtype=torch.uint8, device="cuda")
        with pytest.raises(torch.cuda.OutOfMemoryError) as caught:
            torch.empty(10**12, dtype=torch.uint8, device="cuda")
        description = describe_out_of_memory(caught.value)
    finally:
        torch.cuda.memory._record_memory_history(enabled=None)
    assert description is not None
    held_bytes = {row["site"]: row["held_bytes"] for row in description["allocation_sites"]}
    assert any("test_memory_figures.py" in line and held >= kept.nbytes for line, held in held_bytes.items())


def test_the_setup_names_the_gpu() -> None:
    setups: list[dict] = []
    model = torch.nn.Linear(2, 2, device="cuda")
    watched_objects = WatchedObjects()
    watched_objects.add_model(model)
    TrainingSetup(torch, watched_objects, lambda _, **fields: setups.append(fields), {}).read(1)
    assert setups[0]["parameter_devices"] == {"cuda:0": 6}
    assert setups[0]["devices"][0]["total_bytes"] == torch.cuda.get_device_properties(0).total_memory
    assert setups[0]["sync_debug_mode"] == 0
