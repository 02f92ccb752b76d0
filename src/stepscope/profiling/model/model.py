"""Profiles a model in inference: latency, throughput, memory, operations, consistency."""

from __future__ import annotations

import os
import time
from collections import defaultdict
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from stepscope.devices.process.processes import process_state
from stepscope.errors import ConfigError
from stepscope.profiling.model.flops import Flops, flops_of
from stepscope.profiling.model.inputs import Batch, example_batch, of_size
from stepscope.profiling.model.outputs import are_identical, difference
from stepscope.profiling.model.timings import Repeats, Timings, device_clock, repeated, timings_of
from stepscope.profiling.plain_data import Described
from stepscope.profiling.preserved_state import device_of, inference_mode
from stepscope.profiling.torch_library import torch_for
from stepscope.profiling.window.session import Detail, ProfilerBusy, Session

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from stepscope.profiling.model.flops import Flops
    from stepscope.profiling.model.timings import Clock, Timings
    from stepscope.profiling.window.events import Timeline

CONSISTENCY_REPEATS = 5
_OUT_OF_MEMORY = ("out of memory", "can't allocate memory", "not enough memory")


@dataclass(frozen=True)
class Footprint(Described):
    """Parameters and buffers of a model; shared ones are counted once."""

    parameters: int
    trainable_parameters: int
    parameter_bytes: int
    buffer_bytes: int
    bytes_by_type: dict[str, int]
    """Parameters and buffers together, by number type."""


@dataclass(frozen=True)
class BatchProfile(Described):
    """A model at one batch size."""

    batch_size: int
    latency: Timings
    """Time of a forward pass, from the call to the last result."""
    samples_per_second: float
    peak_tensor_bytes: int | None
    """Peak tensor memory of a forward pass, without model and inputs."""
    resident_growth_bytes: int | None
    """Growth of the process's resident memory; None if not available."""
    flops_per_second: float | None
    """Counted operations divided by their time."""


@dataclass(frozen=True)
class Consistency(Described):
    """Whether a model returns the same output for the same input."""

    repeats: int
    identical: bool
    """Bit for bit, in every repeat."""
    max_difference: float | None
    """The largest difference between two outputs; None if they have no finite number."""
    latency_variation_ratio: float
    """Standard deviation of the latency divided by its mean."""


@dataclass(frozen=True)
class ModelProfile(Described):
    """The measurements of a model in inference."""

    model: str
    device: str
    torch_version: str
    footprint: Footprint
    flops: Flops
    batches: tuple[BatchProfile, ...]
    failed: dict[int, str]
    """Batch sizes that ran out of memory, with the error message."""
    consistency: Consistency
    method: str


