"""A script that is started again begins a run of its own, and whatever belongs to a run joins it."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import stepscope
from stepscope import TrainingMonitor
from stepscope.errors import ConfigError
from stepscope.recorder.identity.rank_detection import RUN_ID_VARIABLE, SEGMENT_VARIABLE, identify
from stepscope.recorder.identity.run_reservation import reserve

ELASTIC = {"TORCHELASTIC_RUN_ID": "job7", "RANK": "0", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
TWO_HOSTS = {"MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500", "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2"}


def train(folder: Path, name: str = "mnist", steps: int = 5, **options: object) -> TrainingMonitor:
    with TrainingMonitor(run=name, directory=folder, **options) as monitor:
        for step in range(steps):
            monitor.log_training_step(loss=float(step))
    return monitor


def names(folder: Path) -> list[str]:
    return sorted(run.name for run in stepscope.open_store(folder).runs())


def steps_of(folder: Path, name: str) -> list[int]:
    return stepscope.open_store(folder).run(name).series("loss").steps.tolist()


def launched(folder: Path, *, resume: bool = False, parent: int = 7, **environment: str) -> str:
    identity = identify("mnist", "default", environment, parent=parent)
    return reserve(folder, identity, resume=resume, environment=environment).identity.name


def test_a_name_that_is_taken_gets_a_number_and_a_warning(folder: Path, caplog) -> None:
    for _ in range(3):
        train(folder)
    assert names(folder) == ["mnist", "mnist-2", "mnist-3"]
    assert "There is already a run 'mnist'; this one is 'mnist-3'" in caplog.text
    assert [steps_of(folder, name) for name in names(folder)] == [list(range(5))] * 3


def test_a_resumed_run_continues_after_its_last_step_in_another_segment(folder: Path) -> None:
    train(folder)
    train(folder, steps=3)
    train(folder, resume=True)
    run = stepscope.open_store(folder).run("mnist-2")
    assert names(folder) == ["mnist", "mnist-2"]
    assert len(run.segments) == 2
    assert run.series("loss").steps.tolist() == list(range(8))
    assert run.series("step_seconds").steps.tolist() == list(range(8))


def test_a_step_that_is_given_counts_in_a_resumed_run(folder: Path) -> None:
    train(folder)
    with TrainingMonitor(run="mnist", directory=folder, resume=True) as monitor:
        monitor.log({"loss": 1.0}, step=3)
        monitor.log({"loss": 1.0})
    assert steps_of(folder, "mnist") == [0, 1, 2, 3, 4, 3, 4]


def test_a_run_that_is_resumed_from_an_earlier_checkpoint_counts_on_from_there(folder: Path) -> None:
    train(folder)
    with TrainingMonitor(run="mnist", directory=folder, resume=True) as monitor:
        monitor.log({"loss": 1.0}, step=1)
        monitor.log({"loss": 1.0})
    assert steps_of(folder, "mnist") == [0, 1, 2, 3, 4, 1, 2]


def test_a_run_that_is_resumed_and_was_never_begun_begins(folder: Path) -> None:
    train(folder, resume=True)
    assert steps_of(folder, "mnist") == list(range(5))


def test_resuming_requires_a_name(folder: Path) -> None:
    with pytest.raises(ConfigError, match="run is not set"):
        TrainingMonitor(directory=folder, resume=True)
    with pytest.raises(ConfigError, match="resume is 'yes'"):
        TrainingMonitor(run="mnist", directory=folder, resume="yes")


def test_a_monitor_that_is_started_again_continues_its_run(folder: Path) -> None:
    monitor = train(folder)
    monitor.start_monitoring()
    monitor.log({"loss": 1.0})
    monitor.stop_monitoring()
    assert names(folder) == ["mnist"]
    assert len(stepscope.open_store(folder).run("mnist").segments) == 2


def test_a_command_joins_the_run_of_its_launcher_where_the_folder_was_deleted_since(folder: Path) -> None:
    launcher = identify("mnist", "default", {}, parent=7)
    taken = folder / "runs" / launcher.run_id  # as it is made again for a run whose journal is there
    taken.parent.mkdir(parents=True)
    taken.touch()
    started = {RUN_ID_VARIABLE: launcher.run_id, SEGMENT_VARIABLE: launcher.segment}
    assert [_same_start(folder, started, parent=7) for _ in range(2)] == ["mnist", "mnist"]
    assert _same_start(folder, {}, parent=8) == "mnist-2"


def test_projects_have_names_of_their_own(folder: Path) -> None:
    train(folder, project="one")
    train(folder, project="two")
    assert names(folder) == ["mnist", "mnist"]


def test_ranks_of_one_launch_share_a_run_and_a_second_launch_has_its_own(folder: Path) -> None:
    ranks = {"MASTER_ADDR": "localhost", "MASTER_PORT": "1", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
    with_rank = [{**ranks, "RANK": str(rank)} for rank in (1, 0)]
    assert [_same_start(folder, rank, parent=7) for rank in with_rank] == ["mnist", "mnist"]
    assert [_same_start(folder, rank, parent=8) for rank in with_rank] == ["mnist-2", "mnist-2"]


def _same_start(folder: Path, environment: dict[str, str], parent: int) -> str:
    """As the first monitor of a process, which each rank is."""
    code = (
        "import sys, json; from pathlib import Path;"
        "from stepscope.recorder.identity.rank_detection import identify;"
        "from stepscope.recorder.identity.run_reservation import reserve;"
        "folder, environment, parent = sys.argv[1], json.loads(sys.argv[2]), int(sys.argv[3]);"
        "us = identify('mnist', 'default', environment, parent=parent);"
        "print(reserve(Path(folder), us, resume=False, environment=environment).identity.name)"
    )
    import json

    command = [sys.executable, "-c", code, str(folder), json.dumps(environment), str(parent)]
    return subprocess.check_output(command, text=True).strip()


@pytest.mark.slow
def test_a_restarted_launch_continues_its_run(folder: Path) -> None:
    train(folder)
    assert _same_start(folder, ELASTIC, parent=7) == "mnist-2"
    assert launched(folder) == "mnist-3"
    restarted = {**ELASTIC, "TORCHELASTIC_RESTART_COUNT": "1"}
    assert _same_start(folder, restarted, parent=9) == "mnist-2"
    assert _same_start(folder, {**restarted, "RANK": "1"}, parent=9) == "mnist-2"


def test_a_requeued_job_continues_the_newest_run_of_its_name(folder: Path) -> None:
    train(folder)
    train(folder)
    assert launched(folder, SLURM_JOB_ID="5", SLURM_RESTART_COUNT="1") == "mnist-2"


def test_hosts_of_one_launch_share_a_run_whichever_comes_first(folder: Path, monkeypatch) -> None:
    def starts(host: str, rank: int) -> str:
        environment = {**TWO_HOSTS, "RANK": str(rank)}
        identity = identify("mnist", "default", environment, parent=rank)
        on_host = type(identity)(**{**vars(identity), "host": host})
        return reserve(folder, on_host, resume=False, environment=environment).identity.name

    assert [starts("b", 2), starts("a", 0)] == ["mnist", "mnist"]
    assert [starts("a", 1), starts("b", 3)] == ["mnist-2", "mnist-2"], "a second launch at the same address"


def test_of_many_that_begin_at_once_each_has_a_run_of_its_own(folder: Path) -> None:
    ids: list[str] = []
    threads = [threading.Thread(target=lambda: ids.append(launched(folder))) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(ids) == sorted(["mnist", *(f"mnist-{number}" for number in range(2, 13))])


def test_runs_of_an_earlier_version_have_their_names(folder: Path) -> None:
    monitor = train(folder)
    for path in (folder / "runs").iterdir():
        path.unlink()
    (folder / "runs").rmdir()
    train(folder)
    assert names(folder) == ["mnist", "mnist-2"]
    with sqlite3.connect(folder / "store.sqlite") as connection:
        assert (monitor.run_id,) in connection.execute("SELECT id FROM run").fetchall()


def test_a_folder_in_which_nothing_can_be_reserved_costs_no_training(folder: Path, caplog) -> None:
    folder.mkdir()
    (folder / "runs").write_text("somebody's own file")
    train(folder)
    assert steps_of(folder, "mnist") == list(range(5))
    assert "Reserving the name of the run" in caplog.text


SPAWNED = """
import multiprocessing, sys, stepscope

