"""Measures what only stepscope has: ingest, charts, the shape of the log call, the agent."""

import json
import shutil
import sys

from benchmarks import environments
from benchmarks.catalogue import BENCH, PEERS, SUBJECT
from benchmarks.processes import Tree
from benchmarks.session import HELPER_LIMIT_S

MODULES = ("own_ingest", "own_chart", "own_call", "own_agent", "own_fifty_runs", "own_step", "own_import")
LIMIT_S = 300.0


def measure(name: str, *, quick: bool) -> dict[str, float]:
    """Run one module's `measure` in a process of its own."""
    folder = BENCH / "work" / "own" / name
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "data").mkdir(parents=True)
    (folder / "home").mkdir()
    result = folder / "result.json"
    command = [sys.executable, "-m", f"benchmarks.{name}", str(folder / "data"), str(result)]
    environment = environments.variables(PEERS[SUBJECT], folder / "data", folder / "home")
    tree = Tree([*command, *(["quick"] if quick else [])], environment, folder)
    tree.wait_for_trainer(LIMIT_S)
    tree.wait_for_helpers(HELPER_LIMIT_S)
    if tree.returncode != 0 or not result.exists():
        message = environments.last_line(tree.log.read_text(errors="replace"))
        raise environments.UnavailableError(f"{name}: {message}")
    figures: dict[str, float] = json.loads(result.read_text())
    shutil.rmtree(folder / "data")
    return figures
