"""Kills trainings and agents at random moments: no acknowledged row is lost, and no other run is touched."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from stepscope.agent.process.election import agent_pid
from tests.attack.checking import agent_faults, process_faults, untouched_faults, whole_run_faults
from tests.attack.conftest import STORED, StoredRun
from tests.attack.outcomes import OTHER, Case, Fault, Sweep
from tests.attack.training import Training, kill_agent, trainings, wait_for

ROUNDS = 15
QUICK = {"agent": {"interval_s": 0.02, "linger_s": 0.2}}
SMALL_FILES = {**QUICK, "recorder": {"segment_bytes": 65536}}
CRASHED, FINISHED = ("crashed",), ("finished",)
Scenario = Callable[[random.Random, Path, Path, Callable[..., Training]], Iterator[Fault]]


def trainer_killed(dice: random.Random, scratch: Path, store: Path, start) -> Iterator[Fault]:
    training = start(scratch, store, "victim", settings=QUICK)
    training.reach("logging")
    training.go_on()
    time.sleep(dice.uniform(0, 0.5))
    training.kill()
    yield from process_faults(training, 0, killed=True)
    yield from whole_run_faults(store, training, training.acknowledged, CRASHED)


def agent_killed(dice: random.Random, scratch: Path, store: Path, start) -> Iterator[Fault]:
    training = start(scratch, store, "victim", settings=QUICK)
    training.reach("logging")
    training.go_on()
    wait_for(lambda: agent_pid(store))
    time.sleep(dice.uniform(0, 0.3))
    kill_agent(store)
    training.log_until(training.acknowledged + dice.randrange(1, 2000))
    training.ask_to_stop()
    yield from process_faults(training, training.end())
    yield from whole_run_faults(store, training, training.acknowledged, FINISHED)


def both_killed(dice: random.Random, scratch: Path, store: Path, start) -> Iterator[Fault]:
    training = start(scratch, store, "victim", settings=QUICK)
    training.reach("logging")
    training.go_on()
    if dice.random() < 0.7:
        wait_for(lambda: agent_pid(store))
    time.sleep(dice.uniform(0, 0.3))
    if dice.random() < 0.5:
        kill_agent(store)
        training.kill()
    else:
        training.kill()
        kill_agent(store)
    yield from process_faults(training, 0, killed=True)
    yield from whole_run_faults(store, training, training.acknowledged, CRASHED)


def one_of_two_killed(dice: random.Random, scratch: Path, store: Path, start) -> Iterator[Fault]:
    victim = start(scratch, store, "victim", settings=QUICK, salt=0.125)
    other = start(scratch, store, "other", settings=QUICK)
    for training in (victim, other):
        training.reach("logging")
        training.go_on()
    time.sleep(dice.uniform(0, 0.5))
    victim.kill()
    if dice.random() < 0.5:
        kill_agent(store)
    yield from process_faults(victim, 0, killed=True)
    yield from whole_run_faults(store, victim, victim.acknowledged, CRASHED)
    other.ask_to_stop()
    yield from process_faults(other, other.end())
    yield from whole_run_faults(store, other, other.acknowledged, FINISHED, kind=OTHER)


def killed_during_stop(dice: random.Random, scratch: Path, store: Path, start) -> Iterator[Fault]:
    training = start(
        scratch, store, "victim", rows=dice.randrange(1, 3000), settings=QUICK, hold_at="stopping"
    )
    training.reach("stopping")
    training.go_on()
    time.sleep(dice.choice([0, 0.001, 0.01, 0.1]) * dice.random())
    if dice.random() < 0.5:
        kill_agent(store)
    training.kill()
    ended = training.process.returncode == 0
    yield from process_faults(training, 0, killed=True)
    statuses = FINISHED if ended else ("crashed", "finished")
    yield from whole_run_faults(store, training, training.acknowledged, statuses)


def killed_at_file_roll(dice: random.Random, scratch: Path, store: Path, start) -> Iterator[Fault]:
    training = start(scratch, store, "victim", keys=30, burst=200, settings=SMALL_FILES)
    training.reach("logging")
    training.go_on()
    # A row of 31 values has 288 bytes: a file is full after about 226 rows.
    training.log_until(226 * dice.randrange(1, 12) + dice.randrange(-3, 4))
    if dice.random() < 0.4:
        kill_agent(store)
    training.kill()
    yield from process_faults(training, 0, killed=True)
    yield from whole_run_faults(store, training, training.acknowledged, CRASHED)


def agent_killed_while_sealing(dice: random.Random, scratch: Path, store: Path, start) -> Iterator[Fault]:
    training = start(scratch, store, "victim", keys=4, burst=400, pause_s=0.005, settings=SMALL_FILES)
    training.reach("logging")
    training.go_on()
    wait_for(lambda: agent_pid(store))
    # Rows are sealed by 4096: the agent is killed about when it has so many.
    training.log_until(4096 * dice.randrange(1, 4) + dice.randrange(0, 800))
    time.sleep(dice.uniform(0, 0.05))
    kill_agent(store)
    training.ask_to_stop()
    wait_for(lambda: agent_pid(store) or training.process.poll() is not None)
    time.sleep(dice.uniform(0, 0.05))
    kill_agent(store)
    yield from process_faults(training, training.end())
    yield from whole_run_faults(store, training, training.acknowledged, FINISHED)


SCENARIOS: dict[str, Scenario] = {
    "trainer": trainer_killed,
    "agent": agent_killed,
    "trainer and agent": both_killed,
    "one of two runs": one_of_two_killed,
    "trainer during stop": killed_during_stop,
    "trainer at file roll": killed_at_file_roll,
    "agent while sealing": agent_killed_while_sealing,
}


@pytest.mark.slow
def test_kills_lose_no_acknowledged_row_and_touch_no_other_run(sweep: Sweep, stored_run: StoredRun) -> None:
    def case(name: str, scenario: Scenario) -> Case:
        def check(dice: random.Random, scratch: Path) -> Iterator[Fault]:
            store = stored_run.copy_to(scratch / "store")
            with trainings() as start:
                yield from scenario(dice, scratch, store, start)
            yield from untouched_faults(store, STORED, stored_run.answer)
            yield from agent_faults(store)

        return Case(name, check)

    sweep.run(
        [
            case(f"{name} {number}", scenario)
            for name, scenario in SCENARIOS.items()
            for number in range(ROUNDS)
        ]
    )
