"""What settings there are: their keys, types and descriptions, for messages, the sample file and the docs.

All of it comes from `sections`: a description is the docstring under a setting.
"""

from __future__ import annotations

import ast
import dataclasses
import difflib
import functools
import inspect
import itertools
import json
import types
import typing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, Union, get_args, get_origin

from stepscope.config.bounds import Form
from stepscope.config.secret import CHANNELS, HIDDEN, redacted
from stepscope.config.sections import Sampler, Settings, to_dict

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from stepscope.config.bounds import Range

Key: TypeAlias = tuple[typing.Any, ...]
"""The path of a setting: names, and integers for list items."""

MAX_SHOWN = 80
"""Maximum number of characters of a value in a message."""

HEADING = """\
# Settings of stepscope. Every line that starts with '#' and no space is a setting with its
# default: remove the '#' to set it. Check the file with: stepscope config validate FILE
"""


def dotted(key: Key) -> str:
    """Writes a key as text: `alerts.rules[2].name`."""
    text = ""
    for part in key:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            name = part if part.isprintable() else ascii(part)
            text += f".{name}" if text else name
    return text


@functools.cache
def hints_of(section: type) -> dict[str, Any]:
    """Returns the type of every setting of a section."""
    return typing.get_type_hints(section, include_extras=True)


def hint_at(key: Key) -> Any:
    """Returns the type of the setting at a key, None where there is no such setting."""
    hint: Any = Settings
    for part in key:
        hint = _inside(without_none(hint), part)
    return hint


def without_none(hint: Any) -> Any:
    """Returns X for the type `X | None`."""
    if get_origin(hint) in {Union, types.UnionType}:
        [hint] = [kind for kind in get_args(hint) if kind is not type(None)]
    return hint


def is_section(hint: Any) -> bool:
    """Whether a setting of this type contains keys."""
    return dataclasses.is_dataclass(hint) or get_origin(hint) is dict


def is_text(hint: Any) -> bool:
    """Whether a setting of this type is text, which must not be parsed as a number."""
    hint = without_none(hint)
    return hint is str or get_origin(hint) is Literal


def leaves(section: type = Settings, above: Key = ()) -> Iterator[Key]:
    """Yields every setting that is not itself a section; samplers appear as `default`."""
    for name in names_in(section):
        key, hint = (*above, name), hints_of(section)[name]
        if dataclasses.is_dataclass(hint):
            yield from leaves(typing.cast("type", hint), key)
        elif get_args(hint)[-1:] == (Sampler,):
            yield from leaves(Sampler, (*key, "default"))
        else:
            yield key


def names_in(section: Any) -> list[str]:
    """Returns the names of a section's settings."""
    return [setting.name for setting in dataclasses.fields(section)]


def _inside(hint: Any, part: Any) -> Any:
    if hint is Any:
        return Any
    if dataclasses.is_dataclass(hint):
        return hints_of(typing.cast("type", hint)).get(part)
    if isinstance(part, int) and get_origin(hint) is list:
        return get_args(hint)[0]
    if get_origin(hint) is dict:
        return get_args(hint)[1]
    return None


def shown(value: Any, key: Key) -> str:
    """Formats a value for a message: short, on one line, without secrets."""
    names = [part for part in key if isinstance(part, str)]
    if isinstance(value, str | list | dict) and _may_be_secret(names):
        return HIDDEN
    safe = redacted(value, names)
    text = HIDDEN if safe == HIDDEN else yaml_text(safe)
    return text if len(text) <= MAX_SHOWN else f"{text[: MAX_SHOWN - 3]}..."


def yaml_text(value: Any) -> str:
    """Formats a value as in a YAML file."""
    return json.dumps(value, ensure_ascii=False)


def no_such_setting(key: Key, siblings: list[str], older_names: Iterable[str] = ()) -> str:
    """A message for an unknown key, with the key that was probably meant."""
    nested = (*key[:-1], *str(key[-1]).split("."))
    if nested != key and nested in leaves():
        section = dotted(nested[:-1])
        return f"there is no setting {dotted(key)!r}; write {nested[-1]!r} below {section!r}, as a section."
    suggestion = meant_setting(key, siblings, older_names)
    rest = f"there are {', '.join(siblings)}." if suggestion is None else f"did you mean {suggestion!r}?"
    return f"there is no setting {dotted(key)!r}; {rest}"


