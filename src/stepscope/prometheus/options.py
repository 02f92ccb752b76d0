"""The options of what is served to Prometheus, checked."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, get_args

from stepscope.errors import ConfigError
from stepscope.prometheus.families import Names

if TYPE_CHECKING:
    from collections.abc import Mapping

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)
"""Upper bounds of the histogram of step times, in seconds; the last bucket has none."""
MAX_BUCKETS = 100


@dataclass(frozen=True)
class Options:
    """What a run wants to have served."""

    names: Names = "both"
    base_units: bool = False
    buckets: tuple[float, ...] = BUCKETS
    user_metrics: tuple[str, ...] = ()
    """Keys of logged metrics, or patterns with `*`, that are served as `stepscope_user_metric`."""


DEFAULT = Options()


def checked_options(
    names: Any, base_units: Any, buckets: Any, user_metrics: Any, section: str = "exporters.prometheus"
) -> Options:
    """The options with these values; raises ConfigError for a wrong one."""
    if names not in get_args(Names):
        known = ", ".join(get_args(Names))
        raise ConfigError(f"{section}.names is {names!r}; it must be one of {known}.")
    if not isinstance(base_units, bool):
        raise ConfigError(f"{section}.base_units is {base_units!r}; it must be true or false.")
    if not _are_buckets(buckets):
        raise ConfigError(
            f"{section}.buckets must be a list of 1 to {MAX_BUCKETS} growing numbers of seconds "
            "above 0, such as [0.1, 1, 10]."
        )
    if not isinstance(user_metrics, list | tuple) or not all(isinstance(name, str) for name in user_metrics):
        raise ConfigError(f"{section}.user_metrics must be a list of keys, such as ['val/*'].")
    if user_metrics and names == "required":
        raise ConfigError(
            f"{section}.user_metrics has no effect with names: required, because the metric "
            "stepscope_user_metric has a prefix. Set names to both or prefixed."
        )
    return Options(names, base_units, tuple(map(float, buckets)), tuple(user_metrics))


def options_in(settings: Mapping[str, Any]) -> Options:
    """The options in `exporters.prometheus` of the settings; those about the port are not used."""
    return checked_options(
        settings.get("names", DEFAULT.names),
        settings.get("base_units", DEFAULT.base_units),
        settings.get("buckets", DEFAULT.buckets),
        settings.get("user_metrics", DEFAULT.user_metrics),
    )


def _are_buckets(buckets: Any) -> bool:
    return (
        isinstance(buckets, list | tuple)
        and 0 < len(buckets) <= MAX_BUCKETS
        and all(isinstance(bound, int | float) and 0 < bound < math.inf for bound in buckets)
        and all(low < high for low, high in pairwise(buckets))
    )
