"""Records why the process ends: exception, exit, signal, fatal error."""

from __future__ import annotations

import atexit
import contextlib
import faulthandler
import os
import signal
import sys
import time
from typing import TYPE_CHECKING, Any

from stepscope.descriptors import hold, open_above_streams
from stepscope.filesystem import share
from stepscope.journal.folder import END_MARK, EXIT_NOTE_SUFFIX, TRACE_BYTES, TRACED_SIGNALS, make_run_folder
from stepscope.journal.layout import to_json
from stepscope.recorder.identity.notebook_kernel import running_shell
from stepscope.schema.redact import redact_start

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path
    from types import TracebackType

    from stepscope.descriptors import HeldDescriptor
    from stepscope.recorder.exit.exit_hooks import ExitHooks

RESERVED_BYTES = 4096
MAX_REASON = 1000
"""Characters of a reason that fit into the reserved space in any encoding."""


MAX_MESSAGE = 300
"""Characters of an exception's message in a reason."""


KERNEL_ENDED = "the kernel of the notebook was shut down or restarted"


_to_end: set[ExitReason] = set()
"""Those of recordings that are open in this process."""

_is_exiting = False


def others_end_later() -> bool:
    """Whether the interpreter is ending and has to end other recordings of this process after this one."""
    return _is_exiting and bool(_to_end)


class ExitReason:
    """Calls back when the interpreter ends, and writes a trace if the process is killed.

    A fatal error, SIGTERM or another signal that ends a process is handled by `faulthandler`: it writes the
    stack to a file and then lets the signal take effect immediately, even if the process hangs in a library.
    Signal handlers of the user, set before or after, are kept.
    """

    def __init__(
        self,
        path: Path,
        ended: Callable[[str, str], None],
        failed: Callable[[BaseException], None],
        hooks: ExitHooks,
    ) -> None:
        self._path = path
        self._ended, self._failed, self._hooks = ended, failed, hooks
        self._status, self._reason = "finished", ""
        self._previous_hook = sys.excepthook
        self._noted_before = getattr(sys, "last_value", None)
        self._cells = CellOutcome(hooks.progress)
        self._descriptors: list[HeldDescriptor] = []
        self._watches_faults = False
        self._watched: set[signal.Signals] = set()

    def install(self) -> None:
        """Installs the handlers."""
        _to_end.add(self)
        sys.excepthook = self._on_exception
        atexit.register(self._at_exit)
        self._hooks.install()
        self._cells.install()
        self._watch_signals()

    def uninstall(self, unwritten_end: Mapping[str, Any] | None = None) -> None:
        """Removes the handlers and the trace file, unless it holds an end that the journal could not store.

        An exception hook that replaced this one stays.
        """
        atexit.unregister(self._at_exit)
        self._hooks.uninstall()
        self._cells.uninstall()
        if sys.excepthook == self._on_exception:
            sys.excepthook = self._previous_hook
        if unwritten_end is None or not self._leave(unwritten_end):
            with contextlib.suppress(OSError):
                self._path.unlink(missing_ok=True)
        self.forget_signals()

    def _leave(self, unwritten_end: Mapping[str, Any]) -> bool:
        """Writes an end into the reserved space; returns False if that fails."""
        end = {**unwritten_end, "reason": str(unwritten_end["reason"])[:MAX_REASON], "time": time.time_ns()}
        line = f"\n{END_MARK}".encode() + to_json(end) + b"\n"
        with contextlib.suppress(OSError):
            return os.write(self._open_trace(len(TRACED_SIGNALS)), line) == len(line)
        with contextlib.suppress(OSError, StopIteration):
            # A process that has changed its user may not be able to open the path, but the file is still
            # open.
            held = next(descriptor for descriptor in self._descriptors if descriptor.is_own())
            return os.pwrite(held.number, line, len(TRACED_SIGNALS) * TRACE_BYTES) == len(line)
        return False

    def reopen(self) -> None:
        """Creates the trace file in the current folder, after the previous one was deleted or moved."""
        before, self._descriptors = self._descriptors, []
        self._watch_signals()
        for descriptor in before:
            descriptor.close()

    def reopen_if_closed(self) -> None:
        """Creates the trace file again if other code has closed its descriptors."""
        if self._descriptors and not self._descriptors[0].is_own():
            self.reopen()

    def forget_signals(self) -> None:
        """Removes the signal handlers; also called in forked children: signals and end are their own."""
        _to_end.discard(self)
        if self._watches_faults:
            faulthandler.disable()
        for number in self._watched:
            # Removing it would also remove a handler that was set after it.
            if signal.getsignal(number) is signal.SIG_DFL:
                faulthandler.unregister(number)
        self._watches_faults = False
        self._watched.clear()
        while self._descriptors:
            self._descriptors.pop().close()

    def _watch_signals(self) -> None:
        with contextlib.suppress(OSError, ValueError, RuntimeError):
            make_run_folder(self._path.parent)
            self._path.write_bytes(b"")
            share(self._path, self._path.parents[2])
            self._reserve()
            if self._watches_faults or not faulthandler.is_enabled():
                faulthandler.enable(self._open_trace(0))
                self._watches_faults = True
            for place, name in enumerate(TRACED_SIGNALS):
                number = signal.Signals[name]
                if signal.getsignal(number) is signal.SIG_DFL:
                    faulthandler.register(number, self._open_trace(place), all_threads=False, chain=True)
                    self._watched.add(number)

    def _reserve(self) -> None:
        """Reserves disk space for the end: the disk may be full by then."""
        with contextlib.suppress(OSError):
            os.posix_fallocate(self._open_trace(0), len(TRACED_SIGNALS) * TRACE_BYTES, RESERVED_BYTES)

    def _open_trace(self, place: int) -> int:
        """A descriptor that writes to its own part of the file: the part with text identifies the signal."""
        descriptor = hold(open_above_streams(self._path, os.O_WRONLY))
        self._descriptors.append(descriptor)
        os.lseek(descriptor.number, place * TRACE_BYTES, os.SEEK_SET)
        return descriptor.number

    def _on_exception(
        self,
        kind: type[BaseException],
        error: BaseException,
        trace: TracebackType | None,
    ) -> None:
        self._status, self._reason = "failed", describe(error)
        try:
            self._failed(error)
        finally:
            self._previous_hook(kind, error, trace)

    def _at_exit(self) -> None:
        global _is_exiting  # noqa: PLW0603 - one end of the process
        _is_exiting = True
        error = self._uncaught()
        if error is not None:
            self._status, self._reason = "failed", describe(error)
            with contextlib.suppress(Exception):
                self._failed(error)
        elif self._status == "finished":
            ending = self._cells.ending()
            self._status, self._reason = ending or outcome(SystemExit(self._hooks.exit_code()))
        self._ended(self._status, self._reason)

    def _uncaught(self) -> BaseException | None:
        """The exception that ends the program, if a later exception hook has not passed it on."""
        if self._status != "finished" or sys.excepthook == self._on_exception:
            return None
        # Python sets it before it calls any hook. At a prompt it may be one that did not end the program.
        error = None if hasattr(sys, "ps1") else getattr(sys, "last_value", None)
        return error if error is not self._noted_before else None


