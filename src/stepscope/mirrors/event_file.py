"""Writes event files of TensorBoard without TensorFlow."""

from __future__ import annotations

import io
import os
import time
from typing import TYPE_CHECKING, Any

import numpy as np

from stepscope.errors import MissingExtra, RecorderError
from stepscope.model_stats.histograms import Histogram
from stepscope.schema.run import FAILED, LIVE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from stepscope.exporters.base import RecordedArray
    from stepscope.mirrors.metric_rows import MetricRow
    from stepscope.schema.run import Status

BUCKETS = 64
"""Buckets of the histogram of an array that was not recorded as a histogram."""


class TensorBoardFormat:
    """The records of TensorBoard's files, as bytes; raises MissingExtra if TensorBoard is not installed."""

    def __init__(self) -> None:
        try:
            from tensorboard.compat.proto import event_pb2, summary_pb2, types_pb2
            from tensorboard.plugins.hparams import api_pb2, metadata, plugin_data_pb2
            from tensorboard.summary.writer.record_writer import RecordWriter
        except ImportError as error:
            raise MissingExtra("tensorboard", needed_for="TensorBoard") from error
        self._event, self._summary, self._types = event_pb2, summary_pb2, types_pb2
        self._api, self._hparams, self._plugin_data = api_pb2, metadata, plugin_data_pb2
        self._record_writer = RecordWriter

    def head(self, started_ns: int) -> bytes:
        """The first record of a file; its time is the start of the run for programs that read the file."""
        return self._records([self._event.Event(wall_time=started_ns / 1e9, file_version="brain.Event:2")])

    def scalars(self, rows: Sequence[MetricRow]) -> bytes:
        """A record for each row."""
        value = self._summary.Summary.Value
        events = []
        for row in rows:
            values = [value(tag=name, simple_value=number) for name, number in row.values.items()]
            summary = self._summary.Summary(value=values)
            events.append(self._event.Event(wall_time=row.time_s, step=int(row.at), summary=summary))
        return self._records(events)

    def histogram(self, name: str, array: RecordedArray) -> bytes:
        """The record of an array: of a recorded histogram, or of the values of any other array of numbers.

        Empty for an array without a finite number.
        """
        buckets = histogram_of(array)
        if buckets is None:
            return b""
        limits, counts, total, squares = buckets
        message = self._summary.HistogramProto(
            min=limits[0],
            max=limits[-1],
            num=float(sum(counts)),
            sum=total,
            sum_squares=squares,
            bucket_limit=limits[1:],
            bucket=counts,
        )
        value = self._summary.Summary.Value(tag=name, histo=message)
        summary = self._summary.Summary(value=[value])
        step = 0 if array.step is None else array.step
        return self._records([self._event.Event(wall_time=array.time_ns / 1e9, step=step, summary=summary)])

    def params(self, params: Mapping[str, Any], group: str, started_ns: int) -> bytes:
        """The record that lists hyper-parameters for the tab HPARAMS."""
        info = self._plugin_data.SessionStartInfo(group_name=group, start_time_secs=started_ns / 1e9)
        for name, value in params.items():
            if isinstance(value, bool):
                info.hparams[name].bool_value = value
            elif isinstance(value, int | float):
                info.hparams[name].number_value = value
            else:
                info.hparams[name].string_value = str(value)
        data = self._plugin_data.HParamsPluginData(session_start_info=info)
        return self._session(self._hparams.SESSION_START_INFO_TAG, data, started_ns)

    def end(self, status: Status, ended_ns: int) -> bytes:
        """The record with the status of a run that has ended, for the same tab."""
        name = "STATUS_FAILURE" if status in FAILED else "STATUS_SUCCESS"
        name = "STATUS_RUNNING" if status in LIVE else name
        info = self._plugin_data.SessionEndInfo(
            status=self._api.Status.Value(name), end_time_secs=ended_ns / 1e9
        )
        data = self._plugin_data.HParamsPluginData(session_end_info=info)
        return self._session(self._hparams.SESSION_END_INFO_TAG, data, ended_ns)

    def _session(self, tag: str, data: Any, time_ns: int) -> bytes:
        metadata = self._hparams.create_summary_metadata(data).SerializeToString()
        value = self._summary.Summary.Value(
            tag=tag, metadata=self._summary.SummaryMetadata.FromString(metadata)
        )
        value.tensor.dtype = self._types.DT_FLOAT  # TensorBoard ignores values without a tensor
        value.tensor.tensor_shape.dim.add(size=0)
        event = self._event.Event(wall_time=time_ns / 1e9, summary=self._summary.Summary(value=[value]))
        return self._records([event])

    def _records(self, events: Sequence[Any]) -> bytes:
        buffer = io.BytesIO()
        writer = self._record_writer(buffer)
        for event in events:
            writer.write(event.SerializeToString())
        return buffer.getvalue()


class EventFile:
    """One event file. Each write is complete when it returns, so that TensorBoard shows it."""

    def __init__(self, directory: Path, head: bytes) -> None:
        """The file is made with the first write."""
        self._directory, self._head = directory, head
        self._path: Path | None = None

    def write(self, records: bytes) -> None:
        """Appends records: all of them, or none where it raises OSError."""
        if not records:
            return
        if self._path is None:
            self._directory.mkdir(parents=True, exist_ok=True)
            self._path = self._new_path()
        size = self._path.stat().st_size if self._path.exists() else 0
        try:
            with self._path.open("ab", buffering=0) as file:
                pending = memoryview(records if size else self._head + records)
                while pending:
                    pending = pending[file.write(pending) :]
        except OSError:
            # Part of a record would hide all that follows.
            if self._path.exists():
                os.truncate(self._path, size)
            raise

    def _new_path(self) -> Path:
        host, number = os.uname().nodename, 0
        while True:
            name = f"events.out.tfevents.{int(time.time()):010d}.{host}.{os.getpid()}.{number}"
            if not (self._directory / name).exists():
                return self._directory / name
            number += 1


def histogram_of(array: RecordedArray) -> tuple[list[float], list[float], float, float] | None:
    """The limits of the buckets (one more than buckets), the counts, the sum and the sum of squares.

    None for an array without a finite number.
    """
    if array.key.startswith("histogram/"):
        try:
            recorded = Histogram.read(array.values.ravel().tolist())
        except (RecorderError, TypeError, ValueError):  # a user's own array of that name
            pass
        else:
            if not recorded.limits:
                return None
            return (
                list(recorded.limits),
                list(recorded.counts),
                recorded.total,
                recorded.total_of_squares,
            )
    if array.values.dtype.kind not in "biuf":
        return None
    numbers = array.values.ravel().astype(np.float64)
    numbers = numbers[np.isfinite(numbers)]
    if not len(numbers):
        return None
    # Of half the values: the difference of the two largest numbers would overflow.
    low, high = float(numbers.min()), float(numbers.max())
    counts, _ = np.histogram(numbers / 2, BUCKETS, range=(low / 2, high / 2))
    positions = [place / BUCKETS for place in range(BUCKETS + 1)]
    limits = [low * (1 - position) + high * position for position in positions]
    with np.errstate(over="ignore"):
        return limits, counts.astype(float).tolist(), float(numbers.sum()), float(np.square(numbers).sum())
