"""Records how a training is set up: number formats, wrappers, and switches that affect its speed."""

from __future__ import annotations

import gc
import os
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from stepscope.model_stats.layers import has_values

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from types import ModuleType

    from stepscope.steps.memory.out_of_memory import WatchedObjects

INTERVAL_S = 60.0
"""How often the setup is checked for changes."""

SWITCHES = (
    "CUDA_LAUNCH_BLOCKING",
    "NCCL_DEBUG",
    "NVIDIA_TF32_OVERRIDE",
    "PYTORCH_ALLOC_CONF",
    "PYTORCH_CUDA_ALLOC_CONF",
    "PYTORCH_NO_CUDA_MEMORY_CACHING",
    "TORCH_COMPILE_DISABLE",
    "TORCH_CUDNN_V8_API_DISABLED",
    "TORCH_DISTRIBUTED_DEBUG",
    "TORCH_LOGS",
    "TORCH_SHOW_CPP_STACKTRACES",
)

WRAPPERS = (
    "DistributedDataParallel",
    "FullyShardedDataParallel",
    "FSDPModule",
    "DataParallel",
    "DeepSpeedEngine",
)

MAX_LAYER_KINDS = 8
"""The classes of layers with most parameters that are recorded."""

_REPLICA_OPTIONS = ("find_unused_parameters", "static_graph", "gradient_as_bucket_view", "broadcast_buffers")


class TrainingSetup:
    """Records the setup as an event after the first step, and again after each change."""

    def __init__(
        self,
        torch: ModuleType,
        watched_objects: WatchedObjects,
        record_event: Callable[..., None],
        environment: Mapping[str, str] = os.environ,
        now: Callable[[], float] = time.monotonic,
        mark_changed: Callable[[TrainingSetup], None] = lambda _: None,
    ) -> None:
        self._torch, self._watched_objects, self._record_event = torch, watched_objects, record_event
        self._environment, self._now, self._mark_changed = environment, now, mark_changed
        self._facts: dict[str, Any] = {}
        self._due_at = float("-inf")
        self._known: dict[str, Any] | None = None
        self._autocast: str | None = None
        self.needs_forward = True
        """Whether the next forward pass should call `read_autocast`: autocast is visible only there."""

    def read_autocast(self) -> None:
        """Reads the autocast mode within a training forward pass."""
        self.needs_forward = False
        self._autocast = _autocast(self._torch)

    def add(self, facts: Mapping[str, Any]) -> None:
        """Adds facts that others have found; they are recorded when the current step ends."""
        self._facts.update(facts)
        self._due_at = float("-inf")
        self._mark_changed(self)

    def read(self, steps: int) -> Mapping[str, float]:
        """Records the setup if it has changed, at most every `INTERVAL_S`."""
        now = self._now()
        if now < self._due_at:
            return {}
        self._due_at = now + INTERVAL_S
        setup = self._current_setup()
        if self._known is None:
            self._record_event("census", **setup)
        else:
            changed = sorted(
                name for name in {*setup, *self._known} if setup.get(name) != self._known.get(name)
            )
            if changed:
                self._record_event("census", changed=changed, **setup)
        self._known = setup
        self.needs_forward = True
        return {}

    def close(self) -> None:
        """Does nothing: reading needs no setup."""

    def _current_setup(self) -> dict[str, Any]:
        setup = {
            **parameters(self._watched_objects.models),
            **layers(self._watched_objects.models),
            **output_features(self._watched_objects.models),
            **replicas(self._watched_objects.models),
            **switches(self._torch),
            "optimizers": [_optimizer(optimizer) for optimizer in self._watched_objects.optimizers],
            "environment": {name: self._environment[name] for name in SWITCHES if name in self._environment},
            "collector": {"enabled": gc.isenabled(), "thresholds": list(gc.get_threshold())},
            "devices": _devices(self._torch),
            **self._facts,
        }
        if self._autocast is not None:
            setup["autocast"] = self._autocast
        return setup


def parameters(models: Iterable[Any]) -> dict[str, Any]:
    """Element counts of the parameters by number format and device, and the wrappers of the models."""
    dtypes: dict[Any, int] = {}
    places: dict[Any, int] = {}
    trainable = 0
    wrappers: list[str] = []
    compiled = False
    for model in models:
        for parameter in model.parameters():
            if not has_values(parameter):
                continue
            count = parameter.numel()
            dtype, place = parameter.dtype, parameter.device
            dtypes[dtype] = dtypes.get(dtype, 0) + count
            places[place] = places.get(place, 0) + count
            trainable += count if parameter.requires_grad else 0
        wrappers += [name for name in _wrappers(model) if name not in wrappers]
        compiled = compiled or is_compiled(model)
    return {
        "parameters": sum(dtypes.values()),
        "trainable_parameters": trainable,
        "parameter_dtypes": {str(dtype).removeprefix("torch."): count for dtype, count in dtypes.items()},
        "parameter_devices": {str(place): count for place, count in places.items()},
        "compiled": compiled,
        "wrappers": wrappers,
    }


def layers(models: Iterable[Any]) -> dict[str, Any]:
    """Element counts of the parameters by class of layer, and whether convolutions are channels-last.

    `channels_last` is missing where no weight of a two-dimensional convolution tells the two formats apart.
    """
    counts: dict[str, int] = {}
    is_channels_last: bool | None = None
    counted: set[int] = set()
    for model in models:
        for layer in model.modules():
            for parameter in layer.parameters(recurse=False):
                if id(parameter) in counted or not has_values(parameter):
                    continue
                counted.add(id(parameter))
                kind = type(layer).__name__
                counts[kind] = counts.get(kind, 0) + parameter.numel()
                if kind == "Conv2d" and parameter.dim() == 4 and _has_memory_format(parameter):
                    is_channels_last = bool(is_channels_last) or parameter.stride(1) == 1
    largest = sorted(counts, key=counts.__getitem__, reverse=True)[:MAX_LAYER_KINDS]
    described: dict[str, Any] = {"layers": {kind: counts[kind] for kind in largest}}
    return described if is_channels_last is None else {**described, "channels_last": is_channels_last}


