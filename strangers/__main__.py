"""Runs every trainer in every way, prints one table, and fails if a line of it does."""

import argparse
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from strangers.attempts import Attempt, Mode, attempt
from strangers.catalogue import ROOT, TRAINERS, Trainer
from strangers.checks import failures, is_identical, last_line
from strangers.environment import NotInstalled, prepare, version_of
from strangers.recorded import Recorded, read
from strangers.table import Line, drawn

FAILED, NOT_INSTALLED = 1, 2


def main() -> int:
    """Runs what the arguments ask for."""
    options = _options()
    began = time.monotonic()
    try:
        python = prepare(oldest=options.oldest)
    except NotInstalled as error:
        print(error, file=sys.stderr)
        return NOT_INSTALLED
    folder = ROOT / ".strangers" / ("oldest" if options.oldest else "newest")
    lines: list[Line] = []
    for name in options.trainers:
        for line in _lines(TRAINERS[name], options.modes, python, folder / name):
            lines.append(line)
            said = "; ".join(line.failures) or "ok"
            print(f"{name}, {line.attempt.mode}: {said}", file=sys.stderr, flush=True)
    print(drawn(lines))
    wrong = sum(bool(line.failures) for line in lines)
    print(f"\n{len(lines)} trainings, {wrong} with failures, {(time.monotonic() - began) / 60:.1f} minutes")
    return FAILED if wrong else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m strangers", description=__doc__)
    names = ", ".join(TRAINERS)
    parser.add_argument("trainers", nargs="*", metavar="TRAINER", help=f"all, if none is named: {names}")
    parser.add_argument("--modes", type=lambda text: text.split(","), help="such as run,callback")
    parser.add_argument("--oldest", action="store_true", help="with the oldest supported versions")
    options = parser.parse_args()
    if unknown := [name for name in options.trainers if name not in TRAINERS]:
        parser.error(f"unknown: {', '.join(unknown)}; choose from {names}")
    known = [name for name, trainer in TRAINERS.items() if not (options.oldest and trainer.newest_only)]
    options.trainers = options.trainers or known
    return options


def _modes(trainer: Trainer, names: list[str] | None) -> list[Mode]:
    modes: list[Mode] = ["run"]
    if trainer.has_callback:
        modes.append("callback")
    if trainer.tries_both:
        modes.append("both")
    if trainer.can_resume:
        modes.append("run, resumed")
        if trainer.has_callback:
            modes.append("callback, resumed")
    return [mode for mode in modes if names is None or mode.partition(",")[0] in names]


def _lines(trainer: Trainer, names: list[str] | None, python: Path, folder: Path) -> Iterator[Line]:
    version = version_of(python, trainer.package)
    bare = attempt(trainer, "bare", python, folder / "bare")
    if bare.outcome is None:
        wrong = f"the bare training fails, exit code {bare.exit_code}: {last_line(bare.stderr)}"
        yield Line(trainer, version, bare, bare, failures=[wrong])
        return
    yield Line(trainer, version, bare, bare)
    for mode in _modes(trainer, names):
        other = attempt(trainer, mode, python, folder / mode.replace(", ", "-"))
        recorded = _recorded(other)
        line = Line(trainer, version, bare, other, recorded, failures(trainer, bare, other, recorded))
        if not mode.endswith("resumed") and other.outcome and not is_identical(bare.outcome, other.outcome):
            line = _explained_by_chance(line, python, folder / "bare-again")
        yield line


def _recorded(other: Attempt) -> Recorded | None:
    try:
        return read(other.store)
    except (LookupError, OSError):
        return None


def _explained_by_chance(line: Line, python: Path, folder: Path) -> Line:
    """Runs the bare training again: if it differs from itself, the script says nothing about stepscope."""
    again = attempt(line.trainer, "bare", python, folder)
    if again.outcome is None or line.bare.outcome is None or is_identical(again.outcome, line.bare.outcome):
        return line
    return replace(line, failures=[*line.failures, "the bare training differs from itself, too"])


if __name__ == "__main__":
    sys.exit(main())
