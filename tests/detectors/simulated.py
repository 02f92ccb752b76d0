"""Trainings made up from a seed, kept in a real store and diagnosed as an agent would."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from stepscope.analysis.diagnose import Diagnosis, Diagnostician
from stepscope.schema.record import Event
from stepscope.schema.run import Process
from stepscope.schema.series import Source
from stepscope.store.sqlite import SqliteStore

RUN, SEGMENT, HOST = "sim-00000001", "s1", "node1"
BEGUN_S = 1_760_000_000.0
PHASES = {"data": 0.004, "forward": 0.3, "backward": 0.5, "optimizer": 0.1, "other": 0.096}
"""The share of a step that each phase takes in a run that goes well."""

SETUP = (
    "census",
    {
        "detect_anomaly": False,
        "environment": {},
        "devices": [],
        "optimizers": [{"name": "AdamW", "groups": 1, "fused": None, "foreach": None, "capturable": False}],
        "parameter_dtypes": {"float32": 1_000_000},
        "trainable_tensors": 60,
        "not_updated": {"tensors": 0, "parameters": 0, "names": []},
        "cut_off": {"layers": 0, "parameters": 0, "names": []},
        "mode": {"training": True},
    },
)
"""What a watched training records about its setup."""

Columns = dict[str, Any]
Memory = Callable[[np.ndarray], np.ndarray]


def steady_memory(seconds: np.ndarray) -> np.ndarray:
    """The memory of a process that keeps nothing, as an agent reads it once a second."""
    return 2e9 + np.random.default_rng(0).normal(0, 1e7, len(seconds))


def loss_of(chance: np.random.Generator, steps: int, shape: str) -> np.ndarray:
    """A loss as one sees it in a run that goes well; `shape` names what is peculiar about it."""
    number = np.arange(steps)
    course = 0.3 + 2.2 * np.exp(-number / (0.15 * steps + 20))
    noise = chance.normal(0, 0.05, steps)
    epoch = max(steps // 8, 20)
    within = number % epoch
    made = {
        "smooth": lambda: course,
        "usual": lambda: course * (1 + noise),
        "noisy": lambda: course * np.exp(chance.normal(0, 0.35, steps)),
        "heavy_tailed": lambda: course * (1 + 0.1 * np.abs(chance.standard_t(2, steps))),
        "very_heavy_tailed": lambda: course + 0.1 * np.abs(chance.standard_t(1.5, steps)),
        "exponential": lambda: course * chance.exponential(1.0, steps),
        "sawtooth": lambda: course * (1 + 0.4 * within / epoch) * (1 + noise),
        "falling_teeth": lambda: course * (1 + 0.8 * np.exp(-within / 15)) * (1 + noise),
        "short_last_batch": lambda: course * (1 + noise * np.where(within == epoch - 1, 12, 1)),
        "warm_up": lambda: (
            np.minimum(2.5 + 0.3 * np.sin(np.pi * number / 60), 5) * (1 + noise)
            - (number > 60) * (2.2 - 2.2 * np.exp(-np.maximum(number - 60, 0) / (0.2 * steps + 1)))
        ),
        "restarts": lambda: (0.05 + 0.5 * (1 + np.cos(np.pi * within / epoch)) * course / 2) * (1 + noise),
        "steps_down": lambda: (2.5 * 0.3 ** (4 * number // steps) + 0.1) * (1 + noise),
        "plateau": lambda: 2.3 + 0.01 * chance.normal(0, 1, steps),
        "near_zero": lambda: (
            np.abs(1e-4 * chance.standard_t(4, steps)) + 2 * np.exp(-number / (0.05 * steps + 1))
        ),
        "negative": lambda: -course[::-1] * (1 + noise) + 0.5 * chance.normal(0, 1, steps),
        "wandering": lambda: 1.0 + 0.02 * np.cumsum(chance.normal(0, 0.3, steps)) + noise,
        "smoothed": lambda: _smoothed(course * np.exp(chance.normal(0, 0.35, steps))),
        "smoothed_tails": lambda: _smoothed(course * (1 + 0.3 * np.abs(chance.standard_t(2, steps)))),
        "two_losses": lambda: np.where(number % 2 == 0, course, 3 * course) * (1 + noise),
        "rising": lambda: 0.7 + 1.5 * number / steps + chance.normal(0, 0.1, steps),
        "quantised": lambda: np.round(course * (1 + noise), 2),
    }
    return np.asarray(made[shape](), np.float64)


SHAPES = (
    "smooth", "usual", "noisy", "heavy_tailed", "very_heavy_tailed", "exponential", "sawtooth",
    "falling_teeth", "short_last_batch", "warm_up", "restarts", "steps_down", "plateau", "near_zero",
    "negative", "wandering", "smoothed", "smoothed_tails", "two_losses", "rising", "quantised",
)  # fmt: skip


def going_well(seed: int, steps: int = 1500, step_s: float = 0.05, shape: str = "usual") -> Columns:
    """The figures of a run with nothing wrong: phases, loss, gradients, collections."""
    chance = np.random.default_rng(seed)
    number = np.arange(steps)
    slow = np.ones(steps)
    slow[0], slow[1:6] = 60, 2.0  # a first step that compiles, and caches that fill
    alike = _smoothed(chance.normal(0, 1, steps)) * chance.uniform(0, 0.15)
    machine = np.exp(alike + chance.normal(0, chance.uniform(0.01, 0.1), steps))
    tail = np.where(chance.random(steps) < 0.01, chance.pareto(2.5, steps) + 1, 1.0)
    made: Columns = {}
    for name, share in PHASES.items():
        jitter = np.exp(chance.normal(0, 0.08, steps))
        made[f"phase/{name}_seconds"] = share * step_s * slow * machine * jitter
    epoch = max(steps // 5, 50)
    made["phase/data_seconds"][number % epoch == 0] += 3 * step_s  # workers start anew
    made["phase/other_seconds"] *= tail
    made["phase/checkpoint_seconds"] = np.where(number % 500 == 499, 4 * step_s, 0.0)
    made["step_seconds"] = sum(made.values())
    made["loss"] = loss_of(chance, steps, shape)
    norms = chance.lognormal(0, 0.5, steps)
    norms[chance.random(steps) < 0.01] = np.inf  # a loss scaler tries a greater scale
    norms[:8] = np.inf  # and begins with one that is too great
    made["gradient_norm"] = norms
    looks = chance.random(steps) < 0.05
    made["gc/pause_seconds"] = np.where(looks, chance.exponential(2e-4, steps), np.nan)
    made["gc/pause_seconds"][steps // 3] = 0.08  # one full collection
    made["gc/collections"] = np.where(np.isnan(made["gc/pause_seconds"]), np.nan, 1.0)
    return made


def diagnose(
    folder: Path,
    *ranks: Columns,
    settings: Mapping[str, Mapping[str, Any]] | None = None,
    events: tuple[tuple[str, dict[str, Any]], ...] = (),
    facts: dict[str, Any] | None = None,
    machine: Mapping[tuple[str, str], Any] | None = None,
    memory: Memory | None = steady_memory,
) -> Diagnosis:
    """Keeps the figures of some ranks in a store, and looks at the run; NaN stands for nothing recorded.

    `machine` gives by key and device what was read: one value, or any number over the time of the run.
    `memory` gives the memory of a process at each second.
    """
    store = SqliteStore(folder / "store.sqlite")
    try:
        record(store, *ranks, events=events, facts=facts, machine=machine, memory=memory)
        return Diagnostician(settings or {}).diagnose(store, RUN)
    finally:
        store.close()
        (folder / "store.sqlite").unlink()


def record(
    store: SqliteStore,
    *ranks: Columns,
    events: tuple[tuple[str, dict[str, Any]], ...] = (),
    facts: dict[str, Any] | None = None,
    machine: Mapping[tuple[str, str], Any] | None = None,
    memory: Memory | None = None,
) -> None:
    """Tells a store what some ranks recorded, a row for each step and set of keys."""
    for rank, columns in enumerate(ranks):
        setup = {"cpus": 8, "libraries": {"torch": "2.9"}, "environment": {}, **(facts or {})}
        process = Process(
            RUN, "sim", "demo", SEGMENT, rank, HOST, 100 + rank, "rank", int(BEGUN_S * 1e9), facts=setup
        )
        taken = columns.get("step_seconds", np.full(len(columns["loss"]), 0.1) if "loss" in columns else None)
        assert taken is not None
        gaps = sum(np.nan_to_num(columns[key]) for key in columns if key.startswith("gap/"))
        ends = BEGUN_S + np.cumsum(np.nan_to_num(taken, nan=0.1) + gaps)
        with store.transaction():
            store.put_process(process)
            for kind, fields in (SETUP, *events):
                store.put_event(RUN, Event(kind, int(BEGUN_S * 1e9) + 1, 0, rank, SEGMENT, fields))
            for (key, device), value in (machine or {}).items():
                values = np.full(20, value) if np.isscalar(value) else np.asarray(value, np.float64)
                times = (np.linspace(ends[0], ends[-1], len(values)) * 1e9).astype(np.int64)
                place = Source(RUN, SEGMENT, rank, HOST, device, "seconds")
                store.append(place, [key], np.zeros(len(values), np.int64), times, values[:, None])
            if memory is not None:
                seconds = np.arange(ends[0], ends[-1])
                used = memory(seconds - seconds[0]) if len(seconds) else np.empty(0)
                place = Source(RUN, SEGMENT, rank, HOST, "", "seconds")
                times = (seconds * 1e9).astype(np.int64)
                store.append(
                    place, ["process/rss_bytes"], np.zeros(len(used), np.int64), times, used[:, None]
                )
            for keys, chosen in _key_sets(columns):
                steps = np.flatnonzero(chosen)
                values = np.array([columns[key][chosen] for key in keys]).T
                store.append(
                    Source(RUN, SEGMENT, rank, HOST),
                    keys,
                    steps,
                    (ends[chosen] * 1e9).astype(np.int64),
                    values,
                )


def _key_sets(columns: Columns) -> list[tuple[list[str], np.ndarray]]:
    """Keys that were recorded at the same steps; a NaN of a loss or a gradient was, unless it is masked."""
    sets: dict[bytes, tuple[list[str], np.ndarray]] = {}
    for key, values in columns.items():
        is_number = key in ("loss", "gradient_norm")
        chosen = ~np.ma.getmaskarray(values) if is_number else ~np.isnan(values)
        sets.setdefault(chosen.tobytes() + bytes([is_number]), ([], chosen))[0].append(key)
    return [rows for rows in sets.values() if rows[1].any()]


def _smoothed(values: np.ndarray, kept: float = 0.95) -> np.ndarray:
    found, last = np.empty(len(values)), values[0]
    for place, value in enumerate(values):
        last = kept * last + (1 - kept) * value
        found[place] = last
    return found
