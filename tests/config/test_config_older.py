"""The shapes of older documents, exactly as they were printed there."""

import pytest

from stepscope.config.load import load
from stepscope.config.older import TODAY
from stepscope.config.shape import hint_at
from stepscope.errors import ConfigError

DASHBOARD_ALERTS_VISUALIZATION = """\
# configs/monitoring_config.yaml
dashboard:
  enabled: true
  host: "127.0.0.1"
  port: 8080

alert_system:
  enabled: true
  thresholds:
    cpu_usage_percent: 90.0
    memory_usage_percent: 85.0
    grad_norm_exploded: 10.0

visualization:
  enabled: true
  chart_types:
    - training_progress
    - system_monitoring
    - interactive_dashboard
"""

BASIC_MONITORING = """\
monitoring:
  enabled: true
  interval: 30  # seconds

  metrics:
    - training_loss
    - gpu_memory
    - cpu_usage
    - training_speed

  visualization:
    tensorboard: true
    dashboard: true
    prometheus: false

  alerting:
    enabled: true
    email_notifications: true
    thresholds:
      loss_increase: 0.1
      gpu_memory: 0.9
      cpu_usage: 0.95
"""

ADVANCED_MONITORING = """\
monitoring:
  enabled: true
  interval: 10  # seconds

  metrics:
    - training_loss
    - gpu_memory
    - cpu_usage
    - training_speed
    - model_parameters
    - gradient_norms
    - learning_rate

  visualization:
    tensorboard: true
    dashboard: true
    prometheus: true
    grafana: true

  alerting:
    enabled: true
    email_notifications: true
    slack_notifications: true
    thresholds:
      loss_increase: 0.05
      gpu_memory: 0.85
      cpu_usage: 0.9
      training_speed: 0.7

  analysis:
    trend_analysis: true
    anomaly_detection: true
    performance_regression: true
"""


def loaded_from(folder, content):
    (folder / "old.yaml").write_text(content)
    return load("old.yaml", environment={}, directory=folder)


def error_of(folder, content):
    with pytest.raises(ConfigError) as caught:
        loaded_from(folder, content)
    return str(caught.value)


def given_by(loaded):
    """Every key that the file set, with the line it came from."""
    origins = loaded.origins.items()
    return {key: int(origin.split(":")[1]) for key, origin in origins if origin != "default"}


def test_dashboard_alert_system_and_visualization_land_in_the_tree(tmp_path):
    loaded = loaded_from(tmp_path, DASHBOARD_ALERTS_VISUALIZATION)
    settings = loaded.settings
    assert (settings.dashboard.enabled, settings.dashboard.port) == (True, 8080)
    assert settings.alerts.thresholds == {
        "cpu_usage_percent": 90.0,
        "memory_usage_percent": 85.0,
        "grad_norm_exploded": 10.0,
    }
    assert settings.reports.enabled
    assert settings.reports.charts == [
        "training_progress",
        "system_monitoring",
        "interactive_dashboard",
    ]
    assert given_by(loaded) == {
        "dashboard.enabled": 3,
        "dashboard.host": 4,
        "dashboard.port": 5,
        "alerts.enabled": 8,
        "alerts.thresholds.cpu_usage_percent": 10,
        "alerts.thresholds.memory_usage_percent": 11,
        "alerts.thresholds.grad_norm_exploded": 12,
        "reports.enabled": 15,
        "reports.charts": 16,
    }


def test_basic_monitoring_lands_in_the_tree(tmp_path):
    settings = loaded_from(tmp_path, BASIC_MONITORING).settings
    assert settings.recorder.enabled
    assert settings.recorder.metrics == ["training_loss", "training_speed"]
    assert {name: settings.sampler(name).interval_s for name in ("gpu", "host", "disk")} == {
        "gpu": 30.0,
        "host": 30.0,
        "disk": 30.0,
    }
    assert settings.samplers.keys() == {"default", "gpu", "host"}
    assert settings.exporters == {
        "tensorboard": {"enabled": True},
        "prometheus": {"enabled": False},
    }
    assert settings.dashboard.enabled
    assert settings.alerts.channels == {"mail": {"enabled": True}}
    assert settings.alerts.thresholds == {
        "loss_increase": 0.1,
        "gpu_memory_percent": 90.0,
        "cpu_usage_percent": 95.0,
    }


