"""Writes the runs of a project to a store, as a recorder and an agent do."""

from __future__ import annotations

from typing import Any

import numpy as np

from stepscope.schema.record import Event
from stepscope.views.history.run_history import ProjectHistory, RunHistory, history_of
from stepscope.views.runs.run_rows import FigureCache
from tests.views.made import BEGUN_NS, NS, Made

HOUR = 3600
LATER_NS = BEGUN_NS + 100_000 * HOUR * NS
WAIT = "input.exposed_wait"
REMEDY = {"text": "Use 4 workers.", "code": "DataLoader(dataset, num_workers=4)", "framework": None}
SETUP = {"parameters": 1000, "parameter_dtypes": {"float32": 1000}, "autocast": "off"}


class Project:
    """Writes runs of a project one hour apart."""

    def __init__(self, made: Made) -> None:
        self.made, self.count = made, 0

    def train(
        self,
        step_s: float = 0.03,
        *,
        steps: int = 300,
        noise: float = 0.03,
        batch: float = 64.0,
        workers: int = 4,
        project: str = "demo",
        losses: Any = 1.0,
        waits: bool = False,
        setup: dict[str, Any] | None = None,
        facts: dict[str, Any] | None = None,
        **config: Any,
    ) -> str:
        """Writes a run and returns its id."""
        self.count += 1
        run, begin = f"resnet-{self.count}-0badcafe", self.count * HOUR
        facts = {"cpus": 8, "world_size": 1, "config": config, **(facts or {})}
        self.made.process(
            run, end=begin + 100.0, started_ns=BEGUN_NS + begin * NS, project=project, facts=facts
        )
        chance = np.random.default_rng(self.count)
        columns = {
            "step_seconds": step_s * np.exp(chance.normal(0, noise, steps)),
            "phase/data_seconds": step_s * (0.4 if waits else 0.001),
            "batch/samples": batch,
            "loss": losses,
        }
        self.made.log(columns, np.arange(steps), run=run, begin=begin, every=step_s)
        self.made.event("census", run=run, rank=0, **{**SETUP, **(setup or {})})
        self.made.event("loader", run=run, rank=0, num_workers=workers)
        return run

    def checked(self, run: str, *problems: str, **fields: Any) -> str:
        """Writes what an agent has found in a run."""
        checks = {"passed": 20, "not_run": [], "examined": 300, "is_timed": True}
        with self.made.store.transaction():
            self.made.store.put_event(run, Event("checks", BEGUN_NS, None, 0, "a1", checks))
        for problem in problems:
            estimate = {"low": 0.3, "likely": 0.35, "high": 0.4, "of": "the time of a step"}
            finding = {"share": 0.4, "estimate": estimate, "remedies": [REMEDY], **fields}
            self.made.finding(problem, run=run, **finding)
        return run

    def history(self, run: str, cache: FigureCache | None = None) -> ProjectHistory:
        """Returns the history of a run."""
        runs = self.made.runs()
        chosen = runs.run(run)
        return history_of(chosen, runs.runs(), chosen.diagnose(), cache, LATER_NS)

    def answer(self, run: str) -> RunHistory:
        """Returns what is said of a run."""
        return self.history(run).answer
