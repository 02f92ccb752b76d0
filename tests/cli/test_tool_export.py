"""`stepscope export RUN TOOL`: a stored run in TensorBoard, MLflow or W&B."""

from __future__ import annotations

from pathlib import Path

import pytest

import stepscope
from stepscope.cli.main import main
from tests.exporters.test_tensorboard import read, scalars
from tests.mirrors.runs import record, wandb_runs

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the libraries of the tools


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("export") / "store"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STEPSCOPE_AGENT__MODE", "none")
        record(folder)
    return folder


@pytest.fixture(autouse=True)
def _in_the_store(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEPSCOPE_DIR", str(store))


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]):
    def run(*arguments: str, code: int = 0) -> str:
        assert main(["export", *arguments]) == code
        output = capsys.readouterr()
        assert output.out == ""
        return output.err

    return run


def test_a_run_is_written_for_tensorboard_and_the_message_says_how_to_open_it(said, store: Path) -> None:
    (run,) = stepscope.open_store(store).runs()
    text = said("tré in/a", "tensorboard", "--output", "tb")
    assert f"Wrote 'tré in/a' to tb/{run.id}. Open it with: tensorboard --logdir tb" in text
    folders = [Path("tb") / run.id / segment.id for segment in run.segments]
    assert [len(scalars(read(folder), "loss")[0]) for folder in folders] == [40, 20]


def test_a_second_copy_for_tensorboard_is_refused_and_force_replaces_it(said) -> None:
    said("tré in/a", "tensorboard")
    text = said("tré in/a", "tensorboard", code=1)
    assert "has event files of 'tré in/a' already; TensorBoard would show each value twice." in text
    said("tré in/a", "tensorboard", "--force")
    folder = min(Path("tensorboard").glob("*/*"))
    assert len(scalars(read(folder), "loss")[0]) in (40, 20)
    assert len(list(folder.iterdir())) == 1


def test_only_the_named_keys_are_copied(said) -> None:
    said("tré in/a", "tensorboard", "--keys", "epoch,weights_not_there", code=1)
    said("tré in/a", "tensorboard", "--keys", "epoch")
    tags = [read(folder).Tags()["scalars"] for folder in Path("tensorboard").glob("*/*")]
    assert sorted(tags) in ([["epoch"]], [[], ["epoch"]])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("tensorboard", "--format", "csv"), "--format is for files, not for tensorboard."),
        (("mlflow", "--long"), "--long is for files, not for mlflow."),
        (("mlflow", "--output", "a"), "--output is for tensorboard and wandb, not for mlflow."),
        (("wandb", "--tracking-uri", "a"), "--tracking-uri is for mlflow, not for wandb."),
        (
            ("--project", "a"),
            "--project is for wandb. Name the tool after the run: stepscope export RUN wandb.",
        ),
    ],
)
def test_an_option_of_another_target_is_a_usage_error(said, arguments: tuple[str, ...], message: str) -> None:
    assert said("tré in/a", *arguments, code=2).strip() == f"stepscope: {message}"


def test_without_a_run_the_newest_is_copied(said, store: Path) -> None:
    (run,) = stepscope.open_store(store).runs()
    assert f"to tensorboard/{run.id}." in said("tensorboard")


@pytest.mark.slow
def test_a_run_is_copied_to_mlflow_once(said) -> None:
    arguments = ("tré in/a", "mlflow", "--tracking-uri", "sqlite:///m.db", "--experiment", "e")
    text = said(*arguments)
    assert "Copied 'tré in/a' to MLflow: run " in text
    assert text.count("run ") == 2
    assert "mlflow ui --backend-store-uri sqlite:///m.db" in text
    assert "MLflow has this run already" in said(*arguments, code=1)


@pytest.mark.slow
def test_a_run_is_copied_to_w_and_b_once(said) -> None:
    arguments = ("tré in/a", "wandb", "--offline", "--output", "w", "--project", "p")
    assert "Upload it with: wandb sync " in said(*arguments)
    assert [copied.project for copied in wandb_runs(Path("w"))] == ["p", "p"]
    assert "was exported to W&B already" in said(*arguments, code=1)


def test_a_missing_library_is_reported_with_what_to_install(said, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert "pip install 'stepscope[mlflow]'" in said("tré in/a", "mlflow", code=1)
