"""Formats tables that fit the width of the screen."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stepscope.cli.output.text import can_print, paint, safe

if TYPE_CHECKING:
    from collections.abc import Sequence

MIN_ELASTIC = 8
"""Minimum width of an elastic column."""


@dataclass(frozen=True)
class Column:
    """A heading, and how its cells are formatted."""

    heading: str
    right: bool = False
    elastic: bool = False
    """Whether its cells are shortened to make the table fit."""
    painted: bool = False
    """Whether a cell's text determines its colour."""


def table(columns: Sequence[Column], rows: Sequence[Sequence[object]], width: int) -> list[str]:
    """The lines of a table, no wider than the screen if its elastic columns allow that."""
    cells = [[safe(cell) for cell in row] for row in rows]
    widths = [
        max([cell_width(column.heading), *(cell_width(row[place]) for row in cells)])
        for place, column in enumerate(columns)
    ]
    _squeeze(columns, widths, width)
    heading = _line(columns, widths, [column.heading for column in columns])
    body = [_line(columns, widths, row, body=True) for row in cells]
    return [paint(heading, "heading"), *body]


def _squeeze(columns: Sequence[Column], widths: list[int], width: int) -> None:
    """Narrows the widest elastic column, one character at a time, until the table fits."""
    elastic = [place for place, column in enumerate(columns) if column.elastic]
    excess = sum(widths) + 2 * (len(widths) - 1) - width
    while excess > 0 and elastic:
        widest = max(elastic, key=lambda place: widths[place])
        if widths[widest] <= MIN_ELASTIC:
            return
        widths[widest] -= 1
        excess -= 1


def _line(
    columns: Sequence[Column], widths: Sequence[int], cells: Sequence[str], *, body: bool = False
) -> str:
    set_cells = []
    for column, width, cell in zip(columns, widths, cells, strict=True):
        shown = shorten(cell, width)
        padding = " " * (width - cell_width(shown))
        if body and column.painted:
            shown = paint(shown, cell)
        set_cells.append(padding + shown if column.right else shown + padding)
    return "  ".join(set_cells).rstrip()


def shorten(text: str, width: int) -> str:
    """Text cut to a width, with an ellipsis where something is missing."""
    if cell_width(text) <= width:
        return text
    kept, used = "", 0
    for character in text:
        used += cell_width(character)
        if used > width - 1:
            break
        kept += character
    return kept + ("…" if can_print("…") else "~")


def cell_width(text: str) -> int:
    """The columns that text takes on a terminal: two for wide characters, none for combining ones."""
    if text.isascii():
        return len(text)
    return sum(
        0
        if unicodedata.combining(character) or unicodedata.category(character) == "Cf"
        else 2
        if unicodedata.east_asian_width(character) in "WF"
        else 1
        for character in text
    )
