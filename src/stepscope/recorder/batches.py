"""What `TrainingMonitor.batches` returns: the same data loader, with its passes timed."""

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
        return len(self._loader)  # type: ignore[arg-type]  # raises if the loader has no length

    def __getattr__(self, name: str) -> Any:
        """Other attributes of the loader, such as `dataset` and `set_epoch`."""
        if name == "_loader":  # not set yet, as while it is copied
            raise AttributeError(name)
        return getattr(self._loader, name)

    def __iter__(self) -> Iterator[Batch_co]:
        return self._time_pass(iter(self._loader))


def timed(loader: Iterable[Batch_co], time_pass: TimePass) -> Batches[Batch_co]:
    """The loader with its passes timed; a `DataLoader` stays one, because trainers check for it."""
    data = sys.modules.get("torch.utils.data")
    if data is not None and issubclass(type(loader), data.DataLoader):
        with contextlib.suppress(Exception):  # a class that cannot be subclassed in this way is wrapped
            return cast("Batches[Batch_co]", _timed_loader(loader, time_pass))
    return Batches(loader, time_pass)


def _timed_loader(loader: Any, time_pass: TimePass) -> Any:
    """The same loader with a subclass of its class; both objects share all attributes.

    Trainers recreate loaders from the class and attributes of one, for instance with another sampler; such a
    loader is timed as well. A copy or pickle is a plain loader: the subclass cannot be pickled.
    """
    kind = type(loader)
    if any(getattr(base, "__slots__", ()) for base in kind.__mro__):
        raise TypeError(f"{kind.__name__} keeps attributes in slots, which cannot be shared")

    def __iter__(self: Any) -> Iterator[Any]:  # noqa: N807
        return time_pass(iter(kind.__iter__(self)))

    def __reduce_ex__(self: Any, protocol: Any) -> Any:  # noqa: N807
        make, arguments, *rest = _with_class(kind, self).__reduce_ex__(protocol)
        return (
            _call,
            (make, arguments),
            *rest,
        )  # pickle refuses to create another class than that of the object

    derive: Any = type(kind)
    members = {"__iter__": __iter__, "__reduce_ex__": __reduce_ex__, "__module__": kind.__module__}
    return _with_class(derive(kind.__name__, (kind,), members), loader)


def _with_class(kind: type, loader: Any) -> Any:
    """An object of another class that shares the attributes of a loader."""
    other: Any = object.__new__(kind)
    object.__setattr__(other, "__dict__", loader.__dict__)
    return other


def _call(make: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    return make(*arguments)
