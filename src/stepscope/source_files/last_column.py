"""Recognises a cell that is cut off because its file ends there."""

from __future__ import annotations

import math

from stepscope.source_files.cells import number_in


class LastColumn:
    """The cells of the last column of a table, with which the cell at the end of the file is compared.

    Many programs write no line break after the last line, so that alone says nothing. A number that is cut
    off is often a number too: only evident cases are recognised.
    """

    def __init__(self) -> None:
        self._are_numbers = True
        self._shortest: int | None = None

    def add(self, cell: str) -> None:
        """Adds a cell that is complete."""
        self._are_numbers = self._are_numbers and _is_number(cell)
        length = len(cell.strip())
        self._shortest = length if self._shortest is None else min(length, self._shortest)

    def is_cut_off(self, cell: str) -> bool:
        """Whether a cell at the end of a file is evidently cut off.

        All others are numbers, and it is none, ends in a decimal point, or is a fraction that is less than
        half as long as each of them. Numbers without a fraction are kept: many columns end with 0.0 or 1.0.
        """
        if self._shortest is None or not self._are_numbers:
            return False
        number = number_in(cell)
        if number is None or not _is_number(cell):
            return True
        is_fraction = math.isfinite(number) and not number.is_integer()
        return is_fraction and 2 * len(cell.strip()) < self._shortest


def _is_number(cell: str) -> bool:
    """Whether a text is a number that does not end in a decimal point."""
    return number_in(cell) is not None and not cell.strip().endswith(".")
