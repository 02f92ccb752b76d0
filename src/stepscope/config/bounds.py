"""Constraints on numbers and texts, in addition to their type."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True)
class Range:
    """The smallest and the largest value allowed, or a number to exceed; None for no limit on that side.

    Pydantic finds the schema method below by its name, so this module, which training processes import, needs
    only the standard library. Numbers are strict: `true`, `"5"`, NaN and infinity are not numbers.
    """

    low: float | None = None
    high: float | None = None
    above: float | None = None

    def __get_pydantic_core_schema__(
        self, source: Any, handler: Callable[[Any], dict[str, Any]]
    ) -> dict[str, Any]:
        schema = {**handler(source), "strict": True}
        if self.low is not None:
            schema["ge"] = self.low
        if self.above is not None:
            schema["gt"] = self.above
        if self.high is not None:
            schema["le"] = self.high
        if schema["type"] == "float":
            schema["allow_inf_nan"] = False
        return schema


@dataclass(frozen=True)
class Form:
    """A pattern a text must match, and its description."""

    pattern: str
    words: str

    def __get_pydantic_core_schema__(
        self, source: Any, handler: Callable[[Any], dict[str, Any]]
    ) -> dict[str, Any]:
        return {**handler(source), "pattern": self.pattern}