def train(number, gate):
    with stepscope.TrainingMonitor(run="spawned") as monitor:
        monitor.log_training_step(loss=float(number))
        gate.wait(30)

if __name__ == "__main__":
    multiprocessing.set_start_method("spawn")
    for together in (2, 1):
        gate = multiprocessing.Barrier(together)
        several = [multiprocessing.Process(target=train, args=(n, gate)) for n in range(together)]
        for process in several: process.start()
        for process in several: process.join()
"""


@pytest.mark.slow
def test_processes_that_one_has_spawned_share_a_run_while_they_go_on(folder: Path, tmp_path: Path) -> None:
    script = tmp_path / "spawned.py"
    script.write_text(SPAWNED)
    environment = {**os.environ, "STEPSCOPE_DIR": str(folder)}
    subprocess.run([sys.executable, str(script)], check=True, env=environment, timeout=120)
    assert names(folder) == ["spawned", "spawned-2"]
    run = stepscope.open_store(folder).run("spawned")
    assert len(run.series("loss")) == 2
    processes = [process for segment in run.segments for process in segment.processes]
    assert {process.facts["command"][1] for process in processes} == {str(script)}


SCRIPT = """
import stepscope, sys
for name in sys.argv[1:]:
    with stepscope.TrainingMonitor(run=name) as monitor:
        monitor.log_training_step(loss=1.0)
