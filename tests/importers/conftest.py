"""Imports a source into the store of a test."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from stepscope import open_store
from stepscope.reading import Run
from stepscope.run_import.run_import import RunImport
from stepscope.run_import.source_runs import Request


@pytest.fixture
def imported(folder: Path) -> Callable[..., list[Run]]:
    """Imports a source and returns its runs as they are in the store."""

    def import_source(
        place: object, kind: str | None = None, warn: Callable[[str], None] = pytest.fail
    ) -> list[Run]:
        runs = RunImport(folder, warn).run(Request(str(place), kind))
        store = open_store(folder)
        return [store.run(run.run_id) for run in runs]

    return import_source
