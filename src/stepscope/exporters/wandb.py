"""Copies live runs into W&B (Weights & Biases): metrics, histograms, hyper-parameters and status."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from stepscope.errors import ConfigError
from stepscope.mirrors.metric_names import FORBIDDEN_BY_WANDB, MetricNames, plain_name
from stepscope.mirrors.remote_mirror import Existing, RemoteMirror

if TYPE_CHECKING:
    from collections.abc import Mapping

MODES = ("online", "offline")
PREFIX = "stepscope/"
RESERVED = frozenset(PREFIX + name for name in ("step", "system/seconds", "left_out", "status", "reason"))
"""What `mirrors/wandb_writer.py` itself writes: the two axes, and figures of the summary."""


class Wandb(RemoteMirror):
    """Writes a run of W&B for each start of a run, with everything below `stepscope/`.

    Options: `project` (default: that of the run); `entity`; `mode`, `online` or `offline` (default: that of
    WANDB_MODE); `directory`, where W&B makes its folder `wandb`; `system_every_s`, the seconds between two
    values of a machine metric; `points_per_second`, the most logged values of a run for each second.
    """

    program = "W&B"
    library = "wandb"

    def __init__(
        self,
        project: str = "",
        entity: str = "",
        *,
        mode: str = "",
        directory: str = "",
        system_every_s: float = 10.0,
        points_per_second: float = 2000.0,
        _directory: Path = Path(),
        _existing: Existing = "continue",
    ) -> None:
        if mode and mode not in MODES:
            raise ConfigError(f"exporters.wandb.mode is {mode!r}; it must be online or offline.")
        if forbidden := FORBIDDEN_BY_WANDB.search(project):
            raise ConfigError(
                f"exporters.wandb.project is {project!r}; W&B allows no {forbidden[0]} in a project's name."
            )
        options = {"project": project, "entity": entity, "mode": mode, "existing": _existing}
        super().__init__(
            {**options, "directory": str(_directory / Path(directory).expanduser())},
            _directory,
            names_of=_names,
            system_every_s=system_every_s,
            points_per_second=points_per_second,
        )


def _names(gpu_indexes: Mapping[str, int]) -> MetricNames:
    return MetricNames(plain_name, gpu_indexes, prefix=PREFIX, reserved=RESERVED)
