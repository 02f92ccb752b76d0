"""Finds the settings of a process, and loads the validation only when there is something to validate.

Training processes import this module: it must not load pydantic or yaml unless they are needed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

from stepscope.config.sections import Recorder, Settings

Source: TypeAlias = Mapping[str, Any] | str | os.PathLike[str] | None
"""Settings as a mapping, the path of a YAML file, or None."""

PREFIX = "STEPSCOPE_"
FILE_VARIABLE = "STEPSCOPE_CONFIG"
FILE_NAME = "stepscope.yaml"
SHORT_NAMES = {
    "STEPSCOPE_DIR": "directory",
    "STEPSCOPE_PROJECT": "project",
    "STEPSCOPE_RUN": "run",
}
DISABLED_VARIABLE = "STEPSCOPE_DISABLED"
STARTED_VARIABLE = "_STEPSCOPE_STARTED"
"""Set for a process that stepscope starts, which removes it when it begins its work."""
RESERVED = frozenset({FILE_VARIABLE, DISABLED_VARIABLE, "STEPSCOPE_SEGMENT", "STEPSCOPE_RUN_ID"})
"""Variables that are not settings."""

ON, OFF = frozenset({"1", "true", "yes", "on"}), frozenset({"", "0", "false", "no", "off"})


def settings_for(
    source: Source = None,
    environment: Mapping[str, str] = os.environ,
    directory: Path | None = None,
    *,
    strict: bool | None = None,
    on_note: Callable[[str], None] = lambda _: None,
) -> Settings:
    """Returns the settings that apply here; raises ConfigError when one of them is not valid.

    Unless `strict`, an invalid environment variable is logged once and ignored; None uses recorder.strict.
    `on_note` is called for each setting that has no effect.
    """
    if not needs_loading(source, environment, directory):
        return _with_home(defaults(environment))
    from stepscope.config.load import load  # lazy: it imports pydantic

    loaded = load(source, environment=environment, directory=directory, strict=strict)
    for note in loaded.notes:
        on_note(str(note))
    return _with_home(loaded.settings)


def expanded(path: str) -> str:
    """Expands a leading `~` to the home folder of a user, like a shell."""
    return os.path.expanduser(path)  # noqa: PTH111 - pathlib's raises where there is no such user


def _with_home(settings: Settings) -> Settings:
    if settings.directory is None or not settings.directory.startswith("~"):
        return settings
    return replace(settings, directory=expanded(settings.directory))


def is_disabled(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether STEPSCOPE_DISABLED switches everything off."""
    return _switch(environment) in ON


def why_disabled(environment: Mapping[str, str] = os.environ) -> str:
    """Why recording is switched off, where it is."""
    return f"{DISABLED_VARIABLE} is set" if is_disabled(environment) else "recorder.enabled is false"


def is_switch_malformed(environment: Mapping[str, str]) -> bool:
    """Whether STEPSCOPE_DISABLED has a value that means neither on nor off."""
    return _switch(environment) not in ON | OFF


def _switch(environment: Mapping[str, str]) -> str:
    return environment.get(DISABLED_VARIABLE, "").strip().lower()


def needs_loading(
    source: Source = None,
    environment: Mapping[str, str] = os.environ,
    directory: Path | None = None,
) -> bool:
    """Whether there is any source besides the defaults, the three short variables and the switch."""
    if source is not None or settings_file(source, environment, directory) is not None:
        return True
    if is_switch_malformed(environment):
        return True
    plain = SHORT_NAMES.keys() | RESERVED
    return any(name.startswith(PREFIX) and name not in plain for name in environment)


def defaults(environment: Mapping[str, str] = os.environ) -> Settings:
    """Returns the defaults with `STEPSCOPE_DIR`, `STEPSCOPE_PROJECT`, `STEPSCOPE_RUN` and the switch."""
    values = {key: environment.get(name) for name, key in SHORT_NAMES.items()}
    settings = Settings(**{key: value for key, value in values.items() if value})  # type: ignore[arg-type]  # three texts
    return replace(settings, recorder=Recorder(enabled=False)) if is_disabled(environment) else settings


def settings_file(source: Source, environment: Mapping[str, str], directory: Path | None) -> str | None:
    """Returns the file to read: the one given, else the variable's, else the one in the directory."""
    if isinstance(source, str | os.PathLike):
        return os.fspath(source)
    if environment.get(FILE_VARIABLE):
        return environment[FILE_VARIABLE]
    try:
        is_here = ((directory or Path()) / FILE_NAME).exists()
    except PermissionError:
        is_here = False
    return FILE_NAME if is_here else None
