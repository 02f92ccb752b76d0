"""Finds the members of a plug-in folder: one file each, there or in a folder within, and other packages'."""

from __future__ import annotations

import functools
import importlib
import inspect
import pkgutil
from importlib.metadata import EntryPoint, distributions
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

from stepscope.errors import NotFound, StepscopeError

if TYPE_CHECKING:
    from collections.abc import Mapping

Member = TypeVar("Member")

_PLAIN_TYPES: Mapping[str, tuple[Any, str]] = {
    "str": (str, "text"),
    "int": (int, "a whole number"),
    "float": ((int, float), "a number"),
    "bool": (bool, "true or false"),
}
"""Types of constructor arguments that are checked; members check other types themselves."""


def names(folder: str) -> list[str]:
    """The names of the members of a folder such as `samplers`, sorted; none is imported."""
    return sorted({*_own_modules(folder), *(point.name for point in _entry_points(folder))})


def load(folder: str, name: str, base: type[Member]) -> type[Member]:
    """The class of a member; a file in the folder takes precedence over another package's member."""
    path = _own_modules(folder).get(name, f"stepscope.{folder}.{name}")
    try:
        module = importlib.import_module(path)
    except ModuleNotFoundError as error:
        if error.name != path:
            raise
        return _load_entry_point(folder, name, base)
    members: list[type[Member]]
    members = [
        candidate for candidate in vars(module).values() if _is_member(candidate, base, module.__name__)
    ]
    if len(members) != 1:
        raise StepscopeError(
            f"{module.__name__} defines {len(members)} classes of the kind {base.__name__}; a member has one."
        )
    return members[0]


def make(
    folder: str,
    name: str,
    base: type[Member],
    options: Mapping[str, object],
    context: Mapping[str, object] = MappingProxyType({}),
) -> Member:
    """Creates a member with options from the settings, and with those values of `context` that it accepts.

    Raises StepscopeError for an unknown option.
    """
    kind = load(folder, name, base)
    check_options(folder, name, kind, options)
    parameters = inspect.signature(kind).parameters
    try:
        set_options = {option: value for option, value in options.items() if value is not None}
        return kind(**set_options, **{name: value for name, value in context.items() if name in parameters})
    except TypeError as error:
        raise StepscopeError(f"{folder}.{name} cannot be made with these options: {error}.") from error


def check_options(folder: str, name: str, kind: type, options: Mapping[str, object]) -> None:
    """Raises StepscopeError for an unknown option, or a missing required one."""
    parameters = inspect.signature(kind).parameters
    known = {parameter: about for parameter, about in parameters.items() if not parameter.startswith("_")}
    for option, value in options.items():
        if option not in known:
            raise StepscopeError(
                f"{folder}.{name} has no option {option!r}; it has: {', '.join(known) or 'none'}."
            )
        kinds, words = _PLAIN_TYPES.get(str(known[option].annotation), (object, ""))
        if value is None:
            continue  # counts as not given
        if not isinstance(value, kinds) or (isinstance(value, bool) and kinds not in (bool, object)):
            # Without the value: a misplaced value may be a secret.
            raise StepscopeError(f"{folder}.{name}.{option} is {_type_of(value)}; it must be {words}.")
    for option, about in known.items():
        if about.default is inspect.Parameter.empty and option not in options:
            raise StepscopeError(f"{folder}.{name} needs the option {option!r}.")


def _type_of(value: object) -> str:
    """The type of a value in the words of settings."""
    if isinstance(value, bool):
        return "true or false"
    words = {str: "text", int: "a number", float: "a number", list: "a list", dict: "a section"}
    return words.get(type(value), type(value).__name__)


def _own_modules(folder: str) -> dict[str, str]:
    """The modules of a folder and of the folders within it, by their names."""
    package = importlib.import_module(f"stepscope.{folder}")
    return _modules_at(package.__name__, tuple(package.__path__))


@functools.cache
def _modules_at(package: str, package_places: tuple[str, ...]) -> dict[str, str]:
    """The same, listed once: a list of runs makes all detectors for each live run."""
    modules = {}
    for module in pkgutil.iter_modules(package_places, f"{package}."):
        places = [f"{place}/{module.name.rpartition('.')[2]}" for place in package_places]
        inside = pkgutil.iter_modules(places, f"{module.name}.") if module.ispkg else [module]
        modules.update({member.name.rpartition(".")[2]: member.name for member in inside})
    return {name: path for name, path in modules.items() if name != "base"}


def _is_member(candidate: object, base: type, module: str) -> bool:
    return inspect.isclass(candidate) and issubclass(candidate, base) and candidate.__module__ == module


def _load_entry_point(folder: str, name: str, base: type[Member]) -> type[Member]:
    for point in _entry_points(folder):
        if point.name == name:
            member: type[Member] = point.load()
            if inspect.isclass(member) and issubclass(member, base):
                return member
            raise StepscopeError(f"{point.value} is not a {base.__name__}; it was installed as {name!r}.")
    raise NotFound(f"There is no {name!r} in {folder}; there are: {', '.join(names(folder))}")


def _entry_points(folder: str) -> list[EntryPoint]:
    return [point for point in _installed_entry_points() if point.group == f"stepscope.{folder}"]


@functools.cache
def _installed_entry_points() -> list[EntryPoint]:
    """The entry points of all packages, read once: that opens a file of every installed package."""
    return [point for distribution in distributions() for point in distribution.entry_points]
