"""`TensorBoardMonitor`: a monitor whose run TensorBoard shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from stepscope import TensorBoardMonitor
from stepscope.errors import ConfigError, MissingExtra


@pytest.mark.usefixtures("without_agent")
def test_the_run_is_recorded_and_its_exporter_writes_to_the_folder(
    folder: Path, tmp_path: Path, read
) -> None:
    with TensorBoardMonitor("logs", run="mnist", directory=folder) as monitor:
        monitor.log_training_step(loss=1.0)
    assert monitor.log_dir == tmp_path / "logs"
    assert monitor.settings.exporters == {"tensorboard": {"directory": str(tmp_path / "logs")}}
    assert len(read("mnist").series("loss")) == 1


@pytest.mark.slow
def test_the_training_writes_event_files(run_script, folder: Path, tmp_path: Path) -> None:
    result = run_script(
        """
        from stepscope import TensorBoardMonitor
        with TensorBoardMonitor("logs", run="mnist") as monitor:
            for step in range(10):
                monitor.log_training_step(loss=1 / (step + 1))
        """,
        cwd=tmp_path,
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert len(list((tmp_path / "logs").rglob("*.tfevents.*"))) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"log_dir": 3}, r"log_dir is 3; it must be the path of a folder"),
        ({"config": "settings.yaml"}, r"config cannot be passed to TensorBoardMonitor. Use TrainingMonitor"),
    ],
)
def test_an_argument_that_cannot_be_used_is_named(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        TensorBoardMonitor(**arguments)


def test_without_tensorboard_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"pip install 'stepscope\[tensorboard\]'"):
        TensorBoardMonitor()
