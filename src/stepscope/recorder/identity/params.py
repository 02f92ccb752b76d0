"""Converts hyper-parameters of any type into plain data of limited size, and splits them into records."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import os
import sys
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any

from stepscope.errors import ConfigError
from stepscope.guard import shown
from stepscope.schema.redact import redact_mapping, redact_start

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_ENTRIES = 10_000
MAX_DEPTH = 16
MAX_TEXT = 1_000
MAX_NAME = 200
MAX_LIST_BYTES = 16_000
"""Longer lists are kept as text, because a list must fit into one record."""
MAX_BITS = 1_024
"""Larger integers are kept as text, because JSON readers cannot parse them."""

RECORD_BYTES = 32_000
"""Fits into the smallest journal file."""

EXPECTED = "expected a mapping of names to values, a dataclass or an argparse.Namespace"

_LEFT_OUT = "…"


def params_argument(params: object) -> PlainParams | None:
    """Checks the argument `params`; None if there are none. Raises ConfigError."""
    if params is None:
        return None
    try:
        return PlainParams(params)
    except TypeError as error:
        raise ConfigError(f"argument: {error}") from None


class PlainParams:
    """Hyper-parameters as dicts, lists, text, numbers, booleans and None.

    Raises TypeError for an object without names. Values of other types become text, and are listed in
    `converted`.
    """

    def __init__(self, params: object) -> None:
        self._left = MAX_ENTRIES
        self._inside: list[int] = []
        self.converted: list[str] = []
        """Values that were converted to text, such as `model (<class 'Net'>)`."""
        try:
            parts = parts_of(params)
        except Exception:  # noqa: BLE001 - an object of the user's own may raise anything
            parts = None
        if parts is None:
            raise TypeError(f"params is {shown(params)}; {EXPECTED}.")
        self.nested: dict[str, Any] = self._mapping(params, parts, "")

    def complaints(self) -> Iterator[tuple[str, str]]:
        """Warnings about the parameters: a topic and a sentence each."""
        if self.converted:
            more = f" and {len(self.converted) - 3} more" if len(self.converted) > 3 else ""
            listed = f"{', '.join(self.converted[:3])}{more}"
            yield "odd params", f"Hyper-parameters that are not plain values were recorded as text: {listed}."
        if self._left < 0:
            yield (
                "many params",
                f"Only the first {MAX_ENTRIES:,} hyper-parameters were recorded, the most allowed.",
            )

    def records(self) -> Iterator[dict[str, Any]]:
        """The parameters in nested pieces, each small enough for one record; readers merge them."""
        if len(json.dumps(self.nested)) <= RECORD_BYTES:
            yield from [self.nested] if self.nested else []
            return
        # Redacted before splitting: names and values together identify secrets.
        nested = redact_mapping(self.nested)
        piece: dict[str, Any] = {}
        room = RECORD_BYTES
        for path, value in _leaves(nested, ()):
            size = len(json.dumps([path, value]))
            if size > room and piece:
                yield piece
                piece, room = {}, RECORD_BYTES
            room -= size
            node = piece
            for name in path[:-1]:
                node = node.setdefault(name, {})
            node[path[-1]] = value
        if piece:
            yield piece

    def _mapping(self, source: object, parts: Iterable[tuple[Any, Any]], path: str) -> dict[str, Any]:
        self._inside.append(id(source))
        entries: dict[str, Any] = {}
        for key, value in parts:
            name = _name(key)
            self._left -= 1
            if self._left < 0:
                break
            entries[name] = self._value(value, f"{path}{name}")
        self._inside.pop()
        return entries

    def _value(self, value: Any, path: str) -> Any:
        try:
            return self._plain(value, path)
        except Exception:  # noqa: BLE001 - a value's own methods may raise anything
            return self._as_text(value, path)

    def _plain(self, value: Any, path: str) -> Any:
        if value is None or isinstance(value, bool | float):
            return value
        if isinstance(value, str | os.PathLike):
            return _cut(os.fspath(value))
        if isinstance(value, int) and value.bit_length() <= MAX_BITS:
            return int(value)
        if isinstance(value, int) or id(value) in self._inside or len(self._inside) >= MAX_DEPTH:
            return self._as_text(value, path)
        parts = parts_of(value)
        if parts is not None:
            return self._mapping(value, parts, f"{path}.")
        return self._list_or_text(value, path)

    def _list_or_text(self, value: Any, path: str) -> Any:
        if getattr(value, "is_cuda", False) is True:
            return self._as_text(value, path)  # reading it would wait for the GPU
        if hasattr(value, "tolist"):  # an array, a tensor, or a scalar of such a library
            if math.prod(getattr(value, "shape", ())) > MAX_LIST_BYTES:
                return self._as_text(value, path)
            value = value.tolist()
            if value is None or isinstance(value, bool | int | float | str):
                return self._plain(value, path)
        if not isinstance(value, Sequence | Set) or isinstance(value, bytes | bytearray):
            return self._as_text(value, path)
        self._inside.append(id(value))
        parts = []
        for number, part in enumerate(itertools.islice(value, max(self._left, 0))):
            self._left -= 1
            parts.append(self._value(part, f"{path}[{number}]"))
        self._inside.pop()
        if len(json.dumps(parts)) > MAX_LIST_BYTES:
            return self._as_text(value, path)
        return parts

    def _as_text(self, value: Any, path: str) -> str:
        short = shown(value)
        self.converted.append(f"{path} ({short})")
        try:
            text = short if isinstance(value, list | dict | tuple | int) else str(value)
        except Exception:  # noqa: BLE001 - a value's own text may raise anything
            text = short
        return _cut(text)


def parts_of(value: Any) -> Iterable[tuple[Any, Any]] | None:
    """Names and values of an object that has them; None for anything else."""
    if isinstance(value, type):
        return None
    if dataclasses.is_dataclass(value):
        names = [field.name for field in dataclasses.fields(value)]
        return ((name, _read_value(getattr, value, name)) for name in names)
    namespace = getattr(sys.modules.get("argparse"), "Namespace", ())
    if isinstance(value, (namespace, type(sys.implementation))):
        return list(vars(value).items())
    for method in ("_asdict", "model_dump"):  # named tuples, and the models of pydantic
        if callable(getattr(value, method, None)):
            value = getattr(value, method)()
    if isinstance(value, Mapping) or (hasattr(value, "keys") and hasattr(value, "__getitem__")):
        return ((key, _read_value(lambda held, name: held[name], value, key)) for key in list(value.keys()))
    return None


def _read_value(get: Any, holder: Any, name: Any) -> Any:
    """The value of a name; a placeholder text if reading it raises, as for a missing configuration value."""
    try:
        return get(holder, name)
    except Exception as error:  # noqa: BLE001 - a mapping of the user's own may raise anything
        return f"<no value: {type(error).__name__}>"


def _name(key: Any) -> str:
    try:
        name = key if isinstance(key, str) else str(key)
    except Exception:  # noqa: BLE001 - a key's own text may raise anything
        name = shown(key)
    return name if len(name) <= MAX_NAME else f"{name[: MAX_NAME - 1]}{_LEFT_OUT}"


def _cut(text: str) -> str:
    return str(text) if len(text) <= MAX_TEXT else redact_start(str(text), MAX_TEXT)


def _leaves(nested: Mapping[str, Any], above: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, value in nested.items():
        if isinstance(value, dict) and value:
            yield from _leaves(value, (*above, name))
        else:
            yield (*above, name), value
