"""Runs every contract test with each implementation of a store."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from stepscope.store.base import Store
from tests.store.kinds import KINDS
from tests.store.run_samples import process


@pytest.fixture(params=KINDS)
def kind(request):
    """An implementation."""
    return request.param


@pytest.fixture
def store(kind, tmp_path: Path) -> Iterator[Store]:
    """An empty store that knows one process."""
    opened = kind.store(tmp_path)
    with opened.transaction():
        opened.put_process(process())
    yield opened
    opened.close()


@pytest.fixture
def reopen(kind, store: Store, tmp_path: Path):
    """Closes the store and opens it as the next agent would."""
    opened = []

    def open_again() -> Store:
        (opened[-1] if opened else store).close()
        opened.append(kind.store(tmp_path))
        return opened[-1]

    yield open_again
    for reopened in opened:
        reopened.close()
