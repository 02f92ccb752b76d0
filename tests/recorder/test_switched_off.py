"""STEPSCOPE_DISABLED, and environment variables that are wrong, in a training."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import stepscope
from stepscope import GPUMonitor, RealTimeMetricsCollector, TrainingMonitor, TrainingMonitorCallback
from stepscope.config import load as loading
from stepscope.errors import ConfigError
from tests.recorder.odd_values import odd_values

NO_AGENT = {"agent": {"mode": "none"}}

Read = Callable[[str], "stepscope.reading.Run"]


@pytest.fixture
def off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEPSCOPE_DISABLED", "1")


def use_everything(monitor: TrainingMonitor) -> None:
    """What a training may do with a monitor."""
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    hooks = dict(vars(model)), dict(vars(optimizer)), torch.save
    with monitor:
        monitor.watch(model, optimizer, histograms=1)
        assert (dict(vars(model)), dict(vars(optimizer)), torch.save) == hooks
        for x in monitor.batches([torch.ones(1, 1)] * 3):
            with monitor.phase("forward"):
                loss = model(x).sum()
            monitor.log_training_step(loss=loss, optimizer=optimizer, custom_metrics={"a": 1})
        monitor.log({"loss": 1.0}, step=7)
        monitor.record_metrics(1, 1.0, 0.1, 8)
        monitor.log_training_metrics(stepscope.TrainingMetrics(loss=1.0))
        monitor.log_params({"lr": 0.1})
        monitor.event("checkpoint", path="x")
        monitor.alert_system.add_alert_rule("high", lambda metrics: metrics.loss > 1)
        monitor.profile(active=1, warmup=0).step(1, 1)
        monitor.logs.start()
        assert monitor.url is None
    monitor.stop_monitoring()


@pytest.mark.parametrize("text", ["1", "true", "YES", "on"])
def test_nothing_is_made_and_nothing_is_touched_when_switched_off(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STEPSCOPE_DISABLED", text)
    threads = threading.active_count()
    config = {"dashboard": {"enabled": True}, "logging": {"directory": str(tmp_path / "logs")}}
    use_everything(TrainingMonitor(config, run="a", params={"lr": 1}))
    with RealTimeMetricsCollector(run="b") as collector:
        collector.collect({"loss": 1.0})
    callback = TrainingMonitorCallback(GPUMonitor(log_dir=tmp_path / "gpu"))
    callback.on_train_begin()
    callback.on_step_end(1, loss=1.0)
    assert callback.on_train_end() == {"training": {}, "gpu": {}}
    assert list(tmp_path.iterdir()) == []
    assert threading.active_count() == threads


def test_every_call_returns_whatever_it_is_given_when_switched_off(
    off: None, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    monitor = TrainingMonitor(strict=True)
    for odd in odd_values():
        monitor.log(odd, odd)
        monitor.log_training_step(odd, odd, odd, odd, odd, odd, step=odd, epoch=odd)
        monitor.log_training_metrics(odd)
        monitor.log_params(odd)
        monitor.watch(odd, odd)
        assert monitor.batches(odd) is odd
        monitor.stop_monitoring(odd, odd)
    assert monitor.get_training_stats() == {}
    summary = monitor.get_performance_summary()
    assert (summary["steps"], summary["loss"], summary["dropped"]) == (0, {}, 0)
    assert caplog.text == ""
    assert list(tmp_path.iterdir()) == []


def test_an_exception_leaves_the_block_of_a_monitor_that_is_switched_off(off: None) -> None:
    with pytest.raises(ZeroDivisionError), TrainingMonitor():
        _ = 1 / 0


def test_a_wrong_argument_is_reported_even_if_recording_is_disabled(off: None) -> None:
    with pytest.raises(ConfigError, match="no setting 'quux'"):
        TrainingMonitor({"quux": 1})


@pytest.mark.parametrize("text", ["0", "false", "No", "off", ""])
def test_a_switch_that_is_off_leaves_recording_on(
    text: str, folder: Path, read: Read, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("STEPSCOPE_DISABLED", text)
    with TrainingMonitor(NO_AGENT, run="a", directory=folder) as monitor:
        monitor.log({"loss": 1.0})
    assert len(read("a").series("loss")) == 1
    assert caplog.text == ""


def test_an_invalid_switch_is_reported_and_recording_stays_on(
    folder: Path, read: Read, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(loading, "_logged", set())
    monkeypatch.setenv("STEPSCOPE_DISABLED", "perhaps")
    for name in ("a", "b"):
        with TrainingMonitor(NO_AGENT, run=name, directory=folder) as monitor:
            monitor.log({"loss": 1.0})
        assert len(read(name).series("loss")) == 1
    assert caplog.text.count('STEPSCOPE_DISABLED="perhaps"') == 1


WRONG = {
    "STEPSCOPE_AGNET__MODE": "thread",
    "STEPSCOPE_DASHBOARD__PORT": "many",
    "STEPSCOPE_CONFIG": "/nowhere/stepscope.yaml",
}

SCRIPT = """
import stepscope
for name in ("a", "b"):
    with stepscope.TrainingMonitor(run=name) as monitor:
        for step in range(10):
            monitor.log({"loss": float(step)})
