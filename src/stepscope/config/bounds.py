"""States what a number or a text must be like, beside its type."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True)
class Range:
    """The smallest and the largest value allowed; None leaves that side open.

    The checker (pydantic) asks for the schema below by its name, so that this module, which
    training processes import, needs the standard library alone. Numbers are strict: `true` and
    `"5"` are not numbers, and neither are NaN and infinity.
    """

    low: float | None = None
    high: float | None = None

    def __get_pydantic_core_schema__(
        self, source: Any, handler: Callable[[Any], dict[str, Any]]
    ) -> dict[str, Any]:
        schema = {**handler(source), "strict": True}
        if self.low is not None:
            schema["ge"] = self.low
        if self.high is not None:
            schema["le"] = self.high
        if schema["type"] == "float":
            schema["allow_inf_nan"] = False
        return schema


@dataclass(frozen=True)
class Form:
    """A pattern a text must match, and the words for it."""

    pattern: str
    words: str

    def __get_pydantic_core_schema__(
        self, source: Any, handler: Callable[[Any], dict[str, Any]]
    ) -> dict[str, Any]:
        return {**handler(source), "pattern": self.pattern}
