"""Checks what works on this machine and what does not, and why."""

from __future__ import annotations

import os
import textwrap
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from stepscope import filesystem
from stepscope.cli.checks import machine_checks, package_checks, store_checks
from stepscope.cli.checks.machine_settings import fitting_settings
from stepscope.cli.checks.settings_check import problems_of
from stepscope.cli.main import FAILED, FINE
from stepscope.cli.options.find import add_store_argument
from stepscope.cli.output.text import emit, paint, safe, say, screen_width, to_json
from stepscope.config.find import FILE_NAME, settings_file, settings_for, why_disabled
from stepscope.config.load import load
from stepscope.config.sections import Settings
from stepscope.errors import ConfigError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

    from stepscope.cli.checks.store_checks import Check

VALIDATE = "These settings have no effect. Check with: stepscope config validate FILE"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares how to print, and which store to check."""
    add_store_argument(parser)
    parser.add_argument("--json", action="store_true", help="print a JSON array")
    parser.add_argument(
        "--write-settings",
        nargs="?",
        const=FILE_NAME,
        metavar="PATH",
        help=f"also write a settings file that fits this machine (default: {FILE_NAME})",
    )
    parser.add_argument("--force", action="store_true", help="replace that file if it exists")


def run(options: argparse.Namespace) -> int:
    """Prints each check; fails when one would stop recording, or the settings cannot be written."""
    done = list(_checks(options.store))
    if options.json:
        emit([to_json([asdict(check) for check in done])])
    else:
        emit(_lines(done))
    if options.write_settings is not None:
        _write_settings(options)
    elif not options.json and settings_file(None, os.environ, None) is None:
        say("To write a settings file that fits this machine: stepscope doctor --write-settings")
    return FAILED if any(check.outcome == "problem" for check in done) else FINE


def _checks(store: str | None) -> Iterator[Check]:
    yield store_checks.check_python()
    settings, check = _settings()
    yield check
    folder = _folder(store, settings)
    yield store_checks.check_folder(folder)
    if not filesystem.is_closed(folder):
        yield from _store_checks(folder, settings)
    yield from machine_checks.check_samplers(settings)
    yield package_checks.check_torch()
    yield package_checks.check_extras()


def _store_checks(folder: Path, settings: Settings) -> Iterator[Check]:
    yield store_checks.check_file_system(folder)
    yield store_checks.check_space(folder, settings)
    yield store_checks.check_journal(folder, settings)
    yield store_checks.check_unread(folder)
    yield from store_checks.check_set_aside(folder)
    yield store_checks.check_agent(folder, settings)
    yield from store_checks.check_exporters(folder)
    yield store_checks.check_sqlite(folder)


def _folder(store: str | None, settings: Settings) -> Path:
    return Path(store or settings.directory or ".stepscope").absolute()


def _write_settings(options: argparse.Namespace) -> None:
    path = Path(options.write_settings)
    if path.exists() and not options.force:
        raise ConfigError(f"{path} exists; pass --force to replace it.")
    settings, _ = _settings()
    content = fitting_settings(_folder(options.store, settings))
    try:
        with path.open("w" if options.force else "x", encoding="utf-8") as file:
            file.write(content)
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}.") from error
    say(f"Wrote {path}.")


def _settings() -> tuple[Settings, Check]:
    """The effective settings; training ignores a mistake in the environment, any other mistake stops it."""
    try:
        loaded = load()
    except ConfigError as error:
        mistakes = str(error)
    else:
        settings = loaded.settings
        problems = problems_of(loaded)
        if problems:
            first_lines = " ".join(str(problem).partition("\n")[0] for problem in problems)
            return settings, store_checks.Check("settings", "note", first_lines, VALIDATE)
        if not settings.recorder.enabled:
            disabled = f"no mistakes, but nothing is recorded: {why_disabled()}"
            return settings, store_checks.Check("settings", "note", disabled)
        return settings, store_checks.Check("settings", "ok", "no mistakes")
    try:
        ignored = "Training ignores these variables."
        return settings_for(), store_checks.Check("settings", "note", mistakes, ignored)
    except ConfigError:
        return Settings(), store_checks.Check("settings", "problem", mistakes, "See: stepscope config show")


def _lines(done: Sequence[Check]) -> Iterator[str]:
    room = max(len(check.name) for check in done)
    indent = " " * (room + 11)
    for check in done:
        label = paint(f"{check.outcome:<7}", check.outcome)
        first, *rest = _wrapped(check.found, room)
        yield f"{label}  {check.name:<{room}}  {first}"
        yield from (indent + line for line in rest)
        if check.remedy:
            remedy = _wrapped(f"-> {check.remedy}", room)
            yield from (indent + paint(line, "faint") for line in remedy)
    problems = sum(check.outcome == "problem" for check in done)
    yield ""
    yield f"{problems} of these stop recording." if problems else "Nothing here stops recording."


def _wrapped(sentence: str, room: int) -> list[str]:
    width = max(screen_width() - room - 11, 20)
    return textwrap.wrap(safe(sentence), width, break_long_words=False, break_on_hyphens=False)
