"""Trains every case, prints what the diagnosis says of each, and fails if a bound is missed."""

import argparse
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from stepscope.analysis.detector_registry import known_detectors
from stepscope.analysis.diagnose import Diagnostician
from stepscope.schema.window import Window
from zoo import recordings
from zoo.case import Case
from zoo.catalogue import CASES
from zoo.detection import steps_until_named
from zoo.loss_curves import false_alarms
from zoo.scoring import Score, Summary, score
from zoo.table import Line, drawn
from zoo.trial import Settings, Trial, busy_share, run, seconds_per_step

MISSED = 1

CURVES, CURVES_OF_A_FULL_RUN = 20, 300
"""How many synthetic losses of each kind are diagnosed."""

BUSY = 0.25
"""Share of the processors' time before a run from which other programs are taken to compete with it."""


def main() -> int:
    """Runs what the arguments ask for."""
    options = _options()
    began = time.monotonic()
    lines = list(_replayed() if options.replay else _live(options))
    if options.record or options.write_misses:
        print(f"{recordings.write_misses()} recordings are diagnosed wrongly", file=sys.stderr)
    print(drawn(lines))
    curves = CURVES_OF_A_FULL_RUN if options.full else CURVES
    are_silent = options.replay or bool(options.cases) or _judge_curves(curves)
    print(f"\n{(time.monotonic() - began) / 60:.1f} minutes")
    if options.json:
        options.json.write_text(json.dumps([_as_dict(*line) for line in lines], indent=2) + "\n")
    scores = [each for each, settings in lines if settings.dose >= 1 or each.case.is_healthy]
    return 0 if are_silent and all(holds for _, holds in Summary(scores).bounds) else MISSED


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m zoo", description=__doc__)
    parser.add_argument("cases", nargs="*", metavar="CASE", help="all, if none is named")
    parser.add_argument("--full", action="store_true", help="all doses and seeds, a busy machine, long runs")
    parser.add_argument("--replay", action="store_true", help="diagnose the recordings; nothing is trained")
    parser.add_argument("--record", action="store_true", help="keep the window of each run in zoo/recordings")
    parser.add_argument("--write-misses", action="store_true", help="write down which recordings are wrong")
    parser.add_argument("--seeds", type=int, default=5, help="how many, of a full run (default: 5)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every score to a file")
    parser.add_argument("--list", action="store_true", help="list the cases and end")
    options = parser.parse_args()
    if unknown := [name for name in options.cases if name not in CASES]:
        parser.error(f"unknown: {', '.join(unknown)}; see --list")
    if options.list:
        for case in CASES.values():
            print(f"{case.name:<44} {case.fault or 'nothing is planted'}")
        parser.exit()
    return options


def _live(options: argparse.Namespace) -> Iterator[Line]:
    names = options.cases or [name for name, case in CASES.items() if options.full or not case.is_long]
    for name in names:
        for case, settings in _plan(CASES[name], options):
            yield _line(case, settings, is_recorded=options.record)


def _plan(case: Case, options: argparse.Namespace) -> Iterator[tuple[Case, Settings]]:
    """Returns the runs of a case; a full run varies one thing at a time."""
    yield case, Settings()
    if not options.full or case.is_long:
        return
    for dose in case.doses:
        if dose != 1:
            yield case, Settings(dose=dose)
    for seed in range(1, options.seeds):
        yield case, Settings(seed=seed)
    for neighbours in (1, 2):
        yield case, Settings(neighbours=neighbours)


def _line(case: Case, settings: Settings, *, is_recorded: bool) -> Line:
    is_busy = settings.neighbours > 0 or busy_share() > BUSY
    trial = run(case, settings)
    if is_recorded:
        recordings.record(trial, is_busy=is_busy)
    result = score(case, trial.answer, known_detectors(), is_busy=is_busy)
    if trial.window is not None:
        result = _with_steps(result, trial.window, Diagnostician({}))
    if case.has_control and settings == Settings() and not is_busy:
        result = replace(result, measured_gain=_gain_without_fault(case, trial))
    said = ", ".join(trial.answer.ids) or trial.answer.verdict
    print(f"{case.name}: {said}: {'ok' if result.is_right else 'wrong'}", file=sys.stderr, flush=True)
    if trial.last_line and not trial.answer.ids and trial.exit_code:
        print(f"  exit code {trial.exit_code}: {trial.last_line}", file=sys.stderr)
    return result, settings


def _with_steps(result: Score, window: Window, diagnostician: Diagnostician) -> Score:
    if not result.named:
        return result
    return replace(result, steps=steps_until_named(result.case, window, diagnostician))


def _gain_without_fault(case: Case, trial: Trial) -> float | None:
    """Returns the share of time that the same training takes less at dose 0."""
    control = run(case.without_fault(), Settings(dose=0.0))
    if control.window is None or trial.window is None:
        return None
    return 1 - seconds_per_step(control.window) / seconds_per_step(trial.window)


def _replayed() -> Iterator[Line]:
    diagnostician = Diagnostician({})
    for each in recordings.replay_all():
        window, _ = recordings.load(each.case)
        yield _with_steps(each, window, diagnostician), Settings()


def _judge_curves(seeds: int) -> bool:
    """Prints the false alarms on synthetic losses; returns whether there is none."""
    alarms, reported = false_alarms(seeds)
    print(f"{'MISSED' if reported else 'met':<7} no false alarm on a healthy loss curve: {alarms}")
    for kind, ids in reported.items():
        print(f"  - {kind}: {', '.join(sorted(ids))}")
    return not reported


def _as_dict(result: Score, settings: Settings) -> dict[str, object]:
    return {
        "case": result.case.name,
        "dose": settings.dose,
        "seed": settings.seed,
        "is_busy": result.is_busy,
        "expected": [list(group) for group in result.case.expects],
        "verdict": result.answer.verdict,
        "headline": result.answer.headline,
        "reported": list(result.answer.ids),
        "false": list(result.false),
        "is_right": result.is_right,
        "has_detector": result.has_detector,
        "steps": result.steps,
        "predicted_gain": result.predicted_gain,
        "measured_gain": result.measured_gain,
    }


if __name__ == "__main__":
    sys.exit(main())
