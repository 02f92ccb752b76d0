"""Times the exchanges of a sharded model, to tell a rank's own work from waiting for other ranks."""

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
"""What FSDP, old and new, calls to gather parameters and to reduce gradients; names differ by version."""

PLACES = (
    "torch.distributed.fsdp._flat_param",
    "torch.distributed.fsdp._runtime_utils",
    "torch.distributed.fsdp.fully_sharded_data_parallel",
    "torch.distributed.fsdp._fully_shard._fsdp_collectives",
    "torch.distributed._composable.fsdp._fsdp_collectives",
)
"""Where it calls them from; the last is the place of FSDP2 in older versions."""

_watching: dict[int, Exchanges] = {}
"""Who wants to know of the exchanges of each thread that trains."""

_overheard: list[Any] = []
"""The places in which we listen."""

_lock = Lock()


def wait_key(phase: str) -> str:
    """The key under which the wait within a phase is recorded."""
    return f"ranks/{phase}_wait_seconds"


class Exchanges:
    """Adds up how long a rank is in exchanges, by the phase in which they take place.

    No gradient tells when a rank arrives: hooks of sharded parameters run after the reduction, or never. But
    each exchange begins when this rank comes to it and ends when all have come, so the late rank has the
    shortest ones.
    """

    def __init__(self, chain: PhaseTimer) -> None:
        self._chain = chain
        self._began_ns = chain.timer.began_ns
        self._waited_ns = [0] * len(PHASES)

    def attach(self) -> None:
        """Listens to the exchanges of this thread."""
        with _lock:
            _watching[get_ident()] = self
            if not _overheard:
                _listen()

    def after_step(self) -> Mapping[str, float]:
        """How long the rank was in exchanges, together and by phase."""
        waited_ns, self._waited_ns = self._waited_ns, [0] * len(PHASES)
        row = {wait_key(PHASES[phase]): took * 1e-9 for phase, took in enumerate(waited_ns) if took}
        return {**row, WAIT_SECONDS: sum(row.values())} if row else {}

    def detach(self) -> None:
        """Stops listening; the last to do so leaves FSDP as it was."""
        with _lock:
            for thread in [thread for thread, one in _watching.items() if one is self]:
                del _watching[thread]
            while _overheard and not _watching:
                place = _overheard.pop()
                place.dist = getattr(place.dist, "overheard", place.dist)

    def add(self, took_ns: int) -> None:
        """An exchange is over."""
        if self._began_ns != self._chain.timer.began_ns:
            # What came before is no part of this step: it was told, or it belonged to an evaluation.
            self._began_ns = self._chain.timer.began_ns
            self._waited_ns = [0] * len(PHASES)
        self._waited_ns[self._chain.phase] += took_ns


class _Overheard:
    """`torch.distributed` as FSDP alone sees it: all that it is, with a clock beside its exchanges.

    The functions themselves stay as they are: the compiler knows them by identity.
    """

    def __init__(self, overheard: ModuleType) -> None:
        self.overheard = overheard
        for name in EXCHANGES:
            if hasattr(overheard, name):
                setattr(self, name, _timed(getattr(overheard, name)))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.overheard, name)


def _timed(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def exchange(*arguments: Any, **options: Any) -> Any:
        watching = _watching.get(get_ident())
        if watching is None:
            return original(*arguments, **options)
        began_ns = monotonic_ns()
        try:
            return original(*arguments, **options)
        finally:
            watching.add(monotonic_ns() - began_ns)

    return exchange


def _listen() -> None:
    for place in filter(None, map(sys.modules.get, PLACES)):
        known: Any = place
        if hasattr(known, "dist"):
            known.dist = _Overheard(known.dist)
            _overheard.append(known)


def rank_waits(model: Any, chain: PhaseTimer) -> list[RankWait]:
    """What measures how long this rank waits for others, if the model is spread over several."""
    if is_distributed(model):
        return [GradientsReady(model, chain)]
    return [Exchanges(chain)] if is_sharded(model) else []


def is_sharded(model: Any) -> bool:
    """Whether a model is spread over ranks and exchanges its parts on the host.

    On a GPU exchanges are only queued there: how long a call takes on the host says nothing of who is late.
    """
    for module in model.modules():
        kinds = {kind.__name__ for kind in type(module).__mro__}
        if "FullyShardedDataParallel" in kinds:
            return getattr(getattr(module, "compute_device", None), "type", None) == "cpu"
        if "FSDPModule" in kinds:
            meshes = (getattr(one, "device_mesh", None) for one in module.parameters())
            return any(mesh is not None and mesh.device_type == "cpu" for mesh in meshes)
    return False
