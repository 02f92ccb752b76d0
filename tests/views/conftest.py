"""Fixtures of the tests of views: a store to which runs are written."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.views.made import Made


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Made]:
    """An empty store."""
    store = Made(tmp_path / "made")
    yield store
    store.close()
