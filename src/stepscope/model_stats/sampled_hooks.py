"""Puts hooks on the modules of a model for a step now and then; between such bursts it is untouched."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from stepscope.model_stats.gradients import to_device
from stepscope.model_stats.hooking import Hooks
from stepscope.model_stats.layers import plain_paths
from stepscope.model_stats.metric_sink import MetricSink
from stepscope.model_stats.random_sampling import NEVER, RandomSampling, own_random

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from types import ModuleType

_PARALLEL = frozenset({"DistributedDataParallel", "DataParallel"})

WARM_UP = 10
"""No burst before so many steps: what is compiled then would be compiled with our hooks in it."""


class SampledHooks(ABC):
    """Opens a burst at the end of a step, by chance, and closes it at the end of the next one.

    `every_steps` is the number of steps between two bursts on average.
    """

    name = ""
    """What failed, if something does."""

    def __init__(
        self,
        model: Any,
        *,
        every_steps: int,
        outlets: MetricSink | None = None,
        _draw: Callable[[], float] | None = None,
    ) -> None:
        import torch  # lazy: whoever has a model has it

        self._torch, self._model = torch, model
        self._outlets = outlets or MetricSink()
        self._draw = _draw or own_random()
        self._chance = RandomSampling(1.0, every_steps, self._draw)
        self._hooks = Hooks(torch, self.name, self._outlets.guard)
        self.due = WARM_UP
        """After so many further steps it is to be asked by `after_step`."""
        self._compiled_before = compiled_frames()
        self.is_open = False
        self._is_measuring = False

    def after_step(self, step: int) -> Mapping[str, float]:
        """Ends a burst and records what it saw, or begins one; called when that is due."""
        self.due = 1
        if self.is_open:
            self._hooks.run(self._record)
            self._close()
            return {}
        quiet = NEVER if self._hooks.rests else self._chance.quiet_steps(None)
        self.due = max(quiet, 1)
        if quiet:
            self._chance.skip(quiet)
        elif self._chance.is_due(None) and not self._has_compiled_since():
            self._hooks.run(self._open)
        return {}

    def measure(self, run: Callable[[], Any]) -> dict[str, float]:
        """Figures of whatever the model does while `run` is called; waits for the device to have them."""
        self._is_measuring = True
        self._open()
        try:
            run()
            keys, values = self._figures()
            return dict(zip(keys, values.tolist(), strict=True)) if keys else {}
        finally:
            self._close()

    def close(self) -> None:
        """Ends watching; the model is as it was."""
        self._close()

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
            self._outlets.record_tensor(keys, values)

    def _has_compiled_since(self) -> bool:
        """Whether something was compiled since a burst was last thought of: there may be more to come."""
        before, self._compiled_before = self._compiled_before, compiled_frames()
        return self._compiled_before not in (0, before)

    @abstractmethod
    def _attach(self) -> None:
        """Puts hooks on modules."""

    @abstractmethod
    def _detach(self) -> None:
        """Forgets what was seen; the hooks are gone already."""

    @abstractmethod
    def _figures(self) -> tuple[list[str], Any]:
        """Keys and a tensor of what was seen."""


def eager_modules(model: Any) -> Iterator[tuple[str, Any]]:
    """Modules that run as they are written, each once; compiled ones call no hooks and are left out."""
    while type(model).__name__ in _PARALLEL:
        model = model.module
    seen: set[int] = set()
    for name, module in _uncompiled(model, ""):
        if id(module) not in seen:
            seen.add(id(module))
            path = plain_paths([name])[0] if name else ()
            yield ".".join(path) or type(module).__name__, module


def is_compiled(module: Any) -> bool:
    """Whether a module was handed to `torch.compile`, itself or by its class."""
    if type(module).__name__ == "OptimizedModule" or getattr(module, "_compiled_call_impl", None) is not None:
        return True
    dynamo = sys.modules.get("torch._C._dynamo.eval_frame")
    entries = getattr(dynamo, "_debug_get_cache_entry_list", None)
    code = getattr(type(module).forward, "__code__", None)
    return entries is not None and code is not None and bool(entries(code))


def compiled_frames() -> int:
    """How many functions `torch.compile` has compiled in this process."""
    utils = sys.modules.get("torch._dynamo.utils")
    return 0 if utils is None else int(sum(utils.counters["frames"].values()))


def together(torch: ModuleType, parts: Sequence[Any]) -> Any:
    """Small tensors of any devices, one after another on one of them."""
    home = next((part.device for part in parts if part.device.type != "cpu"), parts[0].device)
    return torch.cat([to_device(part, home) for part in parts])


def _uncompiled(module: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    if is_compiled(module):
        return
    yield prefix, module
    for name, child in module.named_children():
        yield from _uncompiled(child, f"{prefix}.{name}" if prefix else name)
