"""Names and commands of runs in the kernel of a notebook, from what its server leaves in the process."""

from __future__ import annotations

import sys

import pytest

from stepscope.recorder.identity import notebook_kernel
from stepscope.recorder.identity.facts import facts
from stepscope.recorder.identity.rank_detection import identify
from stepscope.schema.privacy import Privacy

LAUNCHER = "/env/lib/python3.11/site-packages/ipykernel_launcher.py"
KERNEL = [LAUNCHER, "-f", "/run/user/1/jupyter/kernel-5c.json"]


@pytest.fixture
def in_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that was started as kernels are."""
    monkeypatch.setattr(sys, "argv", KERNEL)
    monkeypatch.setattr(sys, "orig_argv", ["python", "-m", "ipykernel_launcher", *KERNEL[1:]])
    monkeypatch.delenv("JPY_SESSION_NAME", raising=False)


@pytest.mark.parametrize(
    ("session", "name"),
    [
        ("/home/me/my study.ipynb", "my study"),
        ("work/Ünder.v2.ipynb", "Ünder.v2"),
        ("console-1-5c6d", "notebook"),
        ("/home/me/.ipynb", "notebook"),
        ("", "notebook"),
        (None, "notebook"),
    ],
)
@pytest.mark.usefixtures("in_kernel")
def test_a_run_is_named_after_the_notebook_of_jupyter(
    session: str | None, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if session is not None:
        monkeypatch.setenv("JPY_SESSION_NAME", session)
    assert identify(None, "p").name.startswith(f"{name}-")
    assert identify("mine", "p").name == "mine"


@pytest.mark.usefixtures("in_kernel")
def test_a_run_is_named_after_the_notebook_of_vs_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["__main__"], "__vsc_ipynb_file__", "/w/lab.ipynb", raising=False)
    assert identify(None, "p").name.startswith("lab-")
    assert facts(1, Privacy())["command"] == ["/w/lab.ipynb"]


@pytest.mark.usefixtures("in_kernel")
@pytest.mark.parametrize("words", [KERNEL, [""], [], [LAUNCHER.replace("ipy", "colab_")]])
def test_the_connection_file_is_in_no_name_and_no_command(
    words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", words)
    assert identify(None, "p").name.startswith("notebook-")
    assert facts(1, Privacy())["command"] == ["notebook"]


@pytest.mark.usefixtures("in_kernel")
def test_a_script_that_a_cell_runs_gives_its_own_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["train.py", "--lr", "1"])
    assert identify(None, "p").name.startswith("train-")


@pytest.mark.usefixtures("in_kernel")
def test_a_worker_of_a_kernel_shows_no_connection_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "orig_argv", ["python", "-c", "spawn_main()", "--multiprocessing-fork"])
    assert facts(1, Privacy())["command"] == ["notebook"]


def test_a_script_started_from_a_notebook_is_no_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JPY_SESSION_NAME", "/home/me/study.ipynb")
    monkeypatch.setattr(sys, "argv", ["train.py"])
    monkeypatch.setattr(sys, "orig_argv", ["python", "train.py"])
    assert not notebook_kernel.is_kernel()
    assert identify(None, "p").name.startswith("train-")
    assert facts(1, Privacy())["command"] == ["python", "train.py"]
