"""Assigns the parameters of a model to its layers, in registration order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

MAX_LAYERS = 64
"""Maximum number of layers; the layers of a model with more are grouped into the blocks that contain them."""

REST = "(rest)"
"""The name of all remaining layers if even the outermost blocks exceed the maximum."""

_WRAPPERS = frozenset({"_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"})
"""Name parts that compilers and sharding add."""


@dataclass(frozen=True)
class Layers:
    """The parameters of a model, tied ones only once, and the layer of each.

    A layer is a module that has parameters of its own; a parameter of the model itself is a separate layer.
    """

    names: tuple[str, ...]
    parameters: tuple[Any, ...]
    layer_of: tuple[int, ...]
    """For each parameter, the index of its layer in `names`."""

    @classmethod
    def of(cls, model: Any, max_layers: int = MAX_LAYERS) -> Layers:
        """Reads a model."""
        named = list(model.named_parameters())
        layer_names = limited_names(
            [layer_path(path) for path in plain_paths([name for name, _ in named])], max_layers
        )
        names = tuple(dict.fromkeys(layer_names))
        index_of = {name: index for index, name in enumerate(names)}
        parameters = tuple(parameter for _, parameter in named)
        return cls(names, parameters, tuple(index_of[name] for name in layer_names))

    def indices(self, parameters: Iterable[Any]) -> list[int]:
        """The indices of these parameters, in registration order; unknown ones are left out."""
        ids = {id(parameter) for parameter in parameters}
        return [index for index, parameter in enumerate(self.parameters) if id(parameter) in ids]


def has_values(parameter: Any) -> bool:
    """Whether a parameter has values; one of a lazy module gets its shape when the module is first called."""
    return not hasattr(type(parameter), "materialize")


def plain_paths(names: Sequence[str]) -> list[tuple[str, ...]]:
    """The parts of each name, without those that wrappers such as DDP and `torch.compile` have added."""
    paths = [tuple(part for part in name.split(".") if part not in _WRAPPERS) for name in names]
    if paths and all(len(path) > 1 and path[0] == "module" for path in paths):
        return [path[1:] for path in paths]
    return paths


def layer_path(path: tuple[str, ...]) -> tuple[str, ...]:
    """The module of a parameter; those of a parametrization belong to the parametrized module."""
    if "parametrizations" in path[1:]:
        return path[: path.index("parametrizations", 1)]
    return path[:-1] or path


def limited_names(paths: Sequence[tuple[str, ...]], max_layers: int) -> list[str]:
    """At most `max_layers` different layer names: those of the deepest blocks that are few enough."""
    layer_names: list[str] = []
    for depth in range(max(map(len, paths), default=0), 0, -1):
        layer_names = [".".join(path[:depth]) for path in paths]
        if len(set(layer_names)) <= max_layers:
            return layer_names
    kept = set(list(dict.fromkeys(layer_names))[: max_layers - 1])
    return [name if name in kept else REST for name in layer_names]
