"""What a person writing a training loop meets."""

from __future__ import annotations

import json
import logging
import re
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import stepscope
from stepscope import TrainingMetrics, TrainingMonitor
from stepscope.errors import ConfigError
from stepscope.guard import Guard


@pytest.fixture
def monitor(folder: Path) -> TrainingMonitor:
    return TrainingMonitor(run="a", directory=folder)


def read(folder: Path, name: str = "a") -> stepscope.reading.Run:
    return stepscope.open_store(folder).run(name)


def test_a_monitor_accepts_the_dictionary_of_the_older_documents(folder: Path) -> None:
    config = {
        "enable_dashboard": False,
        "dashboard_port": 8080,
        "enable_alerts": True,
        "directory": str(folder),
    }
    monitor = TrainingMonitor(config)
    monitor.start_monitoring()
    monitor.log_training_step(loss=0.5)
    monitor.stop_monitoring()

    assert monitor.settings.dashboard.port == 8080
    assert read(folder, monitor.run_id).series("loss").values.tolist() == [0.5]


def test_a_monitor_accepts_the_path_of_a_yaml_file(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(f"run: from-yaml\ndirectory: {folder}\n")
    with TrainingMonitor(str(path)) as monitor:
        monitor.log({"loss": 1.0})
    assert read(folder, "from-yaml").status == "finished"


def test_the_price_of_energy_is_recorded_for_the_diagnosis_if_it_is_known(folder: Path) -> None:
    prices = {"electricity_price_per_kwh": 0.3, "pue": 1.5, "currency": "EUR"}
    for name, energy in (("priced", prices), ("plain", {})):
        with TrainingMonitor({"run": name, "directory": str(folder), "energy": energy}) as monitor:
            monitor.log({"loss": 1.0})
    facts = {name: read(folder, name).segments[0].processes[0].facts for name in ("priced", "plain")}
    assert facts["priced"]["energy"].items() >= prices.items()
    assert "energy" not in facts["plain"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"conv.spike": {"enabled": "maybe"}},
            "detectors.conv.spike.enabled is 'maybe'; it must be true or false.",
        ),
        ({"conv.spike": {"foo": 3}}, "detectors.conv.spike.foo does not exist"),
        ({"conv.peak": {}}, "There is no detector 'conv.peak'"),
    ],
)
def test_a_wrong_option_of_a_detector_is_reported_before_training_starts(folder: Path, options, said) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)):
        TrainingMonitor({"detectors": options}, directory=folder)
    assert not folder.exists()


def test_a_wrong_option_of_a_detector_in_the_environment_is_ignored(
    folder: Path, monkeypatch, caplog
) -> None:
    monkeypatch.setenv("STEPSCOPE_DETECTORS", '{"conv.peak": {}}')
    with TrainingMonitor(run="a", directory=folder) as monitor:
        monitor.log({"loss": 1.0})
    assert len(read(folder, "a").series("loss")) == 1
    assert "There is no detector 'conv.peak'" in caplog.text


@pytest.mark.slow
@pytest.mark.parametrize(
    ("exporters", "said"),
    [
        (
            {"prometheus": {"prot": 9787}},
            "exporters.prometheus has no option 'prot'; it has: port, host, token_file, names",
        ),
        ({"prometheus": {"port": "abc"}}, "exporters.prometheus.port is text; it must be a whole number."),
        ({"prometheus": {"port": 99999}}, "exporters.prometheus.port is 99999; it must be from 0 to 65535."),
        ({"opentelemetry": {"endpoint": "localhost:4318"}}, "exporters.opentelemetry.endpoint must be"),
    ],
)
def test_a_wrong_option_of_an_exporter_is_reported_before_training_starts(
    folder: Path, exporters, said, monkeypatch, caplog
) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)):
        TrainingMonitor({"exporters": exporters}, directory=folder)
    assert not folder.exists()
    monkeypatch.setenv("STEPSCOPE_EXPORTERS", json.dumps(exporters))
    with TrainingMonitor(run="a", directory=folder) as monitor:
        monitor.log({"loss": 1.0})
    assert len(read(folder, "a").series("loss")) == 1
    assert said in caplog.text


