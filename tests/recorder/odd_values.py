"""Values that break whoever touches them: what training code hands over by mistake."""

from __future__ import annotations

import decimal
import fractions
import itertools
import math
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch


class RaisesAtAll:  # noqa: PLW1641 - it has one, which raises
    """Every way to look at it raises."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(name)

    def __float__(self) -> float:
        raise RecursionError("float")

    __int__ = __index__ = __bool__ = __len__ = __iter__ = __hash__ = __float__  # type: ignore[assignment]

    def __str__(self) -> str:
        raise ValueError("str")

    __repr__ = __str__

    def __eq__(self, other: object) -> bool:
        raise TypeError("eq")


class HasNoClass:
    """Even `isinstance` raises."""

    @property  # type: ignore[misc]
    def __class__(self) -> type:  # type: ignore[override]
        raise RuntimeError("class")


class Overflows:
    def __float__(self) -> float:
        raise OverflowError("too large")


class BrokenMapping(Mapping[str, Any]):
    """A mapping that gives some names, and raises for the rest."""

    def __getitem__(self, name: str) -> Any:
        if name == "bad":
            raise RuntimeError("no value")
        return 1.0

    def __iter__(self) -> Iterator[str]:
        yield "good"
        yield "bad"
        raise OSError("no more names")

    def __len__(self) -> int:
        raise RuntimeError("no length")


class RaisingKey:
    def __hash__(self) -> int:
        return 7

    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


class Optimizer:
    """Has parameter groups of any kind."""

    def __init__(self, groups: Any) -> None:
        self.groups = groups

    @property
    def param_groups(self) -> Any:
        if isinstance(self.groups, Exception):
            raise self.groups
        return self.groups


def itself() -> dict[str, Any]:
    """A mapping that holds itself, and a list that does."""
    loop: dict[str, Any] = {"loss": 1.0}
    ring: list[Any] = []
    ring.append(ring)
    loop.update(again=loop, ring=ring)
    return loop


def odd_values() -> list[Any]:
    """A fresh one of each kind."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of some kinds of tensors
        quantised = torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8)
        sparse = torch.ones(2, 2).to_sparse()
    return [
        None, 5, -1, 2**70, 10**5000, True, 1j, math.nan, math.inf,
        "abc", "", "\ud800\0", b"bytes", "x" * 100_000,
        decimal.Decimal("sNaN"), decimal.Decimal("1e400"), fractions.Fraction(10**400, 3),
        object(), object, print, RaisesAtAll(), HasNoClass(), Overflows(), BrokenMapping(), itself(),
        {"a": {"b": {1: 2}}}, {RaisingKey(): 1.0},
        {("a", 1): 2, None: 3, b"k": 4, "n" * 50_000: 5, "\ud800\0": 6},
        {1, 2}, [1, [2, [3]]], ["text"], (i for i in range(3)), itertools.count(), range(5), iter([1]),
        np.float32(1.5), np.array([]), np.array(["a"]), np.array([1 + 2j]),
        np.array([None, {}], dtype=object), np.zeros(3, dtype=[("a", "f8")]), np.datetime64("2020-01-01"),
        np.ma.masked, np.zeros((200, 200)),
        torch.tensor(1.0, requires_grad=True), torch.ones(3, requires_grad=True),
        torch.ones(2, dtype=torch.bfloat16), torch.tensor(2, device="meta"), sparse, torch.tensor(1j),
        torch.empty(0), quantised, torch.nn.Linear(1, 1),
        Optimizer([]), Optimizer(5), Optimizer([5]), Optimizer([{}]), Optimizer(RuntimeError("no groups")),
        Optimizer(np.ones(3)), ValueError("an exception"), Exception, NotImplemented, ..., memoryview(b"abc"),
    ]  # fmt: skip
