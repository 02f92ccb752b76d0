"""Records checksums of a few parameters of a replica, for a comparison with those of other ranks."""

from __future__ import annotations

import gc
import sys
import weakref
from math import ceil
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from stepscope.model_stats.layers import has_values, plain_paths
from stepscope.model_stats.weight_updates import thinned
from stepscope.schema.keys import REPLICA_CHECKSUM, REPLICA_UPDATES
from stepscope.steps.evidence.parameter_updates import is_sharded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from types import ModuleType

    from stepscope.steps.step_timer import StepTimer

EVENT = "replicas"
WRAPPER = "DistributedDataParallel"
SHARDS = "ranks have different parts of the parameters"
AVERAGED = "ranks average their parameters only now and then"
MAY_DIFFER = (SHARDS, AVERAGED)
"""Reasons for which ranks have different parameters on purpose; for others, it is not known."""

PARAMETERS = 3
"""How many parameters are read: the first, the middle and the last one that are trained."""

FIRST_READINGS, MIN_STRIDE, MAX_STRIDE = 4, 16, 512
"""So many readings are `MIN_STRIDE` updates apart; later ones as far as their cost asks for."""

SHARE = 0.0002
"""Share of the training thread's time that later readings may take."""

MAX_BLOCKS = 10_000_000
"""In a program with more objects than this the wrapper is not searched for, which would take long."""


class Recorder(Protocol):
    """Records the elements of a tensor for a step, one for each key, without waiting for them."""

    def __call__(self, keys: Sequence[str], values: Any, step: int) -> None:
        """Records the values."""


class Replica(NamedTuple):
    """A model that has the same parameters on all ranks."""

    wrapper: weakref.ref[Any]
    is_watched: bool
    """Whether the wrapper itself is watched, not the module inside it."""
    parameters: Mapping[str, weakref.ref[Any]]


def replica_of(model: Any, torch: ModuleType) -> Replica | str:
    """Returns what to compare with other ranks; or why a model need not be the same on all of them.

    Called when a model is watched, because finding a wrapper that is not watched takes some time.
    """
    wrapper, is_watched = next((part for part in model.modules() if _is_wrapper(part)), None), True
    if wrapper is None:
        if is_sharded(model):
            return SHARDS
        wrapper, is_watched = _wrapper_around(model), False
    if wrapper is None:
        return f"no {WRAPPER} was around the model when it was watched"
    if wrapper.process_group.size() != torch.distributed.get_world_size():
        return "the ranks form several groups"
    hooks = [getattr(hook, "__name__", "") for hook, _ in getattr(wrapper, "_comm_hooks", ())]
    if any("localSGD" in name for name in hooks):
        return AVERAGED
    parameters = dict(_compared(wrapper))
    if not parameters:
        return "no parameter is trained on all ranks"
    return Replica(weakref.ref(wrapper), is_watched, parameters)


class ReplicaChecksums:
    """An observer that reads parameters after the same updates on all ranks, without asking other ranks.

    Numbers of updates are multiples of a power of two, so that ranks which read more often than others still
    have readings in common. Updates are counted since the start of the process: after a resume, the numbers
    of steps may differ from rank to rank.
    """

    def __init__(
        self,
        torch: ModuleType,
        replica: Replica,
        timer: StepTimer,
        record: Recorder,
        record_event: Callable[..., None],
        now_ns: Callable[[], int] = perf_counter_ns,
    ) -> None:
        self._torch, self._replica, self._timer = torch, replica, timer
        self._record, self._record_event, self._now_ns = record, record_event, now_ns
        self._keys = [f"{REPLICA_CHECKSUM}/{name}" for name in replica.parameters]
        self._stride, self._readings = MIN_STRIDE, 0
        self._read_at, self._read_ns = 0, now_ns()
        self.due = 1

    def after_step(self, step: int) -> Mapping[str, float]:
        """Reads the parameters if it is time; returns the number of updates then."""
        made = self._timer.steps_made
        row: dict[str, float] = {}
        if made != self._read_at and made % self._stride == 0:
            parameters = [reference() for reference in self._replica.parameters.values()]
            if any(parameter is None for parameter in parameters):
                self.due = sys.maxsize
                return row
            self._read(parameters, step, made)
            row[REPLICA_UPDATES] = made
        self.due = self._stride - made % self._stride
        return row

    def close(self) -> None:
        """Does nothing: reading needs no setup."""

    def _read(self, parameters: list[Any], step: int, made: int) -> None:
        began_ns = self._now_ns()
        double = self._torch.float64
        sums = [thinned(parameter.detach(), 0.0).abs().sum(dtype=double) for parameter in parameters]
        self._record(self._keys, self._torch.stack(sums), step)
        if not self._readings:
            self._describe()
        self._readings += 1
        ended_ns = self._now_ns()
        if self._readings >= FIRST_READINGS:
            step_ns = max(ended_ns - self._read_ns, 1) / (made - self._read_at)
            pause = ceil((ended_ns - began_ns) / SHARE / step_ns)
            self._stride = min(max(1 << (pause - 1).bit_length(), MIN_STRIDE), MAX_STRIDE)
        self._read_at, self._read_ns = made, ended_ns

    def _describe(self) -> None:
        wrapper = self._replica.wrapper()
        calls = None if wrapper is None else wrapper._get_ddp_logging_data().get("iteration")  # noqa: SLF001 - its log has no public name
        self._record_event(
            EVENT,
            parameters=list(self._replica.parameters),
            wrapper_is_watched=self._replica.is_watched,
            wrapper_was_called=None if calls is None else calls > 0,
        )


def _is_wrapper(part: Any) -> bool:
    return any(kind.__name__ == WRAPPER for kind in type(part).__mro__)


def _wrapper_around(model: Any) -> Any:
    """Finds the wrapper that has the parameters of a model; the module inside it does not know of it."""
    first = next(iter(model.parameters()), None)
    parallel = sys.modules.get("torch.nn.parallel.distributed")
    if first is None or parallel is None or sys.getallocatedblocks() > MAX_BLOCKS:
        return None
    for candidate in gc.get_objects():
        # By its type: the attribute `__class__` of an object of the user's own may run any code.
        if issubclass(type(candidate), parallel.DistributedDataParallel) and any(
            parameter is first for parameter in candidate.module.parameters()
        ):
            return candidate
    return None


def _compared(wrapper: Any) -> Iterator[tuple[str, weakref.ref[Any]]]:
    """The parameters to compare, by name, all on the device of the first."""
    ignored = wrapper.parameters_to_ignore
    trained = [
        (name, parameter)
        for name, parameter in wrapper.module.named_parameters()
        if name not in ignored
        and has_values(parameter)
        and parameter.requires_grad
        and parameter.is_floating_point()
        and parameter.numel()
        and not hasattr(parameter, "to_local")
    ]
    trained = [pair for pair in trained if pair[1].device == trained[0][1].device]
    places = dict.fromkeys((0, len(trained) // 2, len(trained) - 1)) if trained else {}
    paths = plain_paths([name for name, _ in trained])
    for place in list(places)[:PARAMETERS]:
        yield ".".join(paths[place]), weakref.ref(trained[place][1])
