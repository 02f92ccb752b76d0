"""`PrometheusMonitor` serves the names of its document from figures that a program passes."""

from __future__ import annotations

import math
import urllib.request

import pytest

import stepscope
from stepscope import PrometheusMonitor
from stepscope.errors import ConfigError
from tests.facade.test_older_names import snippet_of
from tests.prometheus.made import samples_of, value_of


def scraped(monitor: PrometheusMonitor) -> str:
    """What a scrape gets."""
    with urllib.request.urlopen(f"http://127.0.0.1:{monitor.port}/metrics", timeout=60) as response:
        return str(response.read().decode())


def test_the_names_of_the_document_are_served_with_the_figures_passed() -> None:
    with PrometheusMonitor(port=0) as monitor:
        for loss in (0.5, 0.25):
            gpus = {0: {"memory_allocated": 4096}, 1: {"memory_allocated": 1}, 2: {}}
            monitor.update_metrics(loss=loss, gpu_metrics=gpus, cpu_percent=35.0, step_duration=0.12)
        text = scraped(monitor)
    assert value_of(text, "training_loss") == 0.25
    assert value_of(text, "training_steps_total") == 2.0
    assert value_of(text, "gpu_memory_mb", gpu_id="0") == 4096.0
    assert value_of(text, "gpu_memory_mb", gpu_id="1") == 1.0
    assert len(samples_of(text)["gpu_memory_mb"]) == 2
    assert value_of(text, "cpu_usage_percent") == 35.0
    assert value_of(text, "training_step_duration_seconds_count") == 2.0
    assert value_of(text, "training_step_duration_seconds_sum") == pytest.approx(0.24)


def test_its_snippet_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    snippet = snippet_of(PrometheusMonitor).replace("8000", "0")
    exec(snippet, {"PrometheusMonitor": stepscope.PrometheusMonitor})


def test_figures_that_are_unknown_or_odd_harm_nothing() -> None:
    with PrometheusMonitor(port=0) as monitor:
        monitor.update_metrics(None, None, None, None)
        monitor.update_metrics(math.nan, {'a\n"b"': {"memory_allocated": math.inf}, 0: None}, "much", -1)
        text = scraped(monitor)
    assert math.isnan(value_of(text, "training_loss"))
    assert value_of(text, "training_steps_total") == 2.0
    assert "gpu_memory_mb" not in text


@pytest.mark.parametrize("port", [-1, 70_000, "8000", None, True])
def test_a_port_that_cannot_be_one_is_refused(port: object) -> None:
    with pytest.raises(ConfigError, match="port is"):
        PrometheusMonitor(port)


def test_gpu_metrics_that_are_no_mapping_are_refused() -> None:
    with PrometheusMonitor(port=0) as monitor, pytest.raises(ConfigError, match="gpu_metrics is"):
        monitor.update_metrics(loss=1.0, gpu_metrics=[1])
