"""`TensorBoardMonitor`: a monitor whose run TensorBoard shows while it trains."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import Any

from stepscope.errors import ConfigError, MissingExtra
from stepscope.guard import shown
from stepscope.recorder.monitor import TrainingMonitor


class TensorBoardMonitor(TrainingMonitor):
    """A `TrainingMonitor` that also writes event files of TensorBoard.

        with TensorBoardMonitor("logs", run="mnist") as monitor:
            for step in range(100):
                monitor.log_training_step(loss=train_step())

    `tensorboard --logdir logs` shows metrics, machine, histograms and hyper-parameters. The agent writes the
    files, so the training waits for none of it. The other arguments are those of `TrainingMonitor`, without
    `config`: a project with settings of its own names the exporter there.
    """

    def __init__(self, log_dir: str | os.PathLike[str] = "logs", **options: Any) -> None:
        if not isinstance(log_dir, str | os.PathLike):
            raise ConfigError(f"argument: log_dir is {shown(log_dir)}; it must be the path of a folder.")
        if "config" in options:
            raise ConfigError(
                "argument: config cannot be passed to TensorBoardMonitor. Use TrainingMonitor(config) with "
                "exporters.tensorboard.directory in the settings."
            )
        if importlib.util.find_spec("tensorboard") is None:
            raise MissingExtra("tensorboard", needed_for="TensorBoardMonitor")
        self.log_dir = Path(log_dir).expanduser().absolute()
        exporter = {"tensorboard": {"directory": str(self.log_dir)}}
        super().__init__({"exporters": exporter}, **options)
