"""Finds the operation that made a loss NaN or infinite, in the graph that its backward pass is about to use.

At that moment the weights are those that the loss was computed with; after the optimizer step they are NaN,
too. Nothing is computed again: the graph holds the values of most operations. Only losses in host memory are
read, since reading one on a GPU would wait for it.
"""

from __future__ import annotations

import math
import re
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from stepscope.steps.compiled_code import never_compiled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from stepscope.steps.memory.out_of_memory import WatchedObjects
    from stepscope.steps.phase_timer import PhaseTimer

EVENT = "loss_not_finite"

MAX_SEARCHES = 3
"""How many losses of a training are looked into."""

STEPS_BETWEEN = 50
"""How many steps these are apart: the steps after the first are bad for the same reason."""

MAX_NODES = 100_000
"""Larger graphs are not searched."""

_RESULTS = ("result", "output", "out")
"""How the names of the values begin that an operation has computed; the others are its inputs."""

_DOMAINS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "log": ("self", lambda values: values <= 0),
    "log2": ("self", lambda values: values <= 0),
    "log10": ("self", lambda values: values <= 0),
    "log1p": ("self", lambda values: values <= -1),
    "div": ("other", lambda values: values == 0),
}
"""For operations that keep their input and not their result: which input gives a value that is not finite."""

_SAVED = "_saved_"
_VIEW = re.compile(r"(?:T|Transpose|Permute|View|ToCopy|Expand|Unsqueeze)Backward\d*$")
_NAME = re.compile(r"(?:.*::)?(\w+?)_?Backward\d*$")


class Origin(NamedTuple):
    """Where the first value that is not finite came from."""

    cause: str
    """`operation`, `batch`, `weights`, or `loss`: something after the last value that the graph holds."""
    operation: str = ""
    layer: str = ""
    """The layer that the operation belongs to; empty for an operation between layers."""
    after: str = ""
    before: str = ""
    """The layers before and after such an operation."""


class NonfiniteLoss:
    """Reads each loss at the start of its backward pass, and searches the graph of one that is not finite."""

    def __init__(
        self, watched_objects: WatchedObjects, phase_timer: PhaseTimer, record_event: Callable[..., None]
    ) -> None:
        self._watched_objects, self._record_event = watched_objects, record_event
        self._timer = phase_timer.timer
        phase_timer.on_loss = self.look
        self._searches, self._next_search = 0, 0

    @never_compiled
    def look(self, tensors: Any) -> None:
        """Called with what a backward pass begins with."""
        with suppress(Exception):  # a tensor of the user's own may raise anything
            loss = tensors[0] if isinstance(tensors, list | tuple) else tensors
            if not loss.is_cpu or loss.numel() != 1 or math.isfinite(loss.item()):
                return
            if self._searches < MAX_SEARCHES and self._timer.steps_made >= self._next_search:
                self._searches += 1
                self._next_search = self._timer.steps_made + STEPS_BETWEEN
                origin = origin_of(loss, self._layers())
                if origin is not None:
                    fields = {**origin._asdict(), "batch": self._batch()}
                    self._record_event(EVENT, step=self._timer.step, **fields)

    def _batch(self) -> str:
        """The tensors of the current batch: shapes and number types."""
        tensors = self._watched_objects.batch.described()
        return ", ".join(f"{'×'.join(map(str, tensor.shape))} {tensor.dtype}" for tensor in tensors)

    def _layers(self) -> dict[int, str]:
        """The layer of each parameter of the watched models, by the parameter's id."""
        return {
            id(parameter): name.rpartition(".")[0] or name
            for model in self._watched_objects.models
            for name, parameter in model.named_parameters()
        }


def origin_of(loss: Any, layers: dict[int, str]) -> Origin | None:
    """Finds where the first value came from that is not finite; None where the graph does not show it."""
    nodes = _inputs_first(loss.grad_fn)
    if nodes is None:
        return None
    for node in nodes:
        place, given_by = _DOMAINS.get(_operation(node), ("", bool))
        for name, tensor in _saved(node):
            if not _is_finite(tensor):
                return _origin(node, name, tensor, layers, nodes)
            if name == place and bool(given_by(tensor).any()):
                return _placed(node, layers, nodes)
    # All values that the graph holds are finite: what came after the last layer computed the first other one.
    return Origin("loss", after=_nearest(loss.grad_fn, layers, _before))


