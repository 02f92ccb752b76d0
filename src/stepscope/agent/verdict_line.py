"""Writes how a run is doing into the terminal of its training: after 100 steps, and at the end."""

from __future__ import annotations

import contextlib
import os
import shlex
from typing import TYPE_CHECKING

from stepscope.alerts.delivery.training_console import open_console, painted, wrapped
from stepscope.errors import StoreError
from stepscope.procfs import PROC
from stepscope.store.open import open_marks

if TYPE_CHECKING:
    from pathlib import Path
    from typing import TextIO

    from stepscope.analysis.diagnose import Diagnosis
    from stepscope.analysis.verdict import Verdict
    from stepscope.schema.run import Process
    from stepscope.store.base import Reader

MIN_STEPS = 100
COLOURS = {"critical": "1;31", "warning": "33", "notice": "36"}
CLEAR_LINE = "\r\x1b[K"
"""Removes an unfinished line, such as a progress bar, which is drawn again after ours."""
TOO_EARLY = ("few_steps", "not_checked", "machine")
"""Verdicts that say nothing about a run."""


class VerdictLine:
    """Writes verdicts for the runs of a store folder, as far as their trainings have a terminal."""

    def __init__(self, folder: Path, store: Reader, proc: Path = PROC) -> None:
        self._folder, self._store, self._proc = folder, store, proc
        self._reported: set[str] = set()

    def report(self, process: Process, diagnosis: Diagnosis, *, has_ended: bool) -> None:
        """Writes the verdict on a run when it has had 100 steps, and when it has ended."""
        run_id = process.run_id
        is_due = has_ended or (diagnosis.checks.examined >= MIN_STEPS and run_id not in self._reported)
        is_here = process.host == os.uname().nodename
        if not (is_due and is_here and process.facts.get("shows_verdict", True)):
            return
        stream = open_console(process.pid, self._proc)
        if stream is None:
            return
        with contextlib.suppress(OSError), stream:  # the terminal may be closed
            if stream.isatty():
                self._write(process, self._verdict(process, diagnosis), stream, is_last=has_ended)

    def _verdict(self, process: Process, diagnosis: Diagnosis) -> Verdict:
        # Lazy: views compute it, as for page and commands; without a terminal, an agent loads none.
        from stepscope.views.overview.run_verdict import verdict_for
        from stepscope.views.run_context import stored_run
        from stepscope.views.run_figures import figures_of

        muted: frozenset[str] = frozenset()
        with contextlib.closing(open_marks(self._folder)) as marks, contextlib.suppress(StoreError):
            muted = marks.muted(process.run_id, process.project)
        run = stored_run(self._store, process.run_id)
        return verdict_for(run, muted, figures_of(run), diagnosis)

    def _write(self, process: Process, verdict: Verdict, stream: TextIO, *, is_last: bool) -> None:
        if verdict.id in TOO_EARLY:
            return
        self._reported.add(process.run_id)
        if is_last:
            self._reported.discard(process.run_id)
        advice = f" Try: {', '.join(verdict.tries)}." if verdict.tries else ""
        line = f"{process.name}: {verdict.headline}{advice} Details: stepscope diagnose "
        text = "\n".join(wrapped(f"stepscope: {line}{shlex.quote(process.name)}", stream))
        colour = COLOURS.get(verdict.severity)
        stream.write(f"{CLEAR_LINE}{painted(text, colour, stream) if colour else text}\n")
