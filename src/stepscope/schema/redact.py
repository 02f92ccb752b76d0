"""Removes secrets from what is about to be recorded, and writes `[redacted:kind]` in their place."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from stepscope.schema import secret_values
from stepscope.schema.secret_names import hides_numbers, is_secret_name
from stepscope.schema.secret_shapes import SHAPES_AFTER_NAMES, SHAPES_BEFORE_NAMES, Shape

if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_ROUNDS = 10
MAX_DEPTH = 32
MAX_PARTS = 20_000
MAX_SECRET = 4_000
"""Characters of the longest secret, which is a private key."""
LEFT_OUT = "[...]"

_REDACTED = re.compile(r"(\[redacted:[a-z0-9_-]+\])")
_RULE_NAME = re.compile(r"[a-z0-9][a-z0-9_-]*")
_NAMES = re.compile(r"(?:[^\s=\"'?&:{}()\[\],]+=)+")
"""One or more names before a value; URLs, lists and objects do not match."""
_LOGINS = ("-u", "--user", "--proxy-user")


class Rule(Protocol):
    """Finds one kind of secret."""

    @property
    def name(self) -> str:
        """The kind in the replacement."""

    @property
    def hints(self) -> tuple[str, ...]:
        """Lower-case; a text without any of them is not searched. Empty: every text is searched."""

    def spans(self, text: str) -> Iterable[tuple[int, int]]:
        """The start and end of each secret."""


class _Assignments:
    """The rule for values of secret names, with the interface of a shape."""

    name = "name"
    hints = secret_values.HINTS
    spans = staticmethod(secret_values.spans)


_BUILT_IN: tuple[Rule, ...] = (*SHAPES_BEFORE_NAMES, _Assignments(), *SHAPES_AFTER_NAMES)
_HINTS = tuple((hint, index) for index, rule in enumerate(_BUILT_IN) for hint in rule.hints)
_user_rules: dict[str, Shape] = {}


def add_rule(name: str, pattern: str) -> None:
    """Adds a rule: what the pattern matches is redacted, or its group `secret` if it has one.

    It applies in this process to everything recorded from now on; an earlier rule of that name is replaced.
    The pattern is applied to every text, so avoid patterns that need more than linear time.
    """
    if not _RULE_NAME.fullmatch(name):
        raise ValueError(f"A rule is called {name!r}; a name has small letters, digits, - and _ only.")
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise ValueError(f"The pattern of the rule {name} cannot be read: {error}.") from error
    if compiled.fullmatch(""):
        raise ValueError(
            f"The pattern of the rule {name} matches nothing at all, so it would match everywhere."
        )
    _user_rules[name] = Shape(name, pattern)


def remove_rule(name: str) -> None:
    """Removes a rule that was added; does nothing if there is none."""
    _user_rules.pop(name, None)


def redact_text(text: str) -> str:
    """Replaces everything with the shape or the name of a secret.

    Removing one secret may uncover another, so it is repeated until nothing is found. A text in which that
    does not end is removed as a whole.
    """
    for _ in range(MAX_ROUNDS):
        redacted = _redact_once(text)
        if redacted == text:
            return text
        text = redacted
    return text if _redact_once(text) == text else "[redacted:unclear]"


def redact_start(text: str, length: int) -> str:
    """The first characters of a text without its secrets; ends in `…` where the text is longer."""
    if len(text) <= length:
        return redact_text(text)
    # A part of a secret is not recognised: text that may complete one is redacted too, then cut off.
    redacted = redact_text(text[: length + MAX_SECRET])
    end = length if len(text) <= length + MAX_SECRET else min(length, len(redacted) - MAX_SECRET)
    return f"{redacted[: max(end - 1, 0)]}…"


def redact_words(words: Iterable[str]) -> list[str]:
    """A command line without the values of `--password`, `--api-key=…` and the like."""
    redacted: list[str] = []
    before = ""
    for word in words:
        name, equals, value = _assignment(word)
        if before.startswith("-") and is_secret_name(before) and not word.startswith("-"):
            redacted.append(_redact_named(before, word))
        elif before in _LOGINS and _is_login(word):
            redacted.append("[redacted:user]")
        elif equals and is_secret_name(name.rpartition("=")[2]):
            redacted.append(f"{name}={_redact_named(name, value)}")
        else:
            redacted.append(redact_text(word))
        before = "" if equals else word
    return redacted


def _is_login(word: str) -> bool:
    return ":" in word and not word.replace(":", "").isdigit()


def _is_option_value(option: Any, word: Any) -> bool:
    """Whether a word of a command line is the value of the secret or login option before it."""
    if not (isinstance(option, str) and option.startswith("-") and isinstance(word, str)):
        return False
    return not word.startswith("-") and (option in _LOGINS or ("=" not in option and is_secret_name(option)))


def _is_list_of_pairs(values: Iterable[Any]) -> bool:
    """Whether a list has only pairs of a name and a value."""
    return isinstance(values, list | tuple) and all(
        isinstance(pair, list | tuple) and len(pair) == 2 and isinstance(pair[0], str) for pair in values
    )


def _assignment(word: str) -> tuple[str, str, str]:
    """Name, sign and value of a word; in `--env=HF_TOKEN=…` the name ends at the first secret name.

    The value extends to the end of the word, including blanks and further signs.
    """
    match = _NAMES.match(word)
    if match is None:
        return word, "", ""
    end = 0
    for name in match[0][:-1].split("="):
        end += len(name) + 1
        if is_secret_name(name):
            break
    return word[: end - 1], "=", word[end:]


def redact_mapping(mapping: Mapping[Any, Any]) -> dict[str, Any]:
    """A configuration or an environment without its secrets, at any depth; keys become text."""
    return Redaction().mapping(mapping)


def redact_value(value: Any, name: str = "") -> Any:
    """A value as it may be recorded, given its name.

    Mappings and sequences are copied; other values than text, numbers and None become text.
    """
    return Redaction().value(value, name)


def _redact_once(text: str) -> str:
    folded = text.lower()
    # One flat pass, because most lines contain no hint and must cost little.
    hinted = {index for hint, index in _HINTS if hint in folded}
    for index, rule in enumerate(_BUILT_IN):
        if index in hinted or not rule.hints:
            text = apply_rule(rule, text)
    for rule in tuple(_user_rules.values()):  # another thread may add one
        text = apply_rule(rule, text)
    return text


def apply_rule(rule: Rule, text: str) -> str:
    """Applies a rule to the text between secrets that are already redacted.

    A value that belongs to a name may contain one of those, so the rule for names gets the whole text.
    """
    if "[redacted:" not in text or isinstance(rule, _Assignments):
        return _replaced(rule, text)
    parts = _REDACTED.split(text)
    parts[::2] = [_replaced(rule, part) if part else part for part in parts[::2]]
    return "".join(parts)


def _replaced(rule: Rule, text: str) -> str:
    parts: list[str] = []
    at = 0
    for start, end in rule.spans(text):
        parts += (text[at:start], f"[redacted:{rule.name}]")
        at = end
    return "".join((*parts, text[at:])) if parts else text


def _redact_named(name: str, value: Any) -> Any:
    """A plain value with a secret name, as it may be recorded."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        if secret_values.is_nothing(value) or (secret_values.is_number(value) and not hides_numbers(name)):
            return value
        if secret_values.is_working_directory(name, value):
            return redact_text(value)
    elif isinstance(value, int | float) and not hides_numbers(name):
        return value
    return "[redacted:name]"


