"""Deletes and moves the store folder during the life of a run: training goes on, and later rows are kept."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from stepscope.agent.process.election import agent_pid
from tests.attack.asking import ask, rows_of
from tests.attack.checking import (
    agent_faults,
    process_faults,
    reading_faults,
    stderr_lines,
    text_faults,
    value_faults,
    whole_run_faults,
)
from tests.attack.outcomes import HANG, LOST, UNCLEAR, WRONG, Case, Fault, Sweep
from tests.attack.training import Training, processes_of, trainings, wait_for

NOTICED_S = 3.0
"""The folder is looked after twice a second; on a busy machine that may be late."""
END_S = 25.0
"""Stopping may wait 15 s for an agent, and no longer."""
LEAVE_S = 15.0
"""An agent stays a second after the last run."""
SLOW = {"burst": 1, "pause_s": 0.002}
SETTINGS = {"agent": {"interval_s": 0.05, "linger_s": 1}}
LINGERING = {"agent": {"interval_s": 0.05, "linger_s": 15}}
SMALL_FILES = {**SETTINGS, "recorder": {"segment_bytes": 65536}}
MAX_LINES = 3


class Blow:
    """Takes the store folder away at its path: deletes it, or moves it to another one."""

    def __init__(self, store: Path, kind: str) -> None:
        self._store, self.kind = store, kind
        self.moved = store.with_name("moved")
        self.acknowledged = 0
        self.at = 0.0

    def strike(self, training: Training | None) -> None:
        """Does it, and notes how far the training had come before."""
        self.acknowledged = training.acknowledged if training else 0
        if self.kind == "moved":
            self._store.rename(self.moved)
        else:
            while self._store.exists():  # files are made in it meanwhile
                shutil.rmtree(self._store, ignore_errors=True)
        self.at = time.time()


def during_run(moment: Callable[[random.Random, Training, Path], None], **options: object) -> Callable:
    """A training that loses its folder at some moment, and logs for some seconds more."""

    def check(dice: random.Random, scratch: Path, store: Path, blow: Blow, start) -> Iterator[Fault]:
        training = start(
            scratch, store, "victim", **{**SLOW, "settings": SETTINGS, "hold_at": "made", **options}
        )
        moment(dice, training, store)
        if not store.exists():
            store.mkdir()
        blow.strike(training)
        training.go_on()
        training.reach("logging")
        training.go_on()
        time.sleep(NOTICED_S + 0.7)
        training.ask_to_stop()
        yield from ending_faults(training, store, blow)

    return check


def ending_faults(training: Training, store: Path, blow: Blow, *, must_say: bool = True) -> Iterator[Fault]:
    """What must hold at the end of a training that lost its folder."""
    began = time.monotonic()
    exit_code = training.end(END_S)
    yield from process_faults(training, exit_code)
    took = time.monotonic() - began
    if took > 20:
        yield Fault(HANG, f"the training took {took:.0f} s to stop")
    lines = stderr_lines(training.stderr)
    if len(lines) > MAX_LINES:
        yield Fault(UNCLEAR, f"the training prints {len(lines)} lines: {lines[:4]}")
    here = yield from read(store, training)
    there = (yield from read(blow.moved, training)) if blow.kind == "moved" else {}
    logged = set(range(training.acknowledged))
    if blow.kind == "moved":
        missing = set(range(blow.acknowledged)) - set(there)
        if missing:
            yield Fault(
                LOST,
                f"{len(missing)} of {blow.acknowledged} rows before the move are not in the moved folder",
            )
    missing = logged - set(here) - set(there)
    if missing and not lines and must_say:
        yield Fault(LOST, f"{len(missing)} of {len(logged)} rows are nowhere, and the training says nothing")
    times = list(here.values())
    last_missing = max(logged - set(here), default=-1)
    later = [moment for step, moment in here.items() if step > last_missing]
    if last_missing >= 0 and len(logged) > blow.acknowledged + 100:
        resumed = min(later) if later else None
        if resumed is None:
            yield Fault(
                LOST, f"no row after the folder was {blow.kind} is in the store; it has {len(times)} rows"
            )
        elif resumed - blow.at > NOTICED_S:
            yield Fault(
                LOST, f"rows are missing until {resumed - blow.at:.1f} s after the folder was {blow.kind}"
            )
    yield from agent_faults(store)
    if blow.kind == "moved":
        yield from agent_faults(blow.moved)
    if not wait_for(lambda: not processes_of(store.parent), LEAVE_S):
        yield Fault(
            HANG, f"an agent is still there {LEAVE_S:.0f} s after the training whose folder was {blow.kind}"
        )


def read(folder: Path, training: Training) -> Iterator[Fault]:
    """Reads the rows of a run from a folder; gives step and time of each."""
    asked = ask(rows_of, str(folder), training.run)
    yield from reading_faults(training.run, asked)
    answers = asked.result or {"error": "not read"}
    if "error" in answers:
        return {}
    yield from value_faults(training.run, answers, training.salt)
    if answers["status"] != "finished" and folder.name == "store":
        yield Fault(WRONG, f"the run that finished is called {answers['status']} ({answers['reason']})")
    return dict(zip(answers["steps"], answers["times"], strict=True))


def before_start(_: random.Random, training: Training, store: Path) -> None:
    training.reach("made")


def before_first_row(_: random.Random, training: Training, store: Path) -> None:
    training.reach("started")


def while_agent_starts(dice: random.Random, training: Training, store: Path) -> None:
    training.reach("started")
    time.sleep(dice.uniform(0, 0.4))


def after_first_row(_: random.Random, training: Training, store: Path) -> None:
    training.reach("logging")


def mid_run(dice: random.Random, training: Training, store: Path) -> None:
    training.reach("logging")
    training.go_on()
    wait_for(lambda: agent_pid(store))
    time.sleep(dice.uniform(0.1, 1.5))


def at_file_roll(dice: random.Random, training: Training, store: Path) -> None:
    training.reach("logging")
    training.go_on()
    training.log_until(226 * dice.randrange(1, 4) + dice.randrange(-2, 3))


def at_stop(delay_s: float, settings: dict = SETTINGS) -> Callable:
    """A training that loses its folder just before or while it stops."""

    def check(dice: random.Random, scratch: Path, store: Path, blow: Blow, start) -> Iterator[Fault]:
        training = start(scratch, store, "victim", rows=400, settings=settings, hold_at="stopping", **SLOW)
        training.reach("stopping")
        if delay_s < 0:
            blow.strike(training)
            training.go_on()
        else:
            training.go_on()
            time.sleep(delay_s * dice.random())
            blow.strike(training)
        # Whether the rows were in the store before it was deleted cannot be told from here.
        must_say = delay_s < 0 or blow.kind == "moved"
        yield from ending_faults(training, store, blow, must_say=must_say)

    return check


def while_agent_lingers(pause_s: float, *, again: bool) -> Callable:
    """`train; rm -rf store; train`: the second run is whole, whatever the agent of the first one does."""

    def check(dice: random.Random, scratch: Path, store: Path, blow: Blow, start) -> Iterator[Fault]:
        settings = LINGERING if again else SETTINGS
        first = start(scratch, store, "first", rows=300, settings=settings, **SLOW)
        yield from process_faults(first, first.end(END_S))
        time.sleep(pause_s * dice.random())
        blow.strike(first)
        if again:
            second = start(scratch, store, "second", rows=300, settings=LINGERING, salt=0.5, **SLOW)
            yield from process_faults(second, second.end(END_S))
            yield from text_faults("second", second.stderr)
            yield from whole_run_faults(store, second, second.acknowledged, ("finished",))
        elif not wait_for(lambda: not processes_of(scratch), LEAVE_S):
            yield Fault(HANG, f"the agent is still there {LEAVE_S:.0f} s after its folder was {blow.kind}")
        if blow.kind == "moved":
            yield from whole_run_faults(blow.moved, first, first.acknowledged, ("finished",))
        yield from agent_faults(store)
        yield from agent_faults(blow.moved)

    return check


def moments() -> Iterator[tuple[str, Callable]]:
    """Twenty moments of a run's life."""
    yield "before the start", during_run(before_start)
    yield "before the first row", during_run(before_first_row, hold_at="started")
    for turn in range(4):
        yield f"while the agent starts, {turn}", during_run(while_agent_starts, hold_at="started")
    yield "after the first row", during_run(after_first_row, hold_at="logging")
    for turn in range(3):
        yield f"mid-run, {turn}", during_run(mid_run, hold_at="logging")
    for turn in range(3):
        options = {"keys": 30, "settings": SMALL_FILES, "hold_at": "logging", "pause_s": 0.001}
        yield f"at a file roll, {turn}", during_run(at_file_roll, **options)
    yield "before the stop", at_stop(-1)
    yield "before the stop, without an agent", at_stop(-1, {"agent": {"mode": "none"}})
    for delay_s in (0.001, 0.01, 0.1):
        yield f"within {delay_s} s after the stop began", at_stop(delay_s)
    yield "while the agent lingers", while_agent_lingers(0.5, again=False)
    yield "between two trainings, at once", while_agent_lingers(0.0, again=True)
    yield "between two trainings, while the agent lingers", while_agent_lingers(2.0, again=True)


@pytest.mark.slow
def test_folders_that_are_deleted_or_moved_cost_no_training_and_no_later_row(sweep: Sweep) -> None:
    def case(name: str, kind: str, attack: Callable) -> Case:
        def check(dice: random.Random, scratch: Path) -> Iterator[Fault]:
            store = scratch / "store"
            with trainings() as start:
                yield from attack(dice, scratch, store, Blow(store, kind), start)

        return Case(f"{kind} {name}", check)

    attacks = list(moments())
    assert len(attacks) >= 20
    sweep.run(
        [case(name, kind, attack) for kind in ("deleted", "moved") for name, attack in attacks], workers=5
    )
