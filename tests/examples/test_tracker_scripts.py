"""Scripts as tutorials of W&B and trackio have them, with no change but the import."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from stepscope.reading import Run

pytestmark = pytest.mark.slow

IMPORTS = "import stepscope as wandb\nimport stepscope as trackio\nimport os, random, time\nimport torch\n"

MODEL = """
torch.manual_seed(0)
data = torch.utils.data.TensorDataset(torch.randn(64, 4), torch.randint(0, 2, (64,)))
loader = torch.utils.data.DataLoader(data, batch_size=8)
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
criterion = torch.nn.CrossEntropyLoss()
"""

MNIST = """
wandb.login()
wandb.init(
    project="pytorch-demo", entity="me", name="mnist",
    config=dict(epochs=2, batch_size=8, learning_rate=0.1, dataset="MNIST", architecture="CNN"),
)
config = wandb.config
wandb.watch(model, criterion, log="all", log_freq=10)
example_ct = 0
for epoch in range(config.epochs):
    for batch, (images, labels) in enumerate(loader):
        loss = criterion(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        example_ct += len(images)
        if (batch + 1) % 4 == 0:
            wandb.log({"epoch": epoch, "loss": loss}, step=example_ct)
    with torch.no_grad():
        correct = sum((model(x).argmax(1) == y).sum().item() for x, y in loader)
    wandb.log({"test_accuracy": correct / 64})
    wandb.run.summary["best_accuracy"] = correct / 64
torch.save(model.state_dict(), os.path.join(wandb.run.dir, "model.pt"))
wandb.save("model.pt")
"""

WATCHED = """
run = wandb.init(project="demo", name="watched")
run.watch(model)
for epoch in range(2):
    for x, y in loader:
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
        run.log({"train": {"loss": loss.item()}}, commit=False)
        run.log({"lr": optimizer.param_groups[0]["lr"]})
run.finish()
"""

ALERTS = """
with wandb.init(project="demo", name="alerts", config={"threshold": 0.3}) as run:
    for epoch in range(5):
        acc = random.random() * 0.2
        run.log({"acc": acc, "image": wandb.Image([[1]])})
        if acc < run.config.threshold:
            run.alert(
                title="Low accuracy", text=f"Accuracy {acc} is below {run.config.threshold}",
                level=wandb.AlertLevel.WARN, wait_duration=300,
            )
"""

ARTIFACTS = """
run = wandb.init(project="demo", name="artifacts", job_type="train", tags=["v1"], notes="first try")
run.define_metric("val/*", step_metric="epoch")
artifact = wandb.Artifact(name="model", type="model", metadata=dict(run.config))
artifact.add_file("train.py")
run.log_artifact(artifact, aliases=["latest"])
table = wandb.Table(columns=["x", "y"], data=[[1, 2]])
run.log({"table": table, "curve": wandb.plot.line(table, "x", "y"), "h": wandb.Histogram([1, 2, 3])})
wandb.termlog("done")
wandb.finish()
"""

SEVERAL = """
for seed in range(3):
    run = wandb.init(project="demo", group="seeds", name=f"seed-{seed}", config={"seed": seed}, reinit=True)
    for step in range(4):
        wandb.log({"loss": seed + step})
    run.finish()
"""

CHILD = """
import multiprocessing

def train(rank):
    with wandb.init(project="demo", name=f"child-{rank}", group="workers") as run:
        for step in range(4):
            run.log({"loss": rank + step})

if __name__ == "__main__":
    multiprocessing.set_start_method(os.environ["START"])
    wandb.setup()
    wandb.init(project="demo", name="parent")
    wandb.log({"loss": 9})
    processes = [multiprocessing.Process(target=train, args=(rank,)) for rank in range(2)]
    [process.start() for process in processes]
    [process.join() for process in processes]
    wandb.log({"loss": 8})
    wandb.finish()
"""

CRASH = """
wandb.init(project="demo", name="crash")
for step in range(10):
    wandb.log({"loss": 1 / (5 - step)})
"""

ENDLESS = """
wandb.init(project="demo", name="endless")
print("ready", flush=True)
while True:
    wandb.log({"loss": 1.0})
    time.sleep(0.01)
"""

TRACKIO = """
runs = 2
for run in range(runs):
    trackio.init(project="my-project", name=f"run-{run}", config={"lr": 0.01, "size": 64}, resume="never")
    for epoch in range(5):
        trackio.log({"train_loss": 1 / (epoch + 1), "val_acc": epoch / 5})
trackio.finish()
"""

OFF = """
wandb.init(project="demo", name="off", mode="disabled")
for step in range(10):
    wandb.log({"loss": 1.0})
wandb.finish()
"""


@pytest.fixture
def script(folder: Path, tmp_path: Path) -> Callable[..., subprocess.Popen[str]]:
    """Starts a script in a folder of its own."""

    def start(code: str, **environment: str) -> subprocess.Popen[str]:
        (tmp_path / "train.py").write_text(IMPORTS + code)
        return subprocess.Popen(
            [sys.executable, "train.py"],
            cwd=tmp_path,
            env={**os.environ, "STEPSCOPE_DIR": str(folder), "OMP_NUM_THREADS": "1", **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    return start


@pytest.fixture
def lines(script: Callable[..., subprocess.Popen[str]]) -> Callable[..., list[str]]:
    """Runs a script that succeeds, and returns what it says on standard error."""

    def run(code: str, **environment: str) -> list[str]:
        process = script(code, **environment)
        _, err = process.communicate(timeout=120)
        assert process.returncode == 0, err
        assert "Traceback" not in err
        return err.splitlines()

    return run


def test_the_loop_of_the_pytorch_tutorial(lines: Callable, read: Callable[[str], Run]) -> None:
    said = lines(MODEL + MNIST)
    assert said == [
        "Arguments of init() without effect in stepscope: entity.",
        "save() copies no file; stepscope records its path.",
    ]
    run = read("mnist")
    assert run.status == "finished"
    assert run.series("loss").steps.tolist() == [32, 64, 96, 128]
    assert run.params["architecture"] == "CNN"
    assert len(run.series("test_accuracy")) == 2
    assert len(run.series("step_seconds")) == 16
    assert run.series("summary/best_accuracy").values[-1] > 0


def test_a_watched_model_counts_its_own_steps(lines: Callable, read: Callable[[str], Run]) -> None:
    assert lines(MODEL + WATCHED) == []
    run = read("watched")
    assert run.series("step_seconds").steps.tolist() == list(range(16))
    assert run.series("train.loss").steps.tolist() == list(range(16))
    assert run.series("lr").steps.tolist() == list(range(16))
    assert run.status == "finished"


def test_alerts_of_a_block(lines: Callable, read: Callable[[str], Run]) -> None:
    said = [line for line in lines(ALERTS) if "Low accuracy" not in line]
    assert any("of the kind Image" in line for line in said)
    (alert,) = read("alerts").alerts()
    assert (alert["rule"], alert["severity"]) == ("Low accuracy", "warning")


def test_artifacts_tables_and_plots(lines: Callable, read: Callable[[str], Run]) -> None:
    said = lines(ARTIFACTS)
    assert "done" in said
    assert read("artifacts").events("artifact")[0].fields["files"] == ["train.py"]
    assert read("artifacts").params["job_type"] == "train"


def test_several_runs_of_one_process(lines: Callable, read: Callable[[str], Run]) -> None:
    assert lines(SEVERAL) == []
    for seed in range(3):
        run = read(f"seed-{seed}")
        assert run.series("loss").values.tolist() == [seed, seed + 1, seed + 2, seed + 3]
        assert run.params == {"seed": seed, "group": "seeds"}


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_runs_of_child_processes(method: str, lines: Callable, read: Callable[[str], Run]) -> None:
    assert lines(CHILD, START=method) == []
    for rank in range(2):
        assert read(f"child-{rank}").series("loss").values.tolist() == [rank, rank + 1, rank + 2, rank + 3]
        assert read(f"child-{rank}").status == "finished"
    assert read("parent").series("loss").values.tolist() == [9, 8]


def test_a_crash_in_the_loop_is_the_reason_of_the_run(script: Callable, read: Callable[[str], Run]) -> None:
    process = script(CRASH)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert err.rstrip().endswith("ZeroDivisionError: division by zero")
    run = read("crash")
    assert (run.status, run.reason) == ("failed", "ZeroDivisionError: division by zero")
    assert len(run.series("loss")) == 5


def test_an_interrupt_ends_the_run(script: Callable, read: Callable[[str], Run]) -> None:
    process = script(ENDLESS)
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    run = read("endless")
    assert run.status == "failed"
    assert "interrupt" in run.reason.lower() or "SIGINT" in run.reason


def test_a_trackio_script_has_a_run_for_each_init(lines: Callable, read: Callable[[str], Run]) -> None:
    assert lines(TRACKIO) == []
    for number in range(2):
        run = read(f"run-{number}")
        assert (run.project, run.status) == ("my-project", "finished")
        assert len(run.series("train_loss")) == 5


def test_a_disabled_script_writes_nothing(lines: Callable, folder: Path) -> None:
    assert lines(OFF) == []
    assert not folder.exists()