"""


def run_command(folder: Path, *options: str, script: tuple[str, ...] = ("mnist",)) -> None:
    command = [sys.executable, "-m", "stepscope", "run", "--store", str(folder), *options, "--"]
    subprocess.run([*command, sys.executable, "-c", SCRIPT, *script], check=True, capture_output=True)


@pytest.mark.slow
def test_a_command_and_the_monitor_in_it_are_one_run_by_the_name_of_the_monitor(folder: Path) -> None:
    run_command(folder)
    run_command(folder)
    assert names(folder) == ["mnist", "mnist-2"]
    run = stepscope.open_store(folder).run("mnist-2")
    assert {process.role for process in run.segments[0].processes} == {"launcher", "rank"}
    assert len(run.series("loss")) == 1


@pytest.mark.slow
def test_the_name_that_a_command_is_given_is_that_of_the_run(folder: Path) -> None:
    run_command(folder, "--name", "big")
    assert names(folder) == ["big"]
    run_command(folder, "--name", "big", "--resume")
    assert names(folder) == ["big"]
    assert len(stepscope.open_store(folder).run("big").segments) == 2


@pytest.mark.slow
def test_further_monitors_of_a_command_have_runs_of_their_own(folder: Path) -> None:
    run_command(folder, script=("trial-1", "trial-2"))
    assert names(folder) == ["trial-1", "trial-2"]


def test_a_pipe_in_the_place_of_the_database_keeps_no_training_waiting(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    os.mkfifo(folder / "store.sqlite")
    monitor = TrainingMonitor({"agent": {"mode": "none"}}, run="a", directory=folder)
    monitor.log({"loss": 1.0})
    monitor.stop_monitoring()
    assert (folder / "runs" / monitor.identity.run_id).exists()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_what_is_no_file_in_the_place_of_a_run_keeps_no_training_waiting(folder: Path, kind: str) -> None:
    place = folder / "runs" / train(folder).run_id
    place.unlink()
    if kind == "pipe":
        os.mkfifo(place)
    else:
        place.symlink_to("/dev/zero")
    assert train(folder).identity.name == "mnist-2"
