"""A live run is served by its agent: what the training has done, its machine, its findings and alerts."""

from __future__ import annotations

import logging
import socket
import sys
import threading
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

import stepscope
from stepscope.agent.ingest.export_queue import ExportCalls
from stepscope.agent.ingest.feeds import Exporters, make_feed
from stepscope.agent.run_settings import RunSettings
from stepscope.errors import ConfigError
from stepscope.exporters.prometheus import Prometheus
from stepscope.prometheus import metrics_server
from tests.prometheus.made import RUN, process, rows, samples_of, value_of


def free_port() -> int:
    """A port that nothing listens on."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


def scraped(port: int) -> str:
    """What a scrape gets; empty while nothing listens."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as response:
            return str(response.read().decode())
    except OSError:
        return ""


@pytest.mark.slow
def test_a_live_run_is_served_with_its_machine_and_its_alerts(
    folder: Path, until: Callable[..., None]
) -> None:
    port = free_port()
    settings = {"exporters": {"prometheus": {"port": port, "user_metrics": ["val/*"]}}}
    with stepscope.TrainingMonitor(settings, run='first "run"', directory=folder) as monitor:
        for step in range(30):
            monitor.log_training_step(
                loss=float("nan") if step > 20 else 1.0, custom_metrics={"val/acc": step / 30}
            )
        until(lambda: "stepscope_alert_active" in scraped(port) and "cpu_usage_percent" in scraped(port))
        text = scraped(port)
    labels = {"run": 'first "run"', "project": "default"}
    assert value_of(text, "training_steps_total", rank="0", **labels) == 30.0
    assert value_of(text, "training_loss", rank="0", **labels) != 1.0
    assert value_of(text, "stepscope_user_metric", name="val/acc", **labels) == pytest.approx(29 / 30)
    assert value_of(text, "stepscope_alert_active", rule="nonfinite_loss", severity="critical") == 1.0


def test_runs_with_other_options_on_one_port_share_it(tmp_path: Path) -> None:
    port = free_port()
    plain, prefixed = (
        make_feed("prometheus", {"port": port, "names": names}, tmp_path) for names in ("both", "prefixed")
    )
    plain.begin(process())
    plain.take(rows({"loss": [0.5]}))
    prefixed.begin(process(run_id="other-1", name="other"))
    prefixed.take(rows({"loss": [0.25]}, run_id="other-1"))
    assert isinstance(plain, Prometheus)
    assert isinstance(prefixed, Prometheus)
    assert plain.port == prefixed.port
    plain.close()  # the other one goes on
    text = ""
    deadline = time.monotonic() + 60
    while not text and time.monotonic() < deadline:
        text = scraped(port)
    prefixed.close()
    served = samples_of(text)
    assert [dict(labels)["run"] for labels in served["training_loss"]] == ["mnist"]
    assert [dict(labels)["run"] for labels in served["stepscope_training_loss"]] == ["other"]
    assert scraped(port) == ""


def test_the_options_of_the_port_are_checked(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(ConfigError, match="must be from 0 to 65535"):
        make_feed("prometheus", {"port": 70_000})
    with pytest.raises(ConfigError, match="is not a loopback address .*token_file"):
        make_feed("prometheus", {"port": 0, "host": "0.0.0.0"})
    (tmp_path / "token").write_text("a-token-of-enough-characters")
    feed = make_feed("prometheus", {"port": 0, "token_file": "token"}, tmp_path)
    feed.close()


def test_without_the_library_the_exporter_is_left_out_with_what_to_install(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    logging.getLogger("stepscope.agent").propagate = True
    settings = RunSettings(exporters={"prometheus": {"port": 0}})
    left_out = Exporters(lambda _: settings).for_run(RUN)
    assert "needs an extra package" in left_out["prometheus"].trouble
    assert "pip install 'stepscope[prometheus]'" in caplog.text


def test_a_port_that_another_program_has_is_a_failing_exporter_until_it_is_free(
    until: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics_server, "RETRY_S", 0.01)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        feed = Prometheus(port=taken.getsockname()[1])
        calls = ExportCalls("prometheus", feed)
        calls.put(lambda: feed.begin(process()))
        until(lambda: calls.status().state == "failing")
        assert "Address already in use" in calls.status().error
    until(lambda: calls.status().state == "working")
    calls.close(1)


def test_an_exporter_that_has_no_run_opens_no_port() -> None:
    threads = threading.active_count()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        Prometheus(port=taken.getsockname()[1]).close()
    assert threading.active_count() == threads


def test_metrics_that_the_names_leave_out_are_refused() -> None:
    with pytest.raises(ConfigError, match="user_metrics has no effect with names: required"):
        Prometheus(names="required", user_metrics=["val/*"])
