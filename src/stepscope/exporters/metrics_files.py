"""Writes `gpu_metrics_*.jsonl` and `training_metrics_*.jsonl` while runs go on, in the fields people know."""

from __future__ import annotations

import json
import math
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

from stepscope.exporters.base import Feed, Table

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from stepscope.schema.sample import DeviceFacts

MIB = 1024 * 1024
MOST_BYTES = 64 * MIB

GPU_FIELDS = {
    "utilization_percent": ("gpu/utilization_ratio", 100.0),
    "memory_used_mb": ("gpu/memory_used_bytes", 1 / MIB),
    "memory_total_mb": ("gpu/memory_total_bytes", 1 / MIB),
    "memory_percent": ("gpu/memory_used_ratio", 100.0),
    "temperature_celsius": ("gpu/temperature_celsius", 1.0),
    "power_draw_watts": ("gpu/power_watts", 1.0),
    "fan_speed_percent": ("gpu/fan_ratio", 100.0),
}
"""Each field with the figure it comes from, and what that is multiplied by."""

TRAINING_FIELDS = {
    "epoch": ("epoch",),
    "loss": ("loss", "train_loss", "train/loss"),
    "learning_rate": ("learning_rate", "lr"),
    "gradient_norm": ("gradient_norm", "grad_norm"),
    "throughput_samples_per_sec": ("throughput_samples_per_sec", "samples_per_second", "throughput"),
    "memory_allocated_mb": ("memory_allocated_mb",),
    "memory_reserved_mb": ("memory_reserved_mb",),
}
"""Each field with the keys it may have been logged under, the first that is there counting."""


class RotatedLines:
    """JSON lines in files named by the moment they were begun; a full one is followed by another."""

    def __init__(
        self,
        directory: Path,
        kind: str,
        most_bytes: int = MOST_BYTES,
        keep: int = 10,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._directory, self._kind, self._now = directory, kind, now
        self._most_bytes, self._keep = most_bytes, keep
        self._paths: list[Path] = []

    @property
    def path(self) -> Path | None:
        """The file being written; None before the first line."""
        return self._paths[-1] if self._paths else None

    def write(self, lines: Sequence[Mapping[str, object]]) -> None:
        """Adds lines; NaN and infinities, which JSON does not have, are null."""
        if not lines:
            return
        text = "".join(
            json.dumps({key: _plain(value) for key, value in line.items()}) + "\n" for line in lines
        )
        path = self.path
        if path is None or (path.exists() and path.stat().st_size + len(text) > self._most_bytes):
            path = self._begin()
        with path.open("a", encoding="utf-8") as file:
            file.write(text)

    def _begin(self) -> Path:
        self._directory.mkdir(parents=True, exist_ok=True)
        moment = self._now()
        while True:
            stamp = datetime.fromtimestamp(moment, tz=timezone.utc).strftime("%Y%m%d_%H%M%S")
            path = self._directory / f"{self._kind}_{stamp}.jsonl"
            try:
                path.touch(exist_ok=False)
            except FileExistsError:
                moment += 1  # begun by another run in the same second
            else:
                break
        self._paths.append(path)
        while len(self._paths) > self._keep:
            self._paths.pop(0).unlink(missing_ok=True)
        return path


class MetricsFiles(Feed):
    """A pair of files for each start of a run: what its GPUs did, and what its first rank logged."""

    def __init__(
        self,
        directory: str,
        max_bytes: int = MOST_BYTES,
        keep: int = 10,
        *,
        _now: Callable[[], float] = time.time,
        _directory: Path = Path(),
    ) -> None:
        self._directory = _directory / Path(directory).expanduser()
        self._max_bytes, self._keep, self._now = max_bytes, keep, _now
        self._indices: dict[str, int] = {}
        self._files: dict[tuple[str, str, str], RotatedLines] = {}
        self._first_ranks: dict[tuple[str, str], int] = {}

    def describe(self, facts: DeviceFacts) -> None:
        """Learns which number a GPU has."""
        if "index" in facts.fields:
            self._indices[facts.device] = int(facts.fields["index"])

    def take(self, table: Table) -> None:
        """Writes a line for each row of a GPU, or of the first rank's losses."""
        source = table.source
        columns = {key: table.values[:, place].tolist() for place, key in enumerate(table.keys)}
        rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        if source.axis == "seconds":
            index = self._indices.get(source.device)
            if index is not None and source.rank is None:
                lines = [
                    gpu_line(at, index, row) for at, row in zip(table.times_ns.tolist(), rows, strict=True)
                ]
                self._file(table, "gpu_metrics").write(lines)
        elif self._is_first_rank(table) and not TRAINING_LOSS.isdisjoint(columns):
            moments = zip(table.times_ns.tolist(), table.steps.tolist(), rows, strict=True)
            lines = [training_line(at, step, row) for at, step, row in moments]
            self._file(table, "training_metrics").write(lines)

    def close(self) -> None:
        """Nothing is left open between two lines."""

    def _is_first_rank(self, table: Table) -> bool:
        source = table.source
        if source.rank is None or source.device:
            return False
        return self._first_ranks.setdefault((source.run_id, source.segment), source.rank) == source.rank

    def _file(self, table: Table, kind: str) -> RotatedLines:
        place = (table.source.run_id, table.source.segment, kind)
        if place not in self._files:
            self._files[place] = RotatedLines(self._directory, kind, self._max_bytes, self._keep, self._now)
        return self._files[place]


TRAINING_LOSS = frozenset(TRAINING_FIELDS["loss"])


def gpu_line(time_ns: int, index: int, figures: Mapping[str, float | None]) -> dict[str, object]:
    """A look at a GPU; a figure it does not give is null."""
    line: dict[str, object] = {"timestamp": timestamp(time_ns), "gpu_index": index}
    for field, (key, factor) in GPU_FIELDS.items():
        figure = figures.get(key)
        line[field] = None if figure is None else round(figure * factor, 3)
    return line


def training_line(time_ns: int, step: int, metrics: Mapping[str, float | None]) -> dict[str, object]:
    """A step of the training; what was not logged is null."""
    line: dict[str, object] = {"timestamp": timestamp(time_ns), "step": step}
    for field, keys in TRAINING_FIELDS.items():
        line[field] = next((metrics[key] for key in keys if metrics.get(key) is not None), None)
    return line


def timestamp(time_ns: int) -> str:
    """The moment in UTC, to the millisecond."""
    moment = datetime.fromtimestamp(time_ns / 1e9, tz=timezone.utc)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _plain(value: object) -> object:
    return None if isinstance(value, float) and not math.isfinite(value) else value
