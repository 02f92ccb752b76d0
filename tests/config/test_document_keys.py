"""The shapes of older documents, exactly as they were printed there."""

import pytest

from stepscope import TrainingMonitor, open_store, plugins
from stepscope.analysis.detector_registry import known_detectors
from stepscope.config.document_keys import NO_EFFECT, SAMPLER_OF, TODAY
from stepscope.config.load import load
from stepscope.config.reference import hint_at
from stepscope.config.sections import Settings
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


def noted(loaded):
    """Every key without effect, with the line it stands on."""
    assert all(" has no effect in this version; " in note.text for note in loaded.notes)
    return {note.text.split()[0]: int(note.origin.split(":")[1]) for note in loaded.notes}


def test_dashboard_alert_system_and_visualization_land_in_the_tree(tmp_path):
    loaded = loaded_from(tmp_path, DASHBOARD_ALERTS_VISUALIZATION)
    settings = loaded.settings
    assert (settings.dashboard.enabled, settings.dashboard.port) == (True, 8080)
    assert settings.alerts.thresholds == {
        "cpu_usage_percent": 90.0,
        "memory_usage_percent": 85.0,
        "grad_norm_exploded": 10.0,
    }
    assert noted(loaded) == {"visualization.enabled": 15, "visualization.chart_types": 16}
    assert given_by(loaded) == {
        "dashboard.enabled": 3,
        "dashboard.host": 4,
        "dashboard.port": 5,
        "alerts.enabled": 8,
        "alerts.thresholds.cpu_usage_percent": 10,
        "alerts.thresholds.memory_usage_percent": 11,
        "alerts.thresholds.grad_norm_exploded": 12,
    }


def test_basic_monitoring_lands_in_the_tree(tmp_path):
    loaded = loaded_from(tmp_path, BASIC_MONITORING)
    settings = loaded.settings
    assert settings.recorder.enabled
    assert {name: settings.sampler(name).interval_s for name in ("gpu", "cpu", "disk")} == {
        "gpu": 30.0,
        "cpu": 30.0,
        "disk": 30.0,
    }
    assert settings.samplers.keys() == {"default", "gpu", "cpu"}
    assert settings.exporters == {"prometheus": {"enabled": False}, "tensorboard": {"enabled": True}}
    assert noted(loaded) == {}
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
    assert {*given_by(loaded).values(), *noted(loaded).values()} == with_value
    assert noted(loaded).keys() == {"monitoring.visualization.grafana"}
    assert settings.exporters == {"prometheus": {"enabled": True}, "tensorboard": {"enabled": True}}
    assert settings.alerts.channels.keys() == {"mail", "slack"}
    assert settings.detectors == {
        "conv.diverging": {"enabled": True},
        "conv.spike": {"enabled": True},
        "step.creep": {"enabled": True},
    }


def test_flat_keys_of_a_dictionary_land_in_the_tree():
    given = {
        "enable_dashboard": True,
        "dashboard_port": 8080,
        "enable_alerts": False,
        "enable_monitoring": False,
        "log_level": "WARNING",
        "sample_interval": 5,
        "enable_prometheus": True,
        "prometheus_port": 9101,
    }
    settings = load(given, environment={}).settings
    assert (settings.dashboard.enabled, settings.dashboard.port) == (True, 8080)
    assert (settings.alerts.enabled, settings.recorder.enabled) == (False, False)
    assert settings.logging.level == "warning"
    assert settings.sampler("gpu").interval_s == 5.0
    assert settings.exporters == {"prometheus": {"enabled": True, "port": 9101}}


def test_a_threshold_already_in_percent_is_not_changed(tmp_path):
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


def test_the_same_setting_in_both_formats_is_not_an_error(tmp_path):
    content = "dashboard: {enabled: true}\nenable_dashboard: true\nmonitoring:\n"
    assert loaded_from(tmp_path, content).settings.dashboard.enabled


@pytest.mark.parametrize("today", sorted(set(TODAY.values())))
def test_every_older_key_leads_to_a_setting_that_exists(today):
    assert hint_at(today) is not None


def test_every_sampler_detector_and_channel_that_older_keys_lead_to_exists():
    assert set(SAMPLER_OF.values()) <= set(plugins.names("samplers"))
    assert {key[1] for key in TODAY.values() if key[0] == "detectors"} <= known_detectors().keys()
    assert {key[2] for key in TODAY.values() if key[:2] == ("alerts", "channels")} <= set(
        plugins.names("channels")
    )


@pytest.mark.parametrize("key", sorted(NO_EFFECT))
def test_a_key_without_effect_is_accepted_and_named_once(tmp_path, key):
    *above, last = key.split(".")
    content = "".join(f"{'  ' * depth}{name}:\n" for depth, name in enumerate(above))
    loaded = loaded_from(tmp_path, f"{content}{'  ' * len(above)}{last}: true\n")
    assert noted(loaded) == {key: len(above) + 1}
    assert loaded.settings == Settings()


def test_settings_of_reports_and_checkpoints_in_files_and_variables_are_accepted_and_named(tmp_path):
    (tmp_path / "a.yaml").write_text("reports:\n  enabled: true\n  formats: [html]\ncheckpoints: {keep: 2}\n")
    environment = {"STEPSCOPE_REPORTS__INTERVAL_S": "5", "STEPSCOPE_RECORDER__METRICS": "[a]"}
    loaded = load("a.yaml", environment=environment, directory=tmp_path)
    assert [str(note).partition(" has no effect")[0] for note in loaded.notes] == [
        "a.yaml:1: reports",
        "a.yaml:4: checkpoints",
        "environment STEPSCOPE_RECORDER__METRICS: recorder.metrics",
        "environment STEPSCOPE_REPORTS__INTERVAL_S: reports",
    ]


def test_a_monitor_names_a_setting_without_effect_once_and_records(tmp_path, caplog):
    config = {"reports": {"enabled": True}}
    for number in range(2):
        with TrainingMonitor(config, run=f"r{number}", directory=tmp_path / "store") as monitor:
            monitor.log({"loss": 1.0})
    assert caplog.text.count("reports has no effect in this version") == 1
    assert len(open_store(tmp_path / "store").runs()) == 2