class Redaction:
    """One pass over nested values; it ends also for values that contain themselves.

    Redaction takes time for each character, so callers in the training thread set a limit.
    """

    def __init__(self, max_characters: int | None = None) -> None:
        self._parts_left = MAX_PARTS
        self._characters_left = max_characters
        self._inside: list[int] = []
        self.is_cut = False
        """Whether something was cut because there was too much of it."""

    def value(self, value: Any, name: str, *, hidden: bool = False) -> Any:
        """Redacts a value of any kind; `hidden` if a container around it has a secret name."""
        self._parts_left -= 1
        if self._parts_left < 0:
            self.is_cut = True
            return LEFT_OUT
        if isinstance(value, Mapping):
            return self._within(value, lambda: self.mapping(value, hidden=hidden or is_secret_name(name)))
        if isinstance(value, list | tuple | set | frozenset):
            return self._within(value, lambda: self._list(value, name, hidden=hidden))
        if hidden or is_secret_name(name):
            return _redact_named(name or "secret", value)
        if value is None or isinstance(value, bool | int | float):
            return value
        return self._text(_to_text(value))

    def _list(self, values: Iterable[Any], name: str, *, hidden: bool) -> list[Any]:
        """Redacts a list; `--password`, or the name of a `[name, value]` pair, names the value after it."""
        copied: list[Any] = []
        before: Any = ""
        are_pairs = _is_list_of_pairs(values)
        for value in values:
            if are_pairs:
                pair = [
                    self.value(value[0], name, hidden=hidden),
                    self.value(value[1], value[0], hidden=hidden),
                ]
                copied.append(pair)
            elif _is_option_value(before, value) and before in _LOGINS:
                copied.append(
                    "[redacted:user]" if _is_login(value) else self.value(value, name, hidden=hidden)
                )
            else:
                copied.append(
                    self.value(value, before if _is_option_value(before, value) else name, hidden=hidden)
                )
            before = value
            if self._parts_left < 0:
                break
        return copied

    def mapping(self, mapping: Mapping[Any, Any], *, hidden: bool = False) -> dict[str, Any]:
        """Redacts a mapping; `{name: HF_TOKEN, value: …}` is a pair, `{env: NAME}` a reference."""
        if hidden and _is_reference(mapping):
            return dict(mapping)
        named = mapping.get("name", mapping.get("key"))
        pair = named if isinstance(named, str) and "value" in mapping else None
        copied: dict[str, Any] = {}
        for key, part in mapping.items():
            name = pair if pair is not None and key == "value" else _to_text(key)
            copied[self._key(_to_text(key))] = self.value(part, name, hidden=hidden)
            if self._parts_left < 0:
                self.is_cut = True
                break
        return copied

    def _key(self, key: str) -> str:
        # Most names are shorter than any vendor's key and assign nothing; each line has many of them.
        if len(key) >= 15 or not key.isidentifier():
            return self._text(key)
        for rule in tuple(_user_rules.values()):
            key = apply_rule(rule, key)
        return key

    def _text(self, text: str) -> str:
        if self._characters_left is None:
            return redact_text(text)
        self.is_cut = self.is_cut or len(text) > self._characters_left
        if self._characters_left == 0:
            return LEFT_OUT
        text = redact_start(text, self._characters_left)
        # An empty text takes time too.
        self._characters_left = max(self._characters_left - max(len(text), 16), 0)
        return text

    def _within(self, container: Any, walk: Any) -> Any:
        if id(container) in self._inside or len(self._inside) >= MAX_DEPTH:
            return LEFT_OUT
        self._inside.append(id(container))
        try:
            return walk()
        finally:
            self._inside.pop()


def _is_reference(mapping: Mapping[Any, Any]) -> bool:
    return len(mapping) == 1 and all(
        key in {"env", "file"} and isinstance(at, str) for key, at in mapping.items()
    )


def _to_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bytes | bytearray):
        return value.decode("utf-8", "replace")
    try:
        return str(value)
    except Exception as error:  # noqa: BLE001 - a value's own text may raise anything
        return f"<{type(value).__name__} that cannot be shown: {type(error).__name__}>"