def test_an_exporter_that_does_not_exist_here_is_reported_and_the_training_goes_on(
    folder: Path, caplog
) -> None:
    with TrainingMonitor({"exporters": {"tensorbord": {}}}, run="a", directory=folder) as monitor:
        monitor.log({"loss": 1.0})
    text = "exporters.tensorbord has no effect: there is no such exporter here. Did you mean 'tensorboard'?"
    assert caplog.text.count(text) == 1


def test_an_exporter_whose_package_is_missing_is_reported_once(folder: Path, monkeypatch, caplog) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    settings = {"exporters": {"prometheus": {"port": 9790}}, "agent": {"mode": "none"}}
    for name in ("a", "b"):
        with TrainingMonitor(settings, run=name, directory=folder) as monitor:
            monitor.log({"loss": 1.0})
    text = "exporters.prometheus has no effect: The exporter prometheus needs an extra package"
    assert caplog.text.count(text) == 1
    assert "pip install 'stepscope[prometheus]'" in caplog.text


def test_a_wrong_setting_is_reported_before_training_starts(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("run: x\ndashboard:\n  port: many\n")
    with pytest.raises(stepscope.StepscopeError, match=r'config.yaml:3: dashboard.port is "many"'):
        TrainingMonitor(path)


def test_leaving_the_block_stops_the_monitor_and_both_may_be_repeated(
    monitor: TrainingMonitor, folder: Path
) -> None:
    with monitor:
        monitor.start_monitoring()
        monitor.log({"loss": 1.0})
        monitor.stop_monitoring()
        monitor.stop_monitoring()
    assert len(read(folder).segments) == 1


def test_every_point_is_readable_when_stop_returns(monitor: TrainingMonitor, folder: Path) -> None:
    monitor.start_monitoring()
    for step in range(5000):
        monitor.log({"loss": step * 0.1})
    monitor.stop_monitoring()
    series = read(folder).series("loss")
    assert series.steps.tolist() == list(range(5000))
    assert series.values.tolist() == [step * 0.1 for step in range(5000)]


def test_a_step_needs_only_a_loss_and_is_counted(monitor: TrainingMonitor, folder: Path) -> None:
    with monitor:
        for epoch in range(2):
            for _ in range(3):
                monitor.log_training_step(loss=1.0, epoch=epoch)
    run = read(folder)
    assert run.series("loss").steps.tolist() == [0, 1, 2, 3, 4, 5]
    assert run.series("epoch").values.tolist() == [0, 0, 0, 1, 1, 1]
    assert run.series("step_seconds").steps.tolist() == [0, 1, 2, 3, 4, 5]
    assert [info.key for info in run.keys()] == ["epoch", "loss", "step_seconds"]


def test_the_call_of_the_older_document_works_with_model_optimizer_and_custom_metrics(
    monitor: TrainingMonitor, folder: Path
) -> None:
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.25)
    with monitor:
        loss = model(torch.ones(1, 2)).sum()
        monitor.log_training_step(
            model=model,
            optimizer=optimizer,
            loss=loss,
            accuracy=np.float32(0.5),
            custom_metrics={"tokens_per_second": 10, "throughput": 2.5, "memory_efficiency": 0.1},
        )
        monitor.log_training_step(
            model=model, optimizer=optimizer, loss=0.1, accuracy=0.5, learning_rate=1e-3
        )
    run = read(folder)
    assert run.series("loss").values.tolist() == [loss.item(), 0.1]
    assert run.series("learning_rate").values.tolist() == [0.25, 1e-3]
    assert run.series("tokens_per_second").values.tolist() == [10.0]


def test_steps_continue_after_an_explicit_one(monitor: TrainingMonitor, folder: Path) -> None:
    with monitor:
        monitor.log_training_step(loss=1.0, step=100)
        monitor.log_training_step(loss=2.0)
    assert read(folder).series("loss").steps.tolist() == [100, 101]


def test_metrics_passed_as_one_object_and_the_summary(monitor: TrainingMonitor, folder: Path) -> None:
    with monitor:
        for step in range(3):
            monitor.log_training_metrics(
                TrainingMetrics(
                    timestamp=1.5, epoch=2, step=step, loss=0.5 - step / 10, learning_rate=0.1, batch_size=32
                )
            )
        summary = monitor.get_performance_summary()
    run = read(folder)
    assert run.series("batch_size").values.tolist() == [32.0] * 3
    assert run.series("epoch").values.tolist() == [2.0] * 3
    assert run.series("loss").steps.tolist() == [0, 1, 2]
    assert summary["steps"] == 3
    assert summary["loss"]["current_loss"] == 0.3
    assert summary["dropped"] == 0


