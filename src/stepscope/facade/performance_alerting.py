"""`PerformanceAlerting` and `RealTimeMonitor`: compares figures with a baseline, and sends e-mails."""

from __future__ import annotations

import math
import os
import sys
import threading
import time
import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from stepscope.channels.mail import MailChannel
from stepscope.errors import ConfigError
from stepscope.facade.system_monitor import SystemMonitor, seconds_argument
from stepscope.guard import Guard, shown
from stepscope.recorder.values import as_number
from stepscope.schema.alert import SEVERITIES, AlertDetail, Notice

if TYPE_CHECKING:
    from stepscope.recorder.monitor import TrainingMonitor

THRESHOLDS = {"loss_increase": 0.1, "gpu_memory": 0.9, "cpu_usage": 0.95, "training_speed": 0.5}
"""Shares: of the baseline's loss, of a GPU's memory, of the processors, of the baseline's speed."""

_MAIL = {
    "smtp_server": "host", "smtp_port": "port", "username": "user", "password": "password", "from": "sender",
    "to": "recipients", "security": "security", "ca_file": "ca_file", "timeout_s": "timeout_s",
}  # fmt: skip
"""Keys of `email_config`, and the options of the channel `mail` that they are."""

COOLDOWN_S = 300.0


class PerformanceAlerting:
    """Checks figures against a baseline, and sends alerts by e-mail.

        alerting = PerformanceAlerting({
            "smtp_server": "smtp.example.com", "smtp_port": 587, "username": "me", "password": "...",
            "from": "me@example.com", "to": "me@example.com",
        })
        for alert in alerting.check_alerts({"loss": 1.2, "cpu_percent": 40}, {"loss": 1.0}):
            alerting.send_alert(alert)

    `alert_thresholds` may be changed. The connection is encrypted by STARTTLS; `security` may be `tls` or
    `none` instead. Without `email_config`, alerts can be checked but not sent.
    """

    def __init__(self, email_config: Mapping[str, Any] | None = None) -> None:
        self.alert_thresholds: dict[str, float] = dict(THRESHOLDS)
        self._channel = None if email_config is None else _mail_channel(email_config)

    def check_alerts(
        self, current_metrics: Mapping[str, Any], baseline_metrics: Mapping[str, Any] | None = None
    ) -> list[dict[str, Any]]:
        """The alerts of the current figures: type, message and severity of each.

        Uses `loss`, `cpu_percent`, `gpu_memory` (by GPU) and `steps_per_second` as far as they are there.
        """
        for name, metrics in (("current_metrics", current_metrics), ("baseline_metrics", baseline_metrics)):
            if not isinstance(metrics, Mapping | None):
                raise ConfigError(f"argument: {name} is {shown(metrics)}; it must be a mapping.")
        current, baseline = current_metrics or {}, baseline_metrics or {}
        checks = (
            self._loss(current, baseline),
            *self._gpu_memory(current),
            self._cpu(current),
            self._speed(current, baseline),
        )
        return [alert for alert in checks if alert is not None]

    def send_alert(self, alert: Mapping[str, Any]) -> None:
        """Sends an alert by e-mail; raises DeliveryError if the server does not take it."""
        if self._channel is None:
            raise ConfigError(
                "There is no email_config, so an alert cannot be sent. Pass it to PerformanceAlerting."
            )
        if not isinstance(alert, Mapping) or "message" not in alert:
            raise ConfigError(f"argument: alert is {shown(alert)}; it must have type, message and severity.")
        severity = alert.get("severity", "warning")
        if severity not in SEVERITIES:
            raise ConfigError(f"severity is {shown(severity)}; it must be one of {', '.join(SEVERITIES)}.")
        now_ns = time.time_ns()
        detail = AlertDetail(str(alert.get("type", "alert")), severity, str(alert["message"]), now_ns)
        self._channel.send(
            Notice(
                id=uuid.uuid4().hex,
                kind="firing",
                run=_script(),
                run_id="",
                project="",
                host=os.uname().nodename,
                at_ns=now_ns,
                alerts=(detail,),
                pid=os.getpid(),
            )
        )

    def _loss(self, current: Mapping[str, Any], baseline: Mapping[str, Any]) -> dict[str, Any] | None:
        loss, before = as_number(current.get("loss")), as_number(baseline.get("loss"))
        if loss is None:
            return None
        if math.isnan(loss):
            return _alert("loss_increase", "Training loss is NaN.", "critical")
        if before is None or loss - before <= self.alert_thresholds["loss_increase"] * abs(before):
            return None
        by = f" by {(loss - before) / abs(before):.1%}" if before else ""
        return _alert("loss_increase", f"Training loss increased{by}: from {before:.4g} to {loss:.4g}.")

    def _gpu_memory(self, current: Mapping[str, Any]) -> list[dict[str, Any]]:
        gpus = current.get("gpu_memory") or {}
        shares = {name: _memory_share(gpu) for name, gpu in gpus.items()} if isinstance(gpus, Mapping) else {}
        limit = self.alert_thresholds["gpu_memory"]
        return [
            _alert("gpu_memory", f"GPU {name} memory usage is {share:.1%}.")
            for name, share in shares.items()
            if share is not None and share > limit
        ]

    def _cpu(self, current: Mapping[str, Any]) -> dict[str, Any] | None:
        percent = as_number(current.get("cpu_percent"))
        if percent is None or percent <= 100 * self.alert_thresholds["cpu_usage"]:
            return None
        return _alert("cpu_usage", f"CPU usage is {percent:.1f}%.")

    def _speed(self, current: Mapping[str, Any], baseline: Mapping[str, Any]) -> dict[str, Any] | None:
        speed, before = (as_number(metrics.get("steps_per_second")) for metrics in (current, baseline))
        if speed is None or before is None or speed >= self.alert_thresholds["training_speed"] * before:
            return None
        return _alert("training_speed", f"Training makes {speed:.3g} steps/s; it made {before:.3g}.")


