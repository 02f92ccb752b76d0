"""Whole runs of minutes, played second by second through store, rules, detectors and liveness."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from stepscope import procfs
from stepscope.agent.liveness import ActivityProbe, ProcessLiveness
from stepscope.schema.run import Process
from stepscope.schema.series import Source
from stepscope.store.sqlite import SqliteStore
from tests.devices.written import HandClock, process, write
from tests.false_alarms.curves import HEALTHY, Floats, episode_lengths
from tests.false_alarms.judging import BEGAN_S, DIAGNOSTICIAN, LOUD, SECOND, watch

PID = 4000
DIAGNOSED_EVERY_S = 15
SHARES = {"data": 0.01, "forward": 0.3, "backward": 0.5, "optimizer": 0.1, "other": 0.09}


@dataclass
class PlayedRun:
    """The steps of a run: what each recorded, when it ended, and what the process did between steps."""

    figures: dict[str, Floats]
    """One value for each step; NaN where nothing was recorded."""
    pauses: Floats
    """Seconds after each step in which something else was done: an evaluation, the start of an epoch."""
    works_in_pauses: bool = True
    machine: dict[str, float] = field(default_factory=dict)

    @property
    def ends(self) -> Floats:
        """When each step ended, in seconds since the beginning."""
        return np.cumsum(self.figures["step_seconds"]) + np.cumsum(self.pauses) - self.pauses


def healthy_run(seed: int) -> PlayedRun:
    """A run with the noise, pauses, epochs, evaluations, checkpoints and changes that healthy runs have."""
    chance = np.random.default_rng([seed, 77])
    step_s = 10 ** chance.uniform(-1.7, -0.2)
    steps = int(max(chance.uniform(100, 400) / step_s, 250))
    number = np.arange(steps)
    kind = list(HEALTHY)[seed % len(HEALTHY)]
    work, work_key = _work(chance, steps, kind)
    size = np.ones(steps)
    size[0], size[1:6] = chance.uniform(10, 60), 2.0
    size *= work / work[0] if work is not None else 1.0
    machine = np.exp(_alike(chance, steps) + chance.normal(0, chance.uniform(0.01, 0.1), steps))
    figures = {
        f"phase/{name}_seconds": share * step_s * size * machine * np.exp(chance.normal(0, 0.1, steps))
        for name, share in SHARES.items()
    }
    tail = np.where(chance.random(steps) < 0.01, chance.pareto(2.5, steps) + 1, 1.0)
    figures["phase/other_seconds"] *= tail
    _collect_garbage(chance, figures, steps, step_s)
    epoch, saves = (
        max(steps // int(chance.integers(2, 8)), 60),
        max(int(chance.uniform(20, 60) / step_s), 100),
    )
    begins = number % epoch == 0
    figures["phase/data_seconds"][begins] += chance.uniform(0.2, 2.0)  # workers start anew
    figures["phase/checkpoint_seconds"] = np.where(number % saves == saves - 1, chance.uniform(0.3, 6), 0.0)
    figures["step_seconds"] = sum(values for key, values in figures.items() if key.startswith("phase/"))  # type: ignore[assignment]
    figures |= _learning(chance, steps, kind)
    if work is not None:
        looked = chance.random(steps) < min(1.0, 2 * step_s)
        looked[:3] = True
        figures[work_key] = np.where(looked, work, np.nan)
    pauses = np.where(number % epoch == epoch - 1, chance.uniform(5, 85), 0.0)
    pauses[-1] = 0.0
    return PlayedRun(figures, pauses)


def _work(chance: np.random.Generator, steps: int, kind: str) -> tuple[Floats | None, str]:
    """What steps are given to do: growing episodes, batches tripled on purpose, or always the same."""
    if kind == "growing_episodes":
        return episode_lengths(chance, steps), "batch/tokens"
    sizes = np.full(steps, 32.0)
    if chance.random() < 0.5:
        sizes[int(chance.uniform(0.1, 0.8) * steps) :] = 96.0
    return (sizes, "batch/samples") if chance.random() < 0.8 else (None, "")


def _alike(chance: np.random.Generator, steps: int) -> Floats:
    """The load of a machine, which changes slowly."""
    innovations, found, last = chance.normal(0, 1, steps), np.empty(steps), 0.0
    for place in range(steps):
        last = 0.95 * last + 0.05 * innovations[place]
        found[place] = last
    return found * chance.uniform(0, 0.3)


def _collect_garbage(chance: np.random.Generator, figures: dict, steps: int, step_s: float) -> None:
    """Short collections sometimes, and long ones rarely."""
    looks = chance.random(steps) < 0.05
    pause = np.where(looks, chance.exponential(2e-4, steps), np.nan)
    longest = 0.002 * max(int(10 / step_s), 100) * step_s  # 0.2% of the time
    long_ones = np.arange(steps) % max(int(10 / step_s), 100) == 50
    pause[long_ones] = chance.uniform(0.2, 1.0) * min(longest, 0.05)
    figures["phase/other_seconds"] = figures["phase/other_seconds"] + np.nan_to_num(pause)
    figures["gc/pause_seconds"] = pause
    figures["gc/collections"] = np.where(np.isnan(pause), np.nan, 1.0)


def _learning(chance: np.random.Generator, steps: int, kind: str) -> dict[str, Floats]:
    made = HEALTHY[kind](chance)
    loss = np.interp(np.linspace(0, len(made) - 1, steps), np.arange(len(made)), made)
    norms = chance.lognormal(0, 0.5, steps) * np.sqrt(loss)
    norms[chance.random(steps) < 0.005] = np.inf  # a loss scaler tries a greater scale
    return {"loss": loss, "gradient_norm": norms}


def play(run: PlayedRun, folder: Path) -> set[str]:
    """Every loud finding and every alert of a run, while it goes on and at its end."""
    store = SqliteStore(folder / "store.sqlite")
    try:
        return _Player(run, folder, store).play()
    finally:
        store.close()
        (folder / "store.sqlite").unlink()


class _Player:
    def __init__(self, run: PlayedRun, folder: Path, store: SqliteStore) -> None:
        self._run, self._store, self._proc = run, store, folder / "proc"
        self._clock, self._watch = HandClock(), watch()
        self._source = Source("run", "s1", 0, "node")
        self._machine = Source("run", "s1", None, "node", "", "seconds")
        self._ends, self._done, self._ticks = run.ends, 0, 0
        with store.transaction():
            started = BEGAN_S * SECOND
            store.put_process(
                Process("run", "run", "p", "s1", 0, "node", PID, "rank", started, facts={"cpus": 8})
            )
        self._work()
        mark = procfs.ProcessMark(PID, 100, "boot", "pid:[1]")
        probe = ActivityProbe(PID, self._proc, self._clock)
        self._liveness = ProcessLiveness(mark, 60, self._clock, is_alive=lambda _: True, probe=probe)

    def play(self) -> set[str]:
        ids: set[str] = set()
        length = int(self._ends[-1]) + 1
        for second in range(1, length + 1):
            self._clock.now += 1
            came = self._take(second)
            if came or self._run.works_in_pauses:
                self._work()
            ids |= self._alerts(second)
            if second % DIAGNOSED_EVERY_S == 0 or second == length:
                diagnosis = DIAGNOSTICIAN.diagnose(self._store, "run")
                ids |= {finding.id for finding in diagnosis.findings if finding.severity in LOUD}
        return ids

    def _take(self, second: int) -> int:
        end = int(np.searchsorted(self._ends, second, "right"))
        rows = np.arange(self._done, end)
        self._done = end
        if not len(rows):
            return 0
        self._liveness.add_records(len(rows))
        times_ns = ((BEGAN_S + self._ends[rows]) * SECOND).astype(np.int64)
        with self._store.transaction():
            for key, values in self._run.figures.items():
                known = (
                    np.ones(len(rows), bool) if key in ("loss", "gradient_norm") else ~np.isnan(values[rows])
                )
                if known.any():
                    block = ([key], rows[known], times_ns[known], values[rows][known][:, None])
                    self._store.append(self._source, *block)
                    self._watch.history.add(self._source, *block)
        return len(rows)

    def _alerts(self, second: int) -> set[str]:
        now_ns = (BEGAN_S + second) * SECOND
        if self._run.machine:
            values = np.array([list(self._run.machine.values())])
            at = np.array([now_ns]), values
            self._watch.history.add(self._machine, list(self._run.machine), np.zeros(1, np.int64), *at)
        self._watch.status = "running" if self._liveness.stalled_for() is None else "stalled"
        fired = [change for change in self._watch.changes(now_ns) if change.turn == "fires"]
        for number, one in enumerate(fired):
            self._watch.fired(one, 1000 * second + number)
        return {change.rule.name for change in fired}

    def _work(self) -> None:
        self._ticks += 50
        process(self._proc, PID, ticks=(self._ticks, 0))
        write(self._proc, {f"{PID}/io": "wchar: 0\n"})
