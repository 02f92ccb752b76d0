"""The syntax tree of a condition; it can be compared, hashed and written as text."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from typing import NamedTuple

from stepscope.alerts.conditions.lexer import NAME

RESERVED = frozenset({"and", "or", "not", "baseline", "status"})
"""Words that are not metric names unless they are in backquotes."""

_PLAIN = re.compile(NAME)
_DIVISOR = re.compile(r"[0-9][0-9.]*(?:e[0-9]+)?")
LEVELS = {"or": 1, "and": 2, "not": 3, "<": 4, "+": 5, "-": 5, "*": 6, "/": 6, "negative": 7, "single": 8}
"""Precedence of each kind of expression; a higher level binds tighter."""


class Reach(NamedTuple):
    """How much of the history of a metric a condition needs."""

    seconds: float
    points: int


@dataclass(frozen=True)
class Window:
    """The newest points of a series: those of the last seconds, or a number of points."""

    seconds: float | None = None
    points: int | None = None

    def __str__(self) -> str:
        if self.seconds is None:
            return f"{self.points} points"
        for unit, seconds in (("h", 3600), ("m", 60)):
            if self.seconds >= seconds and self.seconds % seconds == 0:
                return f"{int(self.seconds // seconds)}{unit}"
        return f"{plain_number(self.seconds)}s"


class Expression:
    """A condition, or a part of one."""

    level = LEVELS["single"]
    is_truth = False
    """Whether its value is true or false rather than a number."""

    @property
    def parts(self) -> tuple[Expression, ...]:
        """Its operands, in order."""
        return ()

    @functools.cached_property
    def depth(self) -> int:
        """Its nesting depth."""
        return 1 + max((part.depth for part in self.parts), default=0)

    @functools.cached_property
    def names(self) -> tuple[tuple[Name, Window | None], ...]:
        """All metrics in it with their windows."""
        return tuple(name for part in self.parts for name in part.names)

    @functools.cached_property
    def metrics(self) -> tuple[Name, ...]:
        """Its metrics, each once, in order."""
        return tuple(dict.fromkeys(name for name, _ in self.names))

    @functools.cached_property
    def keys(self) -> tuple[str, ...]:
        """The names of all its metrics, each once, in order."""
        return tuple(dict.fromkeys(key for name in self.metrics for key in name.either))

    @functools.cached_property
    def depends_on_time(self) -> bool:
        """Whether its value may change without a new point: it has a window of seconds, or an age."""
        return any(part.depends_on_time for part in self.parts)

    def reach(self) -> dict[str, Reach]:
        """Returns the longest window it needs of each metric, in seconds and in points."""
        longest: dict[str, Reach] = {}
        for name, window in self.names:
            seconds = (window.seconds if window else None) or 0.0
            points = (window.points if window else None) or 1
            for key in name.either:
                known = longest.get(key, Reach(0.0, 1))
                longest[key] = Reach(max(known.seconds, seconds), max(known.points, points))
        return longest

    def _within(self, part: Expression, *, is_right: bool = False) -> str:
        """Writes an operand, in parentheses if precedence requires them."""
        needs = part.level < self.level or (is_right and part.level == self.level)
        return f"({part})" if needs else str(part)


@dataclass(frozen=True)
class Number(Expression):
    """A number that is not negative, converted to base units."""

    value: float

    def __str__(self) -> str:
        return plain_number(self.value)


@dataclass(frozen=True)
class Name(Expression):
    """The last value of a metric; of several names, the first that has values."""

    either: tuple[str, ...]

    @functools.cached_property
    def names(self) -> tuple[tuple[Name, Window | None], ...]:
        """Itself."""
        return ((self, None),)

    def __str__(self) -> str:
        return "|".join(map(quoted, self.either))


@dataclass(frozen=True)
class Windowed(Expression):
    """A function over the newest points of a metric."""

    function: str
    name: Name
    window: Window | None = None

    @functools.cached_property
    def names(self) -> tuple[tuple[Name, Window | None], ...]:
        """Its metric."""
        return ((self.name, self.window),)

    @functools.cached_property
    def depends_on_time(self) -> bool:
        """Whether its window is in seconds, or it is an age."""
        return self.function == "age" or (self.window is not None and self.window.seconds is not None)

    def __str__(self) -> str:
        return f"{self.function}({self.name}{f', {self.window}' if self.window else ''})"


@dataclass(frozen=True)
class Baseline(Expression):
    """The level of a metric near the beginning of the run."""

    name: Name | None
    """None only while a condition is being parsed."""

    @functools.cached_property
    def names(self) -> tuple[tuple[Name, Window | None], ...]:
        """Its metric."""
        return () if self.name is None else ((self.name, None),)

    def __str__(self) -> str:
        return "baseline" if self.name is None else f"baseline({self.name})"


@dataclass(frozen=True)
class Of(Expression):
    """`abs`, `min` or `max` of numbers."""

    function: str
    arguments: tuple[Expression, ...]

    @property
    def parts(self) -> tuple[Expression, ...]:
        """The numbers."""
        return self.arguments

    def __str__(self) -> str:
        return f"{self.function}({', '.join(map(str, self.arguments))})"


@dataclass(frozen=True)
class Negative(Expression):
    """A number with its sign reversed."""

    operand: Expression
    level = LEVELS["negative"]

    @property
    def parts(self) -> tuple[Expression, ...]:
        """The number."""
        return (self.operand,)

    def __str__(self) -> str:
        return f"-{self._within(self.operand)}"


@dataclass(frozen=True)
class _Pair(Expression):
    operator: str
    left: Expression
    right: Expression

    @property
    def parts(self) -> tuple[Expression, ...]:
        """Both sides."""
        return self.left, self.right

    def __str__(self) -> str:
        return f"{self._within(self.left)} {self.operator} {self._within(self.right, is_right=True)}"


@dataclass(frozen=True)
class Arithmetic(_Pair):
    """Two numbers added, subtracted, multiplied or divided."""

    @property
    def level(self) -> int:  # type: ignore[override]
        """Precedence of its operator."""
        return LEVELS[self.operator]


@dataclass(frozen=True)
class Comparison(_Pair):
    """Two numbers compared."""

    level = LEVELS["<"]
    is_truth = True


@dataclass(frozen=True)
class Logic(_Pair):
    """Two conditions joined by `and` or `or`."""

    is_truth = True

    @property
    def level(self) -> int:  # type: ignore[override]
        """Precedence of its operator."""
        return LEVELS[self.operator]


@dataclass(frozen=True)
class Not(Expression):
    """The opposite of a condition."""

    operand: Expression
    level = LEVELS["not"]
    is_truth = True

    @property
    def parts(self) -> tuple[Expression, ...]:
        """The condition."""
        return (self.operand,)

    def __str__(self) -> str:
        return f"not {self.operand}" if isinstance(self.operand, Not) else f"not ({self.operand})"


@dataclass(frozen=True)
class StatusIs(Expression):
    """Whether the run has a status, or does not have it."""

    operator: str
    status: str
    level = LEVELS["<"]
    is_truth = True

    def __str__(self) -> str:
        return f'status {self.operator} "{self.status}"'


def quoted(key: str) -> str:
    """Writes a metric name for a condition, in backquotes if necessary."""
    is_plain = _PLAIN.fullmatch(key) and key not in RESERVED and not looks_divided(key)
    return key if is_plain else f"`{key.replace('`', '``')}`"


def looks_divided(key: str) -> bool:
    """Whether a name ends in a slash and something that is probably a divisor, not part of the name."""
    last = key.rpartition("/")[2]
    return "/" in key and (_DIVISOR.fullmatch(last) is not None or last in RESERVED)


def plain_number(value: float) -> str:
    """Writes a number in the fewest characters that represent it exactly."""
    return repr(value).removesuffix(".0")
