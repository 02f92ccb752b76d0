"""What the attacks start from: a sweep that collects faults, and a store that has a finished run."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.attack.asking import ask, rows_of
from tests.attack.outcomes import Sweep
from tests.attack.training import trainings, wait_for

ROOT = Path(__file__).parents[2]
STORED = "stored"


@dataclass(frozen=True)
class StoredRun:
    """A store with one finished run, and what is read from it."""

    database: Path
    answer: dict

    def copy_to(self, folder: Path) -> Path:
        """Makes a store folder of its own for a case."""
        folder.mkdir(parents=True)
        shutil.copy(self.database, folder / "store.sqlite")
        return folder


@pytest.fixture(scope="session", autouse=True)
def importable_tests() -> None:
    """The process that readers are forked from has to find this package, whatever folder it starts in."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(ROOT), prepend=os.pathsep)
        yield


@pytest.fixture
def sweep(request: pytest.FixtureRequest, tmp_path: Path, record_property: Callable) -> Sweep:
    """Collects what the cases of one test find."""
    name = request.node.name.removeprefix("test_").partition("_")[0]
    folder = tmp_path / "cases"
    folder.mkdir()
    return Sweep(name, folder, record_property)


@pytest.fixture(scope="session")
def stored_run(tmp_path_factory: pytest.TempPathFactory) -> StoredRun:
    """Records a run to its end and waits until its agent has gone."""
    scratch = tmp_path_factory.mktemp("stored")
    store = scratch / "store"
    with trainings() as start:
        training = start(scratch, store, STORED, rows=700, settings={"agent": {"linger_s": 0}})
        assert training.end() == 0
    assert wait_for(lambda: not (store / "store.sqlite-wal").exists())
    asked = ask(rows_of, str(store), STORED)
    assert asked.result["steps"] == list(range(700)), asked
    return StoredRun(store / "store.sqlite", asked.result)
