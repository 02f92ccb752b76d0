"""Reads recorded runs: `open_store` and the objects it returns."""

from __future__ import annotations

import functools
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stepscope.agent.process.attend import catch_up
from stepscope.config.find import settings_for
from stepscope.errors import ConfigError, MissingExtra, NotFound, StoreError
from stepscope.filesystem import is_closed
from stepscope.schema.identity import run_id
from stepscope.schema.run import detector_options
from stepscope.schema.series import Selection
from stepscope.store.buckets import Limits
from stepscope.store.open import open_reader

if TYPE_CHECKING:
    import os
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from stepscope.analysis.diagnose import Diagnosis
    from stepscope.schema.record import Event, StoredArray
    from stepscope.schema.run import RunInfo, SegmentInfo
    from stepscope.schema.series import Axis, Buckets, Points, SeriesInfo, Source
    from stepscope.store.base import Reader, SeriesSummary, SetAside
    from stepscope.store.step_clock import StepClock


PARAMS = "params"
"""The kind of the events that hold hyper-parameters, and the name of their field."""


def open_store(path: str | os.PathLike[str] | None = None) -> Runs:
    """Opens a store folder for reading; first reads journals into it that no agent has read yet.

    Without a path: `STEPSCOPE_DIR`, else `.stepscope` in the working directory.
    """
    folder = Path(path).expanduser() if path is not None else default_folder()
    if is_closed(folder):
        raise StoreError(
            f"This user may not enter {folder}. Ask its owner for access, or name another folder with "
            "--store or STEPSCOPE_DIR."
        )
    catch_up(folder)
    return Runs(open_reader(folder), folder)


def default_folder() -> Path:
    """The store folder to use when none is given."""
    return Path(settings_for().directory or ".stepscope")


def merged_params(events: Iterable[Event], segments: Sequence[SegmentInfo]) -> dict[str, Any]:
    """Merges the hyper-parameters of events of the kind `params`; later segments override earlier ones.

    Where ranks of a segment differ, for example in their seed, the values of the lowest rank are used.
    """
    order = {part.id: place for place, part in enumerate(segments)}
    merged: dict[str, Any] = {}
    for event in sorted(events, key=lambda event: (order.get(event.segment, -1), -(event.rank or 0))):
        params = event.fields.get(PARAMS)
        if isinstance(params, dict):
            _merge_into(merged, params)
    return merged


def _merge_into(merged: dict[str, Any], params: dict[str, Any]) -> None:
    for name, value in params.items():
        previous = merged.get(name)
        if isinstance(previous, dict) and isinstance(value, dict):
            _merge_into(previous, value)
        else:
            merged[name] = value


class Runs:
    """The runs of a store."""

    def __init__(self, reader: Reader, folder: Path) -> None:
        self._reader = reader
        self.folder = folder

    def __repr__(self) -> str:
        return f"<Runs of {self.folder}>"

    def runs(self) -> list[Run]:
        """All runs, oldest first."""
        return [Run(info, self._reader, self.folder) for info in self._reader.runs()]

    def run(self, name_or_id: str) -> Run:
        """A run by its id, or by its name where only one project has it."""
        runs = self.runs()
        matching = [run for run in runs if run.id == name_or_id]
        matching = matching or [run for run in runs if run.name == name_or_id]
        # A monitor may have renamed the run of its launcher; the id still has the first name.
        matching = matching or [run for run in runs if run.id == run_id(run.project, name_or_id)]
        if len(matching) == 1:
            return matching[0]
        if matching:
            ids = ", ".join(run.id for run in matching)
            raise NotFound(f"{len(matching)} runs are named {name_or_id!r}. Use one of the ids: {ids}")
        names = ", ".join(run.name for run in runs[-5:]) or "none"
        raise NotFound(f"There is no run {name_or_id!r} in {self.folder}; the newest are: {names}")

    def set_aside(self) -> list[SetAside]:
        """The journals that cannot be read or stored at present; their data may be missing from runs."""
        return self._reader.set_aside()

    def close(self) -> None:
        """Closes the store."""
        self._reader.close()


