"""Config groups for Hydra, and what the `_target_` of `stepscope` creates; nothing here imports Hydra."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from stepscope import plugins
from stepscope.errors import ConfigError
from stepscope.guard import shown
from stepscope.recorder.monitor import TrainingMonitor

if TYPE_CHECKING:
    import os

__all__ = ["create_monitor"]


def create_monitor(  # noqa: PLR0913 - all by name, and each optional
    *,
    enabled: bool = True,
    run: str | None = None,
    project: str | None = None,
    directory: str | os.PathLike[str] | None = None,
    resume: bool = False,
    params: Any = None,
    interval: float | None = None,
    max_overhead: float | None = None,
    dashboard: bool | None = None,
    config: Mapping[str, Any] | None = None,
) -> TrainingMonitor:
    """Creates a `TrainingMonitor`; `config` has any further settings, and comes before the other options.

    `interval` is the number of seconds between two readings of the machine; `max_overhead` and `dashboard`
    are the settings `recorder.max_overhead` and `dashboard.enabled`. None leaves a setting as it is.
    """
    if not isinstance(config, Mapping | None):
        raise ConfigError(f"argument: config is {shown(config)}; it must be a mapping of settings.")
    settings: dict[str, Any] = {}
    if not enabled:
        settings["recorder"] = {"enabled": False}
    if max_overhead is not None:
        settings.setdefault("recorder", {})["max_overhead"] = max_overhead
    if interval is not None:
        settings["samplers"] = {name: {"interval_s": interval} for name in plugins.names("samplers")}
    if dashboard is not None:
        settings["dashboard"] = {"enabled": dashboard}
    return TrainingMonitor(
        _merged(settings, config or {}),
        run=run,
        project=project,
        directory=directory,
        resume=resume,
        params=params,
    )


def _merged(settings: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(settings)
    for name, value in changes.items():
        before = merged.get(name)
        both = isinstance(before, Mapping) and isinstance(value, Mapping)
        merged[name] = _merged(before, value) if both else value  # type: ignore[arg-type]  # both are mappings
    return merged
