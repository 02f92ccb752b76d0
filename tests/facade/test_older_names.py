"""Names of older documents: each works as its own snippet says, and refuses what it cannot use."""

from __future__ import annotations

import inspect
import math
import socket
import subprocess
import textwrap
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stepscope
from stepscope import (
    AlertSystem,
    MetricsDatabase,
    MonitoringDashboard,
    PerformanceAlerting,
    PerformanceAnalyzer,
    PerformanceMonitor,
    RealTimeMonitor,
    SystemMonitor,
    TrainingMonitor,
    monitor_resources,
)
from stepscope.channels.base import DeliveryError
from stepscope.errors import ConfigError, RecorderError
from stepscope.facade.tracker import init
from stepscope.facade.tracker_run import TrackerRun
from stepscope.reading import Run
from tests.channels.conftest import Certificate, certificate
from tests.channels.mail_server import PASSWORD, USER, Mailbox, mailbox

__all__ = ["certificate"]  # a fixture

pytestmark = pytest.mark.usefixtures("without_agent")


@pytest.fixture(autouse=True)
def own_store(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setenv("STEPSCOPE_DIR", str(folder))


def snippet_of(thing: object) -> str:
    """The indented lines of a docstring."""
    lines = (inspect.getdoc(thing) or "").splitlines()
    code = [line for line in lines if line.startswith("    ")]
    assert code, f"{thing} has no snippet"
    return textwrap.dedent("\n".join(code))


@pytest.fixture
def mail(certificate: Certificate) -> Iterator[tuple[Mailbox, dict[str, Any]]]:
    with mailbox(starttls=certificate.server) as box:
        yield (
            box,
            {
                "smtp_server": "localhost",
                "smtp_port": box.port,
                "username": USER,
                "password": PASSWORD,
                "from": "training@example.com",
                "to": "me@example.com",
                "ca_file": str(certificate.file),
            },
        )


@pytest.mark.slow
@pytest.mark.parametrize(
    "thing", [PerformanceMonitor, AlertSystem, SystemMonitor, init, TrackerRun, PerformanceAnalyzer]
)
def test_the_snippet_of_each_name_runs(thing: object, capsys: pytest.CaptureFixture[str]) -> None:
    with TrainingMonitor(run="mnist") as monitor:
        for step in range(30):
            monitor.log({"loss": 1 / (step + 1)})
    names = {name: getattr(stepscope, name) for name in stepscope.__all__}
    exec(
        snippet_of(thing), {**names, "stepscope": stepscope, "train": lambda: None, "train_step": lambda: 0.5}
    )
    stepscope.finish()
    assert capsys.readouterr().out or thing in (init, TrackerRun)


@pytest.mark.slow
def test_a_performance_monitor_is_a_training_monitor_that_answers(read: Callable[[str], Run]) -> None:
    monitor = PerformanceMonitor(run="answers")
    monitor.start()
    assert monitor.get_metrics()["loss"] is None
    for step in range(10):
        monitor.log_training_step(loss=10.0 - step)
    metrics, summary = monitor.get_metrics(), monitor.get_summary()
    monitor.stop()
    assert metrics["loss"] == metrics["training"]["current_loss"] == 1.0
    assert 0 <= metrics["system"]["cpu_percent"] <= 100
    assert summary["steps"] == 10
    assert summary["system"]["memory_percent"]["max"] <= 100
    assert len(read("answers").series("loss")) == 10


def test_the_machine_is_read_with_and_without_a_thread() -> None:
    once = SystemMonitor()
    metrics = once.get_system_metrics()
    assert metrics["cpu_count"] >= 1
    assert 0 < metrics["memory_percent"] < 100
    assert metrics["memory_available_gb"] > 0
    assert len(once.history) == 1
    with SystemMonitor(interval=0.1, history_size=2) as often:
        done = threading.Event()
        while len(often.history) < 2:
            done.wait(0.01)
        assert often.get_system_metrics() == often.history[-1]
    assert set(often.get_summary()["cpu_percent"]) == {"average", "min", "max"}


def test_resources_have_the_names_of_the_document() -> None:
    resources = monitor_resources(interval=0.1)
    assert set(resources) == {
        *("cpu_percent", "cpu_count", "memory_percent", "memory_available_gb", "gpu_metrics"),
    }
    assert 0 <= resources["cpu_percent"] <= 100


@pytest.mark.parametrize("interval", [0, -1, "often", None, True, math.nan, 10_000])
def test_an_interval_that_cannot_be_used_is_refused(interval: object) -> None:
    with pytest.raises(RecorderError, match="interval is"):
        SystemMonitor(interval)
    with pytest.raises(RecorderError, match="interval is"):
        monitor_resources(interval)
    with pytest.raises(RecorderError, match="interval is"):
        RealTimeMonitor(PerformanceAlerting()).start_monitoring(interval)


@pytest.mark.slow
def test_rules_over_numbers_that_are_passed_in_fire(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STEPSCOPE_AGENT__MODE")
    with AlertSystem() as alerts:
        alerts.add_alert_rule("high", lambda metrics: metrics.loss > 2, "critical", "Loss is {loss:.1f}.")
        alerts.add_alert_rule("wrong", 3)
        alerts.check({"loss": 1.0})
        alerts.check({"loss": 2.5})
        alerts.send_alert("By hand", severity="info")
    fired = [(alert["rule"], alert["severity"], alert["message"]) for alert in alerts.get_alerts()]
    assert sorted(fired) == [("By hand", "info", "By hand"), ("high", "critical", "Loss is 2.5.")]
    with pytest.raises(ConfigError, match="must be a TrainingMonitor"):
        AlertSystem("monitor")


def test_alerts_compare_with_the_baseline() -> None:
    alerting = PerformanceAlerting()
    memory = {"gpu_0": {"memory_allocated": 95.0, "memory_reserved": 100.0}}
    current = {"loss": 1.2, "gpu_memory": memory, "cpu_percent": 99.0, "steps_per_second": 4.0}
    alerts = alerting.check_alerts(current, {"loss": 1.0, "steps_per_second": 10.0})
    assert {alert["type"]: alert["message"] for alert in alerts} == {
        "loss_increase": "Training loss increased by 20.0%: from 1 to 1.2.",
        "gpu_memory": "GPU gpu_0 memory usage is 95.0%.",
        "cpu_usage": "CPU usage is 99.0%.",
        "training_speed": "Training makes 4 steps/s; it made 10.",
    }
    total = {"gpu_0": {"memory_used_mb": 50.0, "memory_total_mb": 100.0, **memory["gpu_0"]}}
    assert alerting.check_alerts({"gpu_memory": total}) == []
    assert alerting.check_alerts({"loss": -1.5}, {"loss": -1.0}) == []
    assert alerting.check_alerts({"loss": -0.5}, {"loss": -1.0})[0]["type"] == "loss_increase"
    assert alerting.check_alerts({"loss": math.nan}, {"loss": 1.0})[0]["severity"] == "critical"
    alerting.alert_thresholds["cpu_usage"] = 0.999
    assert alerting.check_alerts({"cpu_percent": 99.0}, None) == []
    with pytest.raises(ConfigError, match="current_metrics is"):
        alerting.check_alerts([1.0])


def test_an_alert_arrives_by_encrypted_mail(mail: tuple[Mailbox, dict[str, Any]]) -> None:
    box, email_config = mail
    alerting = PerformanceAlerting(email_config)
    for alert in alerting.check_alerts({"loss": 2.0}, {"loss": 1.0}):
        alerting.send_alert(alert)
    (message,) = box.mails
    assert message["To"] == "me@example.com"
    assert "increased by 100.0%" in message.get_body(("plain",)).get_content()
    assert box.was_encrypted == [True]
    assert box.logins == [USER]
    box.answer = "550 no"
    with pytest.raises(DeliveryError, match="refused"):
        alerting.send_alert({"type": "a", "message": "b"})


@pytest.mark.parametrize(
    ("email_config", "message"),
    [
        ({"smtp": "x"}, "no key 'smtp'"),
        ({"smtp_server": "localhost"}, "sender"),
        ("mail", "must be a mapping"),
        ({"smtp_server": "localhost", "from": "a@b.c", "to": "nobody"}, "recipients"),
    ],
)
def test_a_mail_configuration_that_cannot_be_used_is_refused(email_config: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        PerformanceAlerting(email_config)


def test_an_alert_that_cannot_be_sent_is_refused() -> None:
    alerting = PerformanceAlerting()
    with pytest.raises(ConfigError, match="no email_config"):
        alerting.send_alert({"message": "x"})
    with pytest.raises(ConfigError, match="must be a PerformanceAlerting"):
        RealTimeMonitor("alerting")


def test_a_real_time_monitor_sends_each_kind_of_alert_once(mail: tuple[Mailbox, dict[str, Any]]) -> None:
    box, email_config = mail
    alerting = PerformanceAlerting(email_config)
    alerting.alert_thresholds |= {"cpu_usage": 2.0, "training_speed": 0.0}  # those of a busy machine
    with TrainingMonitor(run="live") as training:
        monitor = RealTimeMonitor(alerting, training)
        monitor.check()  # before the first loss
        training.log_training_step(loss=1.0)
        monitor.start_monitoring(interval=0.1)
        tick = threading.Event()
        while "loss" not in (monitor.baseline_metrics or {}):
            tick.wait(0.01)
        training.log_training_step(loss=3.0)
        while sum("loss" in metrics for metrics in monitor.metrics_history) < 4 or not box.mails:
            tick.wait(0.01)
        monitor.stop_monitoring()
        assert not monitor.is_monitoring
    assert len(box.mails) == 1
    assert PerformanceAnalyzer(monitor.metrics_history).analyze_resource_usage()["cpu_stats"]["max"] <= 100


def test_a_mail_server_that_is_away_is_named_once(caplog: pytest.LogCaptureFixture) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    alerting = PerformanceAlerting(
        {"smtp_server": "127.0.0.1", "smtp_port": port, "from": "a@b.cd", "to": "a@b.cd", "security": "none"}
    )
    alerting.alert_thresholds["cpu_usage"] = 2.0
    monitor = RealTimeMonitor(alerting)
    monitor.update(loss=1.0)
    monitor.check()
    monitor.update(loss=2.0)
    monitor.start_monitoring(interval=0.1)
    tick = threading.Event()
    while "cannot be reached" not in caplog.text:
        tick.wait(0.01)
    monitor.stop_monitoring()


def history_of(losses: Any) -> list[dict[str, float]]:
    return [
        {"timestamp": 1e9 + number, "loss": float(loss), "cpu_percent": number % 100, "gpu_memory": 10.0}
        for number, loss in enumerate(losses)
    ]


def test_a_trend_has_slope_significance_and_a_robust_twin() -> None:
    noise = np.random.default_rng(0).normal(0, 0.1, 200)
    falling = PerformanceAnalyzer(history_of(5 - 0.01 * np.arange(200) + noise)).analyze_loss_trend()
    assert falling["slope"] == pytest.approx(-0.01, abs=0.001)
    assert (falling["trend"], falling["significance"]) == ("decreasing", "significant")
    assert falling["robust"]["low"] < -0.01 < falling["robust"]["high"]
    assert falling["robust"]["significance"] == "significant"
    flat = PerformanceAnalyzer(history_of(5 + noise)).analyze_loss_trend()
    assert flat["significance"] == flat["robust"]["significance"] == "not_significant"
    outliers = 5 - 0.01 * np.arange(200)
    outliers[-4:] = 60
    misled = PerformanceAnalyzer(history_of(outliers)).analyze_loss_trend()
    assert misled["trend"] == "increasing"
    assert misled["robust"]["trend"] == "decreasing"


def test_the_trend_of_any_figure_has_a_test_by_ranks() -> None:
    noise = np.random.default_rng(0).normal(0, 0.1, 200)
    history = [
        {"timestamp": float(number), "tokens": 50 + 0.01 * number + noise[number]} for number in range(200)
    ]
    rising = PerformanceAnalyzer(history).analyze_trend("tokens")
    assert (rising["trend"], rising["robust"]["trend"]) == ("increasing", "increasing")
    assert rising["slope"] == pytest.approx(0.01, abs=0.001)
    assert rising["robust"]["tau"] > 0.8
    assert rising["robust"]["p_value"] < 1e-9
    assert PerformanceAnalyzer(history).analyze_trend("loss")["trend"] == "unknown"


def test_a_trend_needs_three_finite_losses() -> None:
    for losses in ([], [1.0, 2.0], [math.nan] * 9):
        trend = PerformanceAnalyzer(history_of(losses)).analyze_loss_trend()
        assert (trend["trend"], trend["slope"]) == ("unknown", None)
    constant = PerformanceAnalyzer(history_of([2.0] * 9)).analyze_loss_trend()
    assert (constant["trend"], constant["p_value"]) == ("flat", 1.0)
    without_times = PerformanceAnalyzer([{"loss": 3.0 - number} for number in range(4)]).analyze_loss_trend()
    assert without_times["slope"] == pytest.approx(-1.0)


@pytest.mark.slow
def test_many_losses_are_analysed() -> None:
    analyzer = PerformanceAnalyzer([{"loss": 1.0 / (number + 1)} for number in range(9_000)])
    assert analyzer.analyze_loss_trend()["robust"]["trend"] == "decreasing"
    assert analyzer.detect_anomalies() == []


def test_resource_usage_has_statistics_of_what_is_there() -> None:
    usage = PerformanceAnalyzer(history_of(range(100))).analyze_resource_usage()
    assert usage["cpu_stats"]["mean"] == pytest.approx(49.5)
    assert usage["gpu_stats"] == {
        "mean": 10.0,
        "std": 0.0,
        "min": 10.0,
        "max": 10.0,
        "p50": 10.0,
        "p95": 10.0,
        "p99": 10.0,
    }
    assert usage["memory_stats"] == {}
    gpus = {"gpu_0": {"memory_allocated": 3.0}, "gpu_1": {"memory_allocated": 4.0}}
    usage = PerformanceAnalyzer([{"gpu_memory": gpus}, {"gpu_memory": {}}]).analyze_resource_usage()
    assert usage["gpu_stats"]["mean"] == 7.0


@pytest.mark.parametrize("place", [30, 60, 119])
def test_a_spike_is_an_anomaly_and_a_falling_loss_is_not(place: int) -> None:
    for losses in (np.exp(-np.arange(120) / 3), np.exp(-np.arange(120) / 50), np.ones(120)):
        assert PerformanceAnalyzer(history_of(losses)).detect_anomalies() == []
        losses[place] += 2
        (anomaly,) = PerformanceAnalyzer(history_of(losses)).detect_anomalies()
        assert (anomaly["index"], anomaly["timestamp"]) == (place, 1e9 + place)
        assert anomaly["loss"] == pytest.approx(losses[place])
        assert anomaly["z_score"] > 2
        assert anomaly["robust_z"] > 6


def test_noise_is_not_an_anomaly_and_a_nan_is() -> None:
    losses = 3 + np.random.default_rng(1).normal(0, 0.3, 3000)
    losses[70] = math.nan
    (anomaly,) = PerformanceAnalyzer(history_of(losses)).detect_anomalies()
    assert (anomaly["index"], anomaly["z_score"]) == (70, None)


@pytest.mark.parametrize("history", [None, 3, "text", {"loss": 1.0}, [1.0, 2.0]])
def test_a_history_that_cannot_be_used_is_refused(history: object) -> None:
    with pytest.raises(ConfigError, match="metrics_history is"):
        PerformanceAnalyzer(history)
    with pytest.raises(ConfigError, match="threshold is"):
        PerformanceAnalyzer([]).detect_anomalies(threshold=0)


@pytest.mark.slow
def test_the_analyzer_reads_what_the_database_returns() -> None:
    with TrainingMonitor(run="rows") as monitor:
        for step in range(50):
            monitor.log_training_step(loss=1 / (step + 1))
    with MetricsDatabase() as database:
        analyzer = PerformanceAnalyzer(database.get_training_metrics("rows"))
    assert analyzer.analyze_loss_trend()["trend"] == "decreasing"


@pytest.mark.slow
@pytest.mark.parametrize(("host", "port"), [(3, 8050), ("localhost", "many"), ("localhost", 70_000)])
def test_an_address_that_cannot_be_used_is_refused(host: Any, port: Any) -> None:
    with pytest.raises(ConfigError, match="argument: "):
        MonitoringDashboard().run(host, port)


@pytest.mark.slow
@pytest.mark.parametrize("where", ["main", "thread"])
def test_the_dashboard_is_served_until_it_is_stopped(
    where: str, start: Callable[..., Any], folder: Path
) -> None:
    process = start(
        """
        import threading, sys
        from stepscope import MonitoringDashboard
        dashboard = MonitoringDashboard()
        if sys.argv[1] == "thread":  # as a script does that goes on training
            threading.Thread(target=dashboard.run, args=("localhost", 0), daemon=True).start()
            sys.stdin.readline()
        else:
            dashboard.run("localhost", 0)
        """,
        where,
        stdin=subprocess.PIPE,
    )
    line = process.stdout.readline()
    assert "Dashboard: http://localhost:" in line
    address = line.split()[1]
    browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
    assert browser.open(address, timeout=10).status == 200
    assert MonitoringDashboard(folder).url == address
    with pytest.raises(urllib.error.HTTPError):
        urllib.request.urlopen(address.partition("?")[0], timeout=10)
    process.terminate()
    process.communicate(timeout=30)
