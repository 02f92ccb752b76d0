"""Detects exits that run no exit handler: `os._exit`, `os.exec*`, and the code passed to `sys.exit`."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager


class ExitHooks:
    """Replaces these functions in the process that installed it, but not in processes it forks.

    If a callback fails, the process still ends as it would have.
    """

    def __init__(
        self,
        on_exit: Callable[[int], None],
        on_exec: Callable[[], AbstractContextManager[None]],
        progress: Callable[[], object],
    ) -> None:
        self._on_exit, self._on_exec, self.progress = on_exit, on_exec, progress
        self._pid = os.getpid()
        self._is_active = False
        self._noted: tuple[object, object] | None = None
        self._real_exit, self._real_sys_exit = os._exit, sys.exit
        self._real_execv, self._real_execve = os.execv, os.execve

    def install(self) -> None:
        """Replaces the functions; the other `os.exec` functions call these two."""
        self._is_active = True
        self._real_exit, os._exit = os._exit, self._exit  # type: ignore[assignment]
        self._real_sys_exit, sys.exit = sys.exit, self._sys_exit  # type: ignore[assignment]
        self._real_execv, os.execv = os.execv, self._execv  # type: ignore[assignment]
        self._real_execve, os.execve = os.execve, self._execve  # type: ignore[assignment]

    def uninstall(self) -> None:
        """Restores the functions, except those that other code has replaced in the meantime."""
        self._is_active = False
        for module, name, own, real in (
            (os, "_exit", self._exit, self._real_exit),
            (sys, "exit", self._sys_exit, self._real_sys_exit),
            (os, "execv", self._execv, self._real_execv),
            (os, "execve", self._execve, self._real_execve),
        ):
            if getattr(module, name) == own:
                setattr(module, name, real)

    def exit_code(self) -> object:
        """The argument of `sys.exit`, if nothing was recorded since; None otherwise.

        A program that catches the exit and continues has recorded something since.
        """
        if self._noted is None or self._noted[1] != self.progress():
            return None
        return self._noted[0]

    def _is_mine(self) -> bool:
        return self._is_active and os.getpid() == self._pid

    def _exit(self, status: int) -> None:
        if self._is_mine():
            self._is_active = False
            with contextlib.suppress(Exception):
                self._on_exit(int(status) & 0xFF)
        self._real_exit(status)

    def _sys_exit(self, status: Any = None, /) -> None:
        if self._is_mine() and threading.current_thread() is threading.main_thread():
            self._noted = (status, self.progress())
        self._real_sys_exit(status)

    def _execv(self, path: Any, argv: Any, /) -> None:
        self._replace(self._real_execv, path, argv)

    def _execve(self, path: Any, argv: Any, env: Any) -> None:
        self._replace(self._real_execve, path, argv, env)

    def _replace(self, real: Callable[..., None], path: Any, *arguments: Any) -> None:
        # `os.execvp` tries each folder of the search path: most calls fail.
        if not self._is_mine() or not (isinstance(path, int) or os.access(path, os.X_OK)):
            real(path, *arguments)
            return
        with contextlib.ExitStack() as stack:
            with contextlib.suppress(Exception):
                stack.enter_context(self._on_exec())
            real(path, *arguments)
