"""Adds hooks to the modules of a model at sampled steps; in all other steps the model has none."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from stepscope.model_stats.gradients import to_device
from stepscope.model_stats.hooking import Hooks, reference_to
from stepscope.model_stats.layers import plain_paths
from stepscope.model_stats.metric_sink import MetricSink
from stepscope.model_stats.random_sampling import NEVER, RandomSampling, own_random

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from types import ModuleType

_PARALLEL = frozenset({"DistributedDataParallel", "DataParallel"})

WARM_UP = 10
"""The first steps are not sampled: code compiled then would include the hooks."""


class SampledHooks(ABC):
    """Samples a step at random: adds hooks at the end of the step before, and removes them at its end.

    `every_steps` is the average number of steps between two samples.
    """

    name = ""
    """The subject of the warning if a hook fails."""

    def __init__(
        self,
        model: Any,
        *,
        every_steps: int,
        outlets: MetricSink | None = None,
        _draw: Callable[[], float] | None = None,
    ) -> None:
        import torch  # lazy: a caller with a model has loaded it

        self._torch = torch
        self._model = reference_to(model, None if outlets is None else self._forget_model)
        self._sink = outlets or MetricSink()
        self._draw = _draw or own_random()
        self._chance = RandomSampling(1.0, every_steps, self._draw)
        self._hooks = Hooks(torch, self.name, self._sink.guard)
        self.due = WARM_UP
        """Steps until the next call of `after_step`."""
        self._compiled_before = compiled_frames()
        self.is_open = False
        self._is_measuring = False

    def after_step(self, step: int) -> Mapping[str, float]:
        """Ends the sample and records it, or starts one; called when it is due."""
        self.due = 1
        if self.is_open:
            self._hooks.run(self._record)
            self._close()
            return {}
        skipped = NEVER if self._hooks.is_off else self._chance.steps_to_skip(None)
        self.due = max(skipped, 1)
        if skipped:
            self._chance.skip(skipped)
        elif self._chance.is_due(None) and not self._has_compiled_since():
            self._hooks.run(self._open)
        return {}

    def measure(self, run: Callable[[], Any]) -> dict[str, float]:
        """Statistics of the model while `run` is called; waits for the device."""
        self._is_measuring = True
        self._open()
        try:
            run()
            keys, values = self._figures()
            return dict(zip(keys, values.tolist(), strict=True)) if keys else {}
        finally:
            self._close()

    def close(self) -> None:
        """Ends sampling and removes all hooks."""
        self._close()

    def _forget_model(self) -> None:
        self._hooks.is_off = True

    def _open(self) -> None:
        self.is_open = True
        self._attach()

    def _close(self) -> None:
        self.is_open = self._is_measuring = False
        self._hooks.remove()
        self._detach()

    def _record(self) -> None:
        keys, values = self._figures()
        if keys:
            self._sink.record_tensor(keys, values)

    def _has_compiled_since(self) -> bool:
        """Whether code was compiled since the last check: more compilations may follow."""
        before, self._compiled_before = self._compiled_before, compiled_frames()
        return self._compiled_before not in (0, before)

    @abstractmethod
    def _attach(self) -> None:
        """Adds hooks to modules."""

    @abstractmethod
    def _detach(self) -> None:
        """Discards the sample; the hooks are already removed."""

    @abstractmethod
    def _figures(self) -> tuple[list[str], Any]:
        """Keys and a tensor of the sampled values."""


def eager_modules(model: Any) -> Iterator[tuple[str, Any]]:
    """The modules that are not compiled, each once; compiled ones call no hooks."""
    while type(model).__name__ in _PARALLEL:
        model = model.module
    visited: set[int] = set()
    for name, module in _uncompiled(model, ""):
        if id(module) not in visited:
            visited.add(id(module))
            path = plain_paths([name])[0] if name else ()
            yield ".".join(path) or type(module).__name__, module


def is_compiled(module: Any) -> bool:
    """Whether a module, or the `forward` of its class, is compiled by `torch.compile`."""
    if type(module).__name__ == "OptimizedModule" or getattr(module, "_compiled_call_impl", None) is not None:
        return True
    dynamo = sys.modules.get("torch._C._dynamo.eval_frame")
    entries = getattr(dynamo, "_debug_get_cache_entry_list", None)
    code = getattr(type(module).forward, "__code__", None)
    return entries is not None and code is not None and bool(entries(code))


def compiled_frames() -> int:
    """The number of functions that `torch.compile` has compiled in this process."""
    utils = sys.modules.get("torch._dynamo.utils")
    return 0 if utils is None else int(sum(utils.counters["frames"].values()))


def concatenated(torch: ModuleType, parts: Sequence[Any]) -> Any:
    """Concatenates small tensors of several devices on one of them."""
    device = next((part.device for part in parts if part.device.type != "cpu"), parts[0].device)
    return torch.cat([to_device(part, device) for part in parts])


def _uncompiled(module: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    if is_compiled(module):
        return
    yield prefix, module
    for name, child in module.named_children():
        yield from _uncompiled(child, f"{prefix}.{name}" if prefix else name)
