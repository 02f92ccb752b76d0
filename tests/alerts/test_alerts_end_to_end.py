"""From a failing training to a received notice: real processes, a real agent, real HTTP."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import stepscope
from stepscope.agent.process.election import agent_pid
from tests.alerts.receiver import Receiver

SETTINGS = """
agent: {{interval_s: 0.1, stall_after_s: {stall}}}
alerts:
  channels:
    console: {{enabled: false}}
    webhook: {{url: "{url}"}}
"""


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    yield receiver
    receiver.close()


@pytest.fixture
def settings(tmp_path: Path, receiver: Receiver) -> Path:
    path = tmp_path / "stepscope.yaml"
    path.write_text(SETTINGS.format(url=receiver.url, stall=1))
    return path


TRAINING = """
import sys, time, stepscope
with stepscope.TrainingMonitor(sys.argv[1], run="r") as monitor:
    for step in range(100_000):
        monitor.log_training_step(loss=1.0 / (step + 1))
        print("step", flush=True)
        time.sleep(0.05)
"""


def test_a_nan_loss_is_reported_while_the_training_continues(
    folder: Path, settings: Path, receiver: Receiver, until
) -> None:
    with stepscope.TrainingMonitor(str(settings), run="r", directory=folder) as monitor:
        for _ in range(20):
            monitor.log_training_step(loss=1.0)
        monitor.log_training_step(loss=float("nan"))
        until(lambda: "nonfinite_loss" in receiver.rules())
        alerts = stepscope.open_store(folder).run("r").alerts()
    assert [alert["severity"] for alert in alerts if alert["rule"] == "nonfinite_loss"] == ["critical"]


@pytest.mark.slow
def test_a_stopped_training_is_reported_as_stalled_and_resolved_when_it_continues(
    start, folder: Path, settings: Path, receiver: Receiver, until
) -> None:
    training = start(TRAINING, settings)
    for _ in range(40):
        training.stdout.readline()
    training.send_signal(signal.SIGSTOP)
    stopped_ns = time.time_ns()
    until(lambda: "stalled" in receiver.rules())
    [alert] = [
        alert for alert in stepscope.open_store(folder).run("r").alerts() if alert["rule"] == "stalled"
    ]
    # By the agent's own clock: the floor is a second here, and people are promised ten.
    assert alert["fired_ns"] - stopped_ns < 10e9
    training.send_signal(signal.SIGCONT)
    until(lambda: "stalled" in receiver.rules("resolved"))
    assert receiver.rules().count("stalled") == 1


@pytest.mark.slow
def test_a_killed_training_is_reported_as_crashed_with_the_reason(
    start, folder: Path, settings: Path, receiver: Receiver, until
) -> None:
    training = start(TRAINING, settings)
    for _ in range(10):
        training.stdout.readline()
    training.kill()
    until(lambda: "crashed" in receiver.rules())
    [alert] = [
        alert for notice in receiver.notices for alert in notice["alerts"] if alert["rule"] == "crashed"
    ]
    assert "was killed (no error message)" in alert["message"]
    assert stepscope.open_store(folder).run("r").alerts()[-1]["resolved_ns"] is not None


def test_rules_that_fire_together_are_one_notice(
    tmp_path: Path, folder: Path, receiver: Receiver, until
) -> None:
    settings = tmp_path / "storm.yaml"
    settings.write_text(
        SETTINGS.format(url=receiver.url, stall=60)
        + """
  rules:
    - {name: one, when: "a > 1"}
    - {name: other, when: "b > 1", severity: critical}