def test_every_line_of_advanced_monitoring_lands_somewhere(tmp_path):
    loaded = loaded_from(tmp_path, ADVANCED_MONITORING)
    settings = loaded.settings
    lines = ADVANCED_MONITORING.splitlines()
    with_value = {
        number
        for number, line in enumerate(lines, 1)
        if (":" in line and line.split(":")[1].split("#")[0].strip()) or "metrics:" in line
    }
    assert set(given_by(loaded).values()) == with_value
    assert settings.recorder.metrics == [
        "training_loss",
        "training_speed",
        "model_parameters",
        "gradient_norms",
        "learning_rate",
    ]
    assert settings.exporters.keys() == {"tensorboard", "prometheus", "grafana"}
    assert settings.alerts.channels.keys() == {"mail", "slack"}
    assert settings.detectors == {
        "trend": {"enabled": True},
        "anomaly": {"enabled": True},
        "regression": {"enabled": True},
    }


def test_flat_keys_of_a_dictionary_land_in_the_tree():
    given = {
        "enable_dashboard": True,
        "dashboard_port": 8080,
        "enable_alerts": False,
        "enable_monitoring": False,
        "log_level": "WARNING",
        "sample_interval": 5,
    }
    settings = load(given, environment={}).settings
    assert (settings.dashboard.enabled, settings.dashboard.port) == (True, 8080)
    assert (settings.alerts.enabled, settings.recorder.enabled) == (False, False)
    assert settings.logging.level == "warning"
    assert settings.sampler("gpu").interval_s == 5.0


def test_a_threshold_already_in_percent_is_left_alone(tmp_path):
    content = "monitoring: {alerting: {thresholds: {gpu_memory: 90}}}\n"
    thresholds = loaded_from(tmp_path, content).settings.alerts.thresholds
    assert thresholds == {"gpu_memory_percent": 90.0}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            "monitoring:\n  interval: 0.01\n",
            "old.yaml:2: monitoring.interval is 0.01; it must be a number from 0.1 to 600, or null.",
        ),
        (
            "monitoring:\n  intervall: 5\n",
            ("old.yaml:2: there is no setting 'monitoring.intervall'; did you mean 'monitoring.interval'?"),
        ),
        (
            "monitoring:\n  visualization:\n    grafana: maybe\n",
            'old.yaml:3: monitoring.visualization.grafana is "maybe"; it must be true or false.',
        ),
        (
            "monitoring:\n  metrics: loss\n",
            'old.yaml:2: monitoring.metrics is "loss"; it must be a list, each item text.',
        ),
        (
            "alert_system: on\n",
            "old.yaml:1: alert_system must be a section with settings such as enabled, thresholds.",
        ),
        (
            "\ndashboard_port: 70000\n",
            "old.yaml:2: dashboard_port is 70000; it must be a whole number from 0 to 65535.",
        ),
        (
            "enable_dashbord: true\n",
            "old.yaml:1: there is no setting 'enable_dashbord'; did you mean 'enable_dashboard'?",
        ),
        (
            "dashboard: {enabled: false}\nenable_dashboard: true\n",
            (
                "old.yaml:2: dashboard.enabled is given twice, here as 'enable_dashboard' and as "
                "'dashboard.enabled' (old.yaml:1); keep one."
            ),
        ),
        (
            "alerts: {thresholds: 5}\nalert_system: {thresholds: {loss: 1}}\n",
            (
                "old.yaml:2: alerts.thresholds.loss is given twice, here as "
                "'alert_system.thresholds.loss' and as 'alerts.thresholds' (old.yaml:1); keep one."
            ),
        ),
    ],
)
def test_mistakes_are_reported_under_the_key_that_was_written(tmp_path, content, message):
    assert error_of(tmp_path, content) == message


def test_saying_the_same_in_both_shapes_is_no_mistake(tmp_path):
    content = "dashboard: {enabled: true}\nenable_dashboard: true\nmonitoring:\n"
    assert loaded_from(tmp_path, content).settings.dashboard.enabled


@pytest.mark.parametrize("today", sorted(set(TODAY.values())))
def test_every_older_key_leads_to_a_setting_that_exists(today):
    assert hint_at(tuple(today.split("."))) is not None
