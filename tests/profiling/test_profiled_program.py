"""A program under `stepscope profile` behaves as it does without."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

LONG_AFTER = {"after_s": 600, "length_s": 1, "top": 5, "detail": {}}

TELLS_WHO_IT_IS = """
import __main__, os, sys
print(__name__, sys.argv, sys.path[0], __package__, __spec__ and __spec__.name)
print(__main__.__file__, __main__.__dict__ is globals())
"""
ENDINGS = {
    "falls off the end": "print('done')",
    "exits with a code": "import sys; sys.exit(3)",
    "exits with a message": "import sys; sys.exit('no data')",
    "raises": "def f():\n    raise ValueError('boom')\n\nf()",
    "raises from another": "try:\n    1 / 0\nexcept ArithmeticError as e:\n    raise KeyError(2) from e",
    "is interrupted": "raise KeyboardInterrupt",
    "does not parse": "for x in:\n    pass",
    "kills itself": "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
    "terminates itself": "import os, signal; os.kill(os.getpid(), signal.SIGTERM)",
    "leaves without ceremony": "import os; os._exit(5)",
    "does things at exit": "import atexit\nname = 'later'\natexit.register(lambda: print(name))",
    "has its own hook": "import sys\nsys.excepthook = lambda *it: print('mine', it[1])\nraise ValueError(2)",
    "has a thread": "import threading, time\ndef f():\n    time.sleep(0.1); print('after', __name__)\n"
    "threading.Thread(target=f).start()",
    "pickles what it defines": "import pickle\nclass A: pass\nprint(pickle.loads(pickle.dumps(A)) is A)",
}


@pytest.fixture
def both(tmp_path: Path) -> Callable[..., tuple[subprocess.CompletedProcess[str], ...]]:
    """Runs words behind `python`, once as they are and once with a window that never comes."""
    settings = json.dumps({**LONG_AFTER, "base": str(tmp_path / "out" / "x")})

    def run(*words: str) -> tuple[subprocess.CompletedProcess[str], ...]:
        commands = (
            [sys.executable, *words],
            [sys.executable, "-m", "stepscope.profiling.profiled_program", settings, *words],
        )
        return tuple(
            subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
            for command in commands
        )

    return run


def same(first: subprocess.CompletedProcess[str], other: subprocess.CompletedProcess[str]) -> None:
    assert (other.returncode, other.stdout, other.stderr) == (first.returncode, first.stdout, first.stderr)


@pytest.mark.parametrize("code", ENDINGS.values(), ids=list(ENDINGS))
def test_a_script_ends_as_it_does_alone(code: str, both, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(code)
    same(*both("script.py", "--flag"))


def test_a_script_finds_its_name_arguments_and_folder(both, tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "script.py").write_text(TELLS_WHO_IT_IS + "\nimport beside")
    (tmp_path / "deep" / "beside.py").write_text("print('found')")
    alone, inside = both("deep/script.py", "a b", "-c", "--")
    same(alone, inside)
    assert "found" in inside.stdout


def test_a_module_finds_its_name_arguments_and_package(both, tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").write_text("")
    (tmp_path / "package" / "train.py").write_text(TELLS_WHO_IT_IS + "\nfrom . import sibling")
    (tmp_path / "package" / "sibling.py").write_text("print('sibling')")
    (tmp_path / "package" / "__main__.py").write_text(TELLS_WHO_IT_IS)
    for name in ("package.train", "package"):
        same(*both("-m", name, "x"))


def test_code_on_the_command_line_runs_as_it_does_alone(both) -> None:
    same(*both("-c", "import sys; print(__name__, sys.argv, repr(sys.path[0]))", "a"))


def test_a_script_or_module_that_is_not_there_fails_as_it_does_alone(both) -> None:
    for words in (("nowhere.py",), ("-m", "nowhere")):
        same(*both(*words))


def test_a_worker_that_is_spawned_finds_what_the_script_defines(both, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(
        "import multiprocessing\n"
        "def double(x): return 2 * x\n"
        "if __name__ == '__main__':\n"
        "    with multiprocessing.get_context('spawn').Pool(1) as pool: print(pool.map(double, [21]))\n"
    )
    alone, inside = both("script.py")
    same(alone, inside)
    assert inside.stdout == "[42]\n"


def test_a_handler_of_the_script_answers_signals(both, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(
        "import os, signal, sys\n"
        "signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(7))\n"
        "os.kill(os.getpid(), signal.SIGTERM)\n"
        "signal.pause()\n"
    )
    alone, inside = both("script.py")
    same(alone, inside)
    assert inside.returncode == 7


def test_a_program_that_never_imports_torch_gets_a_reason(both, tmp_path: Path) -> None:
    both("-c", "pass")
    summary = json.loads((tmp_path / "out" / "x.json").read_text())
    assert "did not import torch" in summary["reason"]


def test_a_fork_that_ends_by_the_same_door_writes_nothing(both, tmp_path: Path) -> None:
    code = "import os, sys\nif os.fork() == 0:\n    sys.exit(0)\nos.wait()\nprint(os.listdir('.'))"
    _, inside = both("-c", code)
    assert "out" not in inside.stdout


def test_no_signal_but_the_one_it_uses_is_touched(both) -> None:
    code = (
        "import signal\n"
        "changed = [n for n in signal.valid_signals() if callable(signal.getsignal(n))]\n"
        "print(len(changed), all(n >= signal.SIGRTMIN or n == signal.SIGINT for n in changed))\n"
    )
    alone, inside = both("-c", code)
    assert (alone.stdout, inside.stdout) == ("1 True\n", "2 True\n")


def test_the_process_ends_itself_by_sigint_after_an_interrupt(both) -> None:
    alone, inside = both("-c", "raise KeyboardInterrupt")
    assert alone.returncode == inside.returncode == -signal.SIGINT
