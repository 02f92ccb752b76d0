"""Logs through mlflow into a SQLite tracking store."""

import time

import mlflow
from mlflow.entities import Metric

MAX_METRICS_PER_BATCH = 1000


class Writer:
    """A run in a new tracking database."""

    def __init__(self, folder: str) -> None:
        mlflow.set_tracking_uri(f"sqlite:///{folder}/mlflow.db")
        mlflow.set_experiment("bench")
        self._run_id = mlflow.start_run().info.run_id

    def log(self, step: int, metrics: dict[str, float]) -> None:
        """Log the row with one synchronous call, the default."""
        mlflow.log_metrics(metrics, step=step)

    def finish(self) -> None:
        """End the run."""
        mlflow.end_run()

    def fill(self, key: str, values: list[float]) -> None:
        """Log one long series in the largest batches allowed, to have something to read back."""
        now_ms = int(time.time() * 1000)
        points = [Metric(key, value, now_ms, step) for step, value in enumerate(values)]
        for first in range(0, len(points), MAX_METRICS_PER_BATCH):
            batch = points[first : first + MAX_METRICS_PER_BATCH]
            mlflow.MlflowClient().log_batch(self._run_id, metrics=batch)


def read_series(folder: str, key: str) -> tuple[list[int], list[float]]:
    """Ask the client for the metric's whole history."""
    mlflow.set_tracking_uri(f"sqlite:///{folder}/mlflow.db")
    client = mlflow.MlflowClient()
    experiment = client.get_experiment_by_name("bench")
    run = client.search_runs([experiment.experiment_id])[0]
    history = client.get_metric_history(run.info.run_id, key)
    return [point.step for point in history], [point.value for point in history]
