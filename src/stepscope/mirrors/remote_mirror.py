"""Copies live runs into a program that may be slow or away: collects rows and passes them on in batches."""

from __future__ import annotations

import getpass
import importlib.util
import logging
import time
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from stepscope.errors import ConfigError, MissingExtra
from stepscope.exporters.base import Feed, RecordedArray, Table
from stepscope.mirrors.event_file import histogram_of
from stepscope.mirrors.metric_rows import MetricRow, MetricRows, check_interval
from stepscope.mirrors.run_starts import PARAMS, RunStart, RunStarts
from stepscope.mirrors.tool_process import ToolError, ToolProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from stepscope.mirrors.metric_names import MetricNames
    from stepscope.schema.record import Event
    from stepscope.schema.run import Process
    from stepscope.schema.sample import DeviceFacts

log = logging.getLogger("stepscope.agent")

Existing = Literal["continue", "refuse", "duplicate"]
"""What happens where the program has the start already, as after the agent was started again."""

FLUSH_S = 2.0
"""How long rows are collected, unless a batch is full before."""
BATCH_VALUES = 5000
"""How many values are passed on together."""


@dataclass
class _Copy:
    """What is still to be passed on of a start."""

    rows: MetricRows
    pending: deque[MetricRow] = field(default_factory=deque)
    arrays: list[dict[str, Any]] = field(default_factory=list)
    values: int = 0
    """Values in `pending`."""
    is_changed: bool = True
    """Whether its description was not yet passed on."""
    is_ended: bool = False
    is_reported: bool = False
    """Whether the log says that values are left out."""
    address: str = ""


