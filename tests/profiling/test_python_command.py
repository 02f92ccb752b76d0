"""Which commands can be profiled, and how they are taken apart."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from stepscope.errors import StepscopeError
from stepscope.profiling.profiled_program import as_argument, parse_request
from stepscope.profiling.python_command import NotPython, python_command
from stepscope.profiling.window.seconds_window import WindowRequest
from stepscope.profiling.window.session import Detail

WANTED = WindowRequest(1.5, 2.0, Path("profiles/train"), Detail(shapes=True), 7)


@pytest.mark.parametrize(
    ("words", "options", "program", "name"),
    [
        ("python train.py --lr 0.1", "", "train.py --lr 0.1", "train"),
        ("/usr/bin/python3.11 -u src/fit.py", "-u", "src/fit.py", "fit"),
        ("python -m package.train -m 3", "", "-m package.train -m 3", "train"),
        ("python3 -um package.train x", "-u", "-m package.train x", "train"),
        ("python -mpackage.train", "", "-m package.train", "train"),
        ("python -W ignore -X dev -O train.py", "-W ignore -X dev -O", "train.py", "train"),
        ("python -Wignore -Xdev train.py", "-Wignore -Xdev", "train.py", "train"),
        ("python -c print(1) a", "", "-c print(1) a", "code"),
    ],
)
def test_a_python_program_is_separated_from_the_interpreters_options(
    words: str, options: str, program: str, name: str
) -> None:
    command = python_command(words.split())
    assert (" ".join(command.options), " ".join(command.program)) == (options, program)
    assert command.name == name


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("torchrun train.py", "torchrun is not a Python interpreter"),
        ("./train.py", "./train.py is not a Python interpreter"),
        ("python", "has no program"),
        ("python -u", "has no program"),
        ("python -m", "-m is followed by nothing"),
        ("python --version", "--version is not a program"),
        ("python - x", "- is not a program"),
    ],
)
def test_any_other_command_is_refused_with_what_is_expected(words: str, says: str) -> None:
    with pytest.raises(NotPython, match=says) as refused:
        python_command(words.split())
    assert "expected: python train.py" in str(refused.value)


def test_the_command_keeps_interpreter_options_and_program() -> None:
    words = python_command(["python3", "-u", "train.py", "--x"]).with_window(WANTED)
    assert words[:4] == ["python3", "-u", "-m", "stepscope.profiling.profiled_program"]
    assert words[5:] == ["train.py", "--x"]
    assert json.loads(words[4])["length_s"] == 2.0


def test_what_is_wanted_survives_the_way_into_the_other_process() -> None:
    assert parse_request(as_argument(WANTED)) == WANTED


def test_an_interpreter_without_stepscope_is_refused_with_what_to_type(tmp_path: Path) -> None:
    other = tmp_path / "python"
    other.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')
    other.chmod(0o755)
    command = python_command([str(other), "train.py"])
    with pytest.raises(StepscopeError, match="cannot import stepscope.*pip install"):
        command.check()
    python_command([sys.executable, "train.py"]).check()
