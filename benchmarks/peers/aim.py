"""Logs through aim into a local repository."""

from collections.abc import Sequence

from aim import Repo, Run
from aim.sdk.index_manager import RepoIndexManager


class Writer:
    """A run with the default system tracking."""

    def __init__(self, folder: str) -> None:
        self._run = Run(repo=folder, experiment="bench")

    def log(self, step: int, metrics: dict[str, float]) -> None:
        """Track the whole row in one call."""
        self._run.track(metrics, step=step)

    def finish(self) -> None:
        """Close the run."""
        self._run.close()


def read_series(folder: str, key: str) -> tuple[Sequence[int], Sequence[float]]:
    """Index the run, as `aim up` does before it shows one, and query the metric by name."""
    repo = Repo(folder)
    for run_hash in repo.list_all_runs():
        RepoIndexManager.get_index_manager(repo).index(run_hash)
    for run in repo.query_metrics(f"metric.name == '{key}'", report_mode=0).iter_runs():
        for metric in run:
            steps, (values, _, _) = metric.data.numpy()
            return steps, values
    return [], []
