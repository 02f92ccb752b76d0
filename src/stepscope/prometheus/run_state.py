"""The newest figures of one run, its counters, and its histogram of step times."""

from __future__ import annotations

import fnmatch
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from stepscope.prometheus.families import EXPORTERS, PHASE_LABELS, RANK_GAUGES
from stepscope.prometheus.options import BUCKETS
from stepscope.prometheus.phase_times import PhaseTimes
from stepscope.schema.keys import (
    EXPORTER_DEVICE,
    GRADIENT_NORM,
    LEARNING_RATE,
    LOSS_KEYS,
    OVERHEAD_RATIO,
    PHASES,
    SAMPLED_RATIO,
    STEP_SECONDS,
    phase_key,
)
from stepscope.schema.total_steps import TOTAL_STEPS_EVENTS, total_steps_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from stepscope.exporters.base import Table
    from stepscope.prometheus.options import Options
    from stepscope.schema.record import Event
    from stepscope.schema.run import Process

EPOCH = "epoch"
LEARNING_RATE_KEYS = (LEARNING_RATE, "lr")
GRADIENT_NORM_KEYS = (GRADIENT_NORM, "grad_norm")
ALLOCATED_BYTES = "memory/allocated_bytes"
SAMPLE_KEYS = ("batch/samples", "samples_per_step", "batch_size")
TOKEN_KEYS = ("batch/tokens", "tokens_per_step")
"""Keys of the amount of work in a step; of several, the newest value counts."""
GPU_OF_PROCESS = "gpu/process_memory_bytes"
"""Sampled of each GPU that a process uses: its device is that GPU."""

GAUGE_KEYS = frozenset((
    EPOCH, *LOSS_KEYS, *LEARNING_RATE_KEYS, *GRADIENT_NORM_KEYS, ALLOCATED_BYTES, *RANK_GAUGES, *SAMPLE_KEYS,
    *TOKEN_KEYS,
))  # fmt: skip
PHASE_KEYS = frozenset(map(phase_key, PHASES))
"""Of all phases: those without a label are needed to divide the time of steps, too."""
RANK_KEYS = frozenset((*GAUGE_KEYS, *PHASE_KEYS, SAMPLED_RATIO, STEP_SECONDS, OVERHEAD_RATIO))
"""The logged and measured keys that are used; other keys only where the options name them."""

LOADER, SETUP = "loader", "census"
EVENT_KINDS = (*TOTAL_STEPS_EVENTS, LOADER, SETUP)
"""The kinds of events that are used."""
MAX_EVENTS = 100

RECENT_S = 30.0
"""The speed is that of the last 30 seconds, as on the page of a run."""
MAX_OVERHEAD_GAP_S = 10.0
MAX_USER_METRICS = 200
MAX_KEYS = 50_000
"""Keys of a run that are compared with the names of user metrics."""
MAX_TEXT = 200


@dataclass
class LastStep:
    """The number of the last step of a rank, from its step times and losses, else from other rows."""

    step: int | None = None
    time_ns: int = 0
    first: int | None = None
    """The number of the first step."""
    _has_steps: bool = False
    """Whether it has step times or losses: other rows may have numbers of their own, such as epochs."""
    _timed_step: int | None = None
    _counts_losses: bool = True
    """False where steps are timed and losses are logged with other numbers."""

    def take(self, table: Table) -> bool:
        """Takes rows of the rank; returns whether their number is that of its last step."""
        step, time_ns = int(table.steps[-1]), int(table.times_ns[-1])
        is_timed = STEP_SECONDS in table.keys
        is_step = is_timed or any(key in table.keys for key in LOSS_KEYS)
        is_first = self.step is None or (is_step and not self._has_steps)
        self._has_steps |= is_step
        if not is_first and (is_step != self._has_steps or time_ns < self.time_ns):
            return False
        if is_first:
            self.first = int(table.steps[0])
        if is_timed:
            self._compare_numbers(step)
        elif not is_first and not self._is_ahead(step):
            return False
        self.step, self.time_ns = step, time_ns
        return True

    def _compare_numbers(self, step: int) -> None:
        """Notes if the timed steps go on, but losses are ahead of them: then these have other numbers."""
        if self._timed_step is not None and self.step is not None and self._timed_step <= step < self.step:
            self._counts_losses = False
        self._timed_step = step

    def _is_ahead(self, step: int) -> bool:
        """Whether a row without a step time has a later step: the times of the last steps may be missing."""
        return self._timed_step is None or (self._counts_losses and step >= (self.step or 0))


