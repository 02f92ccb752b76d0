"""Parses the condition of an alert rule, such as `median(step_seconds, 2m) > 1.5 * baseline`.

By hand: lark takes 0.1 s to load with a grammar for this and 130 µs for a condition instead of 80; its errors
list tokens ("Expected one of: PLUS, STAR, RPAR ...") where these say what to write.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepscope.alerts.conditions.lexer import COUNTS, SCALES, Cursor
from stepscope.alerts.conditions.tree import (
    RESERVED,
    Arithmetic,
    Baseline,
    Comparison,
    Expression,
    Logic,
    Name,
    Negative,
    Not,
    Number,
    Of,
    StatusIs,
    Window,
    Windowed,
    looks_divided,
)
from stepscope.config.reference import nearest
from stepscope.schema.notation import COMPARISONS, DURATIONS, scaled
from stepscope.schema.run import STATUSES

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from stepscope.alerts.conditions.lexer import Token
    from stepscope.errors import ConfigError

MAX_DEPTH = 50
"""Maximum nesting of a condition."""

LONGEST_S, MAX_POINTS = 7 * 86400.0, 100_000
"""Maximum size of a window, in seconds and in points."""

OVER_A_WINDOW = (
    "last", "first", "mean", "min", "max", "median", "p90", "p95", "p99", "sum", "count", "std", "delta",
    "rate", "slope", "nonfinite", "divergence", "recovery", "highest_before",
)  # fmt: skip
OF_A_METRIC = ("last", "age", "baseline", "start")
"""Functions that need no window."""
OF_NUMBERS = ("abs", "min", "max")
OTHER_NAMES = {"avg": "mean", "p50": "median"}
FUNCTIONS = (*dict.fromkeys((*OVER_A_WINDOW, *OF_A_METRIC, *OF_NUMBERS)), *OTHER_NAMES)


def parse(text: str) -> Expression:
    """Parses a condition; raises a ConfigError that points at the mistake."""
    return _Parser(text).whole()


def parse_window(text: str) -> Window:
    """Parses a window such as `90s` or `100 steps`."""
    return _Parser(text).whole_window()


def unknown_metrics(expression: Expression, known: Collection[str]) -> list[str]:
    """Returns a sentence for each metric of a condition that is not among the known ones."""
    sentences = []
    for name in expression.metrics:
        if not any(key in known for key in name.either):
            sentences += [_unknown_metric(key, known) for key in name.either]
    return sentences


def _unknown_metric(key: str, known: Collection[str]) -> str:
    slashes = [at for at, sign in enumerate(key) if sign == "/"]
    for at in slashes:
        left, right = key[:at], key[at + 1 :]
        if left in known and right in known:
            return f"There is no metric {key!r}; to divide, put spaces around the slash: {left} / {right}."
    similar = nearest(key, known)
    return f"There is no metric {key!r}" + (f"; did you mean {similar!r}?" if similar else " yet.")


class _Parser(Cursor):
    """A recursive descent parser: one method for each level of precedence, the lowest first."""

    _depth = 0

    def whole(self) -> Expression:
        at = self.token.at
        condition = self._truth(self._either(), at)
        self.expect_end("and, or, or the end")
        return condition

    def whole_window(self) -> Window:
        window = self._window()
        if window is None:
            raise self.expected("a duration such as 30s or 2m, or a number of points such as 100 points")
        self.expect_end("the end")
        return window

    def _either(self) -> Expression:
        return self._binary(("or",), self._both, Logic, self._truth)

    def _both(self) -> Expression:
        return self._binary(("and",), self._opposite, Logic, self._truth)

    def _opposite(self) -> Expression:
        if not self.is_next("not"):
            return self._comparison()
        self.take()
        at = self.token.at
        return self._built(Not(self._truth(self._deeper(self._opposite), at)))

    def _comparison(self) -> Expression:
        if self.is_next("status") or self.token.kind == "text":
            return self._status()
        at = self.token.at
        left = self._sum()
        if not self.is_next(*COMPARISONS):
            return left
        left = self._number(left, at)
        operator, at_right = self.take().text, self.token.at
        right = self._number(self._sum(), at_right)
        if self.is_next(*COMPARISONS):
            raise self.mistake(self.token.at, "Join two comparisons by and: 1 < x and x < 5.")
        left, right = self._with_baseline(left, right, at), self._with_baseline(right, left, at_right)
        return self._built(Comparison(operator, left, right))

    def _status(self) -> Expression:
        first = self.take()
        if not self.is_next("==", "!="):
            raise self.expected("== or != between status and a text")
        operator, second = self.take().text, self.token
        if {first.kind, second.kind} != {"name", "text"} or "status" not in (first.text, second.text):
            raise self.expected("status on one side and a text in quotes on the other")
        self.take()
        status = first if first.kind == "text" else second
        if status.text not in STATUSES:
            similar = nearest(status.text, STATUSES)
            rest = f"did you mean {similar!r}?" if similar else f"there are {', '.join(STATUSES)}."
            raise self.mistake(status.at, f"{status.text!r} is not a status; {rest}")
        return self._built(StatusIs(operator, status.text))

    def _sum(self) -> Expression:
        return self._binary(("+", "-"), self._product, Arithmetic, self._number)

    def _product(self) -> Expression:
        return self._binary(("*", "/"), self._signed, Arithmetic, self._number)

    def _signed(self) -> Expression:
        if not self.is_next("-"):
            return self._single()
        self.take()
        at = self.token.at
        return self._built(Negative(self._number(self._deeper(self._signed), at)))

    def _single(self) -> Expression:
        token = self.token
        if token.kind == "number":
            return self._plain_number()
        if self.accept("("):
            inner = self._deeper(self._either)
            self.demand(")", "a closing parenthesis")
            return inner
        if token.kind == "name" and self.is_call():
            return self._built(self._call(self.take()))
        if self.is_next("baseline"):
            self.take()
            return Baseline(None)
        if token.kind in ("name", "quoted"):
            return self._name()
        raise self.expected("a number, a metric name or a function")

    # Names, numbers and windows.

    def _name(self) -> Name:
        """Parses a metric name, or several separated by `|`."""
        keys = [self._key()]
        while self.accept("|"):
            keys.append(self._key())
        return Name(tuple(keys))

    def _key(self) -> str:
        token = self.token
        if token.kind == "quoted" and not token.text:
            raise self.mistake(token.at, "A name must have at least one character.")
        if token.kind == "name" and looks_divided(token.text):
            left, _, right = token.text.rpartition("/")
            raise self.mistake(
                token.at + len(left),
                f"{token.text!r} is read as one name, because the slash has no spaces around it. To divide, "
                f"write {left} / {right}; if it is a name, put it in backquotes.",
            )
        if token.kind != "quoted" and (token.kind != "name" or token.text in RESERVED):
            raise self.expected("a metric name")
        return self.take().text

    def _plain_number(self) -> Number:
        """Parses a number with or without a unit."""
        token = self.token
        if token.unit in COUNTS:
            raise self.mistake(token.at, "A number of points is a window: the second argument of a function.")
        self.take()
        return Number(_scaled(token))

    def _window(self) -> Window | None:
        """Parses a duration or a number of points; returns None if something else is next."""
        token = self.token
        if token.kind != "number" or not (token.unit in DURATIONS or token.unit in COUNTS):
            return None
        if token.unit in COUNTS:
            if not (token.value.is_integer() and 1 <= token.value <= MAX_POINTS):
                raise self.mistake(token.at, f"A window must have 1 to {MAX_POINTS:,} points.")
            self.take()
            return Window(points=int(token.value))
        seconds = _scaled(token)
        if not 0 < seconds <= LONGEST_S:
            raise self.mistake(token.at, f"A window must be longer than 0 and at most {LONGEST_S:.0f}s.")
        self.take()
        return Window(seconds=seconds)

    # Functions.

    def _call(self, token: Token) -> Expression:
        function = OTHER_NAMES.get(token.text, token.text)
        if function not in FUNCTIONS:
            similar = nearest(token.text, FUNCTIONS)
            rest = f"did you mean {similar}?" if similar else f"there are {', '.join(FUNCTIONS)}."
            raise self.mistake(token.at, f"There is no function {token.text!r}; {rest}")
        self.take()
        begin = self.mark()
        if function not in OF_NUMBERS or function in OVER_A_WINDOW:
            call = self._over_a_metric(function, must=function not in OF_NUMBERS)
            if call is not None:
                return call
            self.back_to(begin)
        return self._of_numbers(function, token)

    def _over_a_metric(self, function: str, *, must: bool) -> Expression | None:
        """Parses a function of a metric; returns None if it may be one of numbers (`must` is False)."""
        is_word = self.token.kind == "name" and self.token.text not in RESERVED and not self.is_call()
        if not must and not is_word and self.token.kind != "quoted":
            return None
        name, window = self._name(), None
        if function in OVER_A_WINDOW and self.accept(","):
            window = self._window()
            if window is None and must:
                raise self.expected("a window such as 2m or 100 points")
        if window is None and function not in OF_A_METRIC:
            if must:
                raise self.expected(f"a comma and a window, as in {function}({name}, 2m)")
            return None
        self.demand(")", "a closing parenthesis")
        return Baseline(name) if function == "baseline" else Windowed(function, name, window)

    def _of_numbers(self, function: str, token: Token) -> Expression:
        arguments = [self._argument()]
        while self.accept(","):
            arguments.append(self._argument())
        self.demand(")", "a comma or a closing parenthesis")
        if function == "abs" and len(arguments) != 1:
            raise self.mistake(token.at, "abs takes one number.")
        if function != "abs" and len(arguments) < 2:
            raise self.mistake(
                token.at,
                f"{function} takes a metric and a window, as in {function}(loss, 2m), or several numbers.",
            )
        return Of(function, tuple(arguments))

    def _argument(self) -> Expression:
        at = self.token.at
        return self._number(self._deeper(self._sum), at)

    # Helpers.

    def _binary(
        self,
        signs: tuple[str, ...],
        operand: Callable[[], Expression],
        joined: type[Arithmetic | Logic],
        checked: Callable[[Expression, int], Expression],
    ) -> Expression:
        at = self.token.at
        left = operand()
        while self.is_next(*signs):
            left = checked(left, at)
            sign, at_right = self.take().text, self.token.at
            left = self._built(joined(sign, left, checked(operand(), at_right)))
        return left

    def _deeper(self, part: Callable[[], Expression]) -> Expression:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise self._too_deep()
        expression = part()
        self._depth -= 1
        return expression

    def _built(self, expression: Expression) -> Expression:
        if expression.depth > MAX_DEPTH:
            raise self._too_deep()
        return expression

    def _too_deep(self) -> ConfigError:
        return self.mistake(self.token.at, f"A condition may be nested at most {MAX_DEPTH} levels deep.")

    def _truth(self, expression: Expression, at: int) -> Expression:
        if not expression.is_truth:
            raise self.mistake(at, "Expected a condition, not a number: compare it, as in loss > 2.")
        return expression

    def _number(self, expression: Expression, at: int) -> Expression:
        if expression.is_truth:
            raise self.mistake(at, "Expected a number, not a condition.")
        return expression

    def _with_baseline(self, side: Expression, other: Expression, at: int) -> Expression:
        """Replaces `baseline` without arguments by the baseline of the metric on the other side."""
        if isinstance(side, Baseline) and side.name is None:
            names = other.metrics
            if len(names) != 1:
                raise self.mistake(
                    at,
                    "baseline without arguments needs exactly one metric on the other side of the "
                    "comparison; name the metric, as in baseline(loss).",
                )
            return Baseline(names[0])
        if isinstance(side, Negative):
            return Negative(self._with_baseline(side.operand, other, at))
        if isinstance(side, Arithmetic):
            left, right = (self._with_baseline(part, other, at) for part in side.parts)
            return Arithmetic(side.operator, left, right)
        if isinstance(side, Of):
            return Of(side.function, tuple(self._with_baseline(part, other, at) for part in side.parts))
        return side


def _scaled(token: Token) -> float:
    return scaled(token.value, token.unit, SCALES) if token.unit else token.value