class RemoteMirror(Feed):
    """What MLflow and W&B have in common. While the program is away, nothing more is collected."""

    is_remote = True
    program: ClassVar[str]
    library: ClassVar[str]
    takes_histograms: ClassVar[bool] = True

    def __init__(
        self,
        options: Mapping[str, Any],
        directory: Path,
        *,
        names_of: Callable[[Mapping[str, int]], MetricNames],
        system_every_s: float,
        points_per_second: float,
    ) -> None:
        check_interval(self.library, system_every_s)
        if not points_per_second > 0:
            option = f"exporters.{self.library}.points_per_second"
            raise ConfigError(f"{option} is {points_per_second:g}; it must be more than 0.")
        if importlib.util.find_spec(self.library) is None:
            raise MissingExtra(self.library, needed_for=self.program)
        self._tool = ToolProcess(self.program, options, directory)
        self._names_of = names_of
        self._system_every_s, self._points_per_second = system_every_s, points_per_second
        self._gpu_indexes: dict[str, int] = {}
        self._starts = RunStarts()
        self._copies: dict[tuple[str, str], _Copy] = {}
        self._flushed_at = time.monotonic()
        self._refused = self._skipped = 0

    def begin(self, process: Process) -> None:
        """Notes the process; the program gets its description with the next rows."""
        start = self._starts.add(process)
        copy = self._copy_of(start)
        copy.is_changed = True
        copy.is_ended = copy.is_ended and start.is_over

    def describe(self, facts: DeviceFacts) -> None:
        """Notes the index of a GPU, which is part of the names of its metrics."""
        if isinstance(facts.fields.get("index"), int):
            self._gpu_indexes[facts.device] = facts.fields["index"]

    def take(self, table: Table) -> None:
        """Collects rows. First passes on what is due: if that fails, the rows come again."""
        self._flush_if_due()
        copy = self._copy_of(self._starts.of(table.source.run_id, table.source.segment))
        rows = copy.rows.of(table)
        count = sum(len(row.values) for row in rows)
        copy.pending.extend(rows)
        copy.values += count
        self._skipped += table.values.size - count
        if copy.rows.left_out and not copy.is_reported:
            copy.is_reported = True
            self._report_left_out(copy.rows.start)

    def take_event(self, run_id: str, event: Event) -> None:
        """Notes hyper-parameters."""
        if event.kind == PARAMS:
            start = self._starts.of(run_id, event.segment)
            start.add_event(event)
            self._copy_of(start).is_changed = True

    def take_array(self, array: RecordedArray) -> None:
        """Collects a histogram, where the program has histograms."""
        if not self.takes_histograms:
            self._skipped += array.values.size
            return
        self._flush_if_due()
        copy = self._copy_of(self._starts.of(array.run_id, array.segment))
        buckets = histogram_of(array)
        if buckets is not None:
            limits, counts, _, _ = buckets
            name = copy.rows.names.of_array(array.rank, array.key)
            step, time_s = array.step or 0, array.time_ns / 1e9
            copy.arrays.append(
                {"name": name, "step": step, "time_s": time_s, "limits": limits, "counts": counts}
            )
            copy.values += len(counts)
        self._skipped += array.values.size - (0 if buckets is None else len(counts))

    def finish(self, run_id: str, segment: str, rank: int) -> None:
        """Passes on what is collected, and the status once all ranks have ended."""
        start = self._starts.of(run_id, segment)
        if start.is_over:
            self._end(start)
        self.flush()

    def close(self) -> None:
        """Passes on what is left and ends the process; a start that still runs is continued by the next."""
        try:
            for start in self._starts:
                if start.is_over:
                    self._end(start)
            self.flush()
        finally:
            self._tool.close()

    def flush(self) -> None:
        """Passes on what is collected; raises ToolError, and keeps it, where that fails."""
        self._flushed_at = time.monotonic()
        for start in self._starts:
            copy = self._copies.get((start.run_id, start.segment))
            if copy is not None and start.is_over and not start.has_ranks:
                self._end(start)  # nobody calls `finish` for it
            if copy is not None and (copy.pending or copy.arrays or copy.is_changed):
                self._pass_on(start, copy)

    @property
    def held(self) -> int:
        """How many values it has collected and not yet passed on."""
        return sum(copy.values for copy in list(self._copies.values()))

    @property
    def dropped(self) -> int:
        """How many values the program has refused."""
        return self._refused

    @property
    def skipped(self) -> int:
        """How many values the program does not get: it has no name for them, or there were too many."""
        return self._skipped

    @property
    def addresses(self) -> list[str]:
        """Where a person finds the runs that were passed on."""
        return [copy.address for copy in self._copies.values() if copy.address]

    def _end(self, start: RunStart) -> None:
        copy = self._copy_of(start)
        if copy.is_ended:
            return
        last = copy.rows.last_skipped()
        copy.pending.extend(last)
        copy.values += len(last)
        self._pass_on(start, copy, end=True)
        copy.is_ended = True

    def _flush_if_due(self) -> None:
        if self.held >= BATCH_VALUES or time.monotonic() - self._flushed_at >= FLUSH_S:
            self.flush()

    def _report_left_out(self, start: RunStart) -> None:
        log.warning(
            "%s gets only a part of the values of the run %r: it logs more than points_per_second, which is "
            "%g. All values are in the store; `stepscope export` copies all of them.",
            self.program, start.name, self._points_per_second,
        )  # fmt: skip

    def _pass_on(self, start: RunStart, copy: _Copy, *, end: bool = False) -> None:
        while True:
            batch, count = _next_batch(copy.pending)
            is_last = len(batch) == len(copy.pending)
            arrays = copy.arrays if is_last else []
            try:
                answer = self._tool.call(
                    {
                        "start": {**_described(start), "left_out": copy.rows.left_out},
                        "rows": batch,
                        "arrays": arrays,
                        "end": end and is_last,
                    }
                )
            except ToolError as error:
                if error.is_final:  # it would fail again, and nothing after it would get its turn
                    self._refused += _drop(copy, len(batch), count, arrays)
                raise
            copy.address, copy.is_changed = answer["address"], False
            _drop(copy, len(batch), count, arrays)
            if is_last:
                return

    def _copy_of(self, start: RunStart) -> _Copy:
        key = (start.run_id, start.segment)
        if key not in self._copies:
            self._copies = {known: self._copies[known] for known in self._copies if known in self._starts}
            rows = MetricRows(
                start,
                self._names_of(self._gpu_indexes),
                system_every_s=self._system_every_s,
                points_per_second=self._points_per_second,
            )
            self._copies[key] = _Copy(rows)
        return self._copies[key]


def _next_batch(pending: deque[MetricRow]) -> tuple[list[MetricRow], int]:
    batch: list[MetricRow] = []
    count = 0
    for row in pending:
        if batch and count + len(row.values) > BATCH_VALUES:
            break
        batch.append(row)
        count += len(row.values)
    return batch, count


def _drop(copy: _Copy, rows: int, values: int, arrays: list[dict[str, Any]]) -> int:
    """Removes what was passed on or refused; returns how many values it has."""
    for _ in range(rows):
        copy.pending.popleft()
    values += sum(len(array["counts"]) for array in arrays)
    copy.values -= values
    if arrays:
        copy.arrays = []
    return values


def _described(start: RunStart) -> dict[str, Any]:
    """What the program gets to know of a start."""
    status, reason = start.outcome
    return {
        "key": f"{start.run_id}/{start.segment}",
        "run_id": start.run_id,
        "segment": start.segment,
        "name": start.name,
        "project": start.project,
        "host": start.host,
        "user": _user(),
        "started_ms": start.started_ns // 1_000_000,
        "ended_ms": (start.ended_ns or 0) // 1_000_000,
        "is_over": start.is_over,
        "status": status,
        "reason": reason,
        "exit_code": start.exit_code,
        "params": start.params,
    }


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container may have no name for its user
        return ""
