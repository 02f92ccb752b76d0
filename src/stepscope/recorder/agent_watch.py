"""Ensures that a recording has an agent, waits for it at the end, and warns of its problems."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepscope.agent.process.start import agent_trouble, ensure_agent, older_agent, wait_until_read
from stepscope.agent.process.wake import wake
from stepscope.journal.folder import journals_of
from stepscope.journal.private_settings import has_private, private_file, write_private
from stepscope.recorder.exit.exit_reason import others_end_later

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from stepscope.config.sections import Settings
    from stepscope.journal.folder import JournalName

MAX_WAIT_S = 15.0

_postponed: list[Callable[[], None]] = []
"""Waits of recordings that the interpreter's exit has ended before others."""


class AgentWatch:
    """The agent of a store folder, from the view of a recording process."""

    def __init__(
        self,
        folder: Path,
        settings: Settings,
        has_journal: Callable[[], bool],
        warn: Callable[[str], None],
    ) -> None:
        self._folder, self._settings = folder, settings
        self._has_journal, self._warn = has_journal, warn
        self._trouble = ""
        self._has_left_private = False
        self._reported_topics: set[str] = set()

    def ensure(self) -> None:
        """Starts an agent if none is running."""
        if not self._has_journal():
            return  # the journal has reported the problem, and there is nothing to read
        try:
            ensure_agent(self._folder, self._settings)
        except OSError as error:
            self._warn_once("start", f"No agent could be started ({error}); records wait in the journal.")

    def write_private(self, name: JournalName) -> None:
        """Writes the settings that may be secret for the agent, again if the file was deleted."""
        if not has_private(self._settings):
            return
        path = private_file(self._folder, name)
        try:
            # A file that already exists is from a program that this process ran before an `exec`.
            if not self._has_left_private or not path.exists():
                write_private(path, self._settings)
                self._has_left_private = True
        except OSError as error:
            self._warn_once(
                "private",
                f"Channels, exporters and links of this run have no effect: {error.filename or path} cannot "
                f"be written: {error.strerror}.",
            )

    def check(self) -> None:
        """Starts an agent if none is running, and warns once of each problem with it."""
        self.ensure()
        if self._settings.agent.mode == "none":
            return
        before, self._trouble = self._trouble, agent_trouble(self._folder)
        if self._trouble and self._trouble == before:  # one that passes, such as a full disk, is not reported
            self._warn_of_trouble(self._trouble)
        older = older_agent(self._folder)
        if older:
            self._warn_once("older", older)

    def wait_until_stored(
        self, unread: Callable[[], Sequence[Path]], is_being_deleted: Callable[[], bool]
    ) -> None:
        """Waits until all files are in the store, unless there is no agent or it cannot work.

        When the interpreter's exit ends several recordings, the last one waits for all: every journal has its
        end before anything, such as the kernel of a notebook, kills a process that takes too long.
        """
        if others_end_later():
            _postponed.append(lambda: self._wait(unread, is_being_deleted))
            return
        for wait in _postponed:
            wait()
        self._wait(unread, is_being_deleted)

    def _wait(self, unread: Callable[[], Sequence[Path]], is_being_deleted: Callable[[], bool]) -> None:
        if self._settings.agent.mode == "none":
            return

        def trouble(waited_s: float) -> str:
            # An agent cannot work in a folder that is being deleted; the next one can.
            return "" if is_being_deleted() else agent_trouble(self._folder, waited_s)

        if not wait_until_read(unread, MAX_WAIT_S, self._wake_agent, trouble):
            self._warn_of_trouble(
                agent_trouble(self._folder) or f"it has made no progress for {MAX_WAIT_S:.0f} s."
            )

    def _wake_agent(self) -> None:
        self.ensure()
        wake(self._folder)

    def _warn_of_trouble(self, trouble: str) -> None:
        self._warn_once(
            trouble,
            f"The agent cannot store what is recorded: {trouble.rstrip('.')}. The records are safe in "
            f"{journals_of(self._folder)} until an agent or a reader can store them.",
        )

    def _warn_once(self, topic: str, message: str) -> None:
        if topic not in self._reported_topics:
            self._reported_topics.add(topic)
            self._warn(message)
