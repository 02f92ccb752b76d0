"""Collects recorded rows into the newest point of each OpenTelemetry series."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from stepscope.opentelemetry.conventions import (
    DEVICE,
    DEVICE_ATTRIBUTES,
    GPU,
    HOST,
    PHASE,
    PHASE_TIME,
    PROCESS,
    RANK,
    STEP_DURATION,
    STEPS,
    TRAINING,
    gpu_attributes,
)
from stepscope.prometheus.options import BUCKETS
from stepscope.prometheus.phase_times import PhaseTimes
from stepscope.schema.keys import STEP_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from stepscope.exporters.base import Table
    from stepscope.opentelemetry.conventions import Conversion, Instrument
    from stepscope.schema.sample import DeviceFacts

Attributes = dict[str, "str | int"]

MAX_GAP_NS = 60 * 10**9
"""A rate says nothing about a longer time without a reading."""


class Series:
    """One series: its newest value, and since when it counts."""

    def __init__(self, instrument: Instrument, attributes: Attributes) -> None:
        self.instrument, self.attributes = instrument, attributes
        self.value = 0.0
        self.time_ns = -1
        self.start_ns = 0
        """When a counter began; 0 for gauges."""
        self.sent_ns = -1
        """The time of the point that was sent last."""

    def set(self, value: float, time_ns: int) -> None:
        """Takes a newer value; a counter that falls begins again."""
        if time_ns < self.time_ns:
            return
        if self.instrument.kind == "counter" and (not self.start_ns or value < self.value):
            self.start_ns = time_ns
        self.value, self.time_ns = value, time_ns

    def add(self, amount: float, since_ns: int, time_ns: int) -> None:
        """Adds what was counted from one time to another."""
        self.start_ns = self.start_ns or since_ns
        self.value += amount
        self.time_ns = max(self.time_ns, time_ns)

    def add_rates(self, rates: NDArray[np.float64], times_ns: NDArray[np.int64]) -> None:
        """Adds rates per second, each for the time since the reading before it."""
        first_ns = self.time_ns if self.time_ns >= 0 else int(times_ns[0])
        spans = np.diff(times_ns, prepend=first_ns)
        is_known = (spans > 0) & (spans <= MAX_GAP_NS) & np.isfinite(rates)
        self.add(float((rates[is_known] * spans[is_known]).sum()) / 1e9, first_ns, int(times_ns[-1]))


class DurationSeries(Series):
    """A histogram of durations."""

    def __init__(self, instrument: Instrument, attributes: Attributes) -> None:
        super().__init__(instrument, attributes)
        self.counts = np.zeros(len(BUCKETS) + 1, np.int64)
        self.minimum, self.maximum = math.inf, -math.inf

    def add_durations(self, seconds: NDArray[np.float64], times_ns: NDArray[np.int64]) -> None:
        """Counts durations that ended at these times."""
        is_known = np.isfinite(seconds) & (seconds >= 0)
        seconds, times_ns = seconds[is_known], times_ns[is_known]
        if not len(seconds):
            return
        # A value equal to a bound belongs to the bucket below it, as OpenTelemetry defines.
        places = np.searchsorted(BUCKETS, seconds, side="left")
        self.counts += np.bincount(places, minlength=len(self.counts))
        self.minimum = min(self.minimum, float(seconds.min()))
        self.maximum = max(self.maximum, float(seconds.max()))
        self.add(float(seconds.sum()), _before(int(times_ns[0]), float(seconds[0])), int(times_ns[-1]))


def _before(time_ns: int, seconds: float) -> int:
    """A time so many seconds earlier; a time before 1970 cannot be sent."""
    return max(1, time_ns - int(min(seconds, time_ns / 1e9) * 1e9))


class SeriesOfRun:
    """All series of a run on one host."""

    def __init__(self) -> None:
        self._series: dict[tuple[str, tuple[tuple[str, str | int], ...]], Series] = {}
        self._key_places: dict[tuple[str, int], int] = {}
        """Which of the keys of a gauge a rank uses: the first that it has logged."""
        self._phase_times: dict[int, PhaseTimes] = {}

    def unsent(self) -> list[Series]:
        """The series with a point that was not sent yet."""
        return [series for series in self._series.values() if series.time_ns > series.sent_ns]

    def add(self, table: Table, devices: Mapping[str, DeviceFacts]) -> None:
        """Takes rows of a training or of a machine."""
        source = table.source
        if not len(table.times_ns):
            return
        with np.errstate(all="ignore"):  # values that are not finite are a training's own
            if source.axis == "seconds":
                self._add_samples(table, devices)
            elif source.rank is not None and not source.device:
                self._add_steps(table, source.rank)

    def _add_samples(self, table: Table, devices: Mapping[str, DeviceFacts]) -> None:
        places = {key: place for place, key in enumerate(table.keys)}
        for conversion, attributes in _conversions(table, devices):
            columns = [places[key] for key in conversion.keys if key in places]
            if columns:
                self._add_machine(conversion, attributes, table, table.values[:, columns].max(axis=1))

    def _add_machine(
        self, conversion: Conversion, attributes: Attributes, table: Table, column: NDArray[np.float64]
    ) -> None:
        series = self._at(conversion.instrument, {**attributes, **conversion.attributes})
        if conversion.is_rate:
            series.add_rates(column, table.times_ns)
        else:
            series.set(float(column[-1]), int(table.times_ns[-1]))

    def _add_steps(self, table: Table, rank: int) -> None:
        columns = dict(zip(table.keys, table.values.T, strict=True))
        newest_ns = int(table.times_ns[-1])
        is_step = STEP_SECONDS in columns
        if is_step:
            self._durations(rank).add_durations(columns[STEP_SECONDS], table.times_ns)
        for instrument, keys in TRAINING:
            key = self._chosen_key(instrument.name, rank, keys, columns)
            if key is not None:
                self._at(instrument, {RANK: rank}).set(float(columns[key][-1]), newest_ns)
                is_step = True
        if is_step:
            self._at(STEPS, {RANK: rank}).set(float(table.steps[-1]) + 1, newest_ns)
        self._add_phases(columns, table.times_ns, rank)

    def _chosen_key(
        self, name: str, rank: int, keys: tuple[str, ...], columns: Mapping[str, object]
    ) -> str | None:
        logged = next((place for place, key in enumerate(keys) if key in columns), None)
        if logged is None or logged > self._key_places.get((name, rank), len(keys)):
            return None
        self._key_places[name, rank] = logged
        return keys[logged]

    def _add_phases(
        self, columns: Mapping[str, NDArray[np.float64]], times_ns: NDArray[np.int64], rank: int
    ) -> None:
        times = self._phase_times.setdefault(rank, PhaseTimes())
        for phase, seconds in times.added(columns).items():
            series = self._at(PHASE_TIME, {RANK: rank, PHASE: phase})
            series.add(seconds, _before(int(times_ns[0]), seconds), int(times_ns[-1]))

    def _durations(self, rank: int) -> DurationSeries:
        series = self._at(STEP_DURATION, {RANK: rank})
        assert isinstance(series, DurationSeries)  # noqa: S101 - what _at makes for a histogram
        return series

    def _at(self, instrument: Instrument, attributes: Attributes) -> Series:
        key = (instrument.name, tuple(sorted(attributes.items())))
        series = self._series.get(key)
        if series is None:
            kind = DurationSeries if instrument.kind == "histogram" else Series
            series = self._series[key] = kind(instrument, attributes)
        return series


def _conversions(table: Table, devices: Mapping[str, DeviceFacts]) -> Iterator[tuple[Conversion, Attributes]]:
    """The conversions for rows of a machine, with the attributes that say whose they are."""
    source = table.source
    facts = devices.get(source.device)
    attributes: Attributes = {}
    conversions: tuple[Conversion, ...] = HOST
    if source.rank is not None:
        attributes, conversions = {RANK: source.rank}, () if source.device else PROCESS
    elif facts is not None and "uuid" in facts.fields:
        attributes, conversions = {**gpu_attributes(facts.fields)}, GPU
    elif source.device:
        conversions = DEVICE
    for conversion in conversions:
        label = DEVICE_ATTRIBUTES.get(conversion.instrument.name)
        yield conversion, {label: source.device} if label else attributes
