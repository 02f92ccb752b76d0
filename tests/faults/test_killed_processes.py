"""A kill loses no record, and the run says that it was killed."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

import stepscope
from stepscope.agent.process.attend import catch_up
from stepscope.agent.process.election import AgentLock, agent_pid
from stepscope.agent.process.start import ensure_agent
from stepscope.config.sections import Agent, Settings
from stepscope.errors import StoreLocked

ACKNOWLEDGING = """
    import os, sys, stepscope
    monitor = stepscope.TrainingMonitor(run=sys.argv[1])
    monitor.start_monitoring()
    step = 0
    while True:
        monitor.log({"loss": step * 0.5, "x": step}, step=step)
        os.write(1, b"%d\\n" % step)
        step += 1
"""


def rounds(few: int, many: int) -> pytest.MarkDecorator:
    marked = [pytest.param(few, id="sampled"), pytest.param(many, id="all", marks=pytest.mark.slow)]
    return pytest.mark.parametrize("times", marked)


@rounds(6, 500)
def test_no_acknowledged_record_is_lost_when_the_trainer_is_killed(times: int, start, folder: Path) -> None:
    dice = random.Random(7)
    for number in range(times):
        process = start(ACKNOWLEDGING, f"run{number}", environment={"STEPSCOPE_AGENT__MODE": "none"})
        process.stdout.readline()
        try:
            process.wait(timeout=dice.uniform(0.001, 0.2))
        except subprocess.TimeoutExpired:
            process.kill()
        acknowledged = [0] + [int(line) for line in process.stdout.read().splitlines()[:-1]]
        process.wait()  # its pipes close before it is dead

        run = stepscope.open_store(folder).run(f"run{number}")
        steps = run.series("loss").steps.tolist()
        assert steps == list(range(len(steps)))
        assert len(steps) > acknowledged[-1]
        assert run.status == "crashed"


@pytest.mark.slow
@pytest.mark.parametrize("victims", ["trainer", "trainer and agent", "whole group"])
def test_ten_thousand_steps_before_a_kill_are_all_read_back(
    victims: str, run_script, read, folder: Path
) -> None:
    result = run_script(
        """
        import os, signal, sys, stepscope
        from stepscope.agent.process.election import agent_pid
        monitor = stepscope.TrainingMonitor(run="killed")
        monitor.start_monitoring()
        for step in range(10_000):
            monitor.log({"loss": 1 / (step + 1)}, step=step)
        agent = agent_pid(monitor.directory)
        if sys.argv[1] == "trainer and agent" and agent:
            os.kill(agent, signal.SIGKILL)
        if sys.argv[1] == "whole group":
            os.killpg(os.getpgid(0), signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)
        """,
        victims,
        start_new_session=True,
    )
    assert result.returncode == -signal.SIGKILL

    run = read("killed")
    series = run.series("loss")
    assert len(series) == 10_000
    assert series.values[9] == 0.1
    assert run.status == "crashed"
    assert re.search(r"process \d+ was killed \(no error message\)", run.reason)


@pytest.mark.slow
@rounds(8, 200)
def test_every_record_is_ingested_exactly_once_however_often_the_agent_dies(
    times: int, start, until, folder: Path
) -> None:
    dice = random.Random(11)
    trainer = start(
        """
        import sys, time, stepscope
        monitor = stepscope.TrainingMonitor(run="exactly-once")
        monitor.start_monitoring()
        step = 0
        for line in sys.stdin:
            for _ in range(3000):
                monitor.log({"loss": step * 0.5, "x": step}, step=step)
                step += 1
            print(step, flush=True)
        monitor.stop_monitoring()
        """,
        environment={"STEPSCOPE_AGENT__MODE": "none", "STEPSCOPE_RECORDER__SEGMENT_BYTES": "131072"},
        stdin=subprocess.PIPE,
    )
    settings = Settings(agent=Agent(interval_s=0.01))
    for _ in range(times):
        ensure_agent(folder, settings)
        until(lambda: agent_pid(folder))
        trainer.stdin.write("\n")
        trainer.stdin.flush()
        trainer.stdout.readline()
        try:
            trainer.wait(timeout=dice.uniform(0, 0.15))
        except subprocess.TimeoutExpired:
            agent = agent_pid(folder)
            if agent is not None:  # one that waited too long for a trainer to begin has gone by itself
                os.kill(agent, signal.SIGKILL)
        until(lambda: agent_pid(folder) is None)
    trainer.communicate(timeout=120)
    assert trainer.returncode == 0

    run = stepscope.open_store(folder).run("exactly-once")
    assert run.series("loss").steps.tolist() == list(range(3000 * times))
    assert run.status == "finished"


@pytest.mark.slow
def test_a_stopped_process_is_called_stalled_never_crashed_and_runs_again(start, until, folder: Path) -> None:
    process = start(
        """
        import time, stepscope
        with stepscope.TrainingMonitor(run="sleepy") as monitor:
            for step in range(100_000):
                monitor.log({"loss": 1.0})
                time.sleep(0.005)
        """,
        environment={"STEPSCOPE_AGENT__STALL_AFTER_S": "1"},
    )

    def status() -> str:
        try:
            return stepscope.open_store(folder).run("sleepy").status
        except stepscope.StepscopeError:
            return "unknown"

    until(lambda: status() == "running")
    process.send_signal(signal.SIGSTOP)
    until(lambda: status() == "stalled")
    assert "no record since" in stepscope.open_store(folder).run("sleepy").reason
    process.send_signal(signal.SIGCONT)
    until(lambda: status() == "running")
    process.kill()
    process.wait()
    until(lambda: status() == "crashed")


def test_a_second_writer_of_a_store_is_refused_with_the_reason(folder: Path) -> None:
    with AgentLock(folder):
        with pytest.raises(StoreLocked, match=rf"written by process {os.getpid()} .*one writer"):
            AgentLock(folder)
        assert agent_pid(folder) == os.getpid()
    AgentLock(folder).release()


def test_the_store_of_a_writer_that_was_killed_is_taken_over_at_once(start, until, folder: Path) -> None:
    holder = start(
        """
        import sys, time
        from pathlib import Path
        from stepscope.agent.process.election import AgentLock
        lock = AgentLock(Path(sys.argv[1]))
        print("held", flush=True)
        time.sleep(60)
        """,
        folder,
    )
    holder.stdout.readline()
    assert agent_pid(folder) == holder.pid
    holder.kill()
    holder.wait()

    assert agent_pid(folder) is None
    AgentLock(folder).release()


def test_a_process_of_the_same_number_is_not_taken_for_the_dead_one(folder: Path) -> None:
    """A pid comes again; the time it began at does not."""
    from stepscope import procfs

    mine = procfs.mark(os.getpid())
    assert procfs.is_alive(mine) is True
    earlier = procfs.ProcessMark(mine.pid, mine.start_ticks - 1, mine.boot_id, mine.namespace)
    assert procfs.is_alive(earlier) is False
    before_boot = procfs.ProcessMark(mine.pid, mine.start_ticks, "another boot", mine.namespace)
    assert procfs.is_alive(before_boot) is False
    elsewhere = procfs.ProcessMark(mine.pid, mine.start_ticks, mine.boot_id, "pid:[1]")
    assert procfs.is_alive(elsewhere) is None


Wait = Callable[[Callable[[], object]], None]


@pytest.mark.slow
def test_an_agent_that_died_is_replaced_while_training_continues(start, until: Wait, folder: Path) -> None:
    start(
        """
        import time, stepscope
        with stepscope.TrainingMonitor(run="long") as monitor:
            for step in range(100_000):
                monitor.log({"loss": 1.0})
                time.sleep(0.01)
        """
    )
    until(lambda: agent_pid(folder))
    first = agent_pid(folder)
    os.kill(first, signal.SIGKILL)

    until(lambda: agent_pid(folder) not in (None, first))
    assert agent_pid(folder) != first


def test_catching_up_without_an_agent_leaves_no_journal_behind(run_script, folder: Path) -> None:
    run_script(
        """
        import stepscope
        with stepscope.TrainingMonitor(run="alone") as monitor:
            for step in range(100):
                monitor.log({"loss": 1.0})
        """,
        environment={"STEPSCOPE_AGENT__MODE": "none"},
    )
    assert list((folder / "journal").rglob("*.0"))
    catch_up(folder)
    assert not list((folder / "journal").iterdir())
    assert len(stepscope.open_store(folder).run("alone").series("loss")) == 100
