"""Starts the process in which the library of another program runs, and calls it.

The library is not loaded into the agent, nor into the training where the agent is a thread of it: it takes
hundreds of MB, may hang, and keeps state of its own, such as the current run of W&B.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stepscope.config.find import STARTED_VARIABLE
from stepscope.errors import StepscopeError
from stepscope.exporters.base import Unreachable

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import BinaryIO

TIMEOUT_S = 300.0
"""How long a call may take; the end of a run may have to upload what is left of it."""
END_TIMEOUT_S = 5.0
"""How long a process that has closed its connection may take to end."""
CLOSE_TIMEOUT_S = 60.0
"""How long `close` waits for the process; after that it goes on alone."""

OF_ONE_RUN = frozenset(
    {
        "MLFLOW_RUN_ID", "MLFLOW_EXPERIMENT_ID", "MLFLOW_EXPERIMENT_NAME", "WANDB_ATTACH_ID",
        "WANDB_JOB_TYPE", "WANDB_NAME", "WANDB_NOTES", "WANDB_RESUME", "WANDB_RUN_GROUP", "WANDB_RUN_ID",
        "WANDB_SERVICE", "WANDB_SWEEP_ID", "WANDB_SWEEP_PARAM_PATH", "WANDB_TAGS",
    }
)  # fmt: skip
"""Variables with which a training configures its own run; the process must not join or rename that run."""


class ToolError(StepscopeError):
    """Another program could not take what it was given."""

    def __init__(self, message: str, *, is_final: bool = False) -> None:
        """`is_final` says that trying again does not help."""
        super().__init__(message)
        self.is_final = is_final


class ToolUnreachable(ToolError, Unreachable):
    """The other program cannot be reached, such as a server that is down."""


class ToolProcess:
    """A process for one program; it is started by the first call, and again after it has failed."""

    def __init__(
        self, program: str, options: Mapping[str, Any], directory: Path, timeout_s: float = TIMEOUT_S
    ) -> None:
        """`program` is the name of a writer of `tool_worker`; relative paths start at `directory`."""
        self._program, self._options = program, dict(options)
        self._directory, self._timeout_s = directory, timeout_s
        self._process: subprocess.Popen[bytes] | None = None
        self._left_alone: list[subprocess.Popen[bytes]] = []
        self._socket: socket.socket | None = None
        self._lines: BinaryIO | None = None

    def call(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Passes a request on and returns the answer; raises ToolError."""
        try:
            self._start_if_needed()
            answer = self._exchange(json.dumps(request).encode() + b"\n")
        except OSError as error:
            self._kill()
            seconds = f"{self._timeout_s:g} s"
            reason = f"did not answer within {seconds}" if isinstance(error, TimeoutError) else str(error)
            text = f"The process for {self._program} {reason}; it is started again."
            raise (ToolUnreachable if isinstance(error, TimeoutError) else ToolError)(text) from error
        if "error" in answer:
            if answer["is_out_of_order"]:
                self._leave_alone()
            if answer["is_unreachable"]:
                raise ToolUnreachable(answer["error"])
            raise ToolError(answer["error"], is_final=answer["is_final"])
        return answer

    def close(self) -> None:
        """Lets the process complete its runs and end."""
        self._disconnect()
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(CLOSE_TIMEOUT_S)
        self._leave_alone()
        for left in self._left_alone:
            left.returncode = 0  # without this, Python warns that nobody has waited for it
        self._left_alone = []

    def _leave_alone(self) -> None:
        """Lets the process complete what it has, without waiting for it."""
        self._disconnect()
        if self._process is not None:
            self._left_alone.append(self._process)
        # One that has ended takes up a process number until it is polled.
        self._left_alone = [process for process in self._left_alone if process.poll() is None]
        self._process = None

    def _exchange(self, line: bytes) -> dict[str, Any]:
        if self._process is None or self._socket is None or self._lines is None:
            raise ConnectionError("is not running")
        self._socket.sendall(line)
        text = self._lines.readline()
        if not text.endswith(b"\n"):
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(END_TIMEOUT_S)
            raise ConnectionError(f"ended with exit code {self._process.returncode}")
        answer: dict[str, Any] = json.loads(text)
        return answer

    def _start_if_needed(self) -> None:
        if self._process is not None:
            return
        package = str(Path(__file__).parents[2])
        own, others = socket.socketpair()
        # The working directory may contain files named like modules we need: it is not searched.
        code = (
            f"import sys; sys.path[0] = {package!r}; from stepscope.mirrors.tool_worker import main; "
            f"main({others.fileno()})"
        )
        environment = {name: value for name, value in os.environ.items() if name not in OF_ONE_RUN}
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-c", code],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[others.fileno()],
                cwd=self._directory,
                env={**environment, STARTED_VARIABLE: "1"},
                start_new_session=True,  # Ctrl-C in the terminal of the training must not reach it
            )
        except OSError as error:
            own.close()
            raise ToolError(f"The process for {self._program} cannot be started: {error}.") from error
        finally:
            others.close()
        own.settimeout(self._timeout_s)
        self._socket, self._lines = own, own.makefile("rb")
        opening = {"program": self._program, "options": self._options}
        own.sendall(json.dumps(opening).encode() + b"\n")

    def _kill(self) -> None:
        process, self._process = self._process, None
        self._disconnect()
        if process is not None:
            process.kill()
            process.wait()

    def _disconnect(self) -> None:
        for connection in (self._lines, self._socket):
            if connection is not None:
                connection.close()
        self._lines = self._socket = None