def meant_setting(key: Key, siblings: list[str], older_names: Iterable[str] = ()) -> str | None:
    """Returns the setting that was probably meant by an unknown key, None when nothing is close."""
    suggestion = nearest(key[-1], [*siblings, *older_names])
    if suggestion is not None:
        return dotted((*key[:-1], suggestion))
    return next((dotted(leaf) for leaf in leaves() if leaf[-1] == key[-1]), None)


def nearest(name: str, names: Iterable[str]) -> str | None:
    """Returns the name that was probably meant, None when nothing is close."""
    matches = difflib.get_close_matches(name[:80], list(names), n=1, cutoff=0.75)
    return matches[0] if matches else None


def allowed(hint: Any) -> str:
    """Describes the values that a setting of this type allows."""
    inner = without_none(hint)
    if inner is not hint:
        return f"{allowed(inner)}, or null"
    if dataclasses.is_dataclass(inner):
        return f"a section with the settings {', '.join(names_in(inner))}"
    args = get_args(inner)
    kind = get_origin(inner) or inner
    if kind is Annotated:
        return args[1].words if isinstance(args[1], Form) else _allowed_number(*args)
    words = {
        bool: "true or false",
        str: "text",
        dict: "a section",
        Literal: f"one of {', '.join(map(str, args))}",
    }
    if kind is list:
        return f"a list, each item {allowed(args[0])}"
    return words.get(kind, "text, a number, true, false, a list or a section")


def _allowed_number(kind: type, bounds: Range) -> str:
    words = "a whole number" if kind is int else "a number"
    if bounds.above is not None:
        words = f"{words} above {bounds.above:.15g}"
        return words if bounds.high is None else f"{words}, at most {bounds.high:.15g}"
    if bounds.low is None:
        return words
    if bounds.high is None:
        return f"{words}, at least {bounds.low:.15g}"
    return f"{words} from {bounds.low:.15g} to {bounds.high:.15g}"


def _may_be_secret(names: list[str]) -> bool:
    """Whether a value may be secret: misplaced values of these sections are often keys or webhooks."""
    return tuple(names[:2]) == CHANNELS or names[:1] == ["exporters"]


@dataclass(frozen=True)
class Description:
    """The documentation of one setting."""

    key: Key
    allowed: str
    default: str
    sentence: str

    @property
    def name(self) -> str:
        """The dotted key."""
        return dotted(self.key)


def descriptions() -> Iterator[Description]:
    """Yields every setting in the order of the tree; samplers appear as `samplers.default`."""
    values = to_dict(Settings(samplers={"default": Sampler()}))
    for key in leaves():
        value: Any = values
        for part in key:
            value = value[part]
        yield Description(key, allowed(hint_at(key)), yaml_text(value), sentence_at(key))


def sentence_at(key: Key) -> str:
    """Returns the description of a setting."""
    section = without_none(hint_at(key[:-1]))
    if key == ("samplers", "default"):
        return "Applies to every sampler, unless its own section sets something else."
    return field_sentences(section)[key[-1]]


@functools.cache
def field_sentences(kind: type) -> dict[str, str]:
    """Returns the docstring under each field of a dataclass that has one."""
    sentences = {}
    for definition in ast.parse(inspect.getsource(kind)).body:
        assert isinstance(definition, ast.ClassDef)  # noqa: S101 - the source of a class
        for field, text in itertools.pairwise(definition.body):
            match field, text:
                case ast.AnnAssign(target=ast.Name(name)), ast.Expr(value=ast.Constant(str(sentence))):
                    sentences[name] = sentence
    return sentences


def sample() -> str:
    """Returns the text of a YAML file that loads as the defaults."""
    return HEADING + "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    section: Key = ()
    for setting in descriptions():
        yield from _section_headings(section, setting.key[:-1])
        section = setting.key[:-1]
        yield from _setting_lines(setting)


def _section_headings(before: Key, section: Key) -> Iterator[str]:
    """Yields the headings of the sections that begin between two settings."""
    for depth in range(1, len(section) + 1):
        if before[:depth] != section[:depth]:
            indent = "  " * (depth - 1)
            yield ""
            yield f"{indent}# {sentence_at(section[:depth])}"
            yield f"{indent}{section[depth - 1]}:"


def _setting_lines(setting: Description) -> Iterator[str]:
    indent = "  " * (len(setting.key) - 1)
    yield ""
    yield f"{indent}# {setting.sentence}"
    yield f"{indent}#{setting.key[-1]}: {setting.default}"
