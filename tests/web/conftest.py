"""An example store, and applications that serve it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.web.asking import rich_store, state_and_app


@pytest.fixture(scope="session")
def shared(tmp_path_factory) -> Iterator:
    """An application over a store that no test changes."""
    folder = tmp_path_factory.mktemp("shared")
    opened = rich_store(folder)
    state, app = state_and_app(folder)
    yield app
    state.close()
    opened.close()


@pytest.fixture
def store(folder: Path) -> Iterator:
    """The writer of a store that has a run."""
    opened = rich_store(folder)
    yield opened
    opened.close()


@pytest.fixture
def state_app(folder: Path, store) -> Iterator:
    """A server's parts and its application."""
    state, app = state_and_app(folder)
    yield state, app
    state.close()


@pytest.fixture
def app(state_app):
    """A server's application over that store."""
    return state_app[1]


@pytest.fixture
def state(state_app):
    """The parts of the same server."""
    return state_app[0]
