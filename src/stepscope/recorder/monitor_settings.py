"""Settings and arguments of a monitor, checked before the training starts."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stepscope.config.find import STARTED_VARIABLE, expanded, settings_for
from stepscope.config.reference import nearest
from stepscope.errors import ConfigError, MissingExtra, NotFound, StepscopeError
from stepscope.guard import Guard, shown
from stepscope.recorder.alert_system import check_alerts
from stepscope.recorder.anonymity import privacy_of
from stepscope.recorder.identity.params import params_argument

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stepscope.config.find import Source
    from stepscope.config.sections import Settings

STORE_FOLDER = ".stepscope"
ENDINGS = ("finished", "failed", "crashed")
MAX_REASON = 1_000

_CHECKED_LATER = ("STEPSCOPE_PRIVACY", "STEPSCOPE_ALERTS", "STEPSCOPE_DETECTORS", "STEPSCOPE_EXPORTERS")
"""Prefixes of environment variables whose values need more than a type check."""


def monitor_settings(config: Source, *, strict: bool | None) -> Settings:
    """The settings of a monitor; raises ConfigError for a mistake outside the environment variables."""
    settings = settings_for(config, strict=strict, on_note=_note_once)
    try:
        _check(settings)
    except ConfigError as error:
        if settings.recorder.strict if strict is None else strict:
            raise
        settings = _without_environment(config, settings, error)
    if STARTED_VARIABLE in os.environ:
        # The program was started as an agent's interpreter, as happens with frozen applications.
        _note_once("stepscope records nothing in a process that it has started itself.")
        settings = replace(settings, recorder=replace(settings.recorder, enabled=False))
    if not settings.recorder.enabled:
        return replace(settings, logging=replace(settings.logging, directory=None))
    return settings


def check_arguments(  # noqa: PLR0913 - those of a monitor, by name
    config: Source = None,
    *,
    run: str | None = None,
    project: str | None = None,
    directory: str | os.PathLike[str] | None = None,
    strict: bool | None = None,
    params: Any = None,
    resume: bool = False,
) -> None:
    """Raises ConfigError if a monitor would refuse these arguments; for one that is created later."""
    settings = monitor_settings(config, strict=strict_argument(strict))
    folder_argument(directory, settings)
    text_argument("project", project)
    resume_argument(resume, text_argument("run", run) or settings.run)
    params_argument(params)


_noted: set[str] = set()
"""The notes that this process has already logged."""


def _note_once(text: str) -> None:
    if text not in _noted:
        _noted.add(text)
        Guard(strict=False).tell(text)


def strict_argument(value: bool | None) -> bool | None:  # noqa: FBT001 - an argument of a monitor
    """Checks the argument `strict`; raises ConfigError unless it is a boolean or None."""
    if value is None or isinstance(value, bool):
        return value
    raise ConfigError(f"argument: strict is {shown(value)}; it must be true or false.")


def resume_argument(value: bool, name: str | None) -> bool:  # noqa: FBT001 - an argument of a monitor
    """Checks the argument `resume`; raises ConfigError if it is no boolean, or true without a name."""
    if not isinstance(value, bool):
        raise ConfigError(f"argument: resume is {shown(value)}; it must be true or false.")
    if value and name is None:
        raise ConfigError("argument: resume is true, but run is not set. Pass the name: run='the name'.")
    return value


def text_argument(name: str, value: str | None) -> str | None:
    """Checks an argument that is text or None; raises ConfigError for anything else."""
    if value is None or isinstance(value, str):
        return value
    raise ConfigError(f"argument: {name} is {shown(value)}; it must be text.")


def folder_argument(directory: str | os.PathLike[str] | None, settings: Settings) -> Path:
    """The absolute path of the store folder; raises ConfigError for an invalid path."""
    folder = directory or settings.directory or STORE_FOLDER
    is_path = isinstance(folder, str | os.PathLike)
    path = os.fspath(folder) if is_path else None
    if not isinstance(path, str) or "\0" in path:
        raise ConfigError(f"argument: directory is {shown(directory)}; it must be the path of a folder.")
    place = Path(expanded(path))
    try:
        return place.absolute()
    except OSError as error:
        if not settings.recorder.enabled:
            return place
        raise ConfigError(
            f"The working directory no longer exists, so there can be no store folder {place} in it. Change "
            "to another one, or pass the absolute path of a folder: directory='/...' or STEPSCOPE_DIR."
        ) from error


def ending_arguments(status: object, reason: object, guard: Guard) -> tuple[str, str]:
    """The status and reason of a run's end; warns of an unknown status, and uses finished instead."""
    # By its type, because `__class__` of a user's object may raise.
    if not issubclass(type(status), str) or status not in ENDINGS:
        expected = ", ".join(ENDINGS)
        message = f"status is {shown(status)}; expected one of {expected}. The run ended as finished."
        guard.warn_once("status", message)
        status = "finished"
    if reason is None:
        return str(status), ""
    text = str(reason) if issubclass(type(reason), str) else shown(reason)
    return str(status), text[:MAX_REASON]


