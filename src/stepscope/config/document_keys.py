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

TODAY: dict[str, Key] = {
    "alert_system.enabled": ("alerts", "enabled"),
    "alert_system.thresholds": ("alerts", "thresholds"),
    "monitoring.enabled": ("recorder", "enabled"),
    "monitoring.interval": ("samplers", "default", "interval_s"),
    METRICS: ("samplers",),
    "monitoring.visualization.dashboard": ("dashboard", "enabled"),
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
    "flush_interval": ("agent", "interval_s"),
    "log_level": ("logging", "level"),
    "sample_interval": ("samplers", "default", "interval_s"),
}
"""Older key to today's key; what lies below an older key follows it."""

NO_EFFECT = {
    "visualization.enabled": "charts are on the page: stepscope serve",
    "visualization.chart_types": "charts are on the page: stepscope serve",
    "monitoring.visualization.tensorboard": "export a run with: stepscope export",
    "monitoring.visualization.prometheus": "export a run with: stepscope export",
    "monitoring.visualization.grafana": "charts are on the page: stepscope serve",
    "enable_prometheus": "export a run with: stepscope export",
    "enable_tensorboard": "export a run with: stepscope export",
    "enable_visualization": "charts are on the page: stepscope serve",
    "prometheus_port": "export a run with: stepscope export",
    "reports": "show a run with: stepscope show",
    "checkpoints": "save checkpoints in the training",
    "recorder.metrics": "what a training logs is always recorded",
}
"""Keys of documents and of earlier versions that change nothing, with what to do instead."""

SWITCHES = {key for key, today in TODAY.items() if today[-1] == "enabled"} | {
    key for key in NO_EFFECT if key.startswith(("monitoring.visualization.", "enable_"))
}

PERCENT = {
    "cpu_usage": "cpu_usage_percent",
    "gpu_memory": "gpu_memory_percent",
    "memory_usage": "memory_usage_percent",
}
"""Thresholds once written as a share of one, and today's threshold in percent."""

SAMPLER_OF = {
    "cpu": "cpu",
    "disk": "disk",
    "gpu": "gpu",
    "memory": "memory",
    "network": "network",
}
"""First word of an older metric name, and the sampler that reads it."""

_BY_KEY: dict[Key, Key] = {tuple(key.split(".")): today for key, today in TODAY.items()}
_INERT: dict[Key, str] = {tuple(key.split(".")): instead for key, instead in NO_EFFECT.items()}
_KNOWN = [*_BY_KEY, *_INERT]
_OF_TODAY = {"recorder"}
"""Sections of today that had another key once."""
ROOTS = frozenset(key[0] for key in _KNOWN) - _OF_TODAY
_ABOVE = {key[:length] for key in _KNOWN for length in range(1, len(key))}


def without_effect(entry: Entry) -> Problem | None:
    """Says of a setting that changes nothing in this version what to do instead; None of all others."""
    for length in range(len(entry.written), 0, -1):
        key = entry.written[:length]
        if key in _INERT:
            text = f"{dotted(key)} has no effect in this version; {_INERT[key]}."
            return Problem(entry.origin_of(key), text)
    return None


def is_inert(key: Key) -> bool:
    """Whether a key, or one above it, has no effect."""
    return any(key[:length] in _INERT for length in range(1, len(key) + 1))


def modernised(entries: Iterable[Entry], problems: list[Problem]) -> Iterator[Entry]:
    """Yields the same settings under today's keys; each keeps the key it was written under."""
    for entry in entries:
        if entry.key[0] not in ROOTS:
            yield entry
            continue
        if is_inert(entry.key):
            yield from _translated(dotted(entry.key), entry, problems)
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
            names = sorted({key[len(entry.key)] for key in _KNOWN if key[:-1] == entry.key})
            text = f"{dotted(entry.key)} must be a section with settings such as {', '.join(names)}."
            problems.append(Problem(entry.origin, text))
        return
    length = next(n for n in range(1, len(entry.key) + 1) if entry.key[:n] not in _ABOVE)
    unknown = entry.key[:length]
    meant = nearest(dotted(unknown), [*TODAY, *NO_EFFECT])
    text = f"there is no setting {dotted(unknown)!r}" + (f"; did you mean {meant!r}?" if meant else ".")
    problems.append(Problem(entry.origin_of(unknown), text))


def _translated(older: str, entry: Entry, problems: list[Problem]) -> Iterator[Entry]:
    value = entry.value
    is_value = dotted(entry.written) == older
    if older in SWITCHES and not (is_value and isinstance(value, bool)):
        name, given = dotted(entry.written), shown(value, entry.written)
        text = f"{name} is {given}; it must be true or false."
        problems.append(Problem(entry.origin, text))
    elif older == METRICS:
        if _is_names(value):
            yield from _selected(entry)
        else:
            name, given = dotted(entry.written), shown(value, entry.written)
            problems.append(Problem(entry.origin, f"{name} is {given}; it must be a list, each item text."))
    elif older == SHARES and entry.key[-1] in PERCENT:
        yield replace(entry, key=(*entry.key[:-1], PERCENT[entry.key[-1]]), value=_percent(value))
    elif older == "log_level" and isinstance(value, str):
        yield replace(entry, value=value.lower())
    else:
        yield entry


def _selected(entry: Entry) -> Iterator[Entry]:
    """Turns on the samplers that a list of metrics names; what a training logs is recorded anyway."""
    samplers = [SAMPLER_OF.get(metric.split("_")[0]) for metric in entry.value]
    for sampler in dict.fromkeys(filter(None, samplers)):
        yield replace(entry, key=("samplers", sampler, "enabled"), value=True)


def _percent(value: Any) -> Any:
    is_share = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1
    return round(value * 100, 9) if is_share else value


def _is_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)
