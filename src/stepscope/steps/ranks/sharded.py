"""Times the collectives of a sharded model, to separate a rank's work from waiting for other ranks."""

from __future__ import annotations

import functools
import sys
from threading import Lock, get_ident
from time import monotonic_ns
from typing import TYPE_CHECKING, Any

from stepscope.schema.keys import PHASES
from stepscope.steps.ranks.gradients_ready import WAIT_SECONDS, GradientsReady, is_distributed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import ModuleType

    from stepscope.steps.phase_timer import PhaseTimer
    from stepscope.steps.ranks.gradients_ready import RankWait

EXCHANGES = (
    "all_gather",
    "all_gather_into_tensor",
    "all_gather_single",
    "all_reduce",
    "reduce_scatter_single",
    "reduce_scatter_tensor",
)
"""The collectives FSDP1 and FSDP2 call to gather parameters and reduce gradients, in all versions."""

FSDP_MODULES = (
    "torch.distributed.fsdp._flat_param",
    "torch.distributed.fsdp._runtime_utils",
    "torch.distributed.fsdp.fully_sharded_data_parallel",
    "torch.distributed.fsdp._fully_shard._fsdp_collectives",
    "torch.distributed._composable.fsdp._fsdp_collectives",
)
"""The modules it calls them from; the last one is that of FSDP2 in older versions."""

_exchanges_by_thread: dict[int, Exchanges] = {}
"""Receives the collectives of each training thread."""

_patched_modules: list[Any] = []
"""The modules whose `dist` is replaced."""

_lock = Lock()


def wait_key(phase: str) -> str:
    """The metric key of the wait within a phase."""
    return f"ranks/{phase}_wait_seconds"


class Exchanges:
    """Adds up the time a rank spends in collectives, by phase.

    Gradient hooks cannot tell when a rank arrives: hooks of sharded parameters run after the reduction, or
    never. But each collective begins when this rank calls it and ends when all ranks have, so the slowest
    rank has the shortest ones.
    """

    def __init__(self, phase_timer: PhaseTimer) -> None:
        self._phase_timer = phase_timer
        self._began_ns = phase_timer.timer.began_ns
        self._waited_ns = [0] * len(PHASES)

    def attach(self) -> None:
        """Starts timing the collectives of this thread."""
        with _lock:
            _exchanges_by_thread[get_ident()] = self
            if not _patched_modules:
                _patch_modules()

    def after_step(self) -> Mapping[str, float]:
        """How long the rank was in collectives, in total and by phase."""
        waited_ns, self._waited_ns = self._waited_ns, [0] * len(PHASES)
        row = {wait_key(PHASES[phase]): took * 1e-9 for phase, took in enumerate(waited_ns) if took}
        return {**row, WAIT_SECONDS: sum(row.values())} if row else {}

    def detach(self) -> None:
        """Stops timing; the last one to do so restores FSDP."""
        with _lock:
            for thread in [thread for thread, exchanges in _exchanges_by_thread.items() if exchanges is self]:
                del _exchanges_by_thread[thread]
            while _patched_modules and not _exchanges_by_thread:
                module = _patched_modules.pop()
                module.dist = getattr(module.dist, "original_module", module.dist)

    def add(self, took_ns: int) -> None:
        """Adds the time of one collective."""
        if self._began_ns != self._phase_timer.timer.began_ns:
            # Earlier time is not part of this step: it was recorded, or belonged to an evaluation.
            self._began_ns = self._phase_timer.timer.began_ns
            self._waited_ns = [0] * len(PHASES)
        self._waited_ns[self._phase_timer.phase] += took_ns


class _TimedDistributed:
    """`torch.distributed` with timed collectives, for FSDP only.

    The functions of the module itself are not replaced: the compiler recognises them by identity.
    """

    def __init__(self, original_module: ModuleType) -> None:
        self.original_module = original_module
        for name in EXCHANGES:
            if hasattr(original_module, name):
                setattr(self, name, _timed(getattr(original_module, name)))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.original_module, name)


def _timed(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def exchange(*arguments: Any, **options: Any) -> Any:
        exchanges = _exchanges_by_thread.get(get_ident())
        if exchanges is None:
            return original(*arguments, **options)
        began_ns = monotonic_ns()
        try:
            return original(*arguments, **options)
        finally:
            exchanges.add(monotonic_ns() - began_ns)

    return exchange


def _patch_modules() -> None:
    for loaded in filter(None, map(sys.modules.get, FSDP_MODULES)):
        module: Any = loaded
        if hasattr(module, "dist"):
            module.dist = _TimedDistributed(module.dist)
            _patched_modules.append(module)


def rank_waits(model: Any, phase_timer: PhaseTimer) -> list[RankWait]:
    """Measures how long this rank waits for others; empty if the model is on one rank only."""
    if is_distributed(model):
        return [GradientsReady(model, phase_timer)]
    return [Exchanges(phase_timer)] if is_sharded(model) else []


def is_sharded(model: Any) -> bool:
    """Whether a model is sharded over ranks and its collectives run on the host.

    On a GPU the host only queues collectives: the time of a call does not show which rank is slow.
    """
    for module in model.modules():
        kinds = {kind.__name__ for kind in type(module).__mro__}
        if "FullyShardedDataParallel" in kinds:
            return getattr(getattr(module, "compute_device", None), "type", None) == "cpu"
        if "FSDPModule" in kinds:
            meshes = (getattr(parameter, "device_mesh", None) for parameter in module.parameters())
            return any(mesh is not None and mesh.device_type == "cpu" for mesh in meshes)
    return False
