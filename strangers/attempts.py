"""Runs the script of a trainer one way: alone, under `stepscope run`, or with the callback."""

import json
import os
import re
import shutil
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from strangers.catalogue import ROOT, Trainer
from strangers.environment import OLD_CHECKPOINTS, variables

Mode = Literal["bare", "run", "callback", "both", "run, resumed", "callback, resumed"]

LIMIT_S = 240

EXPECTED = (
    re.compile(r"^stepscope: Run .+ in .+"),
    re.compile(r"^stepscope: watching .+"),
)
"""What stepscope says when all is well: where the run is, and what it watches."""

_PROGRESS = re.compile(r"^.*\d+%\|.*\[.*?\]")
"""A progress bar without its line end, before what was printed next."""

_TROUBLE = re.compile(r"warn|error|exception|traceback", re.IGNORECASE)


@dataclass(frozen=True)
class Outcome:
    """What a script says of its own training."""

    steps: int
    losses: tuple[str, ...]
    """To the bit, as hexadecimal numbers."""
    weights: str
    seconds: float
    cpu_seconds: float


@dataclass(frozen=True)
class Attempt:
    """One way of running a script, and what came of it."""

    mode: Mode
    folder: Path
    exit_code: int
    stderr: str
    outcome: Outcome | None
    """None if the script failed."""

    @property
    def store(self) -> Path:
        """The folder of the store."""
        return self.folder / "store"

    @property
    def own_lines(self) -> list[str]:
        """What stepscope has printed, without the lines that it always prints."""
        lines = (line.replace(str(ROOT), "") for line in self._lines())
        own = [line for line in lines if "stepscope" in line.lower()]
        return [line for line in own if not any(pattern.match(line) for pattern in EXPECTED)]

    @property
    def trouble(self) -> set[str]:
        """The kinds of warnings and errors on standard error, without numbers and paths that differ."""
        own_switch = next(iter(OLD_CHECKPOINTS))  # PyTorch warns of it where a checkpoint is loaded
        lines = (line.replace(str(self.folder), "") for line in self._lines() if own_switch not in line)
        return {re.sub(r"0x[0-9a-f]+|\d+", "#", line) for line in lines if _TROUBLE.search(line)}

    def _lines(self) -> list[str]:
        return [_PROGRESS.sub("", line).strip() for line in re.split(r"[\r\n]+", self.stderr)]


def attempt(trainer: Trainer, mode: Mode, python: Path, folder: Path) -> Attempt:
    """Runs the script of a trainer in an empty folder; a resumed one twice, the second from a checkpoint."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    if not mode.endswith("resumed"):
        return _start(trainer, mode, python, folder, ())
    whole = _default_steps(trainer)
    first = _start(trainer, mode, python, folder, ("--steps", str(whole // 2)))
    if first.outcome is None:
        return first
    second = _start(trainer, mode, python, folder, ("--steps", str(whole), "--resume"))
    return Attempt(mode, folder, second.exit_code, first.stderr + second.stderr, second.outcome)


def _start(trainer: Trainer, mode: Mode, python: Path, folder: Path, arguments: tuple[str, ...]) -> Attempt:
    command = [*_script(trainer, python), "--folder", str(folder), *arguments]
    if mode in {"callback", "both", "callback, resumed"}:
        command.append("--callback")
    if mode in {"run", "both", "run, resumed"}:
        resume = ["--resume"] if "--resume" in arguments else []
        command = [str(python.with_name("stepscope")), "run", "--name", "trial", *resume, "--", *command]
    (folder / "outcome.json").unlink(missing_ok=True)
    output = folder / "stderr.txt"
    with output.open("w") as errors, (folder / "stdout.txt").open("w") as printed:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=variables(folder),
            stdin=subprocess.DEVNULL,
            stdout=printed,
            stderr=errors,
            start_new_session=True,
        )
        try:
            exit_code = process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # with the ranks that it has started
            exit_code = process.wait()
    return Attempt(mode, folder, exit_code, output.read_text(errors="replace"), _outcome(folder))


def _script(trainer: Trainer, python: Path) -> list[str]:
    started = ["-m", *trainer.launcher] if trainer.launcher else []
    if trainer.as_module:
        return [str(python), *started, "-m", trainer.file.stem]
    return [str(python), *started, str(trainer.file)]


def _default_steps(trainer: Trainer) -> int:
    """The number of steps that the script takes by default, as it is written there."""
    match = re.search(r"Trial\(steps=(\d+)\)", trainer.file.read_text())
    if match is None:
        raise ValueError(f"{trainer.file.name} does not say how many steps it takes.")
    return int(match[1])


def _outcome(folder: Path) -> Outcome | None:
    file = folder / "outcome.json"
    if not file.exists():
        return None
    values = json.loads(file.read_text())
    return Outcome(**{**values, "losses": tuple(values["losses"])})