@dataclass
class RankState:
    """One rank of the newest segment of a run."""

    host: str
    figures: dict[str, float] = field(default_factory=dict)
    """The newest value of each key."""
    figures_ns: dict[str, int] = field(default_factory=dict)
    """When each was recorded: rows with different keys do not come in the order of time."""
    user_metrics: dict[str, float] = field(default_factory=dict)
    phase_seconds: dict[str, float] = field(default_factory=dict)
    _phase_times: PhaseTimes = field(default_factory=PhaseTimes)
    bounds: tuple[float, ...] = BUCKETS
    bucket_counts: NDArray[np.int64] = field(init=False)
    """Steps in each bucket of the histogram, the last one without an upper bound."""
    step_seconds_sum: float = 0.0
    samples: float | None = None
    tokens: float | None = None
    overhead_seconds: float | None = None
    overhead_ns: int | None = None
    last: LastStep = field(default_factory=LastStep)
    gpus: set[str] = field(default_factory=set)
    """The GPUs that its process uses."""
    recent: deque[tuple[float, int]] = field(default_factory=deque)
    """Times and numbers of steps in the last seconds."""
    workers: int | None = None

    def __post_init__(self) -> None:
        self.bucket_counts = np.zeros(len(self.bounds) + 1, np.int64)

    def first(self, keys: tuple[str, ...]) -> float | None:
        """The value of the first of these keys that the rank has."""
        return next((self.figures[key] for key in keys if key in self.figures), None)

    def steps_per_second(self) -> float | None:
        """The speed over the last seconds; None where it is not known."""
        if len(self.recent) < 2:
            return None
        (first_s, first), (last_s, last) = self.recent[0], self.recent[-1]
        return (last - first) / (last_s - first_s) if last_s > first_s and last > first else None

    def set(self, key: str, time_ns: int, value: float) -> None:
        """Sets a figure, unless a newer value is known."""
        if time_ns >= self.figures_ns.get(key, 0):
            self.figures[key], self.figures_ns[key] = value, time_ns

    def take(self, table: Table, is_user_metric: Mapping[str, bool], *, is_counted: bool) -> None:
        """Takes rows that the rank has logged or measured; adds them to counters if they are counted."""
        time_ns, keys = int(table.times_ns[-1]), list(table.keys)
        for place, key in enumerate(keys):
            if key in GAUGE_KEYS or is_user_metric.get(key):
                self.set(key, time_ns, float(table.values[-1, place]))
                if is_user_metric.get(key):
                    self.user_metrics[key] = self.figures[key]
        if is_counted:
            with np.errstate(all="ignore"):  # any numbers may be recorded
                self._take_phases(table)
                self._take_overhead(keys, table)
                if STEP_SECONDS in keys:
                    seconds = table.values[:, keys.index(STEP_SECONDS)]
                    self._count_steps(seconds[np.isfinite(seconds) & (seconds >= 0)])
        self._take_last_step(table)

    def _take_last_step(self, table: Table) -> None:
        before = self.last.step
        if not self.last.take(table):
            return
        step = int(table.steps[-1])
        if before is not None and step < before:
            self.recent.clear()
        self.recent.append((self.last.time_ns / 1e9, step))
        while self.recent[-1][0] - self.recent[0][0] > RECENT_S:
            self.recent.popleft()

    def _count_steps(self, seconds: NDArray[np.float64]) -> None:
        places = np.searchsorted(self.bounds, seconds, side="left")
        self.bucket_counts += np.bincount(places, minlength=len(self.bucket_counts))
        self.step_seconds_sum += float(seconds.sum())
        self.samples = _added(self.samples, self.first(SAMPLE_KEYS), len(seconds))
        self.tokens = _added(self.tokens, self.first(TOKEN_KEYS), len(seconds))

    def _take_phases(self, table: Table) -> None:
        columns = dict(zip(table.keys, table.values.T, strict=True))
        for phase, seconds in self._phase_times.added(columns).items():
            label = PHASE_LABELS.get(phase)
            if label is not None:
                self.phase_seconds[label] = self.phase_seconds.get(label, 0.0) + seconds

    def _take_overhead(self, keys: list[str], table: Table) -> None:
        if OVERHEAD_RATIO not in keys:
            return
        ratios = table.values[:, keys.index(OVERHEAD_RATIO)].tolist()
        for time_ns, ratio in zip(table.times_ns.tolist(), ratios, strict=True):
            passed_s = 0.0 if self.overhead_ns is None else (time_ns - self.overhead_ns) / 1e9
            self.overhead_ns = time_ns
            if 0 <= passed_s <= MAX_OVERHEAD_GAP_S and 0 <= ratio < float("inf"):
                self.overhead_seconds = (self.overhead_seconds or 0.0) + ratio * passed_s


