"""Lists all keys that a run logged and that were sampled on its hosts, with what each key means."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from stepscope.schema.series import Axis  # noqa: TC001 - the schema of the API reads it
from stepscope.views.energy.attribution import known_gpus
from stepscope.views.json_values import finite
from stepscope.views.machine.gpu_names import label_of
from stepscope.views.metrics.metric_meaning import group_of, is_never_smoothed, sentence_of, unit_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from stepscope.devices.gpu import GpuFacts
    from stepscope.reading import Run
    from stepscope.store.base import SeriesSummary
    from stepscope.views.metrics.series_summaries import HostDevice


@dataclass(frozen=True)
class Place:
    """Where a key was logged or sampled."""

    rank: int | None
    host: str
    device: str
    device_name: str
    """A readable name of the device, such as `gpu 0`; empty if there is no device."""


@dataclass(frozen=True)
class KeyRow:
    """A key of a run."""

    key: str
    group: str
    unit: str
    help: str
    axis: Axis
    points: int
    last: float | None
    nonfinite: int
    """The number of points that are NaN or infinite."""
    percent: bool
    """Whether it is a share of a whole, which is drawn from 0 to 100%."""
    no_smoothing: bool
    """Whether smoothing would hide what it shows."""
    places: tuple[Place, ...]


@dataclass(frozen=True)
class Catalogue:
    """All keys of a run: logged keys before sampled keys, each by name."""

    keys: tuple[KeyRow, ...]


def catalogue_of(run: Run) -> Catalogue:
    """Returns the catalogue of a run's keys."""
    groups: dict[tuple[Axis, str], list[SeriesSummary]] = {}
    for summary in run.summaries():
        groups.setdefault((summary.source.axis, summary.key), []).append(summary)
    has_devices = any(summary.source.device for series in groups.values() for summary in series)
    facts = known_gpus(run) if has_devices else {}
    ordered = sorted(groups, key=lambda group: (group[0] == "seconds", group[1]))
    return Catalogue(tuple(_catalogue_key(key, axis, groups[axis, key], facts) for axis, key in ordered))


def is_share(key: str, maximum: float | None) -> bool:
    """Returns whether a key is a share of a whole; a key whose maximum is above 1 is not."""
    return unit_of(key) == "ratio" and (maximum is None or maximum <= 1.0)


def _catalogue_key(
    key: str, axis: Axis, series: Sequence[SeriesSummary], facts: Mapping[HostDevice, GpuFacts]
) -> KeyRow:
    newest = max(series, key=lambda summary: summary.last_ns)
    maximum = max((summary.maximum for summary in series if summary.maximum is not None), default=None)
    hosts = len({summary.source.host for summary in series})
    places = dict.fromkeys(
        (summary.source.rank, summary.source.host, summary.source.device) for summary in series
    )
    return KeyRow(
        key=key,
        group=group_of(key),
        unit=unit_of(key),
        help=sentence_of(key),
        axis=axis,
        points=sum(summary.points for summary in series),
        last=finite(newest.last),
        nonfinite=sum(summary.nonfinite for summary in series),
        percent=is_share(key, maximum),
        no_smoothing=is_never_smoothed(key),
        places=tuple(
            Place(rank, host, device, _device_name((host, device), facts, hosts > 1))
            for rank, host, device in places
        ),
    )


def _device_name(host_device: HostDevice, facts: Mapping[HostDevice, GpuFacts], several_hosts: bool) -> str:  # noqa: FBT001 - it has one caller
    return label_of(host_device, facts, several_hosts=several_hosts) if host_device[1] else ""
