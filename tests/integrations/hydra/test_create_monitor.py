from __future__ import annotations

from pathlib import Path

import pytest

from stepscope.errors import ConfigError
from stepscope.integrations.hydra import create_monitor


def test_options_become_settings_and_further_settings_come_first(folder: Path) -> None:
    monitor = create_monitor(
        run="a",
        directory=folder,
        interval=0.5,
        max_overhead=0.001,
        dashboard=True,
        config={"samplers": {"gpu": {"interval_s": 2.0}}, "recorder": {"strict": True}},
    )
    settings = monitor.settings
    assert (settings.recorder.max_overhead, settings.recorder.strict) == (0.001, True)
    assert (settings.samplers["gpu"].interval_s, settings.samplers["cpu"].interval_s) == (2.0, 0.5)
    assert settings.dashboard.enabled


def test_a_monitor_that_is_off_records_nothing(folder: Path) -> None:
    with create_monitor(enabled=False, run="a", directory=folder) as monitor:
        monitor.log_training_step(loss=1.0)
    assert not folder.exists()


def test_wrong_options_are_refused() -> None:
    with pytest.raises(ConfigError, match="config is 3; it must be a mapping"):
        create_monitor(config=3)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="max_overhead"):
        create_monitor(max_overhead=7)
