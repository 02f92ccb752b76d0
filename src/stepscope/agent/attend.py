"""Lets this process be the agent of a store folder: for good, or for as long as it takes to catch up."""

from __future__ import annotations

import logging
import sys
import time
from typing import TYPE_CHECKING

from stepscope.agent.agent import Agent
from stepscope.agent.election import AgentLock, agent_pid
from stepscope.agent.ingest import Ingest
from stepscope.errors import StoreLocked
from stepscope.journal.folder import list_journals
from stepscope.store.place import database
from stepscope.store.sqlite import SqliteStore

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from stepscope.config.sections import Settings

CATCH_UP_S = 5.0


def attend(
    folder: Path, settings: Settings, should_stop: Callable[[], bool] = lambda: False
) -> None:
    """Is the agent of a folder until its last run has ended."""
    with AgentLock(folder):
        store = SqliteStore(database(folder))
        agent = Agent(folder, store, settings)
        try:
            agent.run(should_stop)
        finally:
            agent.close()
            store.close()


def catch_up(folder: Path, stall_after_s: float = 60.0) -> None:
    """Ingests what no agent has: does nothing when an agent is there, or nothing may be written."""
    if agent_pid(folder) is not None or not any(list_journals(folder)):
        return
    try:
        lock = AgentLock(folder)
    except (StoreLocked, OSError):
        return
    with lock:
        store = SqliteStore(database(folder))
        ingest = Ingest(folder, store, stall_after_s)
        deadline = time.monotonic() + CATCH_UP_S
        try:
            while ingest.tick() and time.monotonic() < deadline:
                pass
        finally:
            ingest.close()
            store.close()


def main() -> int:
    """Runs an agent whose folder and settings come as JSON on standard input."""
    import json
    import os
    from pathlib import Path

    from stepscope.config.plain import from_dict

    logging.basicConfig(
        stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s"
    )
    told = json.load(sys.stdin)
    os.nice(5)
    try:
        attend(Path(told["folder"]), from_dict(told["settings"]))
    except StoreLocked:  # another was elected meanwhile
        return 0
    return 0
