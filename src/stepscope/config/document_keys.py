"""Maps the keys of older documents to today's settings, so that their files still load."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from stepscope.config.entry import Entry, Problem
from stepscope.config.reference import Key, dotted, nearest, shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

METRICS = "monitoring.metrics"
SHARES = "monitoring.alerting.thresholds"

TODAY: dict[str, Key] = {
    "alert_system.enabled": ("alerts", "enabled"),
    "alert_system.thresholds": ("alerts", "thresholds"),
    "monitoring.enabled": ("recorder", "enabled"),
    "monitoring.interval": ("samplers", "default", "interval_s"),
    METRICS: ("samplers",),
    "monitoring.visualization.dashboard": ("dashboard", "enabled"),
    "monitoring.visualization.prometheus": ("exporters", "prometheus", "enabled"),
    "monitoring.visualization.tensorboard": ("exporters", "tensorboard", "enabled"),
    "monitoring.alerting.enabled": ("alerts", "enabled"),
    "monitoring.alerting.email_notifications": ("alerts", "channels", "mail", "enabled"),
    "monitoring.alerting.slack_notifications": ("alerts", "channels", "slack", "enabled"),
    SHARES: ("alerts", "thresholds"),
    "monitoring.analysis.trend_analysis": ("detectors", "conv.diverging", "enabled"),
    "monitoring.analysis.anomaly_detection": ("detectors", "conv.spike", "enabled"),
    "monitoring.analysis.performance_regression": ("detectors", "step.creep", "enabled"),
    "alert_thresholds": ("alerts", "thresholds"),
    "dashboard_host": ("dashboard", "host"),
    "dashboard_port": ("dashboard", "port"),
    "enable_alerts": ("alerts", "enabled"),
    "enable_dashboard": ("dashboard", "enabled"),
    "enable_monitoring": ("recorder", "enabled"),
    "enable_prometheus": ("exporters", "prometheus", "enabled"),
    "enable_tensorboard": ("exporters", "tensorboard", "enabled"),
    "flush_interval": ("agent", "interval_s"),
    "log_level": ("logging", "level"),
    "prometheus_port": ("exporters", "prometheus", "port"),
    "sample_interval": ("samplers", "default", "interval_s"),
}
"""Older key to today's key; keys below an older key are moved with it."""

NO_EFFECT = {
    "visualization.enabled": "charts are on the page: stepscope serve",
    "visualization.chart_types": "charts are on the page: stepscope serve",
    "monitoring.visualization.grafana": "charts are on the page: stepscope serve",
    "enable_visualization": "charts are on the page: stepscope serve",
    "reports": "show a run with: stepscope show",
    "checkpoints": "save checkpoints in the training",
    "recorder.metrics": "what a training logs is always recorded",
}
"""Keys of documents and of earlier versions that have no effect, with what to do instead."""

SWITCHES = {key for key, today in TODAY.items() if today[-1] == "enabled"} | {
    key for key in NO_EFFECT if key.startswith(("monitoring.visualization.", "enable_"))
}

PERCENT = {
    "cpu_usage": "cpu_usage_percent",
    "gpu_memory": "gpu_memory_percent",
    "memory_usage": "memory_usage_percent",
}
"""Thresholds that were shares from 0 to 1, and today's threshold in percent."""

SAMPLER_OF = {
    "cpu": "cpu",
    "disk": "disk",
    "gpu": "gpu",
    "memory": "memory",
    "network": "network",
}
"""First word of an older metric name, and the sampler that reads it."""

_CURRENT_KEYS: dict[Key, Key] = {tuple(key.split(".")): today for key, today in TODAY.items()}
_WITHOUT_EFFECT: dict[Key, str] = {tuple(key.split(".")): instead for key, instead in NO_EFFECT.items()}
_OLDER_KEYS = [*_CURRENT_KEYS, *_WITHOUT_EFFECT]
_CURRENT_SECTIONS = {"recorder"}
"""Sections of today that contain a key without effect."""
ROOTS = frozenset(key[0] for key in _OLDER_KEYS) - _CURRENT_SECTIONS
_PARENTS = {key[:length] for key in _OLDER_KEYS for length in range(1, len(key))}


