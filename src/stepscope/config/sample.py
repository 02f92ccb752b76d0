"""Writes a sample file in which every setting is explained and none is set."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepscope.config.reference import Description, descriptions, sentence_at

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stepscope.config.shape import Key

HEADING = """\
# Settings of stepscope. Every line that starts with '#' and no space is a setting with its
# default: remove the '#' to set it. Check the file with: stepscope config validate FILE
"""


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
