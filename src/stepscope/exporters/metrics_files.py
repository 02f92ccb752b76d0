"""Writes `gpu_metrics_*.jsonl` and `training_metrics_*.jsonl` of live runs, with common field names."""

from __future__ import annotations

import bisect
import json
import math
import os
import time
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

from stepscope.errors import ConfigError
from stepscope.exporters.base import Feed, Table
from stepscope.schema.keys import EPOCH_GAP_SECONDS, STEP_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from stepscope.schema.sample import DeviceFacts

MIB = 1024 * 1024
MAX_BYTES = 64 * MIB

GPU_FIELDS = {
    "utilization_percent": ("gpu/utilization_ratio", 100.0),
    "memory_used_mb": ("gpu/memory_used_bytes", 1 / MIB),
    "memory_total_mb": ("gpu/memory_total_bytes", 1 / MIB),
    "memory_percent": ("gpu/memory_used_ratio", 100.0),
    "temperature_celsius": ("gpu/temperature_celsius", 1.0),
    "power_draw_watts": ("gpu/power_watts", 1.0),
    "fan_speed_percent": ("gpu/fan_ratio", 100.0),
}
"""Each field with its metric and the factor that converts the unit."""

TRAINING_FIELDS = {
    "epoch": (("epoch", 1.0),),
    "loss": (("loss", 1.0), ("train_loss", 1.0), ("train/loss", 1.0)),
    "learning_rate": (("learning_rate", 1.0), ("lr", 1.0)),
    "gradient_norm": (("gradient_norm", 1.0), ("grad_norm", 1.0)),
    "throughput_samples_per_sec": (
        ("throughput_samples_per_sec", 1.0),
        ("samples_per_second", 1.0),
        ("throughput", 1.0),
    ),
    "memory_allocated_mb": (("memory_allocated_mb", 1.0), ("memory/allocated_bytes", 1 / MIB)),
    "memory_reserved_mb": (("memory_reserved_mb", 1.0), ("memory/reserved_bytes", 1 / MIB)),
    "step_seconds": ((STEP_SECONDS, 1.0),),
}
"""Each field with the keys it may be logged under, and their factors; the first key present is used."""

TRAINING_LOSS = frozenset(key for key, _ in TRAINING_FIELDS["loss"])
BATCH_SIZES = ("batch_size", "samples_per_step", "batch/samples")
"""Keys with the number of samples of a step; a number from a sampled step also applies to later steps."""

JOINED = frozenset(
    {key for keys in TRAINING_FIELDS.values() for key, _ in keys} | {EPOCH_GAP_SECONDS, *BATCH_SIZES}
)
OPENING = TRAINING_LOSS | {STEP_SECONDS}
"""Keys that start the line of a step; other keys are added to it."""

WAIT_S = 2.0
"""How long a line waits for other metrics of its step, which are recorded at different times."""
LOSS_WAIT_S = 30.0
"""How long a line waits for the loss, which is known when the GPU has computed it."""
MAX_WAITING = 50_000
"""Maximum number of waiting lines; beyond it the oldest are written immediately."""


