"""Sees to it that a recording has an agent, waits for it at the end, and says what is wrong with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepscope.agent.process.start import agent_trouble, ensure_agent, older_agent, wait_until_read
from stepscope.agent.process.wake import wake
from stepscope.journal.folder import journals_of
from stepscope.journal.private_settings import has_private, private_file, write_private

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from stepscope.config.sections import Settings
    from stepscope.journal.folder import JournalName

PATIENCE_S = 15.0


class AgentWatch:
    """The agent of a store folder, as the recording processes see it."""

    def __init__(
        self,
        folder: Path,
        settings: Settings,
        has_journal: Callable[[], bool],
        tell: Callable[[str], None],
    ) -> None:
        self._folder, self._settings = folder, settings
        self._has_journal, self._tell = has_journal, tell
        self._trouble = ""
        self._has_left_private = False
        self._told: set[str] = set()

    def ensure(self) -> None:
        """Starts an agent where there is none."""
        if not self._has_journal():
            return  # the journal has said what is wrong, and there is nothing to read
        try:
            ensure_agent(self._folder, self._settings)
        except OSError as error:
            self._tell_once("start", f"No agent could be started ({error}); records wait in the journal.")

    def write_private(self, name: JournalName) -> None:
        """Leaves it what may be secret of the settings, again where somebody has deleted that."""
        if not has_private(self._settings):
            return
        path = private_file(self._folder, name)
        try:
            # What is there at first was left by a program that this process was before.
            if not self._has_left_private or not path.exists():
                write_private(path, self._settings)
                self._has_left_private = True
        except OSError as error:
            self._tell_once(
                "private",
                f"Channels, exporters and links of this run have no effect: {error.filename or path} cannot "
                f"be written: {error.strerror}.",
            )

    def look_after(self) -> None:
        """Starts an agent where there is none, and says once what is wrong with it."""
        self.ensure()
        if self._settings.agent.mode == "none":
            return
        before, self._trouble = self._trouble, agent_trouble(self._folder)
        if self._trouble and self._trouble == before:  # a disk that was full for a moment is no news
            self._tell_of(self._trouble)
        older = older_agent(self._folder)
        if older:
            self._tell_once("older", older)

    def wait_until_stored(self, unread: Callable[[], Sequence[Path]]) -> None:
        """Waits until the store has all files, unless there is no agent or it cannot work."""
        if self._settings.agent.mode == "none":
            return
        if not wait_until_read(unread, PATIENCE_S, self._nudge, self._trouble_after):
            self._tell_of(agent_trouble(self._folder) or f"it has made no progress for {PATIENCE_S:.0f} s.")

    def _nudge(self) -> None:
        self.ensure()
        wake(self._folder)

    def _trouble_after(self, waited_s: float) -> str:
        return agent_trouble(self._folder, waited_s)

    def _tell_of(self, trouble: str) -> None:
        self._tell_once(
            trouble,
            f"The agent cannot store what is recorded: {trouble.rstrip('.')}. The records are safe in "
            f"{journals_of(self._folder)} until an agent or a reader can store them.",
        )

    def _tell_once(self, topic: str, message: str) -> None:
        if topic not in self._told:
            self._told.add(topic)
            self._tell(message)
