"""Finds the trainable parameters that get gradients and that no optimizer updates."""

from __future__ import annotations

import gc
import sys
import weakref
from typing import TYPE_CHECKING, Any, NamedTuple

from stepscope.model_stats.layers import plain_paths

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from stepscope.steps.memory.out_of_memory import WatchedObjects

MAX_NAMES = 5

MAX_GRADIENTS = 8
"""How many gradients are read to find out whether they are replaced at each step."""

SHARDED = frozenset({"DTensor", "DeepSpeedEngine", "FSDPModule", "FlatParameter", "FullyShardedDataParallel"})
"""Classes of modules and parameters whose values an optimizer may change through other tensors."""


class _Candidate(NamedTuple):
    """A parameter with a gradient that is in no known optimizer, as it was when it was first read."""

    name: str
    parameter: weakref.ref[Any]
    version: int
    gradient: weakref.ref[Any]
    gradient_version: int

    def is_updated_elsewhere(self) -> bool:
        """Whether something has changed it, or its gradient is no longer computed."""
        parameter: Any = self.parameter()
        gradient = None if parameter is None or not parameter.requires_grad else parameter.grad
        if gradient is None:
            return True
        # A gradient of a training that has ended stays as it is.
        versions: tuple[int, int] = parameter._version, gradient._version  # noqa: SLF001 - PyTorch's version counter
        is_stale = self.gradient() is gradient and versions[1] == self.gradient_version
        return is_stale or versions[0] != self.version


