"""Prints alerting and recording rules for Prometheus."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import stepscope.prometheus
from stepscope.cli.main import FINE
from stepscope.cli.output.text import emit

if TYPE_CHECKING:
    import argparse

RULES = Path(stepscope.prometheus.__file__).with_name("rules.yml")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares rules."""
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    rules = actions.add_parser("rules", help="Print recording and alerting rules as YAML.")
    rules.set_defaults(act=_print_rules)


def run(options: argparse.Namespace) -> int:
    """Does what was asked."""
    code: int = options.act()
    return code


def _print_rules() -> int:
    emit(RULES.read_text(encoding="utf-8").splitlines())
    return FINE