def test_recorded_metrics_and_their_statistics(monitor: TrainingMonitor, folder: Path) -> None:
    assert monitor.get_training_stats() == {}
    with monitor:
        for step, loss in enumerate([3.0, 1.0, 2.0]):
            monitor.record_metrics(step, torch.tensor(loss), learning_rate=0.1, batch_size=8)
        stats = monitor.get_training_stats()
    assert stats.pop("training_time") >= 0
    assert stats == {"current_loss": 2.0, "avg_loss": 2.0, "min_loss": 1.0, "max_loss": 3.0, "total_steps": 3}
    assert read(folder).series("loss").values.tolist() == [3.0, 1.0, 2.0]


def test_custom_metrics_may_have_any_name(monitor: TrainingMonitor, folder: Path) -> None:
    with monitor:
        monitor.log({"tokens per second / GPU": 5, "µ": 1e-6, "train.loss": 2})
    assert [info.key for info in read(folder).keys()] == ["tokens per second / GPU", "train.loss", "µ"]


def test_phases_and_batches_time_the_loop_and_count_its_steps(monitor: TrainingMonitor, folder: Path) -> None:
    loader = [1, 2, 3]
    with monitor:
        for _ in range(2):
            batches = monitor.batches(loader)
            assert len(batches) == 3
            for _ in batches:
                with monitor.phase("forward"):
                    pass
                monitor.log({"loss": 1.0})
                monitor.log({"accuracy": 1.0})
        monitor.log_training_step(loss=0.5)
    run = read(folder)
    assert run.series("loss").steps.tolist() == [0, 1, 2, 3, 4, 5, 6]
    assert run.series("accuracy").steps.tolist() == [0, 1, 2, 3, 4, 5]
    assert run.series("phase/forward_seconds").steps.tolist() == [0, 1, 2, 3, 4, 5]
    assert run.series("phase/data_seconds").steps.tolist() == [0, 1, 2, 3, 4, 5]
    assert run.series("step_seconds").steps.tolist() == [0, 1, 2, 3, 4, 5]
    assert (run.series("step_seconds").values > 0).all()
    assert run.series("epoch").values.tolist() == [1.0]


def test_an_exception_of_the_loader_passes_through_untouched(monitor: TrainingMonitor) -> None:
    def broken() -> object:
        yield 1
        raise OSError("the disk of the data set")

    with monitor, pytest.raises(OSError, match="the data set"):
        list(monitor.batches(broken()))


def test_events_mark_moments_with_their_step_and_fields(monitor: TrainingMonitor, folder: Path) -> None:
    with monitor:
        monitor.log({"loss": 1.0}, step=41)
        monitor.event("checkpoint", path="x.pt", bytes=123, odd=object)
    (event,) = read(folder).events("checkpoint")
    assert event.step == 41
    assert event.fields["path"] == "x.pt"
    assert event.fields["bytes"] == 123


def test_a_resumed_run_adds_a_segment_and_overwrites_nothing(folder: Path) -> None:
    for start in (0, 5):
        with TrainingMonitor(run="a", directory=folder, resume=True) as monitor:
            for step in range(start, start + 7):
                monitor.log({"loss": float(step)}, step=step)
    run = read(folder)
    assert len(run.segments) == 2
    assert run.series("loss").steps.tolist() == [*range(7), *range(5, 12)]
    second = run.segments[1].id
    assert run.series("loss", segment=second).steps.tolist() == [*range(5, 12)]


def test_what_is_recorded_while_a_monitor_stops_belongs_to_the_segment_that_ends(
    monitor: TrainingMonitor, folder: Path
) -> None:
    model = torch.nn.Linear(2, 2)
    monitor.watch(model, torch.optim.SGD(model.parameters(), lr=0.1))
    monitor.log({"loss": 1.0})
    unwatch = monitor.unwatch

    def unwatch_and_record() -> None:
        monitor.unwatch = unwatch  # type: ignore[method-assign]
        unwatch()
        monitor.event("parting")
        monitor.stop_monitoring()  # as a signal handler would
        monitor.log({"late": 2.0})

    monitor.unwatch = unwatch_and_record  # type: ignore[method-assign]
    monitor.stop_monitoring()

    run = read(folder)
    assert len(run.segments) == 1
    assert run.status == "finished"
    assert [event.kind for event in run.events("parting")] == ["parting"]
    assert run.series("late").values.tolist() == [2.0]


