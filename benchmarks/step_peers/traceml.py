"""Watches with TraceML: `init(mode="auto")`, and `trace_step` around every step.

What it replaces in PyTorch is replaced for good. It is put back by hand after each block, so that nobody
else's steps pay for it. Its thread stays: what that does every two seconds falls on everybody's blocks alike.
"""

import atexit
import os
import socket
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch  # noqa: TID253 - it is what TraceML changes
import traceml_ai as traceml  # type: ignore[import-not-found, unused-ignore]  # a peer, rarely installed
from torch.utils.data import DataLoader  # noqa: TID253 - so is this
from traceml_ai.instrumentation.hooks.optimizer_hooks import (  # type: ignore[import-not-found, unused-ignore]
    reset_optimizer_timing,
)
from traceml_ai.runtime.lifecycle import (  # type: ignore[import-not-found, unused-ignore]
    get_active_runtime_handle,
)

from benchmarks.step_contenders import Contender

REPLACED: tuple[tuple[Any, str], ...] = (
    (torch.nn.Module, "__call__"),
    (torch.Tensor, "backward"),
    (torch.Tensor, "to"),
    (torch.autograd, "backward"),
    (DataLoader, "__iter__"),
)
"""All that `init` replaces; the optimizer's hooks come with the first step and can be taken off."""

END_LIMIT_S = 60


class TraceML(Contender):
    """Times every step with its input, forward, backward and optimizer; it is not told the loss."""

    name = "traceml"
    package = "traceml-ai"

    def __init__(self, folder: str) -> None:
        super().__init__(folder)
        port = _free_port()
        self._aggregator = _serve(folder, port)
        atexit.register(self._aggregator.terminate)
        before = _present()
        traceml.init(
            mode="auto",
            logs_dir=folder,
            session_id="overhead",
            aggregator_port=port,
            connect_timeout_sec=60,
            on_missing_aggregator="raise",
        )
        self._before, self._after = before, _present()
        _replace(self._before)

    def begin(self, model: Any, optimizer: Any) -> None:
        """Puts TraceML's functions into PyTorch."""
        self._model = model
        _replace(self._after)

    def batches(self, data: Iterable[Any]) -> Iterable[Any]:
        """Times the wait for each as that for a DataLoader; `trace_step` stays open while the loop has it."""
        for batch in traceml.wrap_dataloader_fetch(data):
            with traceml.trace_step(self._model):
                yield batch

    def end(self) -> None:
        """Puts PyTorch's own back."""
        _replace(self._before)
        reset_optimizer_timing()

    def finish(self) -> None:
        """Ends its thread, then the aggregator, which writes its summary."""
        handle = get_active_runtime_handle()
        if handle is not None:
            handle.stop()
        self._aggregator.terminate()
        self._aggregator.wait(END_LIMIT_S)


def _serve(folder: str, port: int) -> "subprocess.Popen[bytes]":
    """The aggregator, without which `init` does nothing."""
    command = [sys.executable, "-m", "traceml_ai.launcher.cli", "serve", "--run-name", "overhead"]
    command += ["--logs-dir", folder, "--aggregator-port", str(port)]
    with (Path(folder) / "traceml.txt").open("wb") as output:
        return subprocess.Popen(
            command, stdout=output, stderr=output, env={**os.environ, "DO_NOT_TRACK": "1"}
        )


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def _present() -> list[Any]:
    """What PyTorch holds now in each place; None where it inherits."""
    return [vars(owner).get(name) for owner, name in REPLACED]


def _replace(functions: list[Any]) -> None:
    for (owner, name), function in zip(REPLACED, functions, strict=True):
        if function is not None:
            setattr(owner, name, function)
        elif name in vars(owner):
            delattr(owner, name)
