"""`stepscope profile`: any Python program is profiled, and notices nothing of it."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("torch")

COMMAND = [sys.executable, "-m", "stepscope", "profile"]
MULTIPLIES = """
import pathlib, sys, time, torch
torch.set_num_threads(1)
left = torch.ones(200, 200)
def multiply():
    return left @ left
def is_profiled():
    return list(pathlib.Path(".").glob("**/train-*[0-9].json"))
def is_being_profiled():
    return torch.autograd._profiler_enabled()
print("begun", flush=True)
deadline = time.monotonic() + 60
until = globals()[sys.argv[1]]
while not until() and time.monotonic() < deadline:
    for _ in range(50):
        multiply()
for _ in range(50):
    multiply()
print("did it")
sys.exit(int(sys.argv[2]))
"""


@pytest.fixture
def profile(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    (tmp_path / "train.py").write_text(MULTIPLIES)

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*COMMAND, *words], capture_output=True, text=True, check=False, timeout=120)

    return run


def python(*words: str) -> list[str]:
    return ["--", sys.executable, *words]


@pytest.mark.slow
def test_a_window_of_a_program_is_shown_and_kept(profile, tmp_path: Path) -> None:
    window = ("--after", "0", "--for", "0.3", "--stacks", "--output", "out")
    done = profile(*window, *python("train.py", "is_profiled", "4"))
    assert done.returncode == 4
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert lines[:2] == ["begun", "did it"]
    assert lines[2].startswith("window   ")
    assert "compute" in lines[2]
    (row,) = [line for line in lines if line.startswith("aten::mm")]
    assert "train.py(5): multiply" in row
    assert any(line.startswith("Compute: ") and "aten::mm" in line for line in lines)
    (trace,) = (tmp_path / "out").glob("train-*.trace.json.gz")
    assert str(trace) in lines[-1]
    with gzip.open(trace) as file:
        assert json.load(file)["traceEvents"]


@pytest.mark.slow
def test_a_program_that_ends_inside_its_window_leaves_what_was_recorded(profile, tmp_path: Path) -> None:
    window = ("--after", "0", "--for", "600", "--json", "--store", "s")
    done = profile(*window, *python("train.py", "is_being_profiled", "0"))
    assert done.returncode == 0
    summary = json.loads(done.stdout.partition("did it\n")[2])
    assert summary["operations"][0]["name"] == "aten::mm"
    assert Path(summary["trace"]).parent == tmp_path / "s" / "profiles"
    (kept,) = (tmp_path / "s" / "profiles").glob("train-*[0-9].json")
    assert json.loads(kept.read_text()) == summary


@pytest.mark.slow
def test_a_program_that_ends_too_soon_gets_a_hint_what_to_change(profile) -> None:
    done = profile("--after", "600", *python("-c", "import torch"))
    assert done.returncode == 0
    assert "before the window began; pass a smaller --after" in done.stderr


@pytest.mark.slow
def test_a_program_that_uses_the_profiler_itself_keeps_it(profile, tmp_path: Path) -> None:
    code = (
        "import time, torch\n"
        "with torch.profiler.profile() as own:\n"
        "    until = time.monotonic() + 4\n"
        "    while time.monotonic() < until: torch.ones(9) + 1; time.sleep(0.01)\n"
        "print(any(event.key == 'aten::add' for event in own.key_averages()))\n"
    )
    done = profile("--after", "1", *python("-c", code))
    assert "True" in done.stdout
    assert "already in use" in done.stderr


def test_a_program_that_is_killed_has_its_signal_as_exit_code(profile) -> None:
    done = profile("--after", "60", *python("-c", "import os; os.kill(os.getpid(), 9)"))
    assert done.returncode == 128 + signal.SIGKILL
    assert "Nothing was profiled: the program ended before" in done.stderr


def test_ctrl_c_reaches_the_program_and_its_answer_is_ours(tmp_path: Path) -> None:
    code = (
        "import signal\ntry:\n    print('ready', flush=True)\n    signal.pause()\n"
        "except KeyboardInterrupt:\n    raise SystemExit(6)"
    )
    process = subprocess.Popen(
        [*COMMAND, "--after", "60", *python("-c", code)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    os.kill(process.pid, signal.SIGINT)
    process.communicate(timeout=120)
    assert process.returncode == 6


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        ([], 2, "Name a command to profile"),
        (["--", "sh", "-c", "true"], 2, "sh is not a Python interpreter; expected: python train.py"),
        (["--", "python3.999", "train.py"], 127, "There is no command 'python3.999'"),
        (["--output", "train.py/x", "--", sys.executable, "train.py"], 1, "cannot be created"),
        (["--for", "0", "--", "python", "x.py"], 2, "a window of 0 seconds records nothing"),
        (["--after", "soon", "--", "python", "x.py"], 2, "'soon' is not a number of seconds"),
        (["--top", "0", "--", "python", "x.py"], 2, "'0' is not a whole number"),
    ],
)
def test_misuse_is_explained(profile, words: list[str], code: int, says: str) -> None:
    done = profile(*words)
    assert done.returncode == code
    assert says in done.stderr
    assert "Traceback" not in done.stderr