class RealTimeMonitor:
    """Checks the machine and a training at an interval, and sends the alerts.

        monitor = RealTimeMonitor(alerting, training_monitor)
        monitor.start_monitoring(interval=30)
        train()
        monitor.stop_monitoring()

    The first check with a loss is the baseline. An alert of the same type is sent again after five minutes.
    What cannot be sent is logged once. Without `training_monitor`, the loss is what `update` was given.
    """

    def __init__(
        self, alerting_system: PerformanceAlerting, training_monitor: TrainingMonitor | None = None
    ) -> None:
        for method in ("check_alerts", "send_alert"):
            if not callable(getattr(alerting_system, method, None)):
                raise ConfigError(
                    f"argument: alerting_system is {shown(alerting_system)}; it must be a "
                    "PerformanceAlerting."
                )
        self.alerting_system, self.training_monitor = alerting_system, training_monitor
        self.baseline_metrics: dict[str, Any] | None = None
        self.metrics_history: list[dict[str, Any]] = []
        """The figures of the newest checks, for `PerformanceAnalyzer`; at most 1,000."""
        self._system = SystemMonitor()
        self._guard = Guard(strict=False)
        self._updates: dict[str, Any] = {}
        self._sent_at: dict[str, float] = {}
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def is_monitoring(self) -> bool:
        """Whether it is started."""
        return self._thread is not None

    def start_monitoring(self, interval: float = 30.0) -> None:
        """Starts checking in another thread; does nothing if it is started."""
        seconds = seconds_argument("interval", interval)
        if self._thread is None:
            self._stopped.clear()
            self._thread = threading.Thread(
                target=self._check_often, args=(seconds,), name="stepscope-alerting", daemon=True
            )
            self._thread.start()

    def stop_monitoring(self) -> None:
        """Stops checking."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._stopped.set()
            thread.join()

    def update(self, **metrics: Any) -> None:
        """Sets figures of the training for the next checks, such as `loss`."""
        self._updates.update(metrics)

    def check(self) -> list[dict[str, Any]]:
        """Checks once, sends what is due, and returns all alerts."""
        current = self._current_metrics()
        if self.baseline_metrics is None or "loss" not in self.baseline_metrics:
            self.baseline_metrics = current
        self.metrics_history = [*self.metrics_history[-999:], current]
        alerts = self.alerting_system.check_alerts(current, self.baseline_metrics)
        for alert in alerts:
            self._send(alert)
        return alerts

    def _send(self, alert: dict[str, Any]) -> None:
        now, kind = time.monotonic(), str(alert["type"])
        if now - self._sent_at.get(kind, float("-inf")) >= COOLDOWN_S:
            self._sent_at[kind] = now
            self.alerting_system.send_alert(alert)

    def _check_often(self, interval_s: float) -> None:
        while True:
            try:
                self.check()
            except Exception as error:  # noqa: BLE001 - the next check may succeed
                self._guard.warn_once(type(error).__name__, f"An alert was not sent: {error}")
            if self._stopped.wait(interval_s):
                return

    def _current_metrics(self) -> dict[str, Any]:
        system = self._system.get_system_metrics()
        current = {
            "timestamp": system["timestamp"],
            "cpu_percent": system["cpu_percent"],
            "memory_percent": system["memory_percent"],
            "gpu_memory": {f"gpu_{gpu['gpu_index']}": gpu for gpu in system["gpus"]},
        }
        if self.training_monitor is not None:
            summary = self.training_monitor.get_performance_summary()
            if summary["loss"]:
                current["loss"] = summary["loss"]["current_loss"]
                current["steps_per_second"] = summary["steps_per_second"]
        return {**current, **self._updates}


def _mail_channel(email_config: Mapping[str, Any]) -> MailChannel:
    if not isinstance(email_config, Mapping):
        raise ConfigError(f"argument: email_config is {shown(type(email_config))}; it must be a mapping.")
    unknown = [str(key) for key in email_config if key not in _MAIL]
    if unknown:
        raise ConfigError(f"email_config has no key {unknown[0]!r}; there are {', '.join(_MAIL)}.")
    options = {_MAIL[key]: value for key, value in email_config.items() if value is not None}
    recipients = options.get("recipients", ())
    options["recipients"] = [recipients] if isinstance(recipients, str) else list(recipients)
    return MailChannel(**options)


def _memory_share(gpu: Any) -> float | None:
    """The used share of a GPU's memory; of what PyTorch has reserved if the total is not known."""
    if not isinstance(gpu, Mapping):
        return None
    pairs = (("memory_used_mb", "memory_total_mb"), ("memory_allocated", "memory_reserved"))
    for used_name, total_name in pairs:
        used, total = as_number(gpu.get(used_name)), as_number(gpu.get(total_name))
        if used is not None and total:
            return used / total
    return None


def _alert(kind: str, message: str, severity: str = "warning") -> dict[str, Any]:
    return {"type": kind, "message": message, "severity": severity}


def _script() -> str:
    return os.path.basename(sys.argv[0]) or "training"  # noqa: PTH119 - it may be any text