class ParameterUpdates:
    """Finds the trainable parameters that get gradients and that no optimizer updates.

    They are read twice, some steps apart. A parameter without a gradient does not count: it has no part in
    the loss, such as that of a target network.
    """

    def __init__(self, watched_objects: WatchedObjects) -> None:
        self._watched_objects = watched_objects
        self._optimizers: weakref.WeakSet[Any] = weakref.WeakSet()
        self._candidates: list[_Candidate] = []
        self._gradients: list[tuple[weakref.ref[Any], weakref.ref[Any], int]] = []
        """Some updated parameters, the gradient of each and its version, when they were first read."""
        self._trainable = 0
        self._has_trained_model = False
        self._confirmed: tuple[tuple[str, ...], dict[str, Any]] = ((), {})
        """The names of the last parameters that were not updated, and what was said of them."""
        self.has_begun = False
        """Whether the parameters have been read once."""

    def add(self, optimizer: Any) -> None:
        """Adds an optimizer that has stepped."""
        self._optimizers.add(optimizer)

    def forget(self) -> None:
        """Forgets the first reading."""
        self.has_begun = False
        self._candidates, self._gradients = [], []

    def begin(self) -> None:
        """Reads the parameters for the first time."""
        self.has_begun, self._trainable, self._has_trained_model = True, 0, False
        updated, is_anything_updated = parameter_ids(self.known_optimizers()), self._is_anything_updated()
        for model in self._watched_objects.models:
            named = [pair for pair in model.named_parameters() if pair[1].requires_grad]
            self._trainable += len(named)
            if is_anything_updated and not any(id(parameter) in updated for _, parameter in named):
                continue  # of another training, or updated through copies
            self._has_trained_model = True
            names = map(".".join, plain_paths([name for name, _ in named]))
            for name, (_, parameter) in zip(names, named, strict=True):
                # Only a leaf has a gradient; PyTorch warns where that of another tensor is read.
                gradient = parameter.grad if parameter.is_leaf else None
                if gradient is None:
                    continue
                versions = parameter._version, gradient._version  # noqa: SLF001 - PyTorch's version counter
                if id(parameter) not in updated:
                    self._candidates.append(
                        _Candidate(
                            name, weakref.ref(parameter), versions[0], weakref.ref(gradient), versions[1]
                        )
                    )
                elif len(self._gradients) < MAX_GRADIENTS:
                    self._gradients.append((weakref.ref(parameter), weakref.ref(gradient), versions[1]))

    def _is_anything_updated(self) -> bool:
        """Whether an optimizer has gradients: one of a replaced model has none, and changes nothing."""
        return any(parameter.grad is not None for parameter in _parameters(self.known_optimizers()))

    def kept_gradients(self, steps: int) -> dict[str, Any]:
        """How many of some gradients are still the same tensors, and how often a step changes them in place.

        A gradient that is not reset is added to at each backward pass; one that is set to None is replaced.
        """
        changes = []
        for parameter_ref, gradient_ref, version in self._gradients:
            parameter, gradient = parameter_ref(), gradient_ref()
            if parameter is not None and gradient is not None and parameter.grad is gradient:
                changes.append((gradient._version - version) / max(steps, 1))  # noqa: SLF001 - as above
        fields = {"tensors": len(self._gradients), "kept": len(changes)}
        return {"kept_gradients": {**fields, "changes_per_step": round(max(changes, default=0.0))}}

    def result(self) -> dict[str, Any]:
        """Reads them again, and returns the facts to record."""
        fields: dict[str, Any] = {"tensors": 0, "parameters": 0, "names": []}
        if not self._has_trained_model:
            fields = {"unknown": "no optimizer that steps has parameters of the model"}
        elif candidates := self._not_updated():
            names = tuple(candidate.name for candidate in candidates)
            if names != self._confirmed[0]:
                self._confirmed = names, self._examine(candidates)
            fields = self._confirmed[1]
        self.forget()
        return {"trainable_tensors": self._trainable, "not_updated": fields}

    def _examine(self, candidates: list[_Candidate]) -> dict[str, Any]:
        """Rules out other explanations; only here, because it takes longer than the check itself."""
        if any(is_sharded(model) for model in self._watched_objects.models):
            return {"unknown": "the parameters are sharded"}
        if self._elements_of_copies() >= _elements(candidate.parameter() for candidate in candidates):
            return {"unknown": "the optimizers change tensors that are not of the model, such as copies"}
        self._optimizers.update(_existing_optimizers())  # one may take its first step later
        candidates = self._not_updated()
        return {
            "tensors": len(candidates),
            "parameters": _elements(candidate.parameter() for candidate in candidates),
            "names": [candidate.name for candidate in candidates[:MAX_NAMES]],
        }

    def _not_updated(self) -> list[_Candidate]:
        updated = parameter_ids(self.known_optimizers())
        return [
            candidate
            for candidate in self._candidates
            if id(candidate.parameter()) not in updated and not candidate.is_updated_elsewhere()
        ]

    def trained_models(self) -> list[Any]:
        """The models of which an optimizer has parameters, unless an optimizer may have copies of them."""
        updated = parameter_ids(self.known_optimizers())
        return [
            model
            for model in self._watched_objects.models
            if any(id(parameter) in updated for parameter in model.parameters()) and not is_sharded(model)
        ]

    def known_optimizers(self) -> list[Any]:
        """The optimizers that have stepped, and those that were given with a model."""
        return [*self._optimizers, *self._watched_objects.optimizers]

    def _elements_of_copies(self) -> int:
        """Elements of the tensors with gradients that the optimizers change and that no watched model has."""
        own = {id(tensor) for model in self._watched_objects.models for tensor in model.parameters()}
        foreign = {id(tensor): tensor for tensor in _parameters(self.known_optimizers())}
        return _elements(
            tensor for key, tensor in foreign.items() if key not in own and tensor.grad is not None
        )


def _parameters(optimizers: Iterable[Any]) -> Iterator[Any]:
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            yield from group["params"]


def parameter_ids(optimizers: Iterable[Any]) -> set[int]:
    """The ids of all parameters that these optimizers have."""
    return set(map(id, _parameters(optimizers)))


def _elements(tensors: Iterable[Any]) -> int:
    return sum(tensor.numel() for tensor in tensors if tensor is not None)


def is_sharded(model: Any) -> bool:
    """Whether ranks hold different parts of a model's parameters."""
    objects = (*model.modules(), *model.parameters())
    return any(kind.__name__ in SHARDED for part in objects for kind in type(part).__mro__)


def _existing_optimizers() -> list[Any]:
    """All optimizers of the program."""
    optimizer = sys.modules["torch"].optim.Optimizer
    # By its type: the attribute `__class__` of an object of the user's own may run any code.
    return [candidate for candidate in gc.get_objects() if issubclass(type(candidate), optimizer)]
