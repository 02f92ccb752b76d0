"""Copies live runs into MLflow: metrics, hyper-parameters and status."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from stepscope.mirrors.metric_names import MetricNames, accepted_by_mlflow, mlflow_name
from stepscope.mirrors.remote_mirror import Existing, RemoteMirror

if TYPE_CHECKING:
    from collections.abc import Mapping


class Mlflow(RemoteMirror):
    """Writes a run of MLflow for each start of a run.

    Options: `tracking_uri`, such as `http://host:5000` or `sqlite:///mlflow.db` (default: that of
    MLFLOW_TRACKING_URI); `experiment` (default: the project of the run); `system_every_s`, the seconds
    between two values of a machine metric; `points_per_second`, the most logged values of a run for each
    second.
    """

    program = "MLflow"
    library = "mlflow"
    takes_histograms = False

    def __init__(
        self,
        tracking_uri: str = "",
        experiment: str = "",
        *,
        system_every_s: float = 10.0,
        points_per_second: float = 2000.0,
        _directory: Path = Path(),
        _existing: Existing = "continue",
    ) -> None:
        options = {"tracking_uri": tracking_uri or None, "experiment": experiment, "existing": _existing}
        super().__init__(
            options,
            _directory,
            names_of=_names,
            system_every_s=system_every_s,
            points_per_second=points_per_second,
        )


def _names(gpu_indexes: Mapping[str, int]) -> MetricNames:
    return MetricNames(mlflow_name, gpu_indexes, lambda name: accepted_by_mlflow(name or "_"))
