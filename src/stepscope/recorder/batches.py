"""What `TrainingMonitor.batches` gives: a loader like the one it was handed, whose passes are timed."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, TypeVar, cast

Batch_co = TypeVar("Batch_co", covariant=True)
TimePass = Callable[[Iterator[Any]], Iterator[Any]]


class Batches(Generic[Batch_co]):
    """A data loader whose batches are steps; each pass over it is an epoch."""

    def __init__(self, loader: Iterable[Batch_co], time_pass: TimePass) -> None:
        self._loader, self._time_pass = loader, time_pass

    def __len__(self) -> int:
        return len(self._loader)  # type: ignore[arg-type]  # as the loader does, this raises if it must

    def __getattr__(self, name: str) -> Any:
        """What else a loader is asked for by those who are handed this one: its dataset, `set_epoch`."""
        if name == "_loader":  # before there is one, as when it is copied
            raise AttributeError(name)
        return getattr(self._loader, name)

    def __iter__(self) -> Iterator[Batch_co]:
        return self._time_pass(iter(self._loader))


def timed(loader: Iterable[Batch_co], time_pass: TimePass) -> Batches[Batch_co]:
    """The loader with its passes timed: a `DataLoader` still where it is one, as trainers ask for that."""
    data = sys.modules.get("torch.utils.data")
    if data is not None and issubclass(type(loader), data.DataLoader):
        with contextlib.suppress(Exception):  # a class that cannot be derived from in this way is wrapped
            return cast("Batches[Batch_co]", _timed_loader(loader, time_pass))
    return Batches(loader, time_pass)


def _timed_loader(loader: Any, time_pass: TimePass) -> Any:
    """The same loader under a class of its own: they share all attributes, whoever sets them.

    Trainers make loaders anew from the class and the attributes of one, with another sampler for instance;
    such a loader is timed as well. A copy is a plain loader: a worker or a file cannot take our class along.
    """
    kind = type(loader)
    if any(getattr(base, "__slots__", ()) for base in kind.__mro__):
        raise TypeError(f"{kind.__name__} keeps attributes in slots, which cannot be shared")

    def __iter__(self: Any) -> Iterator[Any]:  # noqa: N807
        return time_pass(iter(kind.__iter__(self)))

    def __reduce_ex__(self: Any, protocol: Any) -> Any:  # noqa: N807
        make, arguments, *rest = _with_class(kind, self).__reduce_ex__(protocol)
        return _made, (make, arguments), *rest  # pickle refuses to make another class than that of the object

    derive: Any = type(kind)
    members = {"__iter__": __iter__, "__reduce_ex__": __reduce_ex__, "__module__": kind.__module__}
    return _with_class(derive(kind.__name__, (kind,), members), loader)


def _with_class(kind: type, loader: Any) -> Any:
    """An object of another class with the attributes of a loader: the same ones, not a copy of them."""
    other: Any = object.__new__(kind)
    object.__setattr__(other, "__dict__", loader.__dict__)
    return other


def _made(make: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    return make(*arguments)
