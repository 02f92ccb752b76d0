"""What the watched program says about itself: its hyper-parameters, and whether it records itself."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any

MAX_DEPTH = 6


def monitors_created() -> int:
    """How many monitors this process has created: a program that has some records itself."""
    state = sys.modules.get("stepscope.recorder.monitor_state")
    return 0 if state is None else int(state.monitors_created())


def script_params(arguments: Any, config: Any) -> dict[str, Any] | None:
    """The hyper-parameters as plain values; None if the program has none.

    Hydra uses an argument parser of its own, so its configuration comes first. Values that are no plain
    data, such as the functions of subcommands, are left out: nobody asked for them to be recorded.
    """
    try:
        if config is not None:
            return _of_hydra(config) or None
        if arguments is not None:
            plain = _plain(vars(arguments), 0)
            return plain or None
    except Exception:  # noqa: BLE001 - objects of the user's own may raise anything
        return None
    return None


def _of_hydra(config: Any) -> dict[str, Any]:
    omegaconf = sys.modules["omegaconf"].OmegaConf
    names = [name for name in config if name != "hydra"]
    plain: dict[str, Any] = {}
    for name in names:
        part = omegaconf.to_container(omegaconf.masked_copy(config, [name]), resolve=False)
        plain.update(_plain(part, 0))
    return plain


def _plain(values: Mapping[Any, Any], depth: int) -> dict[str, Any]:
    return {
        str(name): _value(value, depth)
        for name, value in values.items()
        if _is_plain(value) and depth < MAX_DEPTH
    }


def _is_plain(value: Any) -> bool:
    if isinstance(value, list | tuple | set):
        return all(_is_plain(part) for part in value)
    return value is None or isinstance(value, bool | int | float | str | os.PathLike | Mapping)


def _value(value: Any, depth: int) -> Any:
    if isinstance(value, Mapping):
        return _plain(value, depth + 1)
    if isinstance(value, list | tuple | set):
        return [_value(part, depth + 1) for part in value]
    return os.fspath(value) if isinstance(value, os.PathLike) else value
