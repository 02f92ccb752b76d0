"""Describes every setting with the docstring under it in `sections`, for the sample file and the docs."""

from __future__ import annotations

import ast
import functools
import inspect
import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stepscope.config import sections
from stepscope.config.plain import to_dict
from stepscope.config.sections import Sampler, Settings
from stepscope.config.shape import Key, dotted, hint_at, leaves, without_none
from stepscope.config.wording import allowed, yaml_text

if TYPE_CHECKING:
    from collections.abc import Iterator


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
    return _sentences()[section.__name__, key[-1]]


@functools.cache
def _sentences() -> dict[tuple[str, str], str]:
    sentences = {}
    for section in ast.parse(inspect.getsource(sections)).body:
        if not isinstance(section, ast.ClassDef):
            continue
        for setting, text in itertools.pairwise(section.body):
            match setting, text:
                case ast.AnnAssign(target=ast.Name(name)), ast.Expr(value=ast.Constant(str(sentence))):
                    sentences[section.name, name] = sentence
    return sentences
