"""Tells which parameters make up which layer of a model, in the order in which they were registered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

MAX_LAYERS = 64
"""So many layers are told apart; a model with more is told apart by the blocks that hold them."""

REST = "(rest)"
"""The name of all that follow, where even the outermost blocks are more than may be told apart."""

_WRAPPERS = frozenset({"_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"})
"""What compilers and sharding put between the names a user gave."""


@dataclass(frozen=True)
class Layers:
    """The parameters of a model, each once however often it is tied, and the layer each belongs to.

    A layer is a module that holds parameters itself; a parameter of the model itself is a layer of its own.
    """

    names: tuple[str, ...]
    parameters: tuple[Any, ...]
    layer_of: tuple[int, ...]
    """For each parameter the place of its layer in `names`."""

    @classmethod
    def of(cls, model: Any, most: int = MAX_LAYERS) -> Layers:
        """Reads a model."""
        named = list(model.named_parameters())
        cut = within([layer_path(path) for path in plain_paths([name for name, _ in named])], most)
        names = tuple(dict.fromkeys(cut))
        place = {name: at for at, name in enumerate(names)}
        return cls(names, tuple(one for _, one in named), tuple(place[name] for name in cut))

    def places(self, parameters: Iterable[Any]) -> list[int]:
        """Where in `parameters` these are, in the order of registration; others are left out."""
        wanted = {id(one) for one in parameters}
        return [at for at, one in enumerate(self.parameters) if id(one) in wanted]


def plain_paths(names: Sequence[str]) -> list[tuple[str, ...]]:
    """Names taken apart, without what wrappers such as DDP and `torch.compile` have added to them."""
    paths = [tuple(part for part in name.split(".") if part not in _WRAPPERS) for name in names]
    if paths and all(len(path) > 1 and path[0] == "module" for path in paths):
        return [path[1:] for path in paths]
    return paths


def layer_path(path: tuple[str, ...]) -> tuple[str, ...]:
    """The module a parameter belongs to; parts of a parametrization belong to the module it shapes."""
    if "parametrizations" in path[1:]:
        return path[: path.index("parametrizations", 1)]
    return path[:-1] or path


def within(paths: Sequence[tuple[str, ...]], most: int) -> list[str]:
    """Names of layers, at most so many different ones: the deepest blocks that are few enough."""
    cut: list[str] = []
    for depth in range(max(map(len, paths), default=0), 0, -1):
        cut = [".".join(path[:depth]) for path in paths]
        if len(set(cut)) <= most:
            return cut
    told_apart = set(list(dict.fromkeys(cut))[: most - 1])
    return [name if name in told_apart else REST for name in cut]
