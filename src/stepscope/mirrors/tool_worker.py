"""The process in which the library of another program runs: answers requests, one line of JSON each."""

from __future__ import annotations

import json
import os
import socket
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from stepscope.schema.redact import redact_text

if TYPE_CHECKING:
    from collections.abc import Mapping

DEFAULTS = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",  # the agent itself tries again, and says so
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "20",
    "WANDB_SILENT": "true",
}
"""Settings of the programs, where the user has not set them."""


class Refused(Exception):
    """The program refuses what it was given; trying again does not help."""


class OutOfOrder(Exception):
    """The library is in a state in which trying again fails; it works again in another process."""


class ToolWriter(ABC):
    """Writes starts of runs into another program. Each call names its start in full."""

    @abstractmethod
    def write(self, start: Mapping[str, Any], rows: list[list[Any]], arrays: list[dict[str, Any]]) -> None:
        """Writes rows and histograms of a start, and its hyper-parameters where they are new."""

    @abstractmethod
    def end(self, start: Mapping[str, Any]) -> None:
        """Ends a start with its status."""

    @abstractmethod
    def address(self, start: Mapping[str, Any]) -> str:
        """Where a person finds a start that was written."""

    @abstractmethod
    def close(self) -> None:
        """Completes what is open."""


def main(number: int) -> None:
    """Serves the socket with this file descriptor until the other side closes it."""
    for name, value in DEFAULTS.items():
        os.environ.setdefault(name, value)
    connection = socket.socket(fileno=number)
    with connection, connection.makefile("rwb") as lines:
        opening = json.loads(lines.readline())
        writer: ToolWriter | None = None
        for line in lines:
            try:
                writer = _writer(opening) if writer is None else writer
                answer = _answer(writer, json.loads(line))
            except Exception as error:  # noqa: BLE001 - the other side reports it
                answer = {
                    "error": _message(error),
                    "is_final": isinstance(error, Refused),
                    "is_out_of_order": isinstance(error, OutOfOrder),
                    "is_unreachable": isinstance(error, ConnectionError | TimeoutError),
                }
            lines.write(json.dumps(answer).encode() + b"\n")
            lines.flush()
        if writer is not None:
            writer.close()


def _writer(opening: Mapping[str, Any]) -> ToolWriter:
    # lazy: each loads the library of its program
    if opening["program"] == "MLflow":
        from stepscope.mirrors.mlflow_writer import MlflowWriter

        return MlflowWriter(**opening["options"])
    from stepscope.mirrors.wandb_writer import WandbWriter

    return WandbWriter(**opening["options"])


def _answer(writer: ToolWriter, request: Mapping[str, Any]) -> dict[str, Any]:
    writer.write(request["start"], request["rows"], request["arrays"])
    if request["end"]:
        writer.end(request["start"])
    return {"address": redact_text(writer.address(request["start"]))}


def _message(error: Exception) -> str:
    if isinstance(error, ModuleNotFoundError):
        return f"{error}. Install it with: pip install {error.name}"
    lines = str(error).splitlines() or [""]
    return redact_text((lines[0] or repr(error))[:500])  # addresses may contain passwords
