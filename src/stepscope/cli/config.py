"""Shows, checks and writes settings."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from stepscope.cli.main import FAILED, FINE
from stepscope.config.entry import flatten
from stepscope.config.find import FILE_NAME
from stepscope.config.load import Loaded, load, load_valid_part
from stepscope.config.reference import dotted, sample, yaml_text
from stepscope.config.secret import redacted
from stepscope.config.sections import to_dict
from stepscope.errors import ConfigError

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares show, validate and init."""
    actions = parser.add_subparsers(metavar="ACTION", required=True)

    show = actions.add_parser("show", help="Print the effective settings.")
    show.add_argument("file", nargs="?", metavar="FILE", help="YAML file to read")
    show.add_argument("--origin", action="store_true", help="say where each value comes from")
    show.add_argument("--json", action="store_true", help="print one JSON object")
    show.set_defaults(act=_show)

    validate = actions.add_parser("validate", help="List all problems of a file and the environment.")
    validate.add_argument("file", metavar="FILE", help="YAML file to check")
    validate.set_defaults(act=_validate)

    init = actions.add_parser("init", help="Write a sample file that explains every setting.")
    init.add_argument("path", nargs="?", metavar="PATH", default=FILE_NAME, help="file to write")
    init.add_argument("--force", action="store_true", help="replace the file if it exists")
    init.set_defaults(act=_init)


def run(options: argparse.Namespace) -> int:
    """Runs the chosen action and returns its exit code."""
    return int(options.act(options))


def _show(options: argparse.Namespace) -> int:
    loaded = load(options.file, strict=None)
    for note in loaded.notes:
        print(note, file=sys.stderr)
    settings = redacted(to_dict(loaded.settings))
    if options.json:
        shown = {"settings": settings}
        if options.origin:
            shown["origins"] = loaded.origins
        print(json.dumps(shown, indent=2))
        return FINE
    for leaf in flatten(settings, lambda _key: ""):
        name = dotted(leaf.key)
        line = f"{name}: {yaml_text(leaf.value)}"
        print(f"{line:<48}  # {_origin(loaded, name)}" if options.origin else line)
    return FINE


def _origin(loaded: Loaded, name: str) -> str:
    """Where a value comes from; a hidden section has its origin on the keys below it."""
    below = (origin for key, origin in loaded.origins.items() if key.startswith(f"{name}."))
    return loaded.origins.get(name) or next(below)


def _validate(options: argparse.Namespace) -> int:
    try:
        loaded, problems = load_valid_part(options.file)
    except ConfigError as error:
        print(error, file=sys.stderr)
        return FAILED
    # lazy: `show` and `init` work without the packages that use the settings
    from stepscope.cli.checks.settings_check import problems_of

    problems += problems_of(loaded)
    for line in dict.fromkeys(map(str, (*loaded.notes, *problems))):
        print(line, file=sys.stderr)
    if problems:
        return FAILED
    print(f"{options.file}: no problems")
    return FINE


def _init(options: argparse.Namespace) -> int:
    try:
        with Path(options.path).open("w" if options.force else "x", encoding="utf-8") as file:
            file.write(sample())
    except FileExistsError:
        raise ConfigError(f"{options.path} exists; pass --force to replace it.") from None
    except OSError as error:
        raise ConfigError(f"{options.path} cannot be written: {error.strerror}.") from error
    print(f"Wrote {options.path}.", file=sys.stderr)
    return FINE
