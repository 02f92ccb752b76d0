"""`PerformanceMonitor` and `AlertSystem`: a monitor with the machine beside it, and its alert rules alone."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from stepscope.errors import ConfigError
from stepscope.facade.system_monitor import SystemMonitor
from stepscope.guard import shown
from stepscope.reading import open_store
from stepscope.recorder.monitor import TrainingMonitor

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping
    from types import TracebackType


class PerformanceMonitor(TrainingMonitor):
    """A `TrainingMonitor` that also answers what training and machine do now.

        monitor = PerformanceMonitor(run="mnist")
        monitor.start()
        for step in range(100):
            monitor.log_training_step(loss=train_step())
        print(monitor.get_metrics()["loss"], monitor.get_summary()["steps_per_second"])
        monitor.stop()

    The run has the figures of the machine in any case; these methods read them once more, for a script.
    """

    def start(self) -> None:
        """The same as `start_monitoring`."""
        self.start_monitoring()

    def stop(self) -> None:
        """The same as `stop_monitoring`."""
        self.stop_monitoring()

    @functools.cached_property
    def system_monitor(self) -> SystemMonitor:
        """Reads the machine when it is asked; the run has those figures anyway."""
        return SystemMonitor()

    def get_metrics(self) -> dict[str, Any]:
        """The loss so far (current, average, minimum, maximum) and the figures of the machine now."""
        stats = self.get_training_stats()
        system = self.system_monitor.get_system_metrics()
        return {"loss": stats.get("current_loss"), "training": stats, "system": system}

    def get_summary(self) -> dict[str, Any]:
        """Steps, speed and loss of the run, and averages of the machine at the calls of `get_metrics`."""
        return {**self.get_performance_summary(), "system": self.system_monitor.get_summary()}


class AlertSystem:
    """Alert rules over numbers that you pass in; the channels of the settings notify people.

        with AlertSystem() as alerts:
            alerts.add_alert_rule("high_loss", lambda metrics: metrics.loss > 2, message="Loss is {loss:.2f}")
            alerts.check({"loss": 2.5})
        print(alerts.get_alerts())

    With `monitor`, the rules are those of a training that is recorded already, as `monitor.alert_system`.
    """

    def __init__(
        self,
        monitor: TrainingMonitor | None = None,
        *,
        config: Any = None,
        run: str = "alerts",
        directory: str | os.PathLike[str] | None = None,
    ) -> None:
        if not isinstance(monitor, TrainingMonitor | None):
            raise ConfigError(f"argument: monitor is {shown(monitor)}; it must be a TrainingMonitor.")
        self._is_own = monitor is None
        self.monitor = monitor or TrainingMonitor(config, run=run, directory=directory)

    def add_alert_rule(
        self,
        name: str,
        condition: Callable[[Any], Any] | str,
        severity: str = "warning",
        message: str = "",
        cooldown_seconds: float = 300.0,
        **options: Any,
    ) -> None:
        """Adds a rule: a function of the latest metrics, or an expression such as "loss > 2"."""
        self.monitor.alert_system.add_alert_rule(
            name, condition, severity, message, cooldown_seconds, **options
        )

    def send_alert(self, title: str, text: str = "", severity: str = "warning") -> None:
        """Reports an alert now, without a rule."""
        self.monitor.alert_system.send_alert(title, text, severity)

    def check(self, metrics: Mapping[str, Any], step: int | None = None) -> None:
        """Takes numbers for the rules to be evaluated with; they are recorded, too."""
        self.monitor.log(metrics, step)

    def get_alerts(self) -> list[dict[str, Any]]:
        """The alerts so far, oldest first; complete after `stop`."""
        store = open_store(self.monitor.directory)
        try:
            return store.run(self.monitor.run_id).alerts()
        finally:
            store.close()

    def stop(self) -> None:
        """Ends the recording, unless it is that of another monitor."""
        if self._is_own:
            self.monitor.stop_monitoring()

    def __enter__(self) -> AlertSystem:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
