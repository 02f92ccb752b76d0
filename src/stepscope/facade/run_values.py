"""`run.config` and `run.summary`: dictionaries with attribute access that record what is set in them."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stepscope.facade.not_kept import guard
from stepscope.guard import shown
from stepscope.recorder.identity.params import parts_of
from stepscope.recorder.values import as_number, is_on_device

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SUB_PACKAGE = "stepscope.config"


class AttributeDict(dict[str, Any]):
    """A dictionary whose entries are attributes, too; each change is passed to a function.

    A copy, also a deep or pickled one, is not connected to the run.
    """

    _on_change: Callable[[dict[str, Any]], None] | None = None

    def __init__(
        self,
        entries: Mapping[str, Any] | None = None,
        on_change: Callable[[dict[str, Any]], None] | None = None,
    ) -> None:
        super().__init__(entries or {})
        object.__setattr__(self, "_on_change", on_change)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name not in self:
            raise AttributeError(
                f"There is no {name!r} in it; it has: {', '.join(map(str, self)) or 'nothing'}"
            )
        return self[name]

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value

    def __setitem__(self, name: str, value: Any) -> None:
        self._change({name: value})

    def update(self, *entries: Any, **more: Any) -> None:
        """Sets several entries, from a mapping, an argparse.Namespace or a dataclass."""
        # wandb's `allow_val_change` is accepted: a later value always replaces an earlier one.
        more.pop("allow_val_change", None)
        # The second positional argument of wandb is the same switch.
        self._change({**understood(entries[0] if entries else {}), **more})

    def setdefaults(self, entries: Any) -> None:
        """Sets the entries that have no value yet."""
        self._change({name: value for name, value in understood(entries).items() if name not in self})

    def setdefault(self, name: str, default: Any = None) -> Any:
        """The value of an entry, which is set if it has none."""
        if name not in self:
            self[name] = default
        return self[name]

    def as_dict(self) -> dict[str, Any]:
        """The entries as a plain dictionary."""
        return dict(self)

    def persist(self) -> None:
        """Does nothing: every change is recorded immediately."""

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (dict(self),)

    def _change(self, entries: dict[str, Any]) -> None:
        super().update(entries)
        if self._on_change is not None and entries:
            self._on_change(entries)


class RunConfig(AttributeDict):
    """The hyper-parameters of a run.

    After `init` it is the attribute `stepscope.config`, too. That is also the name of a sub-package, whose
    modules stay reachable: `stepscope.config.find` is the module unless the run has a parameter `find`.
    """

    def __getattr__(self, name: str) -> Any:
        if name not in self and not name.startswith("__"):
            package = sys.modules.get(SUB_PACKAGE)
            if package is not None and hasattr(package, name):
                return getattr(package, name)
        return super().__getattr__(name)


class RunSummary(AttributeDict):
    """The newest value of each metric; what a user sets is recorded as the series `summary/<name>`."""

    def follow(self, metrics: Mapping[str, Any]) -> None:
        """Takes logged values; a number on a GPU is read when somebody asks for it."""
        super(AttributeDict, self).update(metrics)

    def __getitem__(self, name: str) -> Any:
        value = super().__getitem__(name)
        if is_on_device(value):
            value = as_number(value)
            super(AttributeDict, self).__setitem__(name, value)
        return value

    def get(self, name: str, default: Any = None) -> Any:
        """The newest value of a metric, or `default`."""
        try:
            return self[name]
        except KeyError:
            return default

    def items(self) -> Any:
        """Names and values."""
        return {name: self[name] for name in self}.items()

    def values(self) -> Any:
        """The values."""
        return {name: self[name] for name in self}.values()


def understood(source: Any) -> dict[str, Any]:
    """Names and values of a mapping, a namespace, a dataclass, the flags of absl or a YAML file.

    Anything else is empty, which is logged.
    """
    try:
        if callable(getattr(source, "flag_values_dict", None)):
            source = source.flag_values_dict()
        elif isinstance(source, str | os.PathLike):
            source = _from_yaml(source)
        parts = () if source is None else parts_of(source)
        if parts is not None:
            return {str(name): value for name, value in parts}
        reason = "expected a mapping of names to values, a namespace, a dataclass or the path of a YAML file"
    except Exception as error:  # noqa: BLE001 - users may pass anything, training goes on
        reason = f"it cannot be read ({shown(error)})"
    guard.warn_once("config", f"config is {shown(source)}; {reason}. Nothing of it was recorded.")
    return {}


def _from_yaml(path: str | os.PathLike[str]) -> Any:
    """The parameters of a file; those of W&B's own files are inside `value`."""
    import yaml  # lazy: few scripts keep their parameters in a file

    entries = yaml.safe_load(Path(path).read_text(encoding="utf-8")) or {}
    return {
        name: entry["value"] if isinstance(entry, dict) and "value" in entry else entry
        for name, entry in entries.items()
        if name != "wandb_version"
    }


def flattened(metrics: Mapping[Any, Any], prefix: str = "", depth: int = 8) -> Iterator[tuple[str, Any]]:
    """The entries of nested mappings, with a dot between the names, as W&B writes them."""
    for key, value in metrics.items():
        if isinstance(value, Mapping) and depth:
            yield from flattened(value, f"{prefix}{key}.", depth - 1)
        else:
            yield f"{prefix}{key}", value