def output_features(models: Iterable[Any]) -> dict[str, int]:
    """The number of outputs of the last linear layer, which of a classifier is that of the classes."""
    counts = [
        part.out_features
        for model in models
        for part in model.modules()
        if type(part).__name__ == "Linear" and isinstance(getattr(part, "out_features", None), int)
    ]
    return {"output_features": counts[-1]} if counts else {}


def replicas(models: Iterable[Any]) -> dict[str, Any]:
    """How replicas of a model exchange gradients, from the log that DistributedDataParallel keeps.

    `unused_bytes` is the size of the parameters without a gradient at the last step that it logged: each of
    the first ten, then every hundredth.
    """
    for model in models:
        read_log = getattr(model, "_get_ddp_logging_data", None)
        if type(model).__name__ != "DistributedDataParallel" or read_log is None:
            continue
        with suppress(RuntimeError, AttributeError):
            log = read_log()
            names = {"backend_name": "backend", "unused_parameter_size": "unused_bytes"}
            return {"replicas": {name: log[key] for key, name in names.items() if key in log}}
    return {}


def switches(torch: ModuleType) -> dict[str, Any]:
    """Settings of PyTorch itself; without those that this version lacks."""
    backends = torch.backends
    reads: dict[str, Callable[[], Any]] = {
        "default_dtype": lambda: str(torch.get_default_dtype()).removeprefix("torch."),
        "tf32_matmul": lambda: _tf32(torch),
        "tf32_cudnn": lambda: bool(backends.cudnn.allow_tf32),
        "float32_matmul_precision": torch.get_float32_matmul_precision,
        "cudnn_enabled": lambda: bool(backends.cudnn.enabled),
        "cudnn_benchmark": lambda: bool(backends.cudnn.benchmark),
        "cudnn_deterministic": lambda: bool(backends.cudnn.deterministic),
        "deterministic_algorithms": torch.are_deterministic_algorithms_enabled,
        "detect_anomaly": torch.is_anomaly_enabled,
        "profiler": torch._C._autograd._profiler_enabled,  # noqa: SLF001 - it has no public name
        "flash_attention": backends.cuda.flash_sdp_enabled,
        "memory_efficient_attention": backends.cuda.mem_efficient_sdp_enabled,
        "cudnn_attention": lambda: bool(backends.cuda.cudnn_sdp_enabled()),
        "threads": torch.get_num_threads,
        "interop_threads": torch.get_num_interop_threads,
        "sync_debug_mode": lambda: _sync_debug_mode(torch),
    }
    values = {}
    for name, read in reads.items():
        try:
            value = read()
        except (AttributeError, RuntimeError):  # PyTorch refuses where its old and new names were both used
            continue
        if value is not None:
            values[name] = value
    return values


def is_compiled(model: Any) -> bool:
    """Whether a model, or a part of it, is compiled."""
    if hasattr(model, "_orig_mod"):
        return True
    return any(
        getattr(part, "_compiled_call_impl", None) is not None or type(part).__name__ == "OptimizedModule"
        for part in model.modules()
    )


def _has_memory_format(weight: Any) -> bool:
    """Whether the strides of a convolution's weight differ between the two formats."""
    _, channels, height, width = weight.shape
    return bool(channels > 1 and height * width > 1)


def _wrappers(model: Any) -> list[str]:
    """The wrapper classes of a model and its direct children, compared by name to avoid imports."""
    wrappers = []
    for part in (model, *model.children()):
        names = {kind.__name__ for kind in type(part).__mro__}
        for wrapper in WRAPPERS:
            if wrapper in names:
                options = [name for name in _REPLICA_OPTIONS if getattr(part, name, None) is True]
                wrappers.append(f"{wrapper}({', '.join(options)})" if options else wrapper)
    return wrappers


def _optimizer(optimizer: Any) -> dict[str, Any]:
    groups = optimizer.param_groups
    first = groups[0] if groups else {}
    described = {"name": type(optimizer).__name__, "groups": len(groups)}
    return {
        **described,
        **{name: first[name] for name in ("fused", "foreach", "capturable") if name in first},
    }


def _tf32(torch: ModuleType) -> bool:
    """Whether float32 products on the GPU may use TF32, under either of PyTorch's names for the setting."""
    matmul = torch.backends.cuda.matmul
    try:
        return bool(matmul.allow_tf32)
    except RuntimeError:  # set by the newer name, which the older one refuses to read
        return bool(matmul.fp32_precision == "tf32")


def _autocast(torch: ModuleType) -> str:
    for device in ("cuda", "cpu"):
        try:
            if torch.is_autocast_enabled(device):
                return f"{device} {str(torch.get_autocast_dtype(device)).removeprefix('torch.')}"
        except TypeError:  # before PyTorch 2.4 there was one switch, for the GPU
            return "cuda" if torch.is_autocast_enabled() else "off"
    return "off"


def _devices(torch: ModuleType) -> list[dict[str, Any]]:
    """The current GPU; empty until the training uses one."""
    if not torch.cuda.is_initialized():
        return []
    index = torch.cuda.current_device()
    properties = torch.cuda.get_device_properties(index)
    return [{"index": index, "name": properties.name, "total_bytes": properties.total_memory}]


def _sync_debug_mode(torch: ModuleType) -> int | None:
    return int(torch.cuda.get_sync_debug_mode()) if torch.cuda.is_initialized() else None
