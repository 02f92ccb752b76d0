"""What only a real CUDA device can show; skipped where there is none."""

from __future__ import annotations

import time

import pytest

from stepscope.profiling.model.model import ModelProfiler
from stepscope.profiling.model.quantisation import quantisation_impact
from stepscope.profiling.model.timings import Repeats
from stepscope.profiling.window.profiler_window import ProfilerWindow, WindowOptions
from stepscope.profiling.window.session import Detail

torch = pytest.importorskip("torch")

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]

NO_FILES = WindowOptions(write_files=False)


def profiled(work, detail: Detail | None = None):
    options = WindowOptions(write_files=False, detail=detail or Detail())
    window = ProfilerWindow(epochs=(0,), active=4, warmup=2, options=options)
    for step in range(9):
        work()
        window.step(0, step)
    (profile,) = window.profiles
    return profile


def test_a_device_kept_busy_with_products_is_called_compute() -> None:
    left = torch.randn(4096, 4096, device="cuda")
    profile = profiled(lambda: [left @ left for _ in range(20)])
    assert profile.breakdown.measured_on == "device 0"
    assert profile.breakdown.shares()["compute"] > 0.8
    assert profile.device_operations[0].name == "aten::mm"
    assert profile.device_operations[0].share_ratio > 0.9
    assert profile.kernels[0].calls == 80
    assert profile.bottleneck.startswith("Compute: ")


def test_a_device_that_waits_for_a_sleeping_host_is_called_idle() -> None:
    left = torch.randn(256, 256, device="cuda")

    def work() -> None:
        left @ left
        time.sleep(0.01)

    profile = profiled(work)
    assert profile.breakdown.shares()["idle"] > 0.9
    assert "the main thread mostly ran no operator" in profile.bottleneck


def test_a_host_that_queues_work_too_slowly_is_distinguished_from_one_that_sleeps() -> None:
    small = torch.zeros(8, device="cuda")

    def work() -> None:
        for _ in range(2000):
            small.add_(1)

    profile = profiled(work)
    assert profile.breakdown.shares()["idle"] > 0.4
    assert "queued work too slowly" in profile.bottleneck


def test_marks_of_steps_are_not_taken_for_work_of_the_device() -> None:
    left = torch.randn(256, 256, device="cuda")

    def work() -> None:
        with torch.profiler.record_function("my own range"):
            left @ left
            time.sleep(0.01)
            left @ left

    names = {kernel.name for kernel in profiled(work).kernels}
    assert not any("ProfilerStep" in name or "my own" in name for name in names)


def test_copies_to_the_device_count_as_data() -> None:
    batch = torch.zeros(64 << 20, dtype=torch.uint8).pin_memory()
    profile = profiled(lambda: [batch.to("cuda") for _ in range(5)])
    assert profile.breakdown.shares()["data"] > 0.5


def test_latency_waits_for_the_device_and_the_users_peak_stays() -> None:
    model = torch.nn.Sequential(*[torch.nn.Linear(2048, 2048, bias=False) for _ in range(4)]).cuda()
    large = torch.zeros(256 << 20, dtype=torch.uint8, device="cuda")
    del large
    before = torch.cuda.max_memory_allocated()
    profile = ModelProfiler(model, input_shape=(2048,), repeats=Repeats(20, 5)).profile(batch_sizes=(1, 1024))
    assert torch.cuda.max_memory_allocated() == before
    single, many = profile.batches
    assert single.latency.min_seconds > 1e-5
    assert many.samples_per_second > single.samples_per_second
    assert profile.flops.per_sample == 2 * 4 * 2048 * 2048
    # Two activations of a layer are there at once: its input and its output.
    assert 2 * 1024 * 2048 * 4 <= many.peak_tensor_bytes <= 64 << 20
    assert "NVIDIA" in profile.device
    # A figure beyond what any device reaches would mean that nobody waited for it.
    assert many.flops_per_second < 2e15


def test_half_floats_are_measured_on_the_device_and_int8_names_its_requirement() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(1024, 1024), torch.nn.Linear(1024, 10)).cuda()
    impact = quantisation_impact(model, torch.randn(64, 1024), repeats=Repeats(5, 1))
    by_name = {variant.name: variant for variant in impact.variants}
    assert by_name["float16"].reason is None
    assert by_name["float16"].difference.cosine_similarity > 0.999
    assert by_name["dynamic_int8"].reason is None or "torchao" in by_name["dynamic_int8"].reason
    assert next(model.parameters()).dtype == torch.float32
