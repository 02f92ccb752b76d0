"""The agent looks at runs now and then, keeps what it is sure of, and is never brought down by it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from stepscope.agent.live_diagnosis import LiveDiagnosis
from stepscope.analysis.diagnose import Diagnostician
from stepscope.config.sections import Settings
from stepscope.errors import StoreUnavailable
from stepscope.exporters.base import Table
from stepscope.schema.run import Process
from stepscope.schema.series import Source
from stepscope.store.sqlite import SqliteStore

S = 10**9
BEGUN = 1_760_000_000 * S
KEYS = ["step_seconds", "phase/data_seconds"]


class Bench:
    """A diagnosis over a real store, with a clock that is set by hand."""

    def __init__(self, folder: Path, settings: Settings | None = None) -> None:
        self.now = 0.0
        self.took = 0.0
        self.store = SqliteStore(folder / "store.sqlite")
        self.settings = settings or Settings()
        self.process = Process("r", "r", "p", "a", 0, "h", 7, "rank", BEGUN)
        self.source = Source("r", "a", 0, "h")
        self.steps = 0
        self.begin()

    def begin(self) -> None:
        """Begins as an agent does that was started anew."""
        ticks = iter(range(10**9))
        self.diagnosis = LiveDiagnosis(
            self.store,
            lambda _: self.settings.detectors,
            lambda: self.now,
            lambda: BEGUN + int(self.now * S),
            lambda: self.took * next(ticks),
        )
        with self.store.transaction():
            self.store.put_process(self.process)
        self.diagnosis.on_process(self.process)

    def log(self, wait_s: float, steps: int = 2100, after_s: float = 10.0) -> None:
        """Logs steps that wait for data, lets time pass, and has the agent look."""
        self.now += after_s
        values = np.full((steps, 2), (0.01 + wait_s, wait_s))
        numbers = self.steps + np.arange(steps)
        times = BEGUN + (numbers * 0.001 * S).astype(np.int64)
        self.steps += steps
        with self.store.transaction():
            self.store.append(self.source, KEYS, numbers, times, values)
        self.diagnosis.on_rows(Table(self.source, KEYS, numbers, times, values))
        self.diagnosis.on_round_end()
        self.diagnosis.tick()

    def become(self, status: str) -> None:
        """The training has another status now."""
        self.process.status = status
        with self.store.transaction():
            self.store.put_process(self.process)
        self.diagnosis.on_process(self.process)

    def end(self) -> None:
        """The training says that it has ended."""
        self.process.status = "finished"
        self.diagnosis.on_process(self.process)
        self.diagnosis.on_round_end()

    @property
    def open(self) -> list[str]:
        """The findings that are open."""
        return [finding["key"] for finding in self.store.findings("r") if finding["open"]]


@pytest.fixture
def bench(tmp_path: Path) -> Iterator:
    made: list[Bench] = []

    def make(settings: Settings | None = None) -> Bench:
        made.append(Bench(tmp_path, settings))
        return made[-1]

    yield make
    for bench in made:
        bench.store.close()


WAIT = ["input.exposed_wait"]


def test_a_finding_is_kept_after_two_looks_and_over_after_three(bench) -> None:
    one = bench()
    seen = []
    for wait_s in (0.01, 0.01, 0.0, 0.0, 0.01, 0.0, 0.0, 0.0):
        one.log(wait_s)
        seen.append(one.open)
    assert seen == [[], WAIT, WAIT, WAIT, WAIT, WAIT, WAIT, []]
    [kept] = one.store.findings("r")
    assert kept["headline"].startswith("50% of each step")


def test_what_comes_again_is_the_same_finding_with_its_first_moment(bench) -> None:
    one = bench()
    for wait_s in (0.01, 0.01, 0.0, 0.0, 0.0):
        one.log(wait_s)
    [before] = one.store.findings("r")
    assert before["open"] is False
    one.log(0.01)
    one.log(0.01)
    [again] = one.store.findings("r")
    assert again["open"] is True
    assert again["first_step"] == before["first_step"]
    assert again["last_step"] > before["last_step"]


def test_what_one_look_shows_at_the_end_of_a_run_is_kept(bench) -> None:
    one = bench()
    one.log(0.01, after_s=1.0)
    assert one.open == []
    one.end()
    assert one.open == WAIT


def test_what_the_last_look_no_longer_shows_is_over_with_the_run(bench) -> None:
    one = bench()
    for wait_s in (0.01, 0.01, 0.0):
        one.log(wait_s)
    assert one.open == WAIT
    one.end()
    assert one.open == []


def test_a_run_is_looked_at_every_ten_seconds_and_only_if_it_has_news(bench, monkeypatch) -> None:
    looks: list[float] = []
    one = bench()
    diagnose = Diagnostician.diagnose

    def counted(self, *arguments):
        looks.append(one.now)
        return diagnose(self, *arguments)

    monkeypatch.setattr(Diagnostician, "diagnose", counted)
    for _ in range(25):
        one.log(0.0, steps=10, after_s=1.0)
    for _ in range(30):
        one.now += 1.0
        one.diagnosis.tick()
    assert looks == [10.0, 20.0, 30.0]


def test_a_look_that_takes_long_is_taken_less_often(bench, monkeypatch) -> None:
    looks: list[float] = []
    one = bench()
    monkeypatch.setattr(
        Diagnostician, "diagnose", lambda *_: looks.append(one.now) or Diagnostician({}).examine(None)
    )
    one.took = 0.0225  # 45 s are two thousand times as long
    for _ in range(12):
        one.log(0.0, steps=10)
    assert looks == [10.0, 60.0, 110.0]


def test_a_finding_that_is_not_certain_is_looked_at_again_soon(bench) -> None:
    one = bench()
    one.took = 0.0225
    opened = []
    for _ in range(4):
        one.log(0.01)
        opened.append(one.open)
    assert opened == [[], [], WAIT, WAIT], "After 20 s it would be too soon, after 60 s too late."


def test_the_store_is_written_only_when_something_has_changed(bench, monkeypatch) -> None:
    one = bench()
    one.log(0.01)
    one.log(0.01)
    written: list[float] = []
    put = one.store.put_finding
    monkeypatch.setattr(
        one.store, "put_finding", lambda *arguments: written.append(one.now) or put(*arguments)
    )
    for _ in range(5):
        one.log(0.01)
    assert written == []
    one.log(0.02)
    assert len(written) == 1
    [kept] = one.store.findings("r")
    assert kept["share"] == pytest.approx(2 / 3, abs=0.01)


def test_a_new_agent_knows_which_findings_are_open(bench) -> None:
    one = bench()
    one.log(0.01)
    one.log(0.01)
    one.begin()
    for _ in range(3):
        assert one.open == WAIT
        one.log(0.0)
    assert one.open == []


def test_a_failure_is_logged_once_and_does_not_stop_the_agent(bench, monkeypatch, caplog) -> None:
    def broken(*_):
        raise ZeroDivisionError("planted")

    one = bench()
    monkeypatch.setattr(Diagnostician, "diagnose", broken)
    for _ in range(3):
        one.log(0.01)
    one.end()
    assert caplog.text.count("The diagnosis failed") == 1
    assert one.open == []


def test_a_disk_error_is_left_to_the_agent(bench, monkeypatch) -> None:
    def full(*_):
        raise StoreUnavailable("database or disk is full")

    one = bench()
    monkeypatch.setattr(Diagnostician, "diagnose", full)
    with pytest.raises(StoreUnavailable):
        one.log(0.01)


def test_wrong_options_are_logged_and_ignored(bench, caplog) -> None:
    one = bench(Settings(detectors={"host.gc": {"shar": 1}}))
    one.log(0.01)
    one.log(0.01)
    assert one.open == WAIT
    assert "detectors.host.gc.shar does not exist" in caplog.text


def test_a_disabled_detector_reports_nothing(bench) -> None:
    one = bench(Settings(detectors={"input.exposed_wait": {"enabled": False}}))
    one.log(0.01)
    one.log(0.01)
    assert one.open == []


def test_a_process_that_trains_nothing_is_not_looked_at(bench, monkeypatch) -> None:
    one = bench()
    one.end()
    monkeypatch.setattr(Diagnostician, "diagnose", lambda *_: pytest.fail("looked"))
    for role in ("worker", "machine", "launcher"):
        one.diagnosis.on_process(Process("other", "o", "p", "a", 0, "h", 8, role, BEGUN, status="finished"))
    one.diagnosis.on_round_end()


def test_a_stall_is_reported_although_no_steps_come_and_cleared_when_they_do(bench) -> None:
    agent = bench()
    agent.took = 0.01  # so that a run without a finding would be diagnosed after 20 s again
    agent.log(wait_s=0.0)
    agent.become("stalled")
    agent.diagnosis.tick()
    agent.now += 10.0
    agent.diagnosis.tick()
    assert agent.open == ["run.stall"]
    agent.become("running")
    for _ in range(4):
        agent.log(wait_s=0.0)
    assert agent.open == []
