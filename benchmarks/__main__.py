"""Command line of the benchmark: measure, print the table, check the bounds."""

import argparse
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks import environments, facts, own, processes, summary, workload
from benchmarks.catalogue import BARE, BARE_PEER, BENCH, PEERS, SUBJECT
from benchmarks.measurements import FULL, MEASUREMENTS, QUICK, Effort
from benchmarks.report import Report
from benchmarks.session import Session

OWN = "own"
MISSED = 3


def main() -> int:
    """Run what the arguments ask for."""
    options = _options()
    machine = facts.gather()
    processes.become_subreaper()
    unavailable: dict[str, str] = {}
    sessions = _prepare(options.peers, unavailable)
    for number in range(1, options.rounds + 1):
        _run_round(number, sessions, options.only, QUICK if options.quick else FULL)
    own_failures: dict[str, str] = {}
    own_modules = own.MODULES if OWN in options.only and SUBJECT in sessions else ()
    own_figures = _run_own(own_modules, own_failures, quick=options.quick)
    figures = {
        name: summary.summarise(session, sessions[BARE]) for name, session in sessions.items() if name != BARE
    }
    if (per_point := figures.get(SUBJECT, summary.Figures()).bytes_per_point) is not None:
        own_figures["bytes_per_1000_steps"] = per_point * workload.KEYS_PER_ROW * 1000
    report = Report(machine, sessions, figures, unavailable, own_figures, own_failures)
    print(report.text(markdown=options.markdown))
    report.save(BENCH / "results.json")
    missed = any(bound.met is False for bound in report.bounds())
    return MISSED if options.gate and missed else 0


def _options() -> argparse.Namespace:
    measurements = [*MEASUREMENTS, OWN]
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--peers", type=_Among(list(PEERS)), default=list(PEERS), help=", ".join(PEERS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="small sizes: a smoke test")
    parser.add_argument(
        "--only", type=_Among(measurements), default=measurements, help=", ".join(measurements)
    )
    parser.add_argument(
        "--markdown", action="store_true", help="print tables as Markdown, the columns of the README"
    )
    parser.add_argument("--gate", action="store_true", help="exit 3 when a bound is missed")
    return parser.parse_args()


class _Among:
    """Parses a comma-separated choice of names."""

    def __init__(self, allowed: list[str]) -> None:
        self._allowed = allowed

    def __call__(self, text: str) -> list[str]:
        names = text.split(",")
        if unknown := [name for name in names if name not in self._allowed]:
            raise argparse.ArgumentTypeError(
                f"unknown: {', '.join(unknown)}; choose from {', '.join(self._allowed)}"
            )
        return names


def _prepare(names: list[str], unavailable: dict[str, str]) -> dict[str, Session]:
    """Install what is missing; the loop without logging always comes along."""
    sessions = {BARE: Session(BARE_PEER, environments.prepare(BARE_PEER))}
    for name in names:
        with _noting_failure(unavailable, name):
            sessions[name] = Session(PEERS[name], environments.prepare(PEERS[name]))
    return sessions


def _run_round(number: int, sessions: dict[str, Session], only: list[str], effort: Effort) -> None:
    """Take each measurement of all peers in turn, so that they share the machine's moods."""
    for measurement, measure in MEASUREMENTS.items():
        for name, session in sessions.items():
            if measurement not in only or measurement in session.failures:
                continue
            if name == BARE and measurement != "flat":
                continue
            saying = _saying(f"round {number}: {measurement} {name}")
            with saying, _noting_failure(session.failures, measurement):
                measure(session, effort)


def _run_own(modules: tuple[str, ...], failures: dict[str, str], *, quick: bool) -> dict[str, float]:
    figures: dict[str, float] = {}
    for name in modules:
        with _saying(name), _noting_failure(failures, name):
            figures |= own.measure(name, quick=quick)
    return figures


@contextmanager
def _noting_failure(failures: dict[str, str], name: str) -> Iterator[None]:
    """Keep the reason and go on: one peer's failure never stops the others."""
    try:
        yield
    except (environments.UnavailableError, OSError, subprocess.SubprocessError) as error:
        failures[name] = str(error)


@contextmanager
def _saying(what: str) -> Iterator[None]:
    began = time.monotonic()
    yield
    print(f"{what:<36} {time.monotonic() - began:5.1f} s", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
