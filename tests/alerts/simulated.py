"""A training that goes well, as its figures would be recorded, and a player that judges rules by them.

All of it is made up from a seed: loss, phases and gradients with the noise they have, evaluations and
checkpoints that take their time, epochs that begin slowly, and the figures of one machine and one GPU.
"""

from dataclasses import dataclass, field

import numpy as np

from stepscope.alerts.conditions.evaluation import evaluate
from stepscope.alerts.conditions.run_history import History
from tests.alerts.made_up import BEGAN, SECOND, gpu, machine, source

STEPS = 10_000
RANK, GPU, HOST, DISK = source(0), gpu(0), machine(), machine(device="/data")


@dataclass
class Recording:
    """Figures by source and key, with the times they share."""

    times_s: dict = field(default_factory=dict)
    figures: dict = field(default_factory=dict)
    status: str = "running"

    def __getitem__(self, key):
        return next(figures[key] for figures in self.figures.values() if key in figures)

    def __setitem__(self, key, values):
        next(figures for figures in self.figures.values() if key in figures)[key] = values

    def seconds_of(self, key):
        return next(self.times_s[place] for place, figures in self.figures.items() if key in figures)


def going_well(seed=0, step_s=0.25, steps=STEPS, losses="usual"):
    """A run with nothing wrong."""
    chance = np.random.default_rng(seed)
    number = np.arange(steps)
    rank = _phases(chance, step_s, number)
    rank["loss"] = _loss(chance, number, losses)
    norms = chance.lognormal(0.0, 0.6, steps) * np.where(chance.random(steps) < 0.002, 20, 1)
    norms[chance.random(steps) < 0.01] = np.inf  # a loss scaler tries a greater scale
    rank["gradient_norm"] = norms
    rank["batch/samples"] = np.full(steps, 64.0)
    rank["memory/alloc_retries_total"] = 2.0 * (number > 3) + (number > 1000) + (number > 5000)
    pauses = np.where(number % 1000 == 999, 60.0, 0.0)  # an evaluation, in which no step ends
    made = Recording()
    made.figures[RANK] = rank
    made.times_s[RANK] = np.cumsum(rank["step_seconds"] + pauses)
    seconds = np.arange(0.0, made.times_s[RANK][-1], max(1.0, step_s))
    many = len(seconds)
    made.times_s.update({GPU: seconds, HOST: seconds, DISK: seconds[::10]})
    made.figures[GPU] = {
        "gpu/temperature_celsius": 72 + 4 * np.sin(seconds / 200) + chance.normal(0, 1.5, many),
        "gpu/memory_used_ratio": np.minimum(0.2 + seconds / 60, 0.96) + chance.integers(0, 3, many) * 1e-4,
        "gpu/throttled_power_cap": (chance.random(many) < 0.7) * 1.0,
        **{f"gpu/throttled_{reason}": np.zeros(many) for reason in ("hardware_thermal", "software_thermal")},
        **{f"gpu/throttled_{reason}": np.zeros(many) for reason in ("hardware_slowdown", "power_brake")},
    }
    made.figures[HOST] = {
        "memory/nearest_limit_used_ratio": 0.6 + 0.1 * ((seconds / 300) % 1) + chance.normal(0, 0.01, many)
    }
    used = 0.5 + 0.4 * np.linspace(0, 1, len(seconds[::10]))
    made.figures[DISK] = {"disk/used_ratio": used, "disk/free_bytes": 1e12 * (1 - used)}
    return made


def _phases(chance, step_s, number):
    steps = len(number)
    compute = step_s * 0.9 * chance.gamma(100, 0.01, steps)
    compute += np.where(number < 5, 20 * step_s, 0) + np.where(chance.random(steps) < 0.01, 2 * step_s, 0)
    data = step_s * 0.04 * chance.lognormal(0, 0.8, steps) + np.where(number % 1000 == 0, 3.0, 0)
    checkpoint = np.where(number % 500 == 499, 5.0, 0.0)
    return {"phase/data_seconds": data, "step_seconds": compute + data + checkpoint}


def _loss(chance, number, losses):
    steps = len(number)
    course = 2.5 * np.exp(-number / 2500)
    if losses == "negative":
        return 40 * course - 80 + chance.normal(0, 6, steps)
    if losses == "near zero":
        return course**6 * 0.01 + 1e-5 * chance.lognormal(0, 1.0, steps)
    spikes = np.where(chance.random(steps) < 0.002, 3.0, 1.0)
    return (course + 0.3) * chance.lognormal(0, 0.15, steps) * spikes


def fired(rules, recording, tick_s=5.0):
    """The names of the rules that fire at any time, judged as often as every so many seconds."""
    history, names, since, cursors = History(), set(), {}, dict.fromkeys(recording.figures, 0)
    last_s = max(times[-1] for times in recording.times_s.values())
    for now_s in np.arange(tick_s, last_s + tick_s, tick_s):
        for place, figures in recording.figures.items():
            times_s = recording.times_s[place]
            end = int(np.searchsorted(times_s, now_s))
            rows = slice(cursors[place], end)
            cursors[place] = end
            _add(history, place, figures, times_s, rows)
        now_ns = BEGAN + int(now_s * SECOND)
        for rule in rules:
            for outcome in evaluate(rule.condition, history, now_ns, recording.status):
                place = (rule.name, outcome.rank, outcome.host, outcome.device)
                if outcome.is_true is False:
                    since.pop(place, None)
                elif outcome.is_true:
                    began_ns, points = since.setdefault(place, (now_ns, outcome.points))
                    lasts = now_ns - began_ns >= rule.for_s * 1e9
                    if lasts and outcome.points - points >= rule.for_points:
                        names.add(rule.name)
    return names


def _add(history, place, figures, times_s, rows):
    if rows.stop > rows.start:
        times_ns = BEGAN + (times_s[rows] * SECOND).astype(np.int64)
        steps = np.arange(rows.start, rows.stop) * (place.axis == "step")
        values = np.column_stack([figures[key][rows] for key in figures])
        history.add(place, list(figures), steps, times_ns, values)


def whole(recording):
    """A recording as a history, the time it ends, and its status: what a condition is judged by."""
    history = History()
    for place, figures in recording.figures.items():
        _add(history, place, figures, recording.times_s[place], slice(0, len(recording.times_s[place])))
    last_s = max(times[-1] for times in recording.times_s.values())
    return history, BEGAN + int(last_s * SECOND), recording.status
