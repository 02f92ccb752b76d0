"""Reads journals into the store in the background, where no agent does."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING

from stepscope.agent.process.attend import catch_up
from stepscope.agent.process.election import agent_pid
from stepscope.errors import StepscopeError
from stepscope.journal.folder import list_journals

if TYPE_CHECKING:
    from pathlib import Path

log = logging.getLogger("stepscope.web")

INTERVAL_S = 5.0


class JournalIngest:
    """Checks every few seconds for unread journals in a folder without an agent."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._logged_error = ""

    async def run(self) -> None:
        """Checks at once and then every few seconds, until it is cancelled."""
        while True:
            await asyncio.to_thread(self.ingest)
            await asyncio.sleep(INTERVAL_S)

    def ingest(self) -> bool:
        """Reads unread journals into the store; True where there were any and no agent runs."""
        if agent_pid(self._folder) is not None:
            return False
        with contextlib.suppress(OSError):
            if not any(list_journals(self._folder)):
                return False
        try:
            catch_up(self._folder)
        except (StepscopeError, OSError) as error:
            if str(error) != self._logged_error:
                self._logged_error = str(error)
                log.warning("Journals could not be read into the store: %s", error)
        return True