def test_one_monitor_may_be_started_again_as_a_further_segment(
    monitor: TrainingMonitor, folder: Path
) -> None:
    for _ in range(3):
        with monitor:
            monitor.log({"loss": 1.0})
    assert len(read(folder).segments) == 3


def test_runs_of_one_name_in_two_projects_are_two_runs(folder: Path) -> None:
    for project in ("vision", "speech"):
        with TrainingMonitor(run="a", project=project, directory=folder) as monitor:
            monitor.log({"loss": 1.0})
    with pytest.raises(stepscope.StepscopeError, match="2 runs are named 'a'. Use one of the ids"):
        read(folder)
    assert read(folder, monitor.run_id).project == "speech"


def test_the_first_log_call_starts_a_monitor(monitor: TrainingMonitor, folder: Path) -> None:
    monitor.record_metrics(0, 0.5, 0.1, 8)
    monitor.record_metrics(1, 0.4, 0.1, 8)
    monitor.stop_monitoring()
    assert read(folder).series("loss").values.tolist() == [0.5, 0.4]


def test_a_log_call_after_the_end_is_mentioned_once(
    monitor: TrainingMonitor, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with monitor:
        monitor.log({"loss": 1.0})
    with caplog.at_level(logging.WARNING):
        monitor.log({"loss": 1.0})
        monitor.log({"loss": 1.0})
        monitor.event("late")
    assert caplog.text.count("is not recorded") == 1
    assert len(read(folder).series("loss")) == 1


def test_a_disabled_recorder_does_nothing_at_all(folder: Path) -> None:
    with TrainingMonitor({"recorder": {"enabled": False}}, run="a", directory=folder) as monitor:
        monitor.log({"loss": 1.0})
        monitor.event("x")
        with monitor.phase("data"):
            pass
    assert not folder.exists()


def test_a_thread_attends_where_processes_may_not_be_started(folder: Path) -> None:
    with TrainingMonitor({"agent": {"mode": "thread", "linger_s": 0}}, run="a", directory=folder) as monitor:
        for _ in range(100):
            monitor.log({"loss": 1.0})
    assert len(read(folder).series("loss")) == 100


def test_the_store_folder_comes_from_the_environment_else_from_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert TrainingMonitor(run="a").directory == tmp_path / ".stepscope"
    monkeypatch.setenv("STEPSCOPE_DIR", str(tmp_path / "elsewhere"))
    assert TrainingMonitor(run="a").directory == tmp_path / "elsewhere"


def test_the_store_folder_keeps_itself_out_of_version_control(monitor: TrainingMonitor, folder: Path) -> None:
    with monitor:
        pass
    assert (folder / ".gitignore").read_text() == "*\n"


def test_the_database_may_be_elsewhere_and_every_reader_finds_it(folder: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "disk" / "runs.sqlite"
    with TrainingMonitor({"store": {"url": f"sqlite:///{elsewhere}"}}, run="a", directory=folder) as monitor:
        monitor.log({"loss": 1.0})
    assert elsewhere.exists()
    assert not (folder / "store.sqlite").exists()
    assert len(read(folder).series("loss")) == 1


def test_an_address_of_another_kind_is_refused_before_training_begins() -> None:
    with pytest.raises(stepscope.StepscopeError, match=r"store.url .* must be a URL such as sqlite:///"):
        TrainingMonitor({"store": {"url": "postgres://somewhere"}})


@pytest.mark.slow
def test_a_training_that_closes_all_descriptors_keeps_the_files_it_opens_then(
    tmp_path: Path, run_script, read
) -> None:
    result = run_script(
        """
        import os, sys, time, stepscope
        monitor = stepscope.TrainingMonitor({"logging": {"directory": "logs"}}, run="daemon")
        monitor.start_monitoring()
        monitor.log({"loss": 1.0}, step=0)
        numbers = [int(name) for name in os.listdir("/proc/self/fd") if int(name) > 2]
        os.closerange(3, max(numbers) + 1)
        opened = [open(f"{number}.txt", "wb", buffering=0) for number in numbers]
        for file, number in zip(opened, numbers):
            if file.fileno() != number:
                os.dup2(file.fileno(), number)
        time.sleep(1.2)  # what looks after the journal has looked
        for step in range(1, 100):
            monitor.log({"loss": 1.0}, step=step)
        monitor.stop_monitoring()
        del monitor
        for number in numbers:
            os.write(number, b"mine")
        """,
        cwd=tmp_path,
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert len(read("daemon").series("loss")) == 100
    written = [path.read_bytes() for path in tmp_path.glob("*.txt")]
    assert written == [b"mine"] * len(written)
    assert len(written) > 5


@pytest.mark.slow
def test_no_file_of_the_monitor_is_a_standard_stream_that_was_closed(
    tmp_path: Path, run_script, read
) -> None:
    result = run_script(
        """
        import os, sys, stepscope
        os.closerange(0, 3)
        with stepscope.TrainingMonitor({"logging": {"directory": "logs"}}, run="closed") as monitor:
            for step in range(100):
                monitor.log({"loss": 1.0}, step=step)
                for stream in range(3):
                    if os.path.exists(f"/proc/self/fd/{stream}"):
                        os.write(stream, b"printed")
                        os._exit(3)
        """,
        cwd=tmp_path,
    )
    assert result.returncode == 0
    assert len(read("closed").series("loss")) == 100


@pytest.mark.slow
def test_a_training_whose_working_directory_was_deleted_is_recorded(tmp_path: Path, run_script, read) -> None:
    (tmp_path / "gone").mkdir()
    result = run_script(
        """
        import os, stepscope
        os.rmdir(os.getcwd())
        settings = {"alerts": {"link": "https://here.example"}}
        with stepscope.TrainingMonitor(settings, run="a") as monitor:
            monitor.log({"loss": 1.0})
        """,
        cwd=tmp_path / "gone",
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert len(read("a").series("loss")) == 1


def test_a_relative_store_folder_in_a_deleted_working_directory_is_refused_before_training(
    tmp_path: Path, monkeypatch
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(ConfigError, match=r"working directory no longer exists.*STEPSCOPE_DIR"):
        TrainingMonitor(run="a")
    TrainingMonitor({"recorder": {"enabled": False}}, run="a").log({"loss": 1.0})
    monkeypatch.chdir(tmp_path)


def test_a_tilde_is_the_home_folder_wherever_the_store_is_named(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "settings.yaml").write_text("directory: ~/runs")
    assert TrainingMonitor(directory="~/runs").directory == tmp_path / "runs"
    assert TrainingMonitor(str(tmp_path / "settings.yaml")).directory == tmp_path / "runs"
    monkeypatch.setenv("STEPSCOPE_DIR", "~/runs")
    with TrainingMonitor(run="a") as monitor:
        monitor.log({"loss": 1.0})
    assert monitor.directory == tmp_path / "runs"
    assert len(stepscope.open_store().run("a").series("loss")) == 1
    assert len(stepscope.open_store("~/runs").run("a").series("loss")) == 1
    assert not list(tmp_path.glob("~"))


def test_a_file_beside_the_script_that_hides_a_standard_module_is_named(tmp_path: Path, start) -> None:
    (tmp_path / "platform.py").write_text("X = 1")
    (tmp_path / "train.py").write_text(
        "import stepscope\nstepscope.TrainingMonitor(run='a').log({'loss': 1.0})\nprint('trained')"
    )
    process = start(
        "import os, sys; os.execv(sys.executable, [sys.executable, 'train.py'])",
        cwd=tmp_path,
    )
    out, err = process.communicate(timeout=120)
    assert out == "trained\n"
    assert f"{tmp_path / 'platform.py'} hides the module platform of the standard library" in err


def test_a_warning_is_printed_where_logging_can_no_longer_be_loaded(monkeypatch, capsys) -> None:
    monkeypatch.setitem(sys.modules, "logging", None)
    Guard(strict=False).tell("The disk is full.")
    assert capsys.readouterr().err == "The disk is full.\n"
