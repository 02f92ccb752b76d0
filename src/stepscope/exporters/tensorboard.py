"""Writes live runs as event files, which TensorBoard shows while they train."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from stepscope.errors import StepscopeError
from stepscope.exporters.base import Feed, RecordedArray, Table
from stepscope.mirrors.event_file import EventFile, TensorBoardFormat
from stepscope.mirrors.metric_names import MetricNames, plain_name
from stepscope.mirrors.metric_rows import MetricRows, check_interval
from stepscope.mirrors.run_starts import PARAMS, RunStarts, flat

if TYPE_CHECKING:
    from stepscope.mirrors.run_starts import RunStart
    from stepscope.schema.record import Event
    from stepscope.schema.run import Process
    from stepscope.schema.sample import DeviceFacts


class TensorBoard(Feed):
    """Writes `<directory>/<run id>/<segment>`, a folder for each start of a run.

    Options: `directory` (default: `tensorboard`); `system_every_s`, the seconds between two values of a
    machine metric.
    """

    def __init__(
        self, directory: str = "tensorboard", *, system_every_s: float = 10.0, _directory: Path = Path()
    ) -> None:
        check_interval("tensorboard", system_every_s)
        self._format = TensorBoardFormat()
        self._folder = _directory / Path(directory).expanduser()
        self._system_every_s = system_every_s
        self._gpu_indexes: dict[str, int] = {}
        self._starts = RunStarts()
        self._files: dict[tuple[str, str], tuple[MetricRows, EventFile]] = {}

    def begin(self, process: Process) -> None:
        """Notes the process."""
        self._starts.add(process)

    def describe(self, facts: DeviceFacts) -> None:
        """Notes the index of a GPU, which is part of the names of its metrics."""
        if isinstance(facts.fields.get("index"), int):
            self._gpu_indexes[facts.device] = facts.fields["index"]

    def take(self, table: Table) -> None:
        """Writes a record for each row."""
        rows, file = self._file_of(self._starts.of(table.source.run_id, table.source.segment))
        self._write(file, self._format.scalars(rows.of(table)))

    def take_array(self, array: RecordedArray) -> None:
        """Writes a histogram."""
        rows, file = self._file_of(self._starts.of(array.run_id, array.segment))
        self._write(file, self._format.histogram(rows.names.of_array(array.rank, array.key), array))

    def take_event(self, run_id: str, event: Event) -> None:
        """Writes hyper-parameters."""
        if event.kind == PARAMS:
            start = self._starts.of(run_id, event.segment)
            start.add_event(event)
            _, file = self._file_of(start)
            self._write(file, self._format.params(flat(start.params), start.name, start.started_ns))

    def finish(self, run_id: str, segment: str, rank: int) -> None:
        """Writes the status, once all ranks have ended."""
        start = self._starts.of(run_id, segment)
        if start.ended_ns is not None:
            _, file = self._file_of(start)
            self._write(file, self._format.end(start.outcome[0], start.ended_ns))

    def close(self) -> None:
        """Everything is written."""

    def folder_of(self, run_id: str, segment: str) -> Path:
        """Where the event files of a start are."""
        return self._folder / run_id / segment

    def _write(self, file: EventFile, records: bytes) -> None:
        try:
            file.write(records)
        except OSError as error:
            raise StepscopeError(
                f"The folder {self._folder} for TensorBoard cannot be written: {error.strerror}. "
                "Choose another."
            ) from error

    def _file_of(self, start: RunStart) -> tuple[MetricRows, EventFile]:
        key = (start.run_id, start.segment)
        if key not in self._files:
            self._files = {known: self._files[known] for known in self._files if known in self._starts}
            names = MetricNames(plain_name, self._gpu_indexes)
            self._files[key] = (
                MetricRows(start, names, system_every_s=self._system_every_s),
                EventFile(self.folder_of(*key), self._format.head(start.started_ns)),
            )
        return self._files[key]
