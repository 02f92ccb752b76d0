"""Takes in journals that no agent takes in, beside the requests and never in their way."""

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

EVERY_S = 5.0


class JournalIngest:
    """Looks at times whether journals wait and nobody attends to them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._complained = ""

    async def run(self) -> None:
        """Looks at once and then every few seconds, until it is cancelled."""
        while True:
            await asyncio.to_thread(self.look)
            await asyncio.sleep(EVERY_S)

    def look(self) -> bool:
        """Takes in what waits; True where there was something and no agent to do it."""
        if agent_pid(self._folder) is not None:
            return False
        with contextlib.suppress(OSError):
            if not any(list_journals(self._folder)):
                return False
        try:
            catch_up(self._folder)
        except (StepscopeError, OSError) as error:
            if str(error) != self._complained:
                self._complained = str(error)
                log.warning("Journals could not be taken in: %s", error)
        return True