"""


@pytest.mark.slow
def test_a_training_with_wrong_variables_is_recorded_by_its_agent_and_warns_once(
    run_script: Callable[..., Any], read: Read, folder: Path
) -> None:
    done = run_script(SCRIPT, environment=WRONG)
    assert done.returncode == 0
    lines = done.stderr.splitlines()
    assert len(lines) == len(WRONG)
    for name, value in WRONG.items():
        assert any(f'environment variable {name}="{value}"' in line for line in lines)
    assert len(read("a").series("loss")) == len(read("b").series("loss")) == 10
    assert not (folder / "agent.log").exists() or "Traceback" not in (folder / "agent.log").read_text()


@pytest.mark.slow
def test_the_page_is_served_beside_a_training_with_wrong_variables(run_script: Callable[..., Any]) -> None:
    done = run_script(
        """
        import urllib.request
        import stepscope
        with stepscope.TrainingMonitor({"dashboard": {"enabled": True, "port": 0}}, run="a") as monitor:
            monitor.log({"loss": 1.0})
            browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
            while (url := monitor.url) is None:
                pass
            print(browser.open(url).status)
        """,
        environment=WRONG,
    )
    assert (done.returncode, done.stdout) == (0, "200\n"), done.stderr


def test_with_strict_a_wrong_variable_stops_the_start(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("STEPSCOPE_QUUX", "1")
    for arguments in ({"strict": True}, {"config": {"recorder": {"strict": True}}}):
        with pytest.raises(ConfigError, match="environment STEPSCOPE_QUUX: there is no such setting"):
            TrainingMonitor(**arguments)


def test_nothing_is_recorded_where_a_variable_asks_for_privacy_in_vain(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("STEPSCOPE_PRIVACY__SALT_FILE", "/nowhere/salt")
    with TrainingMonitor(run="a", directory=folder) as monitor:
        monitor.log({"loss": 1.0})
    assert not folder.exists()
    assert "stepscope records nothing" in caplog.text
    with pytest.raises(ConfigError, match="salt_file"):
        TrainingMonitor(strict=True)
    monkeypatch.delenv("STEPSCOPE_PRIVACY__SALT_FILE")
    with pytest.raises(ConfigError, match="salt_file"):
        TrainingMonitor({"privacy": {"salt_file": "/nowhere/salt"}})


def test_a_variable_about_alerts_that_makes_no_sense_is_ignored_and_the_others_apply(
    folder: Path, read: Read, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("stepscope.recorder.monitor_settings._noted", set())
    monkeypatch.setenv("STEPSCOPE_ALERTS__QUIET_HOURS", "at night")
    monkeypatch.setenv("STEPSCOPE_ALERTS__DISABLED", "[gpu_hott]")
    monkeypatch.setenv("STEPSCOPE_ALERTS__RULES", "[{name: a, when: loss > 2, channels: [log_file]}]")
    monkeypatch.setenv("STEPSCOPE_ALERTS__CHANNELS__LOG_FILE__PATH", "alerts.log")
    with TrainingMonitor(NO_AGENT, run="a", directory=folder) as monitor:
        monitor.log({"loss": 1.0})
        alerts = monitor.settings.alerts
    assert len(read("a").series("loss")) == 1
    assert [rule["name"] for rule in alerts.rules] == ["a"]
    assert (list(alerts.channels), alerts.quiet_hours, list(alerts.disabled)) == (["log_file"], None, [])
    warnings = [record.getMessage() for record in caplog.records]
    assert len(warnings) == 2
    assert 'the environment variable STEPSCOPE_ALERTS__DISABLED="[gpu_hott]": ' in warnings[0]
    assert 'the environment variable STEPSCOPE_ALERTS__QUIET_HOURS="at night": ' in warnings[1]
    with pytest.raises(ConfigError, match="quiet_hours"):
        TrainingMonitor({"alerts": {"quiet_hours": "at night"}})
