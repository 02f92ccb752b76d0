"""`stepscope run` finds the training in all kinds of commands, and is one run with it."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from stepscope import open_store
from stepscope.reading import Run

pytestmark = pytest.mark.slow

EXAMPLE = Path(__file__).parents[2] / "examples" / "unedited.py"
TORCHRUN = str(Path(sys.executable).with_name("torchrun"))
ACCELERATE = str(Path(sys.executable).with_name("accelerate"))

TRAIN = """
import torch

torch.manual_seed(0)
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(6):
    loss = model(torch.randn(4, 8)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""

DISTRIBUTED = """
import os, sys
import torch
import torch.distributed as dist

def train(rank=None, world=2):
    if rank is not None:
        dist.init_process_group("gloo", init_method=sys.argv[1], rank=rank, world_size=world)
    else:
        dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(6):
        loss = model(torch.randn(4, 8)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    dist.destroy_process_group()
"""


class Ended:
    """A command that `stepscope run` has run, and its run."""

    def __init__(self, ended: subprocess.CompletedProcess[str], folder: Path) -> None:
        self.exit_code, self.printed, self.said = ended.returncode, ended.stdout, ended.stderr
        self.runs = open_store(folder).runs()

    @property
    def run(self) -> Run:
        assert len(self.runs) == 1
        return self.runs[0]

    def steps(self, rank: int = 0) -> list[int]:
        if all(series.key != "step_seconds" for series in self.run.keys()):
            return []
        return self.run.series("step_seconds", rank=rank).steps.tolist()


@pytest.fixture
def run(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Ended]:
    def run_command(*command: object, options: tuple[str, ...] = (), **environment: str) -> Ended:
        ended = subprocess.run(
            [sys.executable, "-m", "stepscope", "run", "--store", folder, *options, "--", *map(str, command)],
            env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        return Ended(ended, folder)

    return run_command


@pytest.fixture
def script(tmp_path: Path) -> Callable[[str], Path]:
    def write(code: str, name: str = "train.py") -> Path:
        path = tmp_path / name
        path.write_text(textwrap.dedent(code))
        return path

    return write


def test_the_example_is_one_run_with_steps_loss_epochs_and_parameters(run: Callable[..., Ended]) -> None:
    ended = run(sys.executable, EXAMPLE, "--epochs", 2)
    assert ended.exit_code == 0
    assert ended.steps() == list(range(64))
    assert ended.run.series("loss").steps.tolist() == list(range(64))
    assert set(ended.run.series("epoch").values.tolist()) == {0.0, 1.0}
    assert {"learning_rate", "phase/forward_seconds", "phase/backward_seconds"} <= {
        series.key for series in ended.run.keys()
    }
    params = {}
    for event in ended.run.events("params"):
        params.update(event.fields["params"])
    assert params == {"epochs": 2, "lr": 0.01, "width": 64}
    lines = [line for line in ended.said.splitlines() if line.startswith("stepscope:")]
    assert lines[1:] == ["stepscope: watching the steps of AdamW on Classifier"]
    assert (
        ended.printed
        == subprocess.run(
            [sys.executable, EXAMPLE, "--epochs", "2"], capture_output=True, text=True, check=True
        ).stdout
    )
    assert [event.kind for event in ended.run.events("console")] == ["console"]


def test_nothing_is_attached_if_that_is_switched_off(run: Callable[..., Ended], script) -> None:
    ended = run(sys.executable, script(TRAIN), options=("--no-attach",))
    assert ended.steps() == []
    assert ended.run.status == "finished"


def test_the_setting_switches_it_off_and_quiet_prints_nothing(run: Callable[..., Ended], script) -> None:
    ended = run(sys.executable, script(TRAIN), options=("--quiet",), STEPSCOPE_RECORDER__ATTACH="false")
    assert ended.steps() == []
    assert ended.said == ""


def test_quiet_records_steps_and_prints_nothing(run: Callable[..., Ended], script) -> None:
    ended = run(sys.executable, script(TRAIN), options=("--quiet",))
    assert ended.steps() == list(range(6))
    assert ended.said == ""


def test_an_isolated_interpreter_is_reported_and_recorded_without_steps(
    run: Callable[..., Ended], script
) -> None:
    ended = run(sys.executable, "-I", script("print('done')"))
    assert ended.printed == "done\n"
    assert "Steps are not recorded: python -I" in ended.said
    assert ended.run.status == "finished"


def test_a_script_that_records_itself_is_left_alone(run: Callable[..., Ended], script) -> None:
    code = """
    import torch, stepscope

    monitor = stepscope.TrainingMonitor()
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for number in range(6):
        loss = model(torch.randn(4, 8)).square().mean()
        loss.backward()
        optimizer.step()
        monitor.log({"own": number})
    """
    ended = run(sys.executable, script(code))
    assert ended.run.series("own").steps.tolist() == list(range(6))
    assert "loss" not in {series.key for series in ended.run.keys()}
    assert "watching" not in ended.said


@pytest.mark.parametrize(
    ("ending", "exit_code", "status"),
    [
        ("import os; os._exit(3)", 3, "failed"),
        ("raise ValueError('bad batch')", 1, "failed"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", 137, "crashed"),
    ],
)
def test_steps_and_the_end_of_a_training_are_one_run(
    run: Callable[..., Ended], script, ending: str, exit_code: int, status: str
) -> None:
    ended = run(sys.executable, script(f"{TRAIN}\nimport time; time.sleep(0.3)\n{ending}\n"))
    assert ended.exit_code == exit_code
    assert ended.run.status == status
    assert ended.run.series("loss").steps.tolist() == list(range(6))


@pytest.mark.parametrize("code", ["print(1)", "import torch\n1 / 0"])
def test_a_script_that_never_trains_is_recorded_as_a_command(
    run: Callable[..., Ended], script, code: str
) -> None:
    ended = run(sys.executable, script(code))
    assert ended.steps() == []
    assert ended.run.status == ("failed" if "/" in code else "finished")
    assert "watching" not in ended.said


def test_programs_of_a_shell_script_are_counted_on(run: Callable[..., Ended], script) -> None:
    train = script(TRAIN)
    shell = script(f"set -e\n{sys.executable} {train}\n{sys.executable} {train}\n", "both.sh")
    ended = run("sh", shell)
    assert ended.steps() == list(range(12))


def test_both_ranks_of_torchrun_are_recorded(run: Callable[..., Ended], script) -> None:
    path = script(f"{DISTRIBUTED}\ntrain()")
    ended = run(TORCHRUN, "--standalone", "--nproc-per-node", 2, path)
    assert ended.exit_code == 0, ended.said
    assert [ended.steps(rank) for rank in (0, 1)] == [list(range(6))] * 2


def test_spawned_processes_are_ranks(run: Callable[..., Ended], script, tmp_path: Path) -> None:
    main = "\nif __name__ == '__main__':\n    torch.multiprocessing.spawn(train, nprocs=2)\n"
    ended = run(sys.executable, script(DISTRIBUTED + main), f"file://{tmp_path / 'meeting'}")
    assert ended.exit_code == 0, ended.said
    assert [ended.steps(rank) for rank in (0, 1)] == [list(range(6))] * 2


def test_accelerate_launch_is_recorded(run: Callable[..., Ended]) -> None:
    loop = Path(__file__).parent / "loops" / "accelerate_4.py"
    ended = run(ACCELERATE, "launch", "--cpu", "--num_processes", 1, loop)
    assert ended.exit_code == 0, ended.said
    assert ended.steps() == list(range(4))