def _origin(node: Any, name: str, tensor: Any, layers: dict[int, str], nodes: list[Any]) -> Origin:
    """Describes where the bad value came from that an operation has kept."""
    if name.startswith(_RESULTS) or not all(map(_is_finite, _parameters(node))):
        return _placed(node, layers, nodes)
    if tensor.grad_fn is not None:
        return _placed(tensor.grad_fn, layers, nodes)
    # Not computed from weights: inputs, targets and masks came with the batch, a single number did not.
    if tensor.dim() == 0 or name == "weight":
        return _placed(node, layers, nodes)
    return Origin("batch", before=_nearest(node, layers, _before))


def _placed(node: Any, layers: dict[int, str], nodes: list[Any]) -> Origin:
    """Describes an operation by its name and its layer, or the layers around it."""
    known = sorted((part for part in _parameters(node) if id(part) in layers), key=_is_finite)
    if known:
        cause = "operation" if _is_finite(known[0]) else "weights"
        return Origin(cause, _operation(node), layers[id(known[0])])
    users: dict[Any, list[Any]] = {}
    for user in nodes:
        for before in _before(user):
            users.setdefault(before, []).append(user)
    return Origin(
        "operation",
        _operation(node),
        after=_nearest(node, layers, _before),
        before=_nearest(node, layers, lambda place: users.get(place, [])),
    )


def _nearest(node: Any, layers: dict[int, str], neighbours: Callable[[Any], list[Any]]) -> str:
    """The layer of the nearest operation with parameters in one direction; empty if there is none."""
    queue, seen = deque([node]), {node}
    while queue:
        place = queue.popleft()
        for part in _parameters(place):
            if id(part) in layers:
                return layers[id(part)]
        for neighbour in neighbours(place):
            if neighbour not in seen:
                seen.add(neighbour)
                queue.append(neighbour)
    return ""


def _inputs_first(last: Any) -> list[Any] | None:
    """All operations of a graph, each after those whose results it uses; None if there are too many."""
    ordered: list[Any] = []
    seen, stack = {last}, [(last, iter(_before(last)))]
    while stack:
        _, rest = stack[-1]
        before = next((place for place in rest if place not in seen), None)
        if before is None:
            ordered.append(stack.pop()[0])
        else:
            seen.add(before)
            stack.append((before, iter(_before(before))))
            if len(seen) > MAX_NODES:
                return None
    return ordered


def _before(node: Any) -> list[Any]:
    return [before for before, _ in node.next_functions if before is not None]


def _saved(node: Any) -> Iterator[tuple[str, Any]]:
    """The tensors that an operation has kept for its backward pass, as far as they can be read without harm.

    Unpacking hooks belong to others, such as those that compute a checkpointed part again: they may run once.
    """
    for attribute in dir(node):
        raw = getattr(node, f"_raw{attribute}", None) if attribute.startswith(_SAVED) else None
        parts = raw if isinstance(raw, list | tuple) else [raw]
        if all(part is not None and getattr(part, "unpack_hook", part) is None for part in parts):
            with suppress(RuntimeError):  # it was changed in place since
                kept = getattr(node, attribute)
                for tensor in kept if isinstance(kept, list | tuple) else [kept]:
                    yield attribute.removeprefix(_SAVED), tensor


def _parameters(node: Any) -> list[Any]:
    """The parameters that an operation uses, as they are or transposed or in another number format."""
    return [parameter for before in _before(node) if (parameter := _parameter(before)) is not None]


def _parameter(node: Any) -> Any:
    """The parameter that a node stands for; None for the result of a computation."""
    while _VIEW.match(node.name()) and len(_before(node)) == 1:
        [node] = _before(node)
    return getattr(node, "variable", None)


def _is_finite(tensor: Any) -> bool:
    is_read = tensor is not None and tensor.is_cpu and tensor.is_floating_point()
    return not is_read or bool(tensor.isfinite().all())


def _operation(node: Any) -> str:
    match = _NAME.match(node.name())
    return (match[1] if match else node.name()).lower()
