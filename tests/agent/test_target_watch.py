"""Targets are judged while a run trains: alerts for those that are missed, resolved when they are reached."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stepscope.agent.run_settings import RunSettingsRegistry
from stepscope.agent.target_watch import TargetWatch
from stepscope.alerts.delivery.routing import Routing
from stepscope.alerts.engine import Engine
from stepscope.alerts.silences import Silences
from stepscope.alerts.target_rules import target_rules
from stepscope.exporters.base import Table
from stepscope.schema.record import Event
from stepscope.schema.run import Process
from stepscope.schema.series import Source
from stepscope.store.sqlite import SqliteStore

NS = 10**9
BEGAN_S = 1_760_000_000.0
ROUND_S = 5.0


class Bench:
    """The parts of an agent that judge targets, over a real store and with a clock that is set by hand."""

    def __init__(self, folder: Path) -> None:
        self.now_s = BEGAN_S
        self.store = SqliteStore(folder / "runs.sqlite")
        self._settings = RunSettingsRegistry(folder, self.store)
        routing = Routing((), Silences(folder), None, "")
        self._engine = Engine(self.store, self._rules_of, lambda _: routing, self._now_ns)
        self._watch = TargetWatch(
            self.store, self._settings.get, self._engine.take, lambda: self.now_s, self._now_ns, lambda: 0.0
        )
        self._steps: dict[str, int] = {}

    def _now_ns(self) -> int:
        return int(self.now_s * NS)

    def _rules_of(self, run: str) -> list[Any]:
        settings = self._settings.get(run)
        return target_rules(settings.targets, settings.energy.currency)

    def begin(self, run: str, targets: dict[str, float], energy: dict[str, Any] | None = None) -> None:
        """Starts a run with these targets."""
        facts = {"targets": targets, "energy": energy or {}}
        process = Process(run, run, "p", "s1", 0, "h", 7, "rank", started_ns=self._now_ns(), facts=facts)
        with self.store.transaction():
            self.store.put_process(process)
        self._settings.on_process(process)
        self._engine.follow(process)
        self._watch.on_process(process)

    def train(self, run: str, seconds: float, steps_per_second: float, **gpu: float) -> None:
        """Trains at a speed, with 8 samples in a step, and has the figures judged every few seconds."""
        for _ in range(int(seconds / ROUND_S)):
            count = int(ROUND_S * steps_per_second)
            took = np.full(count, 1 / steps_per_second)
            times = ((self.now_s + np.cumsum(took)) * NS).astype(np.int64)
            first = self._steps.get(run, 0)
            self._steps[run] = first + count
            steps = np.arange(first, first + count)
            self._add(Source(run, "s1", 0, "h"), steps, times, step_seconds=took, batch_size=8.0)
            self.rest(run, ROUND_S, **gpu)

    def rest(self, run: str, seconds: float, **gpu: float) -> None:
        """Lets time pass without a step, as in an evaluation."""
        for _ in range(int(seconds / ROUND_S)):
            times = ((self.now_s + np.arange(ROUND_S)) * NS).astype(np.int64)
            self.now_s += ROUND_S
            if gpu:
                keys = {f"gpu/{name}": value for name, value in gpu.items()}
                source = Source(run, "s1", None, "h", "GPU-0", "seconds")
                self._add(source, np.zeros(len(times), np.int64), times, **keys)
            self._watch.tick()
            self._engine.settle()

    def _add(self, source: Source, steps: np.ndarray, times: np.ndarray, **columns: Any) -> None:
        values = np.column_stack([np.broadcast_to(column, len(steps)) for column in columns.values()])
        with self.store.transaction():
            self.store.append(source, list(columns), steps, times, values)
        table = Table(source, list(columns), steps, times, values)
        self._engine.take(table)
        self._watch.on_rows(table)

    def gpu(self, run: str) -> None:
        """Reports that the run uses a GPU."""
        facts = {"uuid": "GPU-0", "index": 0, "name": "NVIDIA H200", "vendor": "NVIDIA", "host": "h"}
        with self.store.transaction():
            self.store.put_event(run, Event("device", self._now_ns(), None, None, "s1", facts))

    def alerts(self, run: str) -> list[tuple[str, str, bool]]:
        """Rule, message and whether it is resolved, of each alert."""
        return [
            (alert["rule"], alert["message"], alert["resolved_ns"] is not None)
            for alert in self.store.alerts(run)
        ]


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path)
    yield bench
    bench.store.close()


def test_a_missed_target_is_an_alert_with_the_difference_until_it_is_reached(bench: Bench) -> None:
    bench.begin("r", {"steps_per_second": 10.0})
    bench.train("r", 200, 4.0)
    message = "Speed is 4 steps/s, 6 steps/s below the target of 10 steps/s."
    assert bench.alerts("r") == [("target_steps_per_second", message, False)]
    [alert] = bench.store.alerts("r")
    assert (alert["severity"], alert["value"], alert["threshold"]) == ("warning", pytest.approx(4), 10)
    bench.train("r", 120, 12.0)
    assert bench.alerts("r") == [("target_steps_per_second", message, True)]


def test_a_target_that_is_met_raises_nothing(bench: Bench) -> None:
    bench.begin("r", {"steps_per_second": 10.0, "samples_per_second": 80.0})
    bench.train("r", 300, 12.0)
    assert bench.alerts("r") == []


def test_two_runs_of_one_agent_are_judged_by_their_own_targets(bench: Bench) -> None:
    bench.begin("strict", {"samples_per_second": 100.0})
    bench.begin("lax", {"samples_per_second": 10.0})
    bench.begin("free", {})
    for _ in range(40):
        for run in ("strict", "lax", "free"):
            bench.train(run, ROUND_S, 5.0)
    assert [rule for rule, _, _ in bench.alerts("strict")] == ["target_samples_per_second"]
    assert (bench.alerts("lax"), bench.alerts("free")) == ([], [])


def test_a_slow_start_and_evaluations_are_not_judged(bench: Bench) -> None:
    bench.begin("r", {"steps_per_second": 10.0, "gpu_utilization_percent": 60.0})
    bench.gpu("r")
    bench.rest("r", 90, utilization_ratio=0.0)
    bench.train("r", 50, 0.2, utilization_ratio=0.1)  # compilation
    for _ in range(2):
        bench.train("r", 60, 12.0, utilization_ratio=0.9)
        bench.rest("r", 120, utilization_ratio=0.0)
    bench.train("r", 60, 12.0, utilization_ratio=0.9)
    assert bench.alerts("r") == []


def test_idle_gpus_miss_their_target(bench: Bench) -> None:
    bench.begin("r", {"gpu_utilization_percent": 80.0})
    bench.gpu("r")
    bench.train("r", 200, 10.0, utilization_ratio=0.62)
    message = "GPU utilization is 62%, 18% below the target of 80%."
    assert bench.alerts("r") == [("target_gpu_utilization_percent", message, False)]


def test_a_run_that_costs_more_than_its_target_is_reported_in_its_currency(bench: Bench) -> None:
    energy = {"currency": "EUR", "gpu_price_per_hour": {"NVIDIA H200": 36.0}}
    bench.begin("r", {"cost": 1.5}, energy)
    bench.gpu("r")
    bench.train("r", 140, 10.0, utilization_ratio=1.0)
    assert bench.alerts("r") == []
    bench.train("r", 60, 10.0, utilization_ratio=1.0)
    [(rule, message, _)] = bench.alerts("r")
    assert rule == "target_cost"
    assert message.startswith("The run has cost 1.")
    assert message.endswith(" EUR above the target of 1.5 EUR.")
