"""Lists all detectors and creates them with the options from the settings."""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

from stepscope import plugins
from stepscope.analysis.build import WindowRequest
from stepscope.config.bounds import Range
from stepscope.detectors.base import Detector
from stepscope.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

ENABLED = "enabled"


def known_detectors() -> dict[str, type[Detector]]:
    """Returns the class of every detector by its id, ordered by name."""
    kinds = [plugins.load("detectors", name, Detector) for name in plugins.names("detectors")]  # type: ignore[type-abstract]  # only its members
    return {kind.id: kind for kind in kinds}


def make_detectors(settings: Mapping[str, Mapping[str, Any]]) -> tuple[list[Detector], list[type[Detector]]]:
    """Returns the enabled detectors with their options, and the classes of those that are disabled.

    Raises ConfigError for a detector or an option that does not exist, or a value that is not allowed.
    """
    known = known_detectors()
    for name in settings:
        if name not in known:
            raise ConfigError(f"There is no detector {name!r}; there are: {', '.join(known)}")
    on: list[Detector] = []
    off: list[type[Detector]] = []
    for name, kind in known.items():
        options = dict(settings.get(name, {}))
        enabled = options.pop(ENABLED, True)
        if not isinstance(enabled, bool):
            raise ConfigError(f"detectors.{name}.{ENABLED} is {enabled!r}; it must be true or false.")
        detector = kind(**_checked(kind, options))  # a wrong option of a disabled detector is an error too
        if enabled:
            on.append(detector)
        else:
            off.append(kind)
    return on, off


@functools.cache
def options_of(kind: type[Detector]) -> dict[str, tuple[Any, Range]]:
    """Returns the thresholds of a detector by name: default value and allowed range."""
    hints = get_type_hints(kind, include_extras=True)
    options = {}
    for option in dataclasses.fields(kind):  # type: ignore[arg-type]  # every member is a dataclass
        bounds = next((part for part in get_args(hints[option.name]) if isinstance(part, Range)), Range())
        options[option.name] = (option.default, bounds)
    return options


def window_request(detectors: Iterable[Detector]) -> WindowRequest:
    """Returns what a window must contain for all of these detectors."""
    detectors = list(detectors)
    return WindowRequest(
        frozenset(key for detector in detectors for group in detector.requires for key in group)
        | {key for detector in detectors for key in detector.reads},
        frozenset(key for detector in detectors for key in detector.courses),
        frozenset(kind for detector in detectors for kind in detector.events),
    )


def _checked(kind: type[Detector], options: Mapping[str, Any]) -> Mapping[str, Any]:
    known = options_of(kind)
    for name, value in options.items():
        place = f"detectors.{kind.id}.{name}"
        if name not in known:
            raise ConfigError(f"{place} does not exist; {kind.id} has: {', '.join([ENABLED, *known])}.")
        default, bounds = known[name]
        if not _is_allowed(value, default, bounds):
            raise ConfigError(f"{place} is {value!r}; it must be {_allowed_values(default, bounds)}.")
    return options


def _is_allowed(value: Any, default: Any, bounds: Range) -> bool:
    kinds = int if isinstance(default, int) else (int, float)
    if isinstance(value, bool) or not isinstance(value, kinds) or not math.isfinite(value):
        return False
    return (bounds.low is None or value >= bounds.low) and (bounds.high is None or value <= bounds.high)


def _allowed_values(default: Any, bounds: Range) -> str:
    what = "a whole number" if isinstance(default, int) else "a number"
    if bounds.low is not None and bounds.high is not None:
        return f"{what} from {bounds.low:g} to {bounds.high:g}"
    return f"{what} of at least {bounds.low:g}" if bounds.low is not None else what
