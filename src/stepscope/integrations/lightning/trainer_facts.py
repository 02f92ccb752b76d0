"""Reads the settings of a trainer and the hyper-parameters of its module."""

from __future__ import annotations

import contextlib
import math
from typing import Any

from stepscope.recorder.identity.params import PlainParams

SETTINGS = (
    "max_epochs",
    "min_epochs",
    "max_steps",
    "min_steps",
    "accumulate_grad_batches",
    "gradient_clip_val",
    "gradient_clip_algorithm",
    "precision",
    "num_devices",
    "num_nodes",
    "world_size",
    "num_training_batches",
    "limit_train_batches",
    "limit_val_batches",
    "val_check_interval",
    "check_val_every_n_epoch",
    "log_every_n_steps",
)
"""Attributes of a trainer that are recorded."""

PARTS = ("accelerator", "strategy")
"""Parts of a trainer whose class is recorded."""


def params_of(trainer: Any, module: Any) -> dict[str, Any]:
    """The hyper-parameters that the module and its data module have saved, and settings of the trainer."""
    params: dict[str, Any] = {}
    for owner in (trainer.datamodule, module):
        if getattr(owner, "_log_hyperparams", False):  # not with save_hyperparameters(logger=False)
            params.update(owner.hparams)
    settings = {name: getattr(trainer, name, None) for name in SETTINGS}
    settings.update({name: type(getattr(trainer, name)).__name__ for name in PARTS})
    params["trainer"] = {name: value for name, value in settings.items() if value is not None}
    params["module"] = type(module).__name__
    return PlainParams(params).nested  # values of other types have become text


def total_steps_of(trainer: Any) -> int | None:
    """How many steps the fit ends at; None if it has no end."""
    with contextlib.suppress(Exception):  # a loader of the user's own may have no length
        total = trainer.estimated_stepping_batches
        return int(total) if math.isfinite(total) else None
    return None


def batches_stepped(trainer: Any) -> int:
    """The number of steps so far, as loggers see it: batches in which an optimizer has stepped.

    `global_step` counts the steps of each optimizer. A version of Lightning without the private counter
    returns it.
    """
    epoch_loop = trainer.fit_loop.epoch_loop
    return int(getattr(epoch_loop, "_batches_that_stepped", trainer.global_step))
