"""Notes why the process is ending: exception, exit, signal, fatal error."""

from __future__ import annotations

import atexit
import contextlib
import faulthandler
import signal
import sys
from typing import TYPE_CHECKING, Any

from stepscope.schema.redact import redact_text

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import TracebackType


class LastWords:
    """Calls back when the interpreter ends, and leaves a trace when it has no time to.

    A fatal error or SIGTERM is caught below Python: the handler writes the stack to a file and lets the
    signal do its work at once, even while the process hangs in a library. A handler of the user's own,
    set before or after, is left to decide.
    """

    def __init__(
        self,
        path: Path,
        ended: Callable[[str, str], None],
        failed: Callable[[BaseException], None] = lambda _: None,
    ) -> None:
        self._path = path
        self._ended, self._failed = ended, failed
        self._status, self._reason = "finished", ""
        self._previous_hook = sys.excepthook
        self._file: Any = None
        self._watches_faults = self._watches_term = False

    def install(self) -> None:
        """Begins to listen."""
        sys.excepthook = self._on_exception
        atexit.register(self._at_exit)
        with contextlib.suppress(OSError, ValueError, RuntimeError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self._path.open("wb", buffering=0)
            self._watch_signals()

    def uninstall(self) -> None:
        """Stops listening and leaves no trace; a hook set over ours stays."""
        atexit.unregister(self._at_exit)
        if sys.excepthook == self._on_exception:
            sys.excepthook = self._previous_hook
        self.forget_signals()
        with contextlib.suppress(OSError):
            self._path.unlink(missing_ok=True)

    def forget_signals(self) -> None:
        """Takes the handlers away; also in a forked child, whose signals say nothing of its parent."""
        if self._watches_faults:
            faulthandler.disable()
        if self._watches_term:
            faulthandler.unregister(signal.SIGTERM)
        self._watches_faults = self._watches_term = False
        if self._file is not None:
            self._file.close()
            self._file = None

    def _watch_signals(self) -> None:
        if not faulthandler.is_enabled():
            faulthandler.enable(self._file)
            self._watches_faults = True
        if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            faulthandler.register(signal.SIGTERM, self._file, all_threads=False, chain=True)
            self._watches_term = True

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
        self._ended(self._status, self._reason)


def describe(error: BaseException) -> str:
    """One line for an exception, as a person would say it."""
    if isinstance(error, KeyboardInterrupt):
        return "interrupted by SIGINT"
    text = redact_text(str(error)).strip().split("\n", 1)[0][:300]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def outcome(error: BaseException | None) -> tuple[str, str]:
    """Status and reason of a block left with or without an exception."""
    if error is None:
        return "finished", ""
    if isinstance(error, SystemExit):
        code = error.code
        clean = code is None or code == 0
        return ("finished", "") if clean else ("failed", f"exit with {code!r}")
    return "failed", describe(error)


def path_beside(journal: Path) -> Path:
    """Where the trace of a process is left, beside its journal."""
    return journal.with_name(f"{journal.name.rpartition('.')[0]}.words")
