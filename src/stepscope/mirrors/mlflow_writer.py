"""Writes starts of runs into MLflow, by batches; runs in a process of its own."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mlflow import MlflowClient
from mlflow.entities import Experiment, Metric, Param, Run, RunTag
from mlflow.exceptions import MlflowException

from stepscope.mirrors.metric_names import accepted_by_mlflow
from stepscope.mirrors.run_starts import flat
from stepscope.mirrors.tool_worker import Refused, ToolWriter
from stepscope.schema.run import FAILED

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

MAX_METRICS, MAX_PARAMS = 1000, 100
"""The most that MLflow takes in a batch."""
MAX_PARAM_TEXT = 6000
FINAL = {"INVALID_PARAMETER_VALUE", "BAD_REQUEST", "PERMISSION_DENIED", "UNAUTHENTICATED"}
"""Error codes of requests that fail again."""


@dataclass
class _Copy:
    """The run of MLflow that a start is written to."""

    run_id: str
    experiment_id: str
    params: set[str] = field(default_factory=set)
    name: str = ""
    is_over: bool = False
    left_out: int = 0


class MlflowWriter(ToolWriter):
    """Writes a run of MLflow for each start."""

    def __init__(self, tracking_uri: str | None, experiment: str, existing: str) -> None:
        """`existing`: whether to `continue` a run of the same start, to `refuse` it, or to `duplicate` it."""
        self._client = _client(tracking_uri)
        self._experiment, self._existing = experiment, existing
        self._copies: dict[str, _Copy] = {}

    def write(self, start: Mapping[str, Any], rows: list[list[Any]], arrays: list[dict[str, Any]]) -> None:
        """Writes rows and new hyper-parameters. MLflow has no histograms."""
        try:
            copy = self._copies.get(start["key"]) or self._open(start)
            self._write_params(copy, start)
            self._write_left_out(copy, start["left_out"])
            for batch in _batches(rows):
                self._client.log_batch(copy.run_id, metrics=batch, synchronous=True)
        except MlflowException as error:
            if error.error_code in FINAL:
                raise Refused(f"MLflow refuses it: {error}") from error
            if isinstance(error.__context__, OSError):
                raise ConnectionError(
                    f"MLflow at {self._client.tracking_uri} cannot be reached: {_innermost(error)}. Check "
                    "the address, and that the server runs."
                ) from error
            raise

    def end(self, start: Mapping[str, Any]) -> None:
        """Sets status and end of the run."""
        copy = self._copies[start["key"]]
        status = "FAILED" if start["status"] in FAILED else "FINISHED"
        tags = [RunTag("stepscope.status", start["status"]), RunTag("stepscope.reason", start["reason"])]
        self._client.log_batch(copy.run_id, tags=tags, synchronous=True)
        self._client.set_terminated(copy.run_id, status, start["ended_ms"])
        copy.is_over = True

    def address(self, start: Mapping[str, Any]) -> str:
        """The page of the run where the address of a server is known, else its id."""
        copy, uri = self._copies[start["key"]], self._client.tracking_uri
        if uri.startswith(("http://", "https://")):
            return f"{uri.rstrip('/')}/#/experiments/{copy.experiment_id}/runs/{copy.run_id}"
        return f"run {copy.run_id} in {uri}"

    def close(self) -> None:
        """Everything is written; runs of trainings that go on stay open."""

    def _open(self, start: Mapping[str, Any]) -> _Copy:
        experiment = self._experiment_of(start)
        run = None if self._existing == "duplicate" else self._find(experiment, start)
        if run is not None and self._existing == "refuse":
            raise Refused(
                f"MLflow has this run already: {run.info.run_id} in the experiment {experiment.name!r}. "
                "Delete it there, or use --force for another copy."
            )
        if run is None:
            tags = {
                "mlflow.user": start["user"],
                "stepscope.run_id": start["run_id"],
                "stepscope.segment": start["segment"],
                "stepscope.host": start["host"],
            }
            run = self._client.create_run(
                experiment.experiment_id, start["started_ms"], tags, run_name=start["name"]
            )
        elif not start["is_over"]:
            self._client.update_run(run.info.run_id, status="RUNNING")
        copy = _Copy(run.info.run_id, experiment.experiment_id, set(run.data.params), start["name"])
        self._copies[start["key"]] = copy
        return copy

    def _experiment_of(self, start: Mapping[str, Any]) -> Experiment:
        name = self._experiment or start["project"] or "stepscope"
        experiment = self._client.get_experiment_by_name(name)
        if experiment is None:
            try:
                self._client.create_experiment(name)
            except MlflowException as error:
                if error.error_code != "RESOURCE_ALREADY_EXISTS":  # another process was faster
                    raise
            experiment = self._client.get_experiment_by_name(name)
        if experiment is None or experiment.lifecycle_stage == "deleted":
            raise Refused(
                f"The experiment {name!r} was deleted in MLflow. Restore it there, or name another one."
            )
        return experiment

    def _find(self, experiment: Experiment, start: Mapping[str, Any]) -> Run | None:
        tags = (f"tags.`stepscope.{name}` = '{start[name]}'" for name in ("run_id", "segment"))
        runs = self._client.search_runs([experiment.experiment_id], " and ".join(tags), max_results=1)
        return runs[0] if runs else None

    def _write_params(self, copy: _Copy, start: Mapping[str, Any]) -> None:
        if copy.is_over and not start["is_over"]:
            self._client.update_run(copy.run_id, status="RUNNING")
            copy.is_over = False
        if copy.name != start["name"]:
            self._client.update_run(copy.run_id, name=start["name"])
            copy.name = start["name"]
        params = {accepted_by_mlflow(name or "_"): value for name, value in flat(start["params"]).items()}
        # MLflow refuses to change a parameter.
        new = [name for name in params if name not in copy.params]
        for first in range(0, len(new), MAX_PARAMS):
            names = new[first : first + MAX_PARAMS]
            batch = [Param(name, str(params[name])[:MAX_PARAM_TEXT]) for name in names]
            self._client.log_batch(copy.run_id, params=batch, synchronous=True)
            copy.params.update(names)

    def _write_left_out(self, copy: _Copy, left_out: int) -> None:
        if copy.left_out != left_out:
            self._client.set_tag(copy.run_id, "stepscope.left_out", str(left_out))
            copy.left_out = left_out


def _innermost(error: BaseException) -> str:
    """What the operating system said; each library on the way has wrapped it in a longer text."""
    while (inner := error.__cause__ or error.__context__) is not None:
        error = inner
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def _client(tracking_uri: str | None) -> MlflowClient:
    try:
        return MlflowClient(tracking_uri)
    except MlflowException as error:
        raise Refused(
            f"MLflow cannot use the tracking_uri {tracking_uri!r}. Use a folder, or an address such as "
            "http://localhost:5000 or sqlite:///mlflow.db."
        ) from error


def _batches(rows: list[list[Any]]) -> Iterator[list[Metric]]:
    metrics = [
        Metric(name, value, int(time_s * 1000), int(at))
        for _, at, time_s, values in rows
        for name, value in values.items()
    ]
    for first in range(0, len(metrics), MAX_METRICS):
        yield metrics[first : first + MAX_METRICS]
