"""What a Python program under `stepscope run` loads at its start, and when it stays out."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from stepscope.attach.environment import ATTACH_VARIABLE, START_FOLDER, attached, why_not_attached

SHOW = "import sys; print([name for name in sys.modules if name.split('.')[0] == 'stepscope'])"


def output_of(code: str, environment: dict[str, str], *options: str) -> str:
    ended = subprocess.run(
        [sys.executable, *options, "-c", code], env=environment, capture_output=True, text=True, check=False
    )
    assert ended.stderr == ""
    assert ended.returncode == 0
    return ended.stdout.strip()


def test_a_program_without_pytorch_loads_nothing_of_stepscope() -> None:
    assert output_of(f"import json, argparse; {SHOW}", attached(os.environ)) == "[]"


def test_the_folder_is_not_on_the_path_of_the_program() -> None:
    shown = output_of("import sys; print(sys.path)", attached(os.environ))
    assert shown == output_of("import sys; print(sys.path)", dict(os.environ))
    assert str(START_FOLDER) not in shown


def test_the_programs_own_sitecustomize_is_loaded_once_and_is_the_module_of_that_name(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import builtins\nbuiltins.loaded = ['own']\n")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    shown = output_of("import sitecustomize; print(loaded, sitecustomize.__file__)", attached(environment))
    assert shown == f"['own'] {tmp_path / 'sitecustomize.py'}"


def test_a_program_may_have_a_module_of_its_own_with_a_name_that_stepscope_waits_for(tmp_path: Path) -> None:
    (tmp_path / "argparse.py").write_text("name = 'own'\n")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    assert output_of("import argparse; print(argparse.name)", attached(environment)) == "own"


def test_an_error_in_the_programs_own_sitecustomize_is_reported_as_python_does(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import a_module_that_does_not_exist\n")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    ends = [
        subprocess.run(
            [sys.executable, "-c", "print(1)"], env=each, capture_output=True, text=True, check=False
        )
        for each in (environment, attached(environment))
    ]
    assert {end.returncode for end in ends} == {0}
    assert len({end.stderr for end in ends}) == 1


@pytest.mark.parametrize("switch", ["1", "true", " On "])
def test_a_switched_off_program_is_not_changed(switch: str) -> None:
    code = "import sys; print([type(finder).__name__ for finder in sys.meta_path])"
    environment = {**attached(os.environ), "STEPSCOPE_DISABLED": switch}
    assert output_of(code, environment) == output_of(code, dict(os.environ))


def test_looking_for_pytorch_without_importing_it_works_as_before() -> None:
    code = "import importlib.util; print(importlib.util.find_spec('torch').name)"
    assert output_of(code, attached(os.environ)) == "torch"


def test_an_earlier_path_is_kept_behind_the_folder() -> None:
    assert attached({"PYTHONPATH": "/a:/b"})["PYTHONPATH"] == f"{START_FOLDER}:/a:/b"
    assert attached({"PYTHONPATH": ""})["PYTHONPATH"] == str(START_FOLDER)
    assert attached({}, is_quiet=True)[ATTACH_VARIABLE] == "quiet"


@pytest.mark.parametrize(
    ("command", "option"),
    [
        ("python -I train.py", "-I"),
        ("python3.11 -uS -m package", "-S"),
        ("/usr/bin/python -W ignore -E train.py", "-E"),
        ("python train.py -I", None),
        ("python -X importtime -Wignore::UserWarning -u train.py", None),
        ("sh train.sh", None),
        ("torchrun train.py", None),
    ],
)
def test_options_that_keep_stepscope_out_are_known_before_the_program_runs(
    command: str, option: str | None
) -> None:
    reason = why_not_attached(command.split())
    assert (reason is None) == (option is None)
    assert option is None or option in str(reason)