"""
    )
    with stepscope.TrainingMonitor(str(settings), run="r", directory=folder) as monitor:
        for step in range(10_000):
            monitor.log({"a": 2.0 + step, "b": 3.0})
        until(lambda: len(receiver.rules()) >= 2)
    assert sorted(receiver.rules()) == ["one", "other"]
    [notice] = [notice for notice in receiver.notices if notice["kind"] == "firing"]
    assert notice["severity"] == "critical"


@pytest.mark.slow
def test_an_agent_killed_before_the_notice_arrived_leaves_it_to_the_next_which_sends_it_once(
    folder: Path, settings: Path, receiver: Receiver, until
) -> None:
    receiver.status = 503
    monitor = stepscope.TrainingMonitor(str(settings), run="r", directory=folder)
    monitor.start_monitoring()
    monitor.log_training_step(loss=float("nan"))
    until(lambda: _attempts(folder) >= 1)
    os.kill(agent_pid(folder), signal.SIGKILL)
    until(lambda: agent_pid(folder) is None)
    receiver.status = 200
    monitor.log_training_step(loss=1.0)
    until(lambda: "nonfinite_loss" in receiver.rules())
    monitor.stop_monitoring()
    assert receiver.rules().count("nonfinite_loss") == 1
    rules = [alert["rule"] for alert in stepscope.open_store(folder).run("r").alerts()]
    assert rules.count("nonfinite_loss") == 1


def _attempts(folder: Path) -> int:
    return max((notice["attempts"] for notice in stepscope.open_store(folder).run("r").notices()), default=0)


@pytest.mark.slow
def test_the_rule_with_a_function_of_the_older_document_works_as_written(
    folder: Path, settings: Path, receiver: Receiver, until
) -> None:
    with stepscope.TrainingMonitor(str(settings), run="r", directory=folder) as monitor:
        monitor.alert_system.add_alert_rule(
            name="high_loss",
            condition=lambda metrics: metrics.loss > 2,
            severity="warning",
            message="High validation loss: {loss:.2f}",
            cooldown_seconds=300,
        )
        for loss in (1.0, 2.5, 3.0):
            monitor.log_training_step(loss=loss)
        until(lambda: "high_loss" in receiver.rules())
    [alert] = [
        alert for notice in receiver.notices for alert in notice["alerts"] if alert["rule"] == "high_loss"
    ]
    assert alert["message"] == "High validation loss: 2.50"


def test_an_expression_in_python_is_a_rule_like_any_other(
    folder: Path, settings: Path, receiver: Receiver, until
) -> None:
    with stepscope.TrainingMonitor(str(settings), run="r", directory=folder) as monitor:
        monitor.alert_system.add_alert_rule("low", "accuracy < 0.5", message="{accuracy:.0%}")
        monitor.log_training_step(loss=1.0, accuracy=0.25)
        until(lambda: "low" in receiver.rules())
    assert receiver.notices[0]["alerts"][0]["message"] == "25%"


@pytest.mark.parametrize(
    ("written", "rule", "row"),
    [
        ("alert_system: {thresholds: {gradient_norm: 100}}", "gradient_norm", {"gradient_norm": 150.0}),
        (
            "alerts: {thresholds: {training_time_per_step: 10}}",
            "training_time_per_step",
            {"step_seconds": 11.0},
        ),
    ],
)
def test_thresholds_of_the_older_documents_work_as_written(
    tmp_path: Path, folder: Path, written: str, rule: str, row: dict, until
) -> None:
    path = tmp_path / "older.yaml"
    path.write_text(f"agent: {{interval_s: 0.1}}\n{written}\n")
    with stepscope.TrainingMonitor(str(path), run="r", directory=folder) as monitor:
        monitor.log(row)
        until(lambda: stepscope.open_store(folder).run("r").alerts())
    assert rule in {alert["rule"] for alert in stepscope.open_store(folder).run("r").alerts()}


def test_thresholds_against_the_runs_own_baseline_work_as_written(
    tmp_path: Path, folder: Path, until
) -> None:
    path = tmp_path / "older.yaml"
    path.write_text(
        "agent: {interval_s: 0.1}\n"
        "monitoring: {alerting: {thresholds: {loss_increase: 0.1, training_speed: 0.5}}}\n"
    )
    with stepscope.TrainingMonitor(str(path), run="r", directory=folder) as monitor:
        for _ in range(150):
            monitor.log({"loss": 1.0, "step_seconds": 0.1})
        until(lambda: len(stepscope.open_store(folder).run("r").series("loss")) == 150)
        for _ in range(200):
            monitor.log({"loss": 1.3, "step_seconds": 0.4})
        until(lambda: len(stepscope.open_store(folder).run("r").alerts()) >= 2)
    assert {"loss_increase", "training_speed"} <= {
        alert["rule"] for alert in stepscope.open_store(folder).run("r").alerts()
    }


@pytest.mark.slow
def test_alerts_of_a_run_are_in_the_store_when_it_has_ended(folder: Path, settings: Path) -> None:
    with stepscope.TrainingMonitor(str(settings), run="r", directory=folder) as monitor:
        monitor.log_training_step(loss=float("inf"))
    [alert] = stepscope.open_store(folder).run("r").alerts()
    assert alert["rule"] == "nonfinite_loss"
    assert alert["resolved_ns"] is not None


@pytest.mark.slow
def test_a_function_gets_the_last_row_of_a_run(folder: Path, settings: Path) -> None:
    with stepscope.TrainingMonitor(str(settings), run="r", directory=folder) as monitor:
        monitor.alert_system.add_alert_rule("own", lambda metrics: metrics["val/loss"] > 2, "critical")
        monitor.log({"val/loss": 3.0})
    assert [alert["rule"] for alert in stepscope.open_store(folder).run("r").alerts()] == ["own"]


@pytest.mark.slow
def test_a_failing_function_is_logged_once_and_the_training_continues(
    folder: Path, settings: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with stepscope.TrainingMonitor(str(settings), run="r", directory=folder) as monitor:
        monitor.alert_system.add_alert_rule("odd", lambda metrics: 1 / 0)
        for _ in range(10):
            monitor.log({"loss": 1.0})
    assert len(stepscope.open_store(folder).run("r").series("loss")) == 10
    assert caplog.text.count("The condition of the rule 'odd' failed") == 1


def test_disabled_alerts_do_not_fire(tmp_path: Path, folder: Path) -> None:
    path = tmp_path / "off.yaml"
    path.write_text("alerts: {disabled: [nonfinite_loss]}\n")
    with stepscope.TrainingMonitor(str(path), run="r", directory=folder) as monitor:
        monitor.log_training_step(loss=float("nan"))
    assert stepscope.open_store(folder).run("r").alerts() == []