@dataclass
class RunState:
    """One run: its processes, and the ranks of its newest segment."""

    run_id: str
    options: Options
    name: str = ""
    project: str = ""
    segment: str = ""
    segment_ns: int = 0
    """When its newest segment started."""
    processes: dict[tuple[str, int, int], Process] = field(default_factory=dict)
    ranks: dict[int, RankState] = field(default_factory=dict)
    exporters: dict[tuple[str, str], float] = field(default_factory=dict)
    """Figures of exporters, by name and key."""
    events: list[Event] = field(default_factory=list)
    """Events with the number of steps that the run will do."""
    precision: str = ""
    last_ns: int = 0
    """When anything of it was last taken."""
    ended_ns: int | None = None
    """When its last process ended; None while it is live."""
    findings: frozenset[tuple[str, str]] = frozenset()
    """Kind and severity of each open finding."""
    alerts: frozenset[tuple[str, str]] = frozenset()
    """Rule and severity of each alert that fires."""
    sent: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Notices by channel and result, as far as they were counted."""
    sent_since_ns: int | None = None
    """Notices are counted that were delivered from this time on."""
    first_step: int | None = None
    """The number of its very first step: 1 with Transformers. None if only a later start is known."""
    is_resumed: bool = False
    """Whether it had a start before this one."""
    _is_user_metric: dict[str, bool] = field(default_factory=dict)
    _user_metric_count: int = 0

    def begin(self, process: Process) -> None:
        """Takes a process, or its new status."""
        if process.role == "worker":
            return
        self.name, self.project = process.name, process.project
        self.last_ns = max(self.last_ns, process.last_ns, process.started_ns)
        if process.segment != self.segment:
            if process.started_ns < self.segment_ns:
                return  # of an earlier start, which may still be live
            self.is_resumed = bool(self.segment)
            self.segment, self.segment_ns = process.segment, process.started_ns
            self.processes, self.ranks = {}, {}
        self.processes[process.segment, process.rank, process.pid] = process
        ends = [known.ended_ns for known in self.processes.values()]
        self.ended_ns = None if None in ends else max(end for end in ends if end is not None)

    def take(self, table: Table, *, is_counted: bool = True) -> None:
        """Takes rows of a rank: those it logged, and samples of its process."""
        source = table.source
        if source.rank is None or not len(table.steps):
            return
        if source.segment != self.segment:
            return
        rank = self.ranks.get(source.rank)
        if rank is None:
            rank = self.ranks[source.rank] = RankState(source.host, bounds=self.options.buckets)
        self.last_ns = max(self.last_ns, int(table.times_ns[-1]))
        if source.axis == "seconds":
            self._take_samples(rank, table)
        elif not source.device:  # not a loader worker
            self._find_user_metrics(table)
            rank.take(table, self._is_user_metric, is_counted=is_counted)
            if self.first_step is None and not self.is_resumed:
                self.first_step = rank.last.first

    def steps_done(self, rank: RankState) -> int | None:
        """How many steps a rank has done, by the number of its last one; None before the first."""
        return None if rank.last.step is None else rank.last.step + (self.first_step != 1)

    def take_exporter(self, table: Table) -> None:
        """Takes how an exporter of the run is doing."""
        name = table.source.device.removeprefix(EXPORTER_DEVICE)
        for place, key in enumerate(table.keys):
            if key in EXPORTERS:
                self.exporters[name, key] = float(table.values[-1, place])

    def take_event(self, event: Event) -> None:
        """Takes an event, such as one with the number of steps."""
        if event.kind in TOTAL_STEPS_EVENTS:
            if event not in self.events:
                self.events.append(event)
                del self.events[:-MAX_EVENTS]
        elif event.kind == LOADER and not event.by_user and event.rank in self.ranks:
            workers = event.fields.get("num_workers")
            self.ranks[event.rank].workers = workers if isinstance(workers, int) else None
        elif event.kind == SETUP and not event.by_user:
            self.precision = _precision(event.fields) or self.precision

    @property
    def total_steps(self) -> int | None:
        """The number of steps it will do; None where it is not known."""
        for process in self.processes.values():
            if process.role == "rank" and process.segment == self.segment:
                return total_steps_of(process.facts, self.events)
        return total_steps_of({}, self.events)

    def _take_samples(self, rank: RankState, table: Table) -> None:
        if table.source.device:
            if GPU_OF_PROCESS in table.keys:
                rank.gpus.add(table.source.device)
            return
        for place, key in enumerate(table.keys):
            if key in RANK_GAUGES:
                rank.set(key, int(table.times_ns[-1]), float(table.values[-1, place]))

    def _find_user_metrics(self, table: Table) -> None:
        """Decides once for each key whether the options name it."""
        for key in table.keys if self.options.user_metrics else ():
            if key in self._is_user_metric or len(self._is_user_metric) >= MAX_KEYS:
                continue
            is_named = any(fnmatch.fnmatchcase(key, name) for name in self.options.user_metrics)
            is_served = is_named and self._user_metric_count < MAX_USER_METRICS
            self._is_user_metric[key] = is_served
            self._user_metric_count += is_served


def _added(total: float | None, size: float | None, steps: int) -> float | None:
    """A counter of what steps of this size have processed; None while no size is known."""
    if size is None or not 0 <= size < float("inf"):
        return total
    return (total or 0.0) + size * steps


def _precision(setup: Mapping[str, object]) -> str:
    """The number format that a model computes with: that of autocast, else of most of its parameters."""
    autocast = setup.get("autocast")
    if isinstance(autocast, str) and autocast not in {"", "off"}:
        return autocast[:MAX_TEXT]
    formats = setup.get("parameter_dtypes")
    if not isinstance(formats, dict) or not formats:
        return ""
    return str(max(formats, key=lambda name: formats[name] if isinstance(formats[name], int) else 0))[
        :MAX_TEXT
    ]
