"""MLflow returns what was recorded; a server that does not answer harms nothing."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

import stepscope
from stepscope.exporters.mlflow import Mlflow
from stepscope.mirrors.tool_process import ToolError, ToolUnreachable
from stepscope.reading import Run
from stepscope.views.export.replay import replay
from tests.mirrors.runs import logged, process, record, rows, same

pytestmark = [
    pytest.mark.slow,  # MLflow takes seconds to load, and to make its tables
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # of MLflow, when it opens a database
]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Run, Path]]:
    """A run, and a folder with the database of MLflow that it was copied to."""
    folder = tmp_path_factory.mktemp("mlflow")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STEPSCOPE_AGENT__MODE", "none")
        patch.setenv("MLFLOW_RUN_ID", "that of the training")
        record(folder / "store")
        store = stepscope.open_store(folder / "store")
        (run,) = store.runs()
        copy(run, folder)
        yield run, folder
        store.close()


def copy(run: Run, folder: Path, existing: str = "refuse") -> list[str]:
    feed = Mlflow("sqlite:///mlflow.db", points_per_second=1e9, _directory=folder, _existing=existing)
    try:
        replay(run, feed)
        feed.flush()
        return feed.addresses
    finally:
        feed.close()


@pytest.fixture
def client(recorded: tuple[Run, Path]):
    from mlflow import MlflowClient

    return MlflowClient(f"sqlite:///{recorded[1]}/mlflow.db")


def copies(client, **tags: str) -> list:
    experiments = [experiment.experiment_id for experiment in client.search_experiments()]
    runs = client.search_runs(experiments, order_by=["start_time"])
    return [run for run in runs if tags.items() <= run.data.tags.items()]


def test_mlflow_returns_every_value_with_step_and_time(recorded: tuple[Run, Path], client) -> None:
    run, _ = recorded
    for copied, segment in zip(copies(client, **{"stepscope.run_id": run.id}), run.segments, strict=True):
        assert copied.data.tags["stepscope.segment"] == segment.id
        for key in ("loss", "val/loss", "epoch"):
            if key in copied.data.metrics:
                points = client.get_metric_history(copied.info.run_id, key)
                assert ([point.step for point in points], [point.value for point in points]) == logged(
                    run, segment.id, key
                )
    times = run.series("loss", segment=segment.id).times
    assert [point.timestamp for point in client.get_metric_history(copied.info.run_id, "loss")] == [
        int(time * 1000) for time in times
    ]


def test_odd_values_and_names_arrive(recorded: tuple[Run, Path], client) -> None:
    run, _ = recorded
    copied = copies(client, **{"stepscope.run_id": run.id})[0]
    values = [point.value for point in client.get_metric_history(copied.info.run_id, "odd")]
    highest = 1.7976931348623157e308  # MLflow stores infinities so
    assert same(values, [float("nan"), highest, -highest, 1e300, 1e-300, 0.0])
    metrics = copied.data.metrics
    assert (metrics["acc_top 5_"], metrics["train/__/loss"], metrics["_"], metrics["損失/全体"]) == (
        1,
        3,
        4,
        5,
    )
    (other,) = [value for name, value in metrics.items() if name.startswith("acc_top 5__")]
    assert other == 2
    (long,) = [value for name, value in metrics.items() if name.startswith("kkk")]
    assert long == 6


def test_hyper_parameters_tags_and_status_arrive(recorded: tuple[Run, Path], client) -> None:
    run, _ = recorded
    first, second = copies(client, **{"stepscope.run_id": run.id})
    assert (first.info.status, second.info.status) == ("FAILED", "FINISHED")
    assert first.data.tags["stepscope.status"] == "failed"
    assert "out of luck" in first.data.tags["stepscope.reason"]
    assert first.info.run_name == run.name
    assert client.get_experiment(first.info.experiment_id).name == "lab"
    params = first.data.params
    assert {name: params[name] for name in ("lr", "optimizer.name", "amp")} == {
        "lr": "0.1",
        "optimizer.name": "sgd",
        "amp": "True",
    }
    assert len(params["odd_key"]) <= 6000


def test_a_second_copy_is_refused_and_with_force_it_is_another_run(
    recorded: tuple[Run, Path], client
) -> None:
    run, folder = recorded
    with pytest.raises(ToolError, match="MLflow has this run already: .* Delete it there, or use --force"):
        copy(run, folder)
    tag = {"stepscope.run_id": run.id}
    assert len(copies(client, **tag)) == 2
    addresses = copy(run, folder, "duplicate")
    assert len(copies(client, **tag)) == 4
    for copied in copies(client, **tag):
        if any(copied.info.run_id in address for address in addresses):
            client.delete_run(copied.info.run_id)
    assert len(client.get_metric_history(copies(client, **tag)[0].info.run_id, "loss")) == 40


def test_3000_keys_arrive_and_an_agent_that_takes_over_continues_the_run(
    recorded: tuple[Run, Path], client
) -> None:
    _, folder = recorded
    for first, status in ((0, "running"), (2, "finished")):
        feed = Mlflow("sqlite:///mlflow.db", points_per_second=1e9, _directory=folder)
        feed.begin(process(run_id="wide-1"))
        feed.take(rows({f"layer/{number}": [1.0, 2.0] for number in range(3000)}, first, run_id="wide-1"))
        feed.begin(process(status, run_id="wide-1"))
        feed.finish("wide-1", "s1", 0)
        feed.close()
    (copied,) = copies(client, **{"stepscope.run_id": "wide-1"})
    assert len(copied.data.metrics) == 3000
    steps = [point.step for point in client.get_metric_history(copied.info.run_id, "layer/2999")]
    assert steps == [0, 1, 2, 3]
    assert copied.info.status == "FINISHED"


def test_how_many_values_were_left_out_is_a_tag(recorded: tuple[Run, Path], client) -> None:
    _, folder = recorded
    feed = Mlflow("sqlite:///mlflow.db", points_per_second=0.1, _directory=folder)
    feed.begin(process(run_id="fast-1"))
    feed.take(rows({"loss": [1.0] * 100}, run_id="fast-1"))
    feed.begin(process("finished", run_id="fast-1"))
    feed.finish("fast-1", "s1", 0)
    feed.close()
    (copied,) = copies(client, **{"stepscope.run_id": "fast-1"})
    points = client.get_metric_history(copied.info.run_id, "loss")
    assert int(copied.data.tags["stepscope.left_out"]) == 100 - len(points) > 80


def test_a_server_that_is_gone_is_an_error_that_names_it(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    feed = Mlflow(f"http://user:secret@127.0.0.1:{port}", _directory=tmp_path)
    feed.begin(process())
    with pytest.raises(ToolUnreachable, match=f"127.0.0.1.*{port}") as error:
        feed.flush()
    assert "secret" not in str(error.value)
    assert not error.value.is_final
    with pytest.raises(ToolError):
        feed.close()


def test_a_process_that_does_not_answer_is_ended_and_started_again(tmp_path: Path) -> None:
    before = os.environ.get("MLFLOW_HTTP_REQUEST_TIMEOUT")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        feed = Mlflow(f"http://127.0.0.1:{silent.getsockname()[1]}", _directory=tmp_path)
        feed._tool._timeout_s = 3.0
        feed.begin(process())
        for _ in range(2):
            with pytest.raises(ToolError, match="did not answer within 3 s; it is started again"):
                feed.flush()
    assert feed._tool._process is None
    assert os.environ.get("MLFLOW_HTTP_REQUEST_TIMEOUT") == before  # that of the agent, or of a training