def without_effect(entry: Entry) -> Problem | None:
    """A note for a setting that has no effect in this version, with what to do instead; None for others."""
    for length in range(len(entry.written), 0, -1):
        key = entry.written[:length]
        if key in _WITHOUT_EFFECT:
            text = f"{dotted(key)} has no effect in this version; {_WITHOUT_EFFECT[key]}."
            return Problem(entry.origin_of(key), text)
    return None


def is_inert(key: Key) -> bool:
    """Whether a key, or one above it, has no effect."""
    return any(key[:length] in _WITHOUT_EFFECT for length in range(1, len(key) + 1))


def to_current_keys(entries: Iterable[Entry], problems: list[Problem]) -> Iterator[Entry]:
    """Yields the settings under today's keys; each entry keeps the key it was written under."""
    for entry in entries:
        if entry.key[0] not in ROOTS:
            yield entry
            continue
        if is_inert(entry.key):
            yield from _convert_value(dotted(entry.key), entry, problems)
            continue
        older = _older_key(entry.key)
        if older is None:
            _report_unknown(entry, problems)
            continue
        moved = replace(entry, key=(*_CURRENT_KEYS[older], *entry.key[len(older) :]))
        yield from _convert_value(dotted(older), moved, problems)


def _older_key(key: Key) -> Key | None:
    prefixes = (key[:length] for length in range(len(key), 0, -1))
    return next((prefix for prefix in prefixes if prefix in _CURRENT_KEYS), None)


def _report_unknown(entry: Entry, problems: list[Problem]) -> None:
    if entry.key in _PARENTS:
        if entry.value not in (None, {}):
            names = sorted({key[len(entry.key)] for key in _OLDER_KEYS if key[:-1] == entry.key})
            text = f"{dotted(entry.key)} must be a section with settings such as {', '.join(names)}."
            problems.append(Problem(entry.origin, text))
        return
    length = next(n for n in range(1, len(entry.key) + 1) if entry.key[:n] not in _PARENTS)
    unknown = entry.key[:length]
    suggestion = nearest(dotted(unknown), [*TODAY, *NO_EFFECT])
    text = f"there is no setting {dotted(unknown)!r}" + (
        f"; did you mean {suggestion!r}?" if suggestion else "."
    )
    problems.append(Problem(entry.origin_of(unknown), text))


def _convert_value(older: str, entry: Entry, problems: list[Problem]) -> Iterator[Entry]:
    value = entry.value
    is_value = dotted(entry.written) == older
    if older in SWITCHES and not (is_value and isinstance(value, bool)):
        name, text_of_value = dotted(entry.written), shown(value, entry.written)
        text = f"{name} is {text_of_value}; it must be true or false."
        problems.append(Problem(entry.origin, text))
    elif older == METRICS:
        if _is_names(value):
            yield from _enable_samplers(entry)
        else:
            name, text_of_value = dotted(entry.written), shown(value, entry.written)
            problems.append(
                Problem(entry.origin, f"{name} is {text_of_value}; it must be a list, each item text.")
            )
    elif older == SHARES and entry.key[-1] in PERCENT:
        yield replace(entry, key=(*entry.key[:-1], PERCENT[entry.key[-1]]), value=_percent(value))
    elif older == "log_level" and isinstance(value, str):
        yield replace(entry, value=value.lower())
    else:
        yield entry


def _enable_samplers(entry: Entry) -> Iterator[Entry]:
    """Enables the samplers of a list of metrics; what a training logs is always recorded."""
    samplers = [SAMPLER_OF.get(metric.split("_")[0]) for metric in entry.value]
    for sampler in dict.fromkeys(filter(None, samplers)):
        yield replace(entry, key=("samplers", sampler, "enabled"), value=True)


def _percent(value: Any) -> Any:
    is_share = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1
    return round(value * 100, 9) if is_share else value


def _is_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)