class RotatedLines:
    """Writes JSON lines to files named after their start time; a full file is followed by a new one."""

    def __init__(
        self,
        directory: Path,
        kind: str,
        max_bytes: int = MAX_BYTES,
        keep: int = 10,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._directory, self._kind, self._now = directory, kind, now
        self._max_bytes, self._keep = max_bytes, keep
        self._paths: list[Path] = []

    @property
    def path(self) -> Path | None:
        """The file being written; None before the first line."""
        return self._paths[-1] if self._paths else None

    def write(self, lines: Sequence[Mapping[str, object]]) -> None:
        """Appends lines; NaN and infinities, which JSON does not have, become null."""
        if not lines:
            return
        plain = ({key: _plain(value) for key, value in line.items()} for line in lines)
        text = "".join(json.dumps(line) + "\n" for line in plain)
        path = self.path
        if path is None or (path.exists() and path.stat().st_size + len(text) > self._max_bytes):
            path = self._start_file()
        size = path.stat().st_size if path.exists() else 0
        try:
            with path.open("a", encoding="utf-8") as file:
                file.write(text)
        except OSError:
            # All or nothing: the lines are written again later, and half a line cannot be read.
            if path.exists():
                os.truncate(path, size)
            raise

    def _start_file(self) -> Path:
        self._directory.mkdir(parents=True, exist_ok=True)
        moment = self._now()
        while True:
            stamp = datetime.fromtimestamp(moment, tz=timezone.utc).strftime("%Y%m%d_%H%M%S")
            path = self._directory / f"{self._kind}_{stamp}.jsonl"
            try:
                path.touch(exist_ok=False)
            except FileExistsError:
                moment += 1  # another run started a file in the same second
            else:
                break
        self._paths.append(path)
        while len(self._paths) > self._keep:
            self._paths.pop(0).unlink(missing_ok=True)
        return path


@dataclass
class _Line:
    step: int
    time_ns: int
    arrived: float
    figures: dict[str, float] = field(default_factory=dict)
    is_written: bool = False

    def lacks(self, figures: Mapping[str, float]) -> bool:
        """Whether it has none of these metrics."""
        return self.figures.keys().isdisjoint(figures)


class StepLines:
    """The lines of one rank: joins rows of the same step that arrive at different times, in order of time.

    A step number may occur more than once, as in a script that counts the batches of each epoch from 0: then
    rows are joined with the line that is nearest in time.
    """

    def __init__(self) -> None:
        self._waiting: list[_Line] = []
        self._of_step: dict[int, list[_Line]] = {}
        """Waiting lines by step, and the newest written line."""
        self._early: dict[int, dict[str, float]] = {}
        """Metrics of steps that have no line yet."""
        self._written_ns = -1
        self._epoch_begins_ns: list[int] = []
        self._counts_epochs, self._logs_epochs = False, False
        self._samples: float | None = None
        self._last_loss_ns: int | None = None
        self._times_steps = False
        self.has_ended = False

    @property
    def has_loss(self) -> bool:
        """Whether a loss was logged."""
        return self._last_loss_ns is not None

    def add(self, table: Table, now: float) -> None:
        """Adds rows."""
        places = [(key, place) for place, key in enumerate(table.keys) if key in JOINED]
        if not places:
            return
        columns = table.values.tolist()
        for step, time_ns, row in zip(table.steps.tolist(), table.times_ns.tolist(), columns, strict=True):
            self._add_row(step, time_ns, {key: row[place] for key, place in places}, now)

    def _add_row(self, step: int, time_ns: int, figures: dict[str, float], now: float) -> None:
        if figures.pop(EPOCH_GAP_SECONDS, None) is not None:
            bisect.insort(self._epoch_begins_ns, time_ns)
        self._counts_epochs = self._counts_epochs or "batch/samples" in figures
        self._logs_epochs = self._logs_epochs or "epoch" in figures
        self._times_steps = self._times_steps or STEP_SECONDS in figures
        if not TRAINING_LOSS.isdisjoint(figures):
            self._last_loss_ns = max(time_ns, self._last_loss_ns or 0)
        lines = self._of_step.get(step, [])
        if time_ns <= self._written_ns and any(line.lacks(figures) for line in lines if line.is_written):
            return  # its line is already written
        matching = [line for line in lines if not line.is_written and line.lacks(figures)]
        if matching:
            min(matching, key=lambda line: abs(line.time_ns - time_ns)).figures.update(figures)
        elif OPENING.isdisjoint(figures):
            self._early.setdefault(step, {}).update(figures)
            self._drop_early()
        else:
            line = _Line(step, time_ns, now, {**self._early.pop(step, {}), **figures})
            self._of_step.setdefault(step, []).append(line)
            bisect.insort(self._waiting, line, key=lambda line: line.time_ns)

    def due(self, now: float, *, drain: bool = False) -> list[_Line]:
        """Returns the lines that need not wait any longer, in order; the caller passes them to `written`."""
        due = []
        surplus = len(self._waiting) - MAX_WAITING
        for place, line in enumerate(self._waiting):
            if not (drain or place < surplus or self._is_due(line, now - line.arrived)):
                break
            due.append(line)
        return due

    def described(self, lines: Sequence[_Line]) -> Iterator[dict[str, object]]:
        """Yields the lines with values from other lines: the epoch, and the samples of a step."""
        samples = self._samples
        for line in lines:
            figures = dict(line.figures)
            samples = _samples_in(figures, samples)
            seconds = figures.get(STEP_SECONDS, 0.0)
            name = "throughput_samples_per_sec"
            if samples is not None and seconds > 0 and _field_value(name, figures) is None:
                figures[name] = samples / seconds
            if (self._counts_epochs or self._epoch_begins_ns) and not self._logs_epochs:
                figures["epoch"] = float(bisect.bisect_right(self._epoch_begins_ns, line.time_ns))
            yield training_line(line.time_ns, line.step, figures)

    def written(self, lines: Sequence[_Line]) -> None:
        """Records that these lines, the first waiting ones, are in the file."""
        del self._waiting[: len(lines)]
        for line in lines:
            line.is_written = True
            self._written_ns = max(self._written_ns, line.time_ns)
            self._samples = _samples_in(line.figures, self._samples)
            others = [other for other in self._of_step.pop(line.step) if not other.is_written]
            self._of_step[line.step] = [line, *others]
        while len(self._of_step) > MAX_WAITING + len(self._waiting):
            oldest = next(iter(self._of_step))
            if any(not line.is_written for line in self._of_step[oldest]):
                break
            del self._of_step[oldest]

    def complete(self) -> list[_Line]:
        """Returns the complete lines; metrics of other lines that come later start a new line."""
        if self.has_ended:
            return self._waiting
        return [
            line
            for line in self._waiting
            if not self._expects_loss(line) and (STEP_SECONDS in line.figures or not self._times_steps)
        ]

    def _is_due(self, line: _Line, waited: float) -> bool:
        return waited >= (LOSS_WAIT_S if self._expects_loss(line) else WAIT_S)

    def _expects_loss(self, line: _Line) -> bool:
        # Losses come in order: a later loss means that this step has none.
        has_loss = not TRAINING_LOSS.isdisjoint(line.figures)
        return not has_loss and self._last_loss_ns is not None and line.time_ns > self._last_loss_ns

    def _drop_early(self) -> None:
        while len(self._early) > MAX_WAITING:
            del self._early[next(iter(self._early))]


class MetricsFiles(Feed):
    """Writes two files for each start of a run: its GPU metrics, and the steps of one rank.

    That is the lowest rank that logs a loss, or the lowest rank if none does.
    """

    def __init__(
        self,
        directory: str,
        max_bytes: int = MAX_BYTES,
        keep: int = 10,
        *,
        _now: Callable[[], float] = time.time,
        _clock: Callable[[], float] = time.monotonic,
        _directory: Path = Path(),
    ) -> None:
        # With less, each line would start a new file and delete the oldest.
        for option, value, least in (("max_bytes", max_bytes, 1000), ("keep", keep, 1)):
            if value < least:
                raise ConfigError(f"exporters.metrics_files.{option} is {value}; the minimum is {least:,}.")
        self._directory = _directory / Path(directory).expanduser()
        self._max_bytes, self._keep, self._now, self._clock = max_bytes, keep, _now, _clock
        self._indices: dict[str, int] = {}
        self._files: dict[tuple[str, str, str], RotatedLines] = {}
        self._ranks: dict[tuple[str, str], dict[int, StepLines]] = {}
        self._chosen: dict[tuple[str, str], int] = {}

    def describe(self, facts: DeviceFacts) -> None:
        """Stores the index of a GPU."""
        if "index" in facts.fields:
            self._indices[facts.device] = int(facts.fields["index"])

    def take(self, table: Table) -> None:
        """Writes a line for each row of a GPU, and those of steps that have waited long enough."""
        source = table.source
        place = (source.run_id, source.segment)
        if source.axis == "seconds":
            index = self._indices.get(source.device)
            if index is not None and source.rank is None:
                self._file(*place, "gpu_metrics").write(list(_gpu_lines(table, index)))
        elif source.rank is not None and not source.device:
            self._ranks.setdefault(place, {}).setdefault(source.rank, StepLines()).add(table, self._clock())
        for run_id, segment in list(self._ranks):
            self._write_due(run_id, segment)

    def finish(self, run_id: str, segment: str, rank: int) -> None:
        """Writes the remaining lines of a rank that has ended; other ranks of its segment may continue."""
        place = (run_id, segment)
        ranks = self._ranks.get(place, {})
        if rank in ranks:
            ranks[rank].has_ended = True
        if rank not in ranks or (place not in self._chosen and rank and not ranks[rank].has_loss):
            return  # the rank to write may still follow
        if self._chosen.setdefault(place, _choose(ranks)) == rank:
            self._write(run_id, segment, ranks[rank], drain=True)
            del self._ranks[place]

    def close(self) -> None:
        """Writes the complete lines; the next agent receives the rest of the other steps."""
        for (run_id, segment), ranks in list(self._ranks.items()):
            lines = ranks.get(self._chosen.get((run_id, segment), _choose(ranks)))
            if lines is not None:
                self._file(run_id, segment, "training_metrics").write(list(lines.described(lines.complete())))
        self._ranks.clear()

    def _write_due(self, run_id: str, segment: str) -> None:
        ranks = self._ranks[run_id, segment]
        chosen = self._chosen.get((run_id, segment))
        if chosen is None:
            if not any(lines.due(self._clock()) for lines in ranks.values()):
                return
            chosen = self._chosen[run_id, segment] = _choose(ranks)
        for rank in set(ranks) - {chosen}:
            del ranks[rank]  # only the chosen rank is written
        if chosen in ranks:
            self._write(run_id, segment, ranks[chosen], drain=False)
        else:
            del self._ranks[run_id, segment]

    def _write(self, run_id: str, segment: str, lines: StepLines, *, drain: bool) -> None:
        if due := lines.due(self._clock(), drain=drain):
            self._file(run_id, segment, "training_metrics").write(list(lines.described(due)))
            lines.written(due)

    def _file(self, run_id: str, segment: str, kind: str) -> RotatedLines:
        place = (run_id, segment, kind)
        if place not in self._files:
            self._files[place] = RotatedLines(self._directory, kind, self._max_bytes, self._keep, self._now)
        return self._files[place]


def _samples_in(figures: Mapping[str, float], before: float | None) -> float | None:
    return next((figures[key] for key in BATCH_SIZES if key in figures), before)


def _choose(ranks: Mapping[int, StepLines]) -> int:
    return min(ranks, key=lambda rank: (not ranks[rank].has_loss, rank))


def _gpu_lines(table: Table, index: int) -> Iterator[dict[str, object]]:
    for time_ns, row in zip(table.times_ns.tolist(), table.values.tolist(), strict=True):
        yield gpu_line(time_ns, index, dict(zip(table.keys, row, strict=True)))


def gpu_line(time_ns: int, index: int, figures: Mapping[str, float | None]) -> dict[str, object]:
    """Returns the line of a GPU sample; missing metrics are null."""
    line: dict[str, object] = {"timestamp": timestamp(time_ns), "gpu_index": index}
    for name, (key, factor) in GPU_FIELDS.items():
        figure = figures.get(key)
        line[name] = None if figure is None else round(figure * factor, 3)
    return line


def training_line(time_ns: int, step: int, metrics: Mapping[str, float | None]) -> dict[str, object]:
    """Returns the line of a training step; metrics that were not logged are null."""
    line: dict[str, object] = {"timestamp": timestamp(time_ns), "step": step}
    for name in TRAINING_FIELDS:
        line[name] = _field_value(name, metrics)
    seconds = metrics.get(STEP_SECONDS)
    line["throughput_steps_per_sec"] = 1 / seconds if seconds else None
    return line


def _field_value(name: str, metrics: Mapping[str, float | None]) -> float | None:
    """Returns the value of a field from the first of its keys that was logged."""
    for key, factor in TRAINING_FIELDS[name]:
        value = metrics.get(key)
        if value is not None:
            return value * factor
    return None


def timestamp(time_ns: int) -> str:
    """Formats a time in UTC, to the millisecond."""
    moment = datetime.fromtimestamp(time_ns / 1e9, tz=timezone.utc)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _plain(value: object) -> object:
    return None if isinstance(value, float) and not math.isfinite(value) else value
