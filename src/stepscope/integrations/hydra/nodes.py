"""The types of the options in the config group `stepscope`, by which Hydra checks overrides."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Dict, Optional  # noqa: UP035 - OmegaConf resolves these in all versions of Python


@dataclass
class MonitorNode:
    """The options of `create_monitor`."""

    _target_: str = "stepscope.integrations.hydra.create_monitor"
    _convert_: str = "all"
    enabled: bool = True
    run: Optional[str] = None  # noqa: UP045
    project: Optional[str] = None  # noqa: UP045
    directory: Optional[str] = None  # noqa: UP045
    resume: bool = False
    params: Optional[Dict[str, Any]] = None  # noqa: UP006, UP045
    interval: Optional[float] = None  # noqa: UP045
    max_overhead: Optional[float] = None  # noqa: UP045
    dashboard: Optional[bool] = None  # noqa: UP045
    config: Dict[str, Any] = field(default_factory=dict)  # noqa: UP006


def register() -> None:
    """Adds the types to Hydra's store of structured configs."""
    from hydra.core.config_store import ConfigStore  # lazy: only Hydra's plug-in calls this

    ConfigStore.instance().store(group="stepscope", name="monitor", node=MonitorNode, provider="stepscope")