class ModelProfiler:
    """Measures a model on its device, and restores its mode, buffers, gradients, hooks and the random state.

        profile = ModelProfiler(model, input_shape=(3, 224, 224)).profile(batch_sizes=(1, 8, 32))
        profile.batches[0].latency.p95_seconds

    The example is a tensor, a list or tuple of arguments, or a mapping of keyword arguments; or `input_shape`
    is the shape of one sample of random numbers. Other batch sizes are made by repeating its rows.
    """

    def __init__(
        self,
        model: Any,
        example: Any = None,
        *,
        input_shape: Sequence[int] | None = None,
        repeats: Repeats | None = None,
        clock: Clock = time.perf_counter,
    ) -> None:
        self._torch = torch_for("The model profile")
        self._model = model
        self._repeats = repeats or Repeats()
        self._device = device_of(self._torch, model)
        self._example = example_batch(self._torch, example, input_shape, self._device)
        self._clock = device_clock(self._torch, self._device, clock)

    def profile(self, batch_sizes: Sequence[int] = (1, 8, 32)) -> ModelProfile:
        """All measurements; a batch size that does not fit into memory is listed with the reason."""
        if not batch_sizes or min(batch_sizes) < 1:
            raise ConfigError(f"batch_sizes is {tuple(batch_sizes)}; pass one or more sizes of at least 1.")
        flops = self.flops()
        batches: list[BatchProfile] = []
        failed: dict[int, str] = {}
        for size in batch_sizes:
            try:
                batches.append(self.at(size, flops.per_sample))
            except RuntimeError as error:
                if not any(words in str(error).lower() for words in _OUT_OF_MEMORY):
                    raise
                failed[size] = str(error).splitlines()[0]
        return ModelProfile(
            model=type(self._model).__name__,
            device=self._device_name(),
            torch_version=str(self._torch.__version__),
            footprint=self.footprint(),
            flops=flops,
            batches=tuple(batches),
            failed=failed,
            consistency=self.consistency(),
            method=self._method(),
        )

    def footprint(self) -> Footprint:
        """Number and bytes of parameters and buffers."""
        return footprint_of(self._model)

    def flops(self, *, backward: bool = False) -> Flops:
        """Floating-point operations of one sample; the backward pass needs memory for all gradients."""
        with inference_mode(self._torch, self._model):
            batch = of_size(self._torch, self._example, 1)
            return flops_of(self._torch, self._model, batch, backward=backward)

    def at(self, batch_size: int, flops_per_sample: int | None = None) -> BatchProfile:
        """Latency, throughput and memory at one batch size."""
        batch = of_size(self._torch, self._example, batch_size)
        before = resident_bytes()
        with inference_mode(self._torch, self._model):
            timings = self._latency(batch)
            after = resident_bytes()
            samples_per_second = self._samples_per_second(batch, timings)
            peak = peak_bytes(lambda: batch.fed_to(self._model), on_device=self._device.type != "cpu")
        return BatchProfile(
            batch_size=batch_size,
            latency=timings,
            samples_per_second=samples_per_second,
            peak_tensor_bytes=peak,
            resident_growth_bytes=None if before is None or after is None else max(after - before, 0),
            flops_per_second=None if flops_per_sample is None else samples_per_second * flops_per_sample,
        )

    def consistency(self, repeats: int = CONSISTENCY_REPEATS) -> Consistency:
        """Runs the example repeatedly and compares the outputs with the first."""
        with inference_mode(self._torch, self._model):
            first = self._example.fed_to(self._model)
            identical, largest = True, None
            for _ in range(repeats - 1):
                output = self._example.fed_to(self._model)
                identical = identical and are_identical(self._torch, first, output)
                error = difference(self._torch, first, output)
                if error is not None:
                    largest = max(largest or 0.0, error.max_abs)
            variation = self._latency(self._example).variation_ratio
        return Consistency(repeats, identical, largest, variation)

    def _latency(self, batch: Batch) -> Timings:
        return timings_of(repeated(lambda: batch.fed_to(self._model), self._repeats, self._clock))

    def _samples_per_second(self, batch: Batch, timings: Timings) -> float:
        """By CUDA events over passes issued without waiting; on the CPU, by the latency."""
        if self._device.type != "cuda":
            return batch.size / timings.mean_seconds if timings.mean_seconds else 0.0
        events = self._torch.cuda.Event
        began, ended = events(enable_timing=True), events(enable_timing=True)
        with self._torch.cuda.device(self._device):
            began.record()
            for _ in range(timings.count):
                batch.fed_to(self._model)
            ended.record()
        ended.synchronize()
        return float(batch.size * timings.count / (began.elapsed_time(ended) / 1000))

    def _device_name(self) -> str:
        if self._device.type != "cuda":
            return str(self._device)
        return f"{self._device} ({self._torch.cuda.get_device_name(self._device)})"

    def _method(self) -> str:
        throughput = (
            "throughput by CUDA events over passes issued without waiting"
            if self._device.type == "cuda"
            else "throughput is batch size over mean latency"
        )
        return (
            f"evaluation mode without gradients; up to {self._repeats.count} timed passes at each batch size "
            f"after {self._repeats.warm_up} untimed ones, with synchronisation around each; {throughput}; "
            "peak memory by the allocator's events of one pass"
        )


def footprint_of(model: Any) -> Footprint:
    """Counts parameters and buffers."""
    parameters, buffers = list(model.parameters()), list(model.buffers())
    by_type: defaultdict[str, int] = defaultdict(int)
    for tensor in (*parameters, *buffers):
        by_type[str(tensor.dtype).removeprefix("torch.")] += _bytes(tensor)
    return Footprint(
        parameters=sum(parameter.numel() for parameter in parameters),
        trainable_parameters=sum(parameter.numel() for parameter in parameters if parameter.requires_grad),
        parameter_bytes=sum(map(_bytes, parameters)),
        buffer_bytes=sum(map(_bytes, buffers)),
        bytes_by_type=dict(by_type),
    )


def peak_bytes(run: Callable[[], object], *, on_device: bool) -> int | None:
    """The peak tensor memory during a run, above the level before it.

    It uses the allocator's events, so that torch's own peak statistics are not reset. None if another
    profiler is in use.
    """
    try:
        session = Session(Detail(memory=True))
    except ProfilerBusy:
        return None
    session.prepare()
    session.record()
    try:
        run()
    finally:
        timeline = session.stop()
    return peak_of(timeline, on_device=on_device)


def peak_of(timeline: Timeline, *, on_device: bool) -> int:
    """The peak of the allocations and deallocations in order of time."""
    allocations = [allocation for allocation in timeline.allocations if allocation.on_device == on_device]
    allocations.sort(key=lambda allocation: allocation.time_ns)
    return max(accumulate((allocation.count_bytes for allocation in allocations), initial=0))


def resident_bytes() -> int | None:
    """Resident memory of this process; None if not available."""
    state = process_state(os.getpid())
    return None if state is None else state.rss_bytes


def _bytes(tensor: Any) -> int:
    return int(tensor.numel() * tensor.element_size())
