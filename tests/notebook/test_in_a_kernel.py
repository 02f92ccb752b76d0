"""Cells in a real kernel: names, pictures, `%%watch`, interrupts, the end of the kernel."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import stepscope
from stepscope.recorder.page_server import find_server
from stepscope.schema.run import LIVE

pytest.importorskip("nbclient", reason="pip install nbclient ipykernel")
from jupyter_client.manager import KernelManager

from tests.notebook.kernels import Notebook, stop_server

PAGE = Path(__file__).parents[2] / "docs" / "notebooks.md"
STEPS = "for step in range(5): monitor.log_training_step(loss=1 / (step + 1))"


@pytest.fixture(autouse=True)
def settings(folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """A store of the test's own, and no process that stays."""
    variables = {
        "STEPSCOPE_DIR": str(folder),
        "STEPSCOPE_AGENT__LINGER_S": "0",
        "STEPSCOPE_DASHBOARD__PORT": "0",
        "JPY_SESSION_NAME": str(tmp_path / "Ünder study 1.ipynb"),
        "IPYTHONDIR": str(tmp_path / "ipython"),
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    yield
    stop_server(folder)


@pytest.mark.slow
def test_the_set_up_of_the_page_shows_the_run_and_the_page(folder: Path, read) -> None:
    cells = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    notebook = Notebook(*cells)
    assert notebook.errors() == []
    _, watched, framed, stored = range(len(cells))
    for cell in (watched, stored):
        assert notebook.shown(cell).startswith('<div class="stepscope-run">')
        assert "<polyline" in notebook.shown(cell)
    assert read("first").status == "finished"
    assert len(read("first").series("loss")) == 200
    server = find_server(folder)
    assert server is not None
    frame = notebook.shown(framed)
    assert f"/run/{read('first').id}" in frame
    assert Path(server.token_file).read_text().strip() not in "".join(map(str, notebook.outputs))


def test_a_run_is_named_after_its_notebook_and_shows_no_connection_file(read, without_agent) -> None:
    notebook = Notebook(
        "import stepscope, sys; sys.argv = ['']\nmonitor = stepscope.TrainingMonitor()",
        STEPS,
        "monitor",
        "monitor.stop_monitoring(); print(monitor.identity.name)",
    )
    assert notebook.errors() == []
    name = notebook.printed(3).strip()
    assert re.fullmatch(r"Ünder study 1-\d{8}-\d{6}-\w{4}", name)
    (command,) = {tuple(process.facts["command"]) for process in read(name).segments[0].processes}
    assert command == (os.environ["JPY_SESSION_NAME"],)
    assert notebook.shown(2, "text/plain") == f"<TrainingMonitor '{name}' (recording)>"
    assert "<polyline" in notebook.shown(2)


@pytest.mark.slow
def test_a_monitor_records_on_after_an_interrupt_and_a_repeated_cell_ends_its_earlier_run(read) -> None:
    make = "import stepscope\nmonitor = stepscope.TrainingMonitor(run='a')"
    resumed = make.replace("'a'", "'c', resume=True") + "\nmonitor.start_monitoring()"
    beside = "other = stepscope.TrainingMonitor(run='b')\nother.log_training_step(loss=1.0)"
    notebook = Notebook(
        *(make, STEPS, f"{STEPS}\nraise KeyboardInterrupt", STEPS, beside, make, STEPS),
        *("other.is_recording", resumed, STEPS, resumed, STEPS),
    )
    assert notebook.errors() == [(2, "KeyboardInterrupt")]
    assert read("c").series("loss").steps.tolist() == list(range(10))
    assert len(read("a").series("loss")) == 15
    assert (read("a").status, read("a").reason) == ("finished", "its cell was run again")
    assert len(read("a-2").series("loss")) == 5
    assert notebook.shown(7, "text/plain") == "True"


@pytest.mark.slow
def test_a_watched_cell_is_a_run_with_the_end_of_the_cell(read, folder: Path, tmp_path: Path) -> None:
    notebook = Notebook(
        "%load_ext stepscope",
        f"%%watch good\n{STEPS}\n41 + 1",
        f"%%watch bad\n{STEPS}\n1 / 0",
        f"%%watch good\n{STEPS}",
        "monitor.start_monitoring()",
        "%%watch refused\npass",
        "%%watch --nonsense\npass",
        f"monitor.stop_monitoring()\n%stepscope --store {tmp_path / 'typo'}",
        "%%watch broken\nprint(1",
        "%%watch waits\nimport asyncio\nawait asyncio.sleep(0)",
        "import asyncio, stepscope\n"
        f"with stepscope.TrainingMonitor(run='instead') as monitor:\n    await asyncio.sleep(0)\n    {STEPS}",
        "%%watch annotated\ndef size(of: int): ...\nsize.__annotations__",
    )
    assert notebook.errors() == [(2, "ZeroDivisionError"), (8, "SyntaxError")]
    assert (read("good").status, read("good-2").status) == ("finished", "finished")
    assert (read("bad").status, read("bad").reason) == ("failed", "ZeroDivisionError: division by zero")
    assert len(read("bad").series("loss")) == 5
    assert "stepscope-run" in notebook.shown(2)
    assert "42" in [output.data["text/plain"] for output in notebook.outputs[1] if "data" in output]
    assert "monitor.stop_monitoring()" in notebook.printed(5)
    assert "unrecognized arguments" in notebook.printed(6)
    assert f"There is no store at {tmp_path / 'typo'}" in notebook.printed(7)
    assert not (tmp_path / "typo").exists()
    assert "with stepscope.TrainingMonitor() as monitor: ..." in notebook.printed(9)
    annotations = [output.data["text/plain"] for output in notebook.outputs[11] if "data" in output]
    assert "{'of': int}" in annotations  # the cell means the same as without %%watch
    names = {run.name for run in stepscope.open_store(folder).runs()}
    assert names == {"good", "good-2", "bad", "instead", "annotated"}


@pytest.mark.slow
def test_a_server_that_allows_no_frames_is_explained(folder: Path, monkeypatch) -> None:
    monkeypatch.setenv("STEPSCOPE_DASHBOARD__ENABLED", "true")
    notebook = Notebook(
        "%load_ext stepscope\nimport stepscope",
        f"monitor = stepscope.TrainingMonitor(run='a')\n{STEPS}\nassert monitor.url",
        "%stepscope a",
        "%stepscope nothing",
    )
    assert "allows no frames" in notebook.printed(2)
    assert "There is no run 'nothing'" in notebook.printed(3)


def shut_down(manager: KernelManager) -> None:
    manager.shutdown_kernel()


def kill(manager: KernelManager) -> None:
    os.kill(manager.provisioner.pid, signal.SIGKILL)


ENDS = {
    "a kernel that is shut down": (shut_down, "", "finished", "kernel of the notebook was shut down"),
    "a kernel that is shut down after a failure": (shut_down, "1 / 0", "failed", "ZeroDivisionError"),
    "a kernel that is shut down in a cell": (shut_down, "wait", "failed", "interrupted by SIGINT"),
    "a kernel that is killed in a cell": (kill, "wait", "crashed", "was killed"),
}


@pytest.mark.slow
@pytest.mark.parametrize(("end", "last", "status", "reason"), ENDS.values(), ids=ENDS)
def test_the_end_of_the_kernel_ends_the_run_as_what_it_was(
    end: Callable[[KernelManager], None], last: str, status: str, reason: str, read, until, tmp_path: Path
) -> None:
    manager = KernelManager(kernel_name="python3")
    manager.start_kernel()
    client = manager.client()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=120)
        code = f"import stepscope\nmonitor = stepscope.TrainingMonitor(run='a')\n{STEPS}\n"
        if last == "wait":
            mark = tmp_path / "waits"
            client.execute(
                f"{code}import time; open({str(mark)!r}, 'w').close()\nwhile True: time.sleep(0.01)"
            )
            until(mark.exists)
        else:
            client.execute_interactive(f"{code}{last}", timeout=120, output_hook=lambda _: None)
        end(manager)
        until(lambda: read("a").status not in LIVE)
        assert read("a").status == status
        assert reason in read("a").reason
        assert len(read("a").series("loss")) == 5
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
