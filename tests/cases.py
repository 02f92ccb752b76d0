"""Divides a long list of cases: some run in `make test`, the others in `make test-all`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def few(cases: Iterable[Any], count: int) -> list[Any]:
    """The cases for `parametrize`, all but the first `count` marked as slow; a tuple has several values."""
    return [
        case
        if number < count
        else pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.slow)
        for number, case in enumerate(cases)
    ]
