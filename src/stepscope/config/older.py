"""Maps the keys of older documents into today's tree, so that their files still load."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from stepscope.config.entry import Entry, Problem
from stepscope.config.shape import Key, dotted
from stepscope.config.wording import nearest, shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

METRICS = "monitoring.metrics"
SHARES = "monitoring.alerting.thresholds"

TODAY = {
    "alert_system.enabled": "alerts.enabled",
    "alert_system.thresholds": "alerts.thresholds",
    "visualization.enabled": "reports.enabled",
    "visualization.chart_types": "reports.charts",
    "monitoring.enabled": "recorder.enabled",
    "monitoring.interval": "samplers.default.interval_s",
    METRICS: "recorder.metrics",
    "monitoring.visualization.tensorboard": "exporters.tensorboard.enabled",
    "monitoring.visualization.dashboard": "dashboard.enabled",
    "monitoring.visualization.prometheus": "exporters.prometheus.enabled",
    "monitoring.visualization.grafana": "exporters.grafana.enabled",
    "monitoring.alerting.enabled": "alerts.enabled",
    "monitoring.alerting.email_notifications": "alerts.channels.mail.enabled",
    "monitoring.alerting.slack_notifications": "alerts.channels.slack.enabled",
    SHARES: "alerts.thresholds",
    "monitoring.analysis.trend_analysis": "detectors.trend.enabled",
    "monitoring.analysis.anomaly_detection": "detectors.anomaly.enabled",
    "monitoring.analysis.performance_regression": "detectors.regression.enabled",
    "alert_thresholds": "alerts.thresholds",
    "dashboard_host": "dashboard.host",
    "dashboard_port": "dashboard.port",
    "enable_alerts": "alerts.enabled",
    "enable_dashboard": "dashboard.enabled",
    "enable_monitoring": "recorder.enabled",
    "enable_prometheus": "exporters.prometheus.enabled",
    "enable_tensorboard": "exporters.tensorboard.enabled",
    "enable_visualization": "reports.enabled",
    "flush_interval": "agent.interval_s",
    "log_level": "logging.level",
    "prometheus_port": "exporters.prometheus.port",
    "sample_interval": "samplers.default.interval_s",
}
"""Older key to today's key; what lies below an older key follows it."""

SWITCHES = {key for key, today in TODAY.items() if today.endswith(".enabled")}

PERCENT = {
    "cpu_usage": "cpu_usage_percent",
    "gpu_memory": "gpu_memory_percent",
    "memory_usage": "memory_usage_percent",
}
"""Thresholds once written as a share of one, and today's threshold in percent."""

SAMPLER_OF = {
    "cpu": "host",
    "disk": "disk",
    "gpu": "gpu",
    "memory": "host",
    "network": "network",
}
"""First word of an older metric name, and the sampler that reads it."""

_BY_KEY: dict[Key, Key] = {tuple(key.split(".")): tuple(today.split(".")) for key, today in TODAY.items()}
ROOTS = frozenset(key[0] for key in _BY_KEY)
_ABOVE = {key[:length] for key in _BY_KEY for length in range(1, len(key))}


def modernised(entries: Iterable[Entry], problems: list[Problem]) -> Iterator[Entry]:
    """Yields the same settings under today's keys; each keeps the key it was written under."""
    for entry in entries:
        if entry.key[0] not in ROOTS:
            yield entry
            continue
        older = _older_key(entry.key)
        if older is None:
            _complain(entry, problems)
            continue
        moved = replace(entry, key=(*_BY_KEY[older], *entry.key[len(older) :]))
        yield from _translated(dotted(older), moved, problems)


def _older_key(key: Key) -> Key | None:
    prefixes = (key[:length] for length in range(len(key), 0, -1))
    return next((prefix for prefix in prefixes if prefix in _BY_KEY), None)


def _complain(entry: Entry, problems: list[Problem]) -> None:
    if entry.key in _ABOVE:
        if entry.value not in (None, {}):
            names = sorted({key[len(entry.key)] for key in _BY_KEY if key[:-1] == entry.key})
            text = f"{dotted(entry.key)} must be a section with settings such as {', '.join(names)}."
            problems.append(Problem(entry.origin, text))
        return
    length = next(n for n in range(1, len(entry.key) + 1) if entry.key[:n] not in _ABOVE)
    unknown = entry.key[:length]
    meant = nearest(dotted(unknown), TODAY)
    text = f"there is no setting {dotted(unknown)!r}" + (f"; did you mean {meant!r}?" if meant else ".")
    problems.append(Problem(entry.origin_of(unknown), text))


def _translated(older: str, entry: Entry, problems: list[Problem]) -> Iterator[Entry]:
    value = entry.value
    is_value = dotted(entry.written) == older
    if older in SWITCHES and not (is_value and isinstance(value, bool)):
        name, given = dotted(entry.written), shown(value, entry.written)
        text = f"{name} is {given}; it must be true or false."
        problems.append(Problem(entry.origin, text))
    elif older == METRICS and _is_names(value):
        yield from _selected(entry)
    elif older == SHARES and entry.key[-1] in PERCENT:
        yield replace(entry, key=(*entry.key[:-1], PERCENT[entry.key[-1]]), value=_percent(value))
    elif older == "log_level" and isinstance(value, str):
        yield replace(entry, value=value.lower())
    else:
        yield entry


def _selected(entry: Entry) -> Iterator[Entry]:
    """Turns on what a list of metrics names; nothing is turned off by not being named."""
    kept = []
    for metric in entry.value:
        sampler = SAMPLER_OF.get(metric.split("_")[0])
        if sampler is None:
            kept.append(metric)
        else:
            yield replace(entry, key=("samplers", sampler, "enabled"), value=True)
    if kept:
        yield replace(entry, value=kept)


def _percent(value: Any) -> Any:
    is_share = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1
    return round(value * 100, 9) if is_share else value


def _is_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)
