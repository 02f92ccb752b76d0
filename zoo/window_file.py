"""Keeps a window in a small file, so that its diagnosis can be repeated without the training."""

import io
import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stepscope.analysis.build import column_of
from stepscope.analysis.steady import steadiness_of
from stepscope.schema.record import Event
from stepscope.schema.window import MachineFigures, RankWindow, Window
from zoo.case import ROOT

MAX_BYTES = 60_000

PRIVATE_FACTS = ("command", "commit", "mark", "platform")
PRIVATE_EVENTS = ("device", "notice", "checks")
"""What says more about the machine and its owner than a diagnosis needs."""

MICROSECOND = 1e-6

Array = NDArray[Any]


def save(window: Window, path: Path, machine: Mapping[str, Any]) -> None:
    """Writes a window of a whole run, and on which machine it was recorded.

    The file is compressed: the length of a JSON document in a line, the document, then all arrays in the
    order of the document. Values are kept as float32, times to a microsecond, paths from the project on.
    """
    if any(rank.course for rank in window.ranks):
        raise ValueError(f"The window of {path.stem} does not begin with the run; record a shorter run.")
    arrays = io.BytesIO()
    document = {
        "machine": dict(machine),
        "remaining_s": window.remaining_s,
        "facts": {
            rank: {name: value for name, value in facts.items() if name not in PRIVATE_FACTS}
            for rank, facts in window.facts.items()
        },
        "events": [
            {"kind": e.kind, "time_ns": e.time_ns, "step": e.step, "rank": e.rank, "fields": e.fields}
            for e in window.events
            if e.kind not in PRIVATE_EVENTS
        ],
        "ranks": [_put_rank(rank, arrays) for rank in window.ranks],
        "figures": [_put_figures(figures, arrays) for figures in window.machine],
    }
    text = json.dumps(document).replace(f"{ROOT}/", "").encode()
    packed = zlib.compress(b"%d\n%b%b" % (len(text), text, arrays.getvalue()), 9)
    if len(packed) > MAX_BYTES:
        raise ValueError(f"{path.name} would have {len(packed):,} bytes, more than {MAX_BYTES:,}.")
    path.write_bytes(packed)


def load(path: Path) -> tuple[Window, dict[str, Any]]:
    """Reads a window, and on which machine it was recorded."""
    length, _, rest = zlib.decompress(path.read_bytes()).partition(b"\n")
    document = json.loads(rest[: int(length)])
    arrays = io.BytesIO(rest[int(length) :])
    window = Window(
        run_id=path.stem,
        segment="recorded",
        ranks=tuple(_get_rank(rank, arrays) for rank in document["ranks"]),
        machine=tuple(_get_figures(figures, arrays) for figures in document["figures"]),
        events=tuple(Event(segment="recorded", **event) for event in document["events"]),
        facts={int(rank): facts for rank, facts in document["facts"].items()},
        remaining_s=document["remaining_s"],
    )
    return window, document["machine"]


def _put_rank(rank: RankWindow, arrays: io.BytesIO) -> dict[str, Any]:
    _put(np.diff(rank.steps, prepend=0).astype(np.int32), arrays)
    _put_times(rank.times, arrays)
    for column in rank.columns.values():
        _put(np.packbits(column.present), arrays)
        _put(column.values[column.present].astype(np.float32), arrays)
    counts = [int(column.present.sum()) for column in rank.columns.values()]
    first = float(rank.times[0])
    columns = dict(zip(rank.columns, counts, strict=True))
    return {"rank": rank.rank, "steps": len(rank.steps), "first": first, "columns": columns}


def _get_rank(document: Mapping[str, Any], arrays: io.BytesIO) -> RankWindow:
    count = document["steps"]
    steps = np.cumsum(_get(np.int32, count, arrays), dtype=np.int64)
    times = _get_times(document["first"], count, arrays)
    columns = {}
    for key, present in document["columns"].items():
        is_present = np.unpackbits(_get(np.uint8, -(-count // 8), arrays), count=count).astype(bool)
        values = _get(np.float32, present, arrays).astype(np.float64)
        columns[key] = column_of(np.flatnonzero(is_present), values, count, is_time=key.endswith("_seconds"))
    return RankWindow(
        document["rank"], "host", steps, times, columns, *steadiness_of(columns, count, is_whole=True)
    )


def _put_figures(figures: MachineFigures, arrays: io.BytesIO) -> dict[str, Any]:
    _put_times(figures.times, arrays)
    _put(figures.values.astype(np.float32), arrays)
    return {
        "key": figures.key,
        "rank": figures.rank,
        "device": figures.device,
        "first": float(figures.times[0]),
        "count": len(figures.times),
    }


def _get_figures(document: Mapping[str, Any], arrays: io.BytesIO) -> MachineFigures:
    count = document["count"]
    times = _get_times(document["first"], count, arrays)
    values = _get(np.float32, count, arrays).astype(np.float64)
    return MachineFigures(document["key"], document["rank"], "host", document["device"], times, values)


def _put_times(times: NDArray[np.float64], arrays: io.BytesIO) -> None:
    _put(np.diff(np.round((times - times[0]) / MICROSECOND), prepend=0).astype(np.int64), arrays)


def _get_times(first: float, count: int, arrays: io.BytesIO) -> NDArray[np.float64]:
    times: NDArray[np.float64] = first + np.cumsum(_get(np.int64, count, arrays)) * MICROSECOND
    return times


def _put(array: Array, arrays: io.BytesIO) -> None:
    arrays.write(array.tobytes())


def _get(kind: type[np.generic], count: int, arrays: io.BytesIO) -> Array:
    return np.frombuffer(arrays.read(np.dtype(kind).itemsize * count), kind)
