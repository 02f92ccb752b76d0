"""Trains the same model in processes of their own: alone, and found by `stepscope run` without edits."""

import json
import os
import subprocess
import sys
from collections.abc import Generator
from typing import Any

from benchmarks.step_contenders import Contender, Took, Work
from stepscope.attach.environment import attached


class OwnProcess(Contender):
    """The plain loop as a program."""

    name = "process"
    base = "process"

    def blocks(self, model: Any, optimizer: Any, work: Work) -> Generator[Took, None, None]:
        """Trains a model of the same size, block by block."""
        task = {
            "layers": sum(type(part).__name__ == "Linear" for part in model),
            "width": model[0].in_features,
            "rows": len(work.data[0]),
            "steps": work.steps,
            "forwards": work.forwards,
            "device": work.device,
        }
        command = [sys.executable, "-m", "benchmarks.step_peers.unedited_loop", json.dumps(task)]
        pipe = subprocess.PIPE
        with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=self.environment()) as process:
            if process.stdin is None or process.stdout is None:
                raise RuntimeError("the process has no pipes")
            while True:
                process.stdin.write("\n")
                process.stdin.flush()
                yield Took(*json.loads(process.stdout.readline()))

    def environment(self) -> dict[str, str]:
        """That of the program."""
        return dict(os.environ)


class Unedited(OwnProcess):
    """The same program as under `stepscope run`."""

    name = "unedited"

    def environment(self) -> dict[str, str]:
        """Adds what `stepscope run` adds."""
        return attached({**os.environ, "STEPSCOPE_DIR": self.folder}, is_quiet=True)
