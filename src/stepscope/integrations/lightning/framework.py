"""Makes callbacks and loggers belong to the Lightning package that a program uses.

Lightning is published as `lightning.pytorch` and as `pytorch_lightning`. Each has its own `Callback` and its
own `Logger`, and either may be imported before stepscope or after it. So the class of an object is completed
when the object is created: it then derives from the classes of all packages that are imported by then.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import sys
import types
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from stepscope.config.find import is_disabled
from stepscope.errors import MissingExtra, RecorderError
from stepscope.guard import Guard, shown

if TYPE_CHECKING:
    from collections.abc import Callable

PACKAGES = ("lightning.pytorch", "pytorch_lightning")

Hook = TypeVar("Hook", bound="Callable[..., Any]")

_completed: dict[tuple[type, ...], type] = {}
"""The completed class of each class and the classes of Lightning that it derives from."""


if TYPE_CHECKING:
    AnyClass: Any = object  # so that type checkers accept an object as a Callback of either package
else:
    AnyClass = object


class LightningObject(AnyClass):  # type: ignore[misc]  # for the same reason
    """A callback or logger that can be given to the trainer of any Lightning package."""

    lightning_base: ClassVar[tuple[str, str]]
    """The module within a Lightning package, and the class there, that an object derives from."""

    def __new__(cls, *_: Any, **__: Any) -> Any:
        """Creates an object of the completed class."""
        return object.__new__(completed(cls))

    def __reduce__(self) -> Any:
        """Pickles the object with its own class: a process that unpickles it may use another package."""
        kind = next(kind for kind in type(self).__mro__ if "_is_completed" not in vars(kind))
        return _create, (kind,), self.state_to_pickle()

    def state_to_pickle(self) -> dict[str, Any]:
        """The attributes that a copy of the object gets."""
        return dict(vars(self))


class LightningCallback(LightningObject):
    """A callback whose failures are logged once and never stop a training."""

    lightning_base = ("callbacks", "Callback")

    def __init__(self, *, enabled: bool = True) -> None:
        self._guard = Guard(strict=False)
        self._is_on = enabled and not is_disabled()


def guarded(hook: Hook) -> Hook:
    """Makes a hook of a callback do nothing if it is off, and log its failures instead of raising them."""

    @functools.wraps(hook)
    def call(self: LightningCallback, *arguments: Any, **options: Any) -> None:
        if self._is_on:
            try:
                hook(self, *arguments, **options)
            except RecorderError:
                raise  # of a monitor with `strict=True`
            except Exception as error:  # noqa: BLE001 - training goes on whatever happens here
                what = f"{type(self).__name__}.{hook.__name__}"
                self._guard.complain(what, f"{what} failed: {shown(error)}", error)

    return call  # type: ignore[return-value]  # the same signature


def completed(kind: type[LightningObject]) -> type:
    """The class, derived from the classes of all Lightning packages in use; raises MissingExtra."""
    module_name, class_name = kind.lightning_base
    bases = [
        getattr(importlib.import_module(f"{package}.{module_name}"), class_name)
        for package in packages_in_use(kind.__name__)
    ]
    bases = [base for base in bases if not issubclass(kind, base)]
    if not bases:
        return kind
    key = (kind, *bases)
    if key not in _completed:
        names = {"__module__": kind.__module__, "__qualname__": kind.__qualname__, "__doc__": kind.__doc__}
        _completed[key] = types.new_class(
            kind.__name__, key, exec_body=lambda body: body.update({**names, "_is_completed": True})
        )
    return _completed[key]


def packages_in_use(needed_for: str) -> list[str]:
    """The Lightning packages that are imported; all that are installed, if none is imported yet."""
    imported = [name for name in PACKAGES if hasattr(sys.modules.get(name), "Trainer")]
    if imported:
        return imported
    installed = [name for name in PACKAGES if _is_installed(name)]
    if not installed:
        raise MissingExtra("lightning", needed_for)
    return installed


def _is_installed(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except (ImportError, ValueError):  # the folder above it is missing, or is blocked in sys.modules
        return False


def _create(kind: type[LightningObject]) -> Any:
    return kind.__new__(kind)
