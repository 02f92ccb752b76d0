"""Runs a command and records its status, exit code and console output."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import threading
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, TypeAlias

from stepscope.attach.environment import attached
from stepscope.config.sections import MIB
from stepscope.guard import Guard
from stepscope.launcher.command import NOT_EXECUTABLE, Ending, check, ending_of, run_name_of
from stepscope.launcher.console_tail import MAX_BYTES, ConsoleTail, last_exception
from stepscope.launcher.output_forwarder import OutputForwarder
from stepscope.launcher.signals import Signals
from stepscope.recorder.anonymity import privacy_of
from stepscope.recorder.identity.rank_detection import RUN_ID_VARIABLE, SEGMENT_VARIABLE, identify
from stepscope.recorder.identity.run_names import without_secrets
from stepscope.recorder.identity.run_reservation import claim_name, reserve
from stepscope.recorder.recording import Recording

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from stepscope.config.sections import Settings

Attach: TypeAlias = Literal["no", "quiet", "yes"]
"""Whether trainings in a command are watched, and whether they say so."""

RECORD_INTERVAL_S = 30.0
RUNNING_TAIL_BYTES = 8 * 1024
"""Console output recorded while the command runs; at its end the whole tail is recorded."""


class Observed:
    """A command that is run and recorded."""

    def __init__(
        self,
        command: Sequence[str],
        folder: Path,
        settings: Settings,
        record_interval_s: float = RECORD_INTERVAL_S,
        *,
        attach: Attach = "no",
        variables: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """`variables` are added to the environment of the command, such as settings of its run."""
        check(command)
        self._variables = variables
        self._attach = attach
        self._command = command
        self._folder, self._settings = folder, settings
        self._record_interval_s = record_interval_s
        self._is_recorded = False
        identity = identify(settings.run, settings.project, script=run_name_of(command))
        privacy = privacy_of(settings.privacy)
        self.identity = without_secrets(identity, folder, privacy, Guard(strict=False).tell)

    @property
    def attaches(self) -> bool:
        """Whether trainings in the command are watched."""
        return self._attach != "no"

    def reserve_name(self, *, resume: bool) -> None:
        """Reserves a name that no other run has, or continues the run that has it."""
        with contextlib.suppress(OSError):
            self.identity = reserve(self._folder, self.identity, resume=resume).identity
            if self._settings.run is not None:
                claim_name(self._folder, self.identity)

    def trouble(self) -> str | None:
        """Why nothing can be recorded; None if recording works."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self._folder):
                return None
        except OSError as error:
            return f"{self._folder} cannot be written ({error.strerror})"

    def run(self, *, recorded: bool) -> int:
        """Runs the command and returns its exit code; 128 plus the signal number if a signal killed it."""
        self._is_recorded = recorded
        tail = ConsoleTail()
        forwarder = OutputForwarder(tail)
        signals = Signals(forwarder.resize)
        record_event = self._begin_journal(tail) if recorded else None
        try:
            ending = self._run(forwarder, signals, tail)
            if (
                record_event is not None
            ):  # signals are still handled: a second Ctrl-C must not change the ending
                record_event.end(ending)
        finally:
            signals.restore()
        return ending.exit_code

    def _begin_journal(self, tail: ConsoleTail) -> _LauncherJournal:
        recorder = self._settings.recorder
        # The tail is one record, which must fit into a journal file.
        enlarged = replace(recorder, segment_bytes=max(recorder.segment_bytes, 4 * MIB))
        recording = Recording(
            self.identity,
            self._folder,
            replace(self._settings, recorder=enlarged),
            Guard(strict=False),
            role="launcher",
            command=self._command,
        )
        return _LauncherJournal(recording, tail, self._record_interval_s)

    def _run(self, forwarder: OutputForwarder, signals: Signals, tail: ConsoleTail) -> Ending:
        try:
            process = subprocess.Popen(
                self._command,
                stdout=forwarder.stdout,
                stderr=forwarder.stderr,
                env=self._environment(os.environ),
            )
        except OSError as error:
            sys.stderr.write(f"stepscope: {self._command[0]} cannot be started: {error.strerror}.\n")
            return Ending(NOT_EXECUTABLE, "failed", f"it cannot be started: {error.strerror}")
        signals.pass_on_to(process)
        forwarder.open()
        return_code = process.wait()
        forwarder.close()
        return ending_of(return_code, last_exception(tail.text()[0]) if return_code > 0 else None)

    def _environment(self, inherited: Mapping[str, str]) -> dict[str, str]:
        """The environment that makes a monitor in the command join this run and segment."""
        if self._is_recorded and self.attaches:
            inherited = attached(inherited, is_quiet=self._attach == "quiet")
        if not self._settings.agent.verdict:
            inherited = {**inherited, "STEPSCOPE_AGENT__VERDICT": "false"}
        return {
            **inherited,
            **self._variables,
            "STEPSCOPE_RUN": self.identity.name,
            "STEPSCOPE_PROJECT": self.identity.project,
            "STEPSCOPE_DIR": str(self._folder),
            SEGMENT_VARIABLE: self.identity.segment,
            RUN_ID_VARIABLE: self.identity.run_id,
        }


class _LauncherJournal:
    """The launcher's own journal: the end of the command, and its console output at intervals."""

    def __init__(self, recording: Recording, tail: ConsoleTail, every_s: float) -> None:
        self._recording = recording
        self._every_s = every_s
        self._recording.begin(on_end=self._recording.end)
        self._tail = tail
        self._recorded_bytes = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(
            target=self._record_at_intervals, name="stepscope-console", daemon=True
        )
        self._thread.start()

    def end(self, ending: Ending) -> None:
        """Records the console output a last time, and how the command ended."""
        self._ended.set()
        self._thread.join()
        self._record_console(MAX_BYTES)
        self._recording.end(ending.status, ending.reason, ending.exit_code)

    def _record_at_intervals(self) -> None:
        while not self._ended.wait(self._every_s):
            if self._tail.bytes_seen > self._recorded_bytes:
                self._record_console(RUNNING_TAIL_BYTES)

    def _record_console(self, max_bytes: int) -> None:
        self._recorded_bytes = self._tail.bytes_seen
        text, left_out = self._tail.text(max_bytes)
        if text:
            self._recording.record_event("console", {"text": text, "left_out": left_out})
