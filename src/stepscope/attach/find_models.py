"""Finds the models that a training changes, from the tensors that it differentiates or updates."""

from __future__ import annotations

import gc
import weakref
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MAX_NODES = 100_000
"""Maximum number of operations of a loss that are followed to its parameters."""

MAX_MODELS = 8
"""Maximum number of separate models that one optimizer may change."""


class FoundModels(NamedTuple):
    """What one pass over the objects of the garbage collector has found."""

    models: list[Any]
    """The outermost modules that contain the tensors; a stand-in for tensors that no module contains."""
    optimizers: list[Any]
    """All optimizers of the program."""
    has_modules: bool
    """Whether the tensors are parameters of modules."""


def leaves_of(losses: Iterable[Any]) -> dict[int, Any]:
    """The tensors that `backward` computes gradients for, by their ids."""
    leaves: dict[int, Any] = {}
    pending = []
    for loss in losses:
        if loss.grad_fn is not None:
            pending.append(loss.grad_fn)
        elif loss.requires_grad:
            leaves[id(loss)] = loss
    visited = set(pending)
    while pending and len(visited) < MAX_NODES:
        node = pending.pop()
        leaf = getattr(node, "variable", None)
        if leaf is not None:
            leaves[id(leaf)] = leaf
        for successor, _ in node.next_functions:
            if successor is not None and successor not in visited:
                visited.add(successor)
                pending.append(successor)
    return leaves


def find_models(torch: Any, wanted: dict[int, Any], optimizer: Any = None) -> FoundModels:
    """Finds the models of some tensors: those of an optimizer, or those that a loss depends on.

    For a loss, the parameters of all optimizers that change one of these tensors are added first: a loss may
    not show all of them, as with activation checkpointing.
    """
    modules, optimizers = _modules_and_optimizers(torch)
    if optimizer is None:
        for candidate in optimizers:
            tensors = parameters_of(candidate)
            if not wanted.keys().isdisjoint(tensors):
                wanted = {**wanted, **tensors}
    models = list(_covering(_outermost(modules, wanted.keys()), set(wanted)))
    if models or not wanted:
        return FoundModels(models, optimizers, has_modules=True)
    return FoundModels([_stand_in(torch, list(wanted.values()))], optimizers, has_modules=False)


def parameters_of(optimizer: Any) -> dict[int, Any]:
    """The tensors that an optimizer changes, by their ids."""
    try:
        return {id(tensor): tensor for group in optimizer.param_groups for tensor in group["params"]}
    except Exception:  # noqa: BLE001 - an optimizer of the user's own may raise anything
        return {}


def name_of(model: Any) -> str:
    """The name of a model's class, without the wrappers of PyTorch."""
    for attribute in ("_orig_mod", "module", "_orig_mod"):  # compiled, distributed, compiled before that
        if type(model).__module__.startswith("torch."):
            model = getattr(model, attribute, model)
    return type(model).__name__


def _modules_and_optimizers(torch: Any) -> tuple[list[Any], list[Any]]:
    kinds: dict[type, int] = {}
    lists: tuple[list[Any], list[Any], list[Any]] = [], [], []
    for candidate in gc.get_objects():
        # By its type: the attribute `__class__` of an object of the user's own may run any code.
        kind = type(candidate)
        index = kinds.get(kind)
        if index is None:
            is_module, is_optimizer = (
                issubclass(kind, torch.nn.Module),
                issubclass(kind, torch.optim.Optimizer),
            )
            index = kinds[kind] = 1 if is_module else 2 if is_optimizer else 0
        if index:
            lists[index].append(candidate)
    return lists[1], lists[2]


def _outermost(modules: list[Any], wanted: Iterable[int]) -> list[Any]:
    """The modules that contain a wanted parameter, and that no other module contains."""
    ids = set(wanted)
    parents: dict[int, list[Any]] = {}
    pending: list[Any] = []
    for module in modules:
        for child in _values(module, "_modules"):
            parents.setdefault(id(child), []).append(module)
        if any(id(parameter) in ids for parameter in _values(module, "_parameters")):
            pending.append(module)
    outermost: list[Any] = []
    visited: set[int] = set()
    while pending:
        module = pending.pop()
        if id(module) in visited:
            continue
        visited.add(id(module))
        above = parents.get(id(module))
        if above is None:
            outermost.append(module)
        else:
            pending += above
    return outermost


def _covering(candidates: list[Any], wanted: set[int]) -> Iterator[Any]:
    """As few models as contain all wanted parameters; of two that contain the same, the smaller one."""
    parameters = [({id(parameter) for parameter in model.parameters()}, model) for model in candidates]
    for _ in range(MAX_MODELS):
        # The size decides second: another object of the program may hold the model beside its own parts.
        best = max(parameters, key=lambda entry: (len(entry[0] & wanted), -len(entry[0])), default=None)
        if best is None or not best[0] & wanted:
            return
        wanted -= best[0]
        yield best[1]


def _values(module: Any, name: str) -> list[Any]:
    values = vars(module).get(name)
    try:
        return [value for value in values.values() if value is not None] if values else []
    except Exception:  # noqa: BLE001 - a module of the user's own may hold anything there
        return []


def _stand_in(torch: Any, tensors: list[Any]) -> Any:
    """A module with the tensors of a program that uses no modules."""

    class Tensors(torch.nn.Module):  # type: ignore[misc]  # its base is known only when PyTorch is loaded
        """Tensors that are trained, as long as the program keeps them; never called."""

        def replace(self, tensors: Iterable[Any]) -> None:
            """Continues with other tensors."""
            self.references = [weakref.ref(tensor) for tensor in tensors]

        def named_parameters(self, *_: Any, **__: Any) -> Iterator[tuple[str, Any]]:
            """All tensors, by number."""
            return ((f"tensor{number}", tensor) for number, tensor in enumerate(self.parameters()))

        def parameters(self, *_: Any, **__: Any) -> Iterator[Any]:
            """All tensors."""
            return (tensor for reference in self.references if (tensor := reference()) is not None)

    stand_in = Tensors()
    stand_in.replace(tensors)
    return stand_in