class Run:
    """One run. Its status and segments are read once; its series and events at each call."""

    def __init__(self, info: RunInfo, reader: Reader, folder: Path | None = None) -> None:
        self.info = info
        self._reader, self._folder = reader, folder

    def __repr__(self) -> str:
        return f"<Run {self.name!r} ({self.status})>"

    def _repr_html_(self) -> str | None:
        """The run as a notebook shows it."""
        if self._folder is None:
            return None
        from stepscope.notebook.run_picture import picture_of  # lazy: most readers do not need it

        return picture_of(self, self._folder)

    @property
    def id(self) -> str:
        """The id, unique in the store."""
        return self.info.id

    @property
    def name(self) -> str:
        """The name it was given."""
        return self.info.name

    @property
    def project(self) -> str:
        """The project it belongs to."""
        return self.info.project

    @property
    def status(self) -> str:
        """running, stalled, finished, failed or crashed."""
        return self.info.status

    @property
    def reason(self) -> str:
        """Why it has that status; may be empty."""
        return self.info.reason

    @property
    def segments(self) -> tuple[SegmentInfo, ...]:
        """Its starts, oldest first."""
        return self.info.segments

    def keys(self, *, limit: int | None = None, after: str | None = None) -> list[SeriesInfo]:
        """The logged keys, in alphabetical order; with a limit, one page of them."""
        return self._reader.keys(self.id, limit=limit, after=after)

    def machine_keys(self) -> list[SeriesInfo]:
        """The keys sampled from the machine and its GPUs while it ran, in alphabetical order."""
        return self._reader.keys(self.id, "seconds")

    def sources(self) -> dict[Source, list[str]]:
        """The sources of its series (segment, rank, host, device), and the keys of each."""
        return self._reader.sources(self.id)

    def summaries(self, keys: Collection[str] | None = None) -> list[SeriesSummary]:
        """A few numbers about every series, or those of some keys; cheap even for long series."""
        return self._reader.summaries(self.id, keys)

    def series(
        self,
        key: str,
        rank: int | None = None,
        segment: str | None = None,
        host: str | None = None,
        device: str | None = None,
        axis: Axis | None = None,
    ) -> Points:
        """All points of a key, exactly as recorded: NumPy `steps`, `times`, `values`.

        The steps of a machine series are those in progress at the time of each sample. Where a key was both
        logged and sampled, the logged series is returned, unless `axis="seconds"` asks for the other.
        """
        axis = axis or self._reader.axis(self.id, key)
        if axis is None:
            names = ", ".join(info.key for info in self.keys(limit=10)) or "none"
            raise NotFound(f"Run {self.name!r} has no series {key!r}; it has: {names}")
        points = self._reader.points(Selection(self.id, key, segment, rank, host, device, axis))
        return points if axis == "step" else replace(points, steps=self.step_clock.steps_at(points.times_ns))

    def buckets(  # noqa: PLR0913 - the labels of a series
        self,
        key: str,
        n: int = 1000,
        *,
        low: int | None = None,
        high: int | None = None,
        rank: int | None = None,
        segment: str | None = None,
        host: str | None = None,
        device: str | None = None,
        axis: Axis | None = None,
    ) -> Buckets:
        """A key in at most `n` buckets, for a chart; `low` and `high` limit the steps.

        Machine series are bucketed by seconds, unless `axis="step"` asks for steps.
        """
        own = self._reader.axis(self.id, key) or "step"
        if axis == "step" and own == "seconds":
            selection = Selection(self.id, key, segment, rank, host, device, own)
            return self._reader.buckets_on(selection, axis, Limits(n, low, high), self.step_clock)
        selection = Selection(self.id, key, segment, rank, host, device, axis or own)
        return self._reader.buckets(selection, n, low, high)

    @functools.cached_property
    def step_clock(self) -> StepClock:
        """Finds the step in progress at a time; of a live run, as of the first call."""
        return self._reader.step_clock(self.id)

    def events(self, kind: str | Collection[str] | None = None) -> list[Event]:
        """Its events, of one kind, of several or of all, oldest first."""
        return self._reader.events(self.id, kind)

    @property
    def params(self) -> dict[str, Any]:
        """Its hyper-parameters, nested as they were given; a later value replaces an earlier one."""
        return merged_params(self.own_events(PARAMS), self.segments)

    def own_events(self, kind: str | Collection[str] | None = None) -> list[Event]:
        """Events that stepscope itself recorded, without those of the training."""
        return [event for event in self.events(kind) if not event.by_user]

    @functools.cached_property
    def launcher_run(self) -> Run | None:
        """The run of `stepscope run` that started this one, where the script gave its run another name."""
        own = {part.id for part in self.segments}
        for info in self._reader.runs():
            processes = [process for part in info.segments if part.id in own for process in part.processes]
            if info.id != self.id and any(process.role == "launcher" for process in processes):
                return Run(info, self._reader, self._folder)
        return None

    def arrays(self, key: str) -> list[tuple[int | None, NDArray[np.generic]]]:
        """Arrays logged for a key, with their steps."""
        return self._reader.arrays(self.id, key)

    def stored_arrays(self) -> Iterator[StoredArray]:
        """All its arrays with their sources, in the order they were stored."""
        return self._reader.stored_arrays(self.id)

    def alerts(self) -> list[dict[str, Any]]:
        """Its alerts, oldest first."""
        return self._reader.alerts(self.id)

    def notices(self) -> list[dict[str, Any]]:
        """Notices about its alerts, by which channel, and whether they arrived; oldest first."""
        return self._reader.notices(self.id)

    def findings(self) -> list[dict[str, Any]]:
        """Its findings, oldest first."""
        return self._reader.findings(self.id)

    def diagnose(self, options: Mapping[str, Mapping[str, Any]] | None = None) -> Diagnosis:
        """Analyses its newest steps now: how the run is doing, and why.

        `options` are those of detectors, by their ids; by default, those the run was recorded with.
        """
        from stepscope.analysis.diagnose import diagnose  # lazy: most readers do not need it

        if options is not None:
            return diagnose(self._reader, self.id, options)
        recorded = detector_options(process for part in self.segments for process in part.processes)
        try:
            return diagnose(self._reader, self.id, recorded)
        except ConfigError:  # recorded by a version with other options; the agent has logged it
            return diagnose(self._reader, self.id, {})

    def to_pandas(self, keys: list[str] | None = None, rank: int | None = None) -> Any:
        """A data frame with a row for each step and a column for each key, with the last value of a step."""
        try:
            import pandas as pd
        except ImportError as error:
            raise MissingExtra("pandas", needed_for="A data frame") from error
        columns = {}
        for key in keys if keys is not None else [info.key for info in self.keys()]:
            points = self.series(key, rank)
            column = pd.Series(points.values, index=points.steps)
            columns[key] = column[~column.index.duplicated(keep="last")]
        return pd.DataFrame(columns).rename_axis("step")
