"""Runs the script of a case in a store of its own, and reads what the diagnosis says of it."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from stepscope.analysis.build import WindowRequest, build_window
from stepscope.analysis.detector_registry import make_detectors, window_request
from stepscope.cli.diagnose import report_of
from stepscope.reading import open_store
from stepscope.schema.keys import STEP_SECONDS
from stepscope.schema.window import Window
from stepscope.store.open import open_reader
from zoo.answer import Answer, answer_in
from zoo.case import Case

LIMIT_S = 600

STEADY_TIMES = {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "PYTHONUNBUFFERED": "1"}
"""One thread for a training: the other processor is for loader workers and for the agent."""

NEIGHBOUR = "while True: pass"


@dataclass(frozen=True)
class Settings:
    """How a case is run."""

    dose: float = 1.0
    seed: int = 0
    neighbours: int = 0
    """Busy processes beside it."""


@dataclass(frozen=True)
class Trial:
    """One run of a case."""

    case: Case
    settings: Settings
    answer: Answer
    window: Window | None
    alerts: tuple[str, ...]
    exit_code: int
    last_line: str
    """What the script printed last on standard error."""


def run(case: Case, settings: Settings) -> Trial:
    """Runs the script of a case and waits until it has ended."""
    with (
        tempfile.TemporaryDirectory(prefix="zoo-", ignore_cleanup_errors=True) as folder,
        _neighbours(settings.neighbours),
    ):
        exit_code, last_line = _train(case, settings, Path(folder))
        return _read(case, settings, Path(folder) / "store", exit_code, last_line)


def seconds_per_step(window: Window) -> float:
    """Returns the time from the first steady step to the last, divided by their number."""
    rank = window.ranks[0]
    times = rank.times[rank.steady & rank.columns[STEP_SECONDS].finite]
    return float(times[-1] - times[0]) / (len(times) - 1)


def busy_share(during_s: float = 1.0) -> float:
    """Returns the share of the processors' time that programs use now."""
    before = _processor_times()
    time.sleep(during_s)
    idle, whole = (now - then for now, then in zip(_processor_times(), before, strict=True))
    return 1 - idle / whole if whole else 0.0


def _processor_times() -> tuple[int, int]:
    """Returns the idle and the whole time since the start of the machine."""
    times = [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return times[3] + times[4], sum(times)


def _train(case: Case, settings: Settings, folder: Path) -> tuple[int, str]:
    launcher = ["-m", *case.launcher] if case.launcher else []
    strength = ["--dose", str(settings.dose), "--seed", str(settings.seed)]
    command = [sys.executable, *launcher, str(case.file), *strength, *case.arguments]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("STEPSCOPE_")}
    errors = folder / "stderr.txt"
    with errors.open("w") as printed:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env={**kept, **STEADY_TIMES, "STEPSCOPE_DIR": str(folder / "store")},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=printed,
            start_new_session=True,
        )
        try:
            exit_code = process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # with the ranks and workers that it has started
            exit_code = process.wait()
    lines = [line for line in errors.read_text(errors="replace").splitlines() if line.strip()]
    return exit_code, lines[-1][:200] if lines else ""


def _read(case: Case, settings: Settings, store: Path, exit_code: int, last_line: str) -> Trial:
    runs = open_store(store)
    try:
        recorded = runs.runs()[-1]
        answer = answer_in(report_of(runs, recorded))
        alerts = tuple(f"{alert['rule']}: {alert['message']}" for alert in recorded.alerts())
        kinds = frozenset(event.kind for event in recorded.events())
        keys = frozenset(info.key for info in (*recorded.keys(), *recorded.machine_keys()))
    finally:
        runs.close()
    reader = open_reader(store)
    try:
        window = build_window(reader, recorded.id, _everything(keys, kinds))
    finally:
        reader.close()
    return Trial(case, settings, answer, window, alerts, exit_code, last_line)


def _everything(keys: frozenset[str], kinds: frozenset[str]) -> WindowRequest:
    """Requests all that was recorded: detectors that do not exist yet will read other keys."""
    known = window_request(make_detectors({})[0])
    return WindowRequest(known.keys | keys, known.courses, known.events | kinds)


@contextmanager
def _neighbours(count: int) -> Iterator[None]:
    processes = [subprocess.Popen([sys.executable, "-c", NEIGHBOUR]) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()