def _check(settings: Settings) -> None:
    privacy_of(settings.privacy)
    check_alerts(settings.alerts)
    if settings.detectors:
        # Lazy: they need NumPy, and few trainings set their options.
        from stepscope.analysis.detector_registry import make_detectors

        make_detectors(settings.detectors)
    for name, options in settings.exporters.items():
        _check_exporter(name, options)


def _check_exporter(name: str, options: Mapping[str, Any]) -> None:
    """Raises ConfigError for wrong options of an exporter; warns of an unknown one or a missing package."""
    if options.get("enabled", True) is False:
        return
    from stepscope import plugins  # lazy: few trainings have an exporter
    from stepscope.exporters.base import Feed

    given = {option: value for option, value in options.items() if option != "enabled"}
    try:
        kind = plugins.load("exporters", name, Feed)  # type: ignore[type-abstract]  # only its members
        plugins.check_options("exporters", name, kind, given)
        if kind.__module__.startswith("stepscope."):  # those open and start nothing before they get a run
            plugins.make("exporters", name, Feed, given)  # type: ignore[type-abstract]  # only its members
    except MissingExtra as error:
        _note_once(f"exporters.{name} has no effect: {error}")
    except ModuleNotFoundError as error:
        _note_once(f"exporters.{name} has no effect: {error}. Install the package.")
    except NotFound as error:
        similar = nearest(name, plugins.names("exporters"))
        advice = f"Did you mean {similar!r}?" if similar else str(error)
        # No error: another machine may have a package that adds it.
        _note_once(f"exporters.{name} has no effect: there is no such exporter here. {advice}")
    except StepscopeError as error:
        raise ConfigError(str(error)) from error


def _without_environment(config: Source, settings: Settings, error: ConfigError) -> Settings:
    """The settings without the wrong environment variables; raises if the mistake is elsewhere."""
    others = {name: text for name, text in os.environ.items() if not name.startswith(_CHECKED_LATER)}
    plain = settings_for(config, others, strict=False)
    _check(plain)
    if plain.privacy != settings.privacy:
        # Data that should be hidden must not be recorded in plain text.
        _note_once(f"stepscope records nothing, because an environment variable is wrong: {error}")
        return replace(plain, recorder=replace(plain.recorder, enabled=False))
    return _with_right_variables(config, others)


def _with_right_variables(config: Source, environment: dict[str, str]) -> Settings:
    """The settings with those of the other variables that are right; warns of each that is not."""
    from stepscope.config.environment import assignment  # lazy: it brings pydantic into the process

    settings = settings_for(config, environment, strict=False)
    pending = sorted(name for name in os.environ if name.startswith(_CHECKED_LATER))
    errors: dict[str, ConfigError] = {}
    is_progress = True
    while is_progress:  # one may be right only beside another, as a rule that names a channel
        is_progress = False
        for name in [name for name in pending if name not in environment]:
            more = {**environment, name: os.environ[name]}
            try:
                candidate = settings_for(config, more, strict=False)
                _check(candidate)
            except ConfigError as error:
                errors[name] = error
            else:
                settings, environment, is_progress = candidate, more, True
    for name in pending:
        if name not in environment:
            given = assignment(name, os.environ[name])
            _note_once(f"stepscope ignores the environment variable {given}: {errors[name]}")
    return settings