class CellOutcome:
    """Remembers how the last cell of a notebook ended that has recorded something.

    An exception in a cell ends no run, since the next cell may go on. But if the kernel ends after it, then
    it ended the training: a server that restarts a kernel interrupts the running cell first.
    """

    def __init__(self, progress: Callable[[], object]) -> None:
        self._progress = progress
        self._shell: Any = None
        self._before: object = None
        self._last: tuple[str, str] = ("finished", "")

    def install(self) -> None:
        """Follows the cells; does nothing outside a notebook."""
        self._shell = running_shell()
        if self._shell is not None:
            self._shell.events.register("pre_run_cell", self._begins)
            self._shell.events.register("post_run_cell", self._ended)

    def uninstall(self) -> None:
        """Follows them no longer."""
        shell, self._shell = self._shell, None
        if shell is not None:
            shell.events.unregister("pre_run_cell", self._begins)
            shell.events.unregister("post_run_cell", self._ended)

    def ending(self) -> tuple[str, str] | None:
        """Status and reason of a run that the end of its kernel ends; None outside a notebook."""
        if self._shell is None:
            return None
        status, reason = self._last
        return status, reason or KERNEL_ENDED

    def _begins(self, _info: object) -> None:
        self._before = self._progress()

    def _ended(self, result: Any) -> None:
        if self._progress() != self._before:
            # As text: an exception would keep all variables of its frames in memory.
            self._last = outcome(result.error_before_exec or result.error_in_exec)


def describe(error: BaseException) -> str:
    """An exception in one line, for people."""
    if isinstance(error, KeyboardInterrupt):
        return "interrupted by SIGINT"
    text = redact_start(str(error).strip(), MAX_MESSAGE).split("\n", 1)[0]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def outcome(error: BaseException | None) -> tuple[str, str]:
    """Status and reason of a block left with or without an exception."""
    if error is None:
        return "finished", ""
    if isinstance(error, SystemExit):
        code = error.code
        # The system keeps the last eight bits of a number; one that is too large for C ends with 255.
        clean = code is None or (isinstance(code, int) and not code & 0xFF and code.bit_length() < 64)
        return ("finished", "") if clean else ("failed", f"exit with {code!r}")
    return "failed", describe(error)


def path_beside(journal: Path) -> Path:
    """The path of a process's trace file, next to its journal."""
    return journal.with_name(f"{journal.name.rpartition('.')[0]}{EXIT_NOTE_SUFFIX}")
