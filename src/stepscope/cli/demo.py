"""Trains a small model and watches it."""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from typing import TYPE_CHECKING

from stepscope.cli.main import FINE
from stepscope.cli.output.text import emit, number, say
from stepscope.config.find import settings_for, why_disabled
from stepscope.reading import open_store
from stepscope.recorder.identity.rank_detection import identify
from stepscope.recorder.monitor import TrainingMonitor
from stepscope.schema.keys import STEP_SECONDS
from stepscope.views.formatting import duration
from stepscope.views.metrics.series_summaries import SeriesSummaries
from stepscope.views.steps.phase_breakdown import phases_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from stepscope.reading import Run

INTERRUPTED = 130
REDRAW_S = 0.1
STEPS, LIVE_STEPS = 500, 6000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares how long to train, and where to record."""
    parser.add_argument(
        "--steps", type=_count, metavar="N", help="steps to train (500; 6000 where the page is opened)"
    )
    parser.add_argument("--simulate", action="store_true", help="invent a run instead of training")
    parser.add_argument(
        "--simulate_steps", "--simulate-steps", type=_count, metavar="N", help="steps to invent"
    )
    parser.add_argument("--exit", action="store_true", help="serve no page and end without waiting for Enter")
    parser.add_argument(
        "--store", metavar="DIR", help="store folder (default: STEPSCOPE_DIR, else .stepscope)"
    )


def run(options: argparse.Namespace) -> int:
    """Records a run and prints a summary."""
    from stepscope.launcher.demo_training import RULE  # lazy: `--help` works without numpy

    is_live = sys.stdin.isatty() and not options.exit
    options.steps = options.steps or (LIVE_STEPS if is_live else STEPS)
    name = identify(settings_for().run, "", script="demo").name
    settings = {"alerts": {"rules": [RULE]}, "dashboard": {"enabled": is_live}}
    monitor = TrainingMonitor(settings, run=name, directory=options.store)
    segment = monitor.identity.segment
    emit([f"run      {name}", f"folder   {monitor.directory}"])
    sys.stdout.flush()
    code = FINE
    try:
        with monitor:
            if is_live:
                emit([f"page     {monitor.url or 'none: it could not be served'}"])
                sys.stdout.flush()
            _work(monitor, options)
    except KeyboardInterrupt:
        code = INTERRUPTED
    if not monitor.settings.recorder.enabled:
        say(f"Nothing was recorded: {why_disabled()}.")
        return code
    store = open_store(monitor.directory)
    emit(_summary(store.run(monitor.run_id), segment))
    emit(_next_commands(name, options.store))
    store.close()
    if is_live and code == FINE:
        input("Press Enter to end. ")
    return code


def _work(monitor: TrainingMonitor, options: argparse.Namespace) -> None:
    from stepscope.launcher import demo_simulated, demo_training  # lazy: `--help` works without numpy

    if options.simulate or options.simulate_steps is not None:
        steps = options.simulate_steps or options.steps
        demo_simulated.simulate(monitor, steps, _progress(steps))
        return
    model = demo_training.small_model()
    say(f"Training a small network with {model.library} for {options.steps} steps.")
    demo_training.train(monitor, model, options.steps, _progress(options.steps))


def _progress(steps: int) -> Callable[[int, float], None]:
    """Draws one line over itself on a terminal; elsewhere nothing."""
    if not sys.stderr.isatty():
        return lambda _done, _loss: None
    drawn_at = 0.0

    def draw(done: int, loss: float) -> None:
        nonlocal drawn_at
        now = time.monotonic()
        if now - drawn_at >= REDRAW_S or done == steps:
            drawn_at = now
            end = "\n" if done == steps else ""
            print(f"\r\x1b[Kstep {done}/{steps}  loss {number(loss)}", end=end, file=sys.stderr, flush=True)

    return draw


def _summary(run: Run, segment: str) -> Iterator[str]:
    """The summary of a run, read back from the store."""
    yield f"status   {run.status}{f', {run.reason}' if run.reason else ''}"
    keys = [info.key for info in run.keys()]
    logged = {key: run.series(key, segment=segment).values for key in keys}
    steps = len(logged.get(STEP_SECONDS, ()))
    if steps == 0:
        yield "steps    none"
        return
    total_s = float(logged[STEP_SECONDS].sum())
    loss, accuracy = logged["loss"], logged["accuracy"]
    yield f"steps    {len(loss)} in {duration(total_s)}, {number(steps / total_s)} steps/s"
    yield f"loss     {number(loss[0])} at the start, {number(loss[-1])} at the end"
    yield f"accuracy {number(accuracy[-1])} at the end"
    shares = {part.phase: part.share for part in phases_of(run, SeriesSummaries(run.summaries()))}
    shares["other"] = max(shares.get("other", 0.0), 1 - sum(shares.values()))
    yield "time     " + ", ".join(f"{name} {share:.0%}" for name, share in shares.items())


def _next_commands(name: str, folder: str | None) -> Iterator[str]:
    where = "" if folder is None else f" --store {shlex.quote(folder)}"
    yield f"next     stepscope show {shlex.quote(name)}{where}"
    yield f"         stepscope export {shlex.quote(name)} --output demo.csv{where}"


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of steps; give 1 or more.")
    return int(text)
