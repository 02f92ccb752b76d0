"""Executes cells in a real kernel, as a notebook does."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import nbclient
import nbformat

from stepscope.recorder.page_server import find_server


class Notebook:
    """The outputs of cells that were executed one after another in one kernel."""

    def __init__(self, *cells: str) -> None:
        document = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
        nbclient.NotebookClient(document, timeout=300, allow_errors=True).execute()
        self.outputs: list[list[Any]] = [cell.outputs for cell in document.cells]

    def shown(self, cell: int, form: str = "text/html") -> str:
        """What a cell shows in this form; fails unless it is one output."""
        shown = [output.data[form] for output in self.outputs[cell] if form in output.get("data", {})]
        assert len(shown) == 1, self.outputs[cell]
        return str(shown[0])

    def printed(self, cell: int) -> str:
        """What a cell has printed."""
        return "".join(output.text for output in self.outputs[cell] if output.output_type == "stream")

    def errors(self) -> list[tuple[int, str]]:
        """The cells that failed, and the names of their exceptions."""
        return [
            (number, output.ename)
            for number, outputs in enumerate(self.outputs)
            for output in outputs
            if output.output_type == "error"
        ]


def stop_server(folder: Path) -> None:
    """Ends the server that a notebook has started for a store."""
    server = find_server(folder)
    if server is not None:
        os.kill(server.pid, signal.SIGTERM)
