"""Runs a command to its end and records it from outside: status, exit code, console."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import threading
from dataclasses import replace
from typing import TYPE_CHECKING

from stepscope.config.sections import MIB
from stepscope.guard import Guard
from stepscope.launcher.command import NOT_EXECUTABLE, Ending, check, ending_of, stem_of
from stepscope.launcher.console import MAX_BYTES, ConsoleTail, last_exception
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

NOTE_EVERY_S = 30.0
NOTE_BYTES = 8 * 1024
"""What is noted of the console while the command runs; at its end all of the tail is."""


class Observed:
    """A command that has a run."""

    def __init__(
        self,
        command: Sequence[str],
        folder: Path,
        settings: Settings,
        note_every_s: float = NOTE_EVERY_S,
    ) -> None:
        check(command)
        self._command = command
        self._folder, self._settings = folder, settings
        self._note_every_s = note_every_s
        identity = identify(settings.run, settings.project, script=stem_of(command))
        privacy = privacy_of(settings.privacy)
        self.identity = without_secrets(identity, folder, privacy, Guard(strict=False).tell)

    def reserve_name(self, *, resume: bool) -> None:
        """Makes sure that no other run has the name, or goes on with the one that has it."""
        with contextlib.suppress(OSError):
            self.identity = reserve(self._folder, self.identity, resume=resume).identity
            if self._settings.run is not None:
                claim_name(self._folder, self.identity)

    def trouble(self) -> str | None:
        """Why nothing can be recorded; None when it can."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self._folder):
                return None
        except OSError as error:
            return f"{self._folder} cannot be written ({error.strerror})"

    def run(self, *, recorded: bool) -> int:
        """Runs the command and returns its exit code; 128 and the signal where one killed it."""
        tail = ConsoleTail()
        passage = OutputForwarder(tail)
        signals = Signals(passage.resize)
        record_event = self._begin_note(tail) if recorded else None
        try:
            ending = self._run(passage, signals, tail)
            if (
                record_event is not None
            ):  # signals stay caught: an impatient second Ctrl-C must not change the ending
                record_event.end(ending)
        finally:
            signals.restore()
        return ending.exit_code

    def _begin_note(self, tail: ConsoleTail) -> _Note:
        recorder = self._settings.recorder
        # The tail is one record, and a journal file must hold it.
        roomy = replace(recorder, segment_bytes=max(recorder.segment_bytes, 4 * MIB))
        recording = Recording(
            self.identity,
            self._folder,
            replace(self._settings, recorder=roomy),
            Guard(strict=False),
            role="launcher",
            command=self._command,
        )
        return _Note(recording, tail, self._note_every_s)

    def _run(self, passage: OutputForwarder, signals: Signals, tail: ConsoleTail) -> Ending:
        try:
            process = subprocess.Popen(
                self._command,
                stdout=passage.stdout,
                stderr=passage.stderr,
                env=self._environment(os.environ),
            )
        except OSError as error:
            sys.stderr.write(f"stepscope: {self._command[0]} cannot be started: {error.strerror}.\n")
            return Ending(NOT_EXECUTABLE, "failed", f"it cannot be started: {error.strerror}")
        signals.pass_on_to(process)
        passage.open()
        return_code = process.wait()
        passage.close()
        return ending_of(return_code, last_exception(tail.text()[0]) if return_code > 0 else None)

    def _environment(self, ours: Mapping[str, str]) -> dict[str, str]:
        """What makes a monitor inside the command join this run and this segment of it."""
        return {
            **ours,
            "STEPSCOPE_RUN": self.identity.name,
            "STEPSCOPE_PROJECT": self.identity.project,
            "STEPSCOPE_DIR": str(self._folder),
            SEGMENT_VARIABLE: self.identity.segment,
            RUN_ID_VARIABLE: self.identity.run_id,
        }


class _Note:
    """The launcher's own journal: how the command ended, and at times the end of its console."""

    def __init__(self, recording: Recording, tail: ConsoleTail, every_s: float) -> None:
        self._recording = recording
        self._every_s = every_s
        self._recording.begin(on_end=self._recording.end)
        self._tail = tail
        self._noted_bytes = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._note_at_times, name="stepscope-console", daemon=True)
        self._thread.start()

    def end(self, ending: Ending) -> None:
        """Notes the console a last time and how the command ended."""
        self._over.set()
        self._thread.join()
        self._note_console(MAX_BYTES)
        self._recording.end(ending.status, ending.reason, ending.exit_code)

    def _note_at_times(self) -> None:
        while not self._over.wait(self._every_s):
            if self._tail.bytes_seen > self._noted_bytes:
                self._note_console(NOTE_BYTES)

    def _note_console(self, most_bytes: int) -> None:
        self._noted_bytes = self._tail.bytes_seen
        text, left_out = self._tail.text(most_bytes)
        if text:
            self._recording.record_event("console", {"text": text, "left_out": left_out})
