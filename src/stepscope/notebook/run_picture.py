"""Shows a run under the cell of a notebook: verdict, tiles and charts as HTML, without scripts or network."""

from __future__ import annotations

import contextlib
import html
import itertools
import math
import time
from importlib import resources
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit

from stepscope.errors import StepscopeError
from stepscope.guard import shown
from stepscope.notebook.page_frame import address_by
from stepscope.reading import open_store
from stepscope.recorder.page_server import find_server
from stepscope.schema.keys import STEP_SECONDS
from stepscope.store.open import open_marks
from stepscope.views.formatting import quantity
from stepscope.views.overview.overview import overview_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from stepscope.reading import Run
    from stepscope.schema.series import Buckets
    from stepscope.views.overview.charts import ChartSpec
    from stepscope.views.overview.overview import Overview
    from stepscope.views.overview.tile import Tile

Point = tuple[float, float | None]
"""A place on the x axis and a value; None or a value that is not finite is a gap."""

WIDTH, HEIGHT, EDGE = 240, 56, 3
"""Of a chart, in units that are scaled to the place it has; lines keep the edge free."""

COLOURS = 6
"""Number of the colours that the style sheet has for lines."""

MAX_CHARTS = 6
MAX_POINTS = 120
"""Of a line in a chart: one for every second unit of its width."""

_TONES = {"ok": "ok", "info": "ok", "notice": "warn", "warning": "warn", "critical": "bad"}
"""The colour of each severity of a verdict; others have none."""

_TILE_TONES = {"ok": "ok", "warn": "warn", "bad": "bad"}


def picture_of(run: Run, folder: Path) -> str:
    """The HTML of a run; a sentence where it cannot be read, since a notebook must go on."""
    return _or_reason(lambda: _picture(run, folder))


def picture_of_stored(folder: Path, run_id: str) -> str:
    """The HTML of a run with all that its journals hold at this moment."""

    def read() -> str:
        with contextlib.closing(open_store(folder)) as runs:
            return _picture(runs.run(run_id), folder)

    return _or_reason(read)


def _or_reason(draw: Callable[[], str]) -> str:
    try:
        return draw()
    except StepscopeError as error:
        reason = str(error)
    except Exception as error:  # noqa: BLE001 - an output must never fail a cell
        reason = shown(error)
    return f"<p>The run cannot be shown: {html.escape(reason)}</p>"


def _picture(run: Run, folder: Path) -> str:
    with contextlib.closing(open_marks(folder)) as marks:
        overview = overview_of(run, marks, time.time_ns())
    style = resources.files("stepscope.notebook").joinpath("run_picture.css").read_text(encoding="utf-8")
    parts = [_head(run, folder), _verdict(overview), _tiles(overview), _charts(run, overview)]
    return f'<div class="stepscope-run"><style>{style}</style>{"".join(parts)}</div>'


def _head(run: Run, folder: Path) -> str:
    reason = f' <span class="soft">{html.escape(run.reason)}</span>' if run.reason else ""
    return (
        f'<p class="head"><b>{html.escape(run.name)}</b> '
        f'<span class="status">{html.escape(run.status)}</span>{reason}{_link(run, folder)}</p>'
    )


def _link(run: Run, folder: Path) -> str:
    """The address of the run's page, without the token: the output of a cell is saved in a file."""
    server = find_server(folder)
    if server is None or urlsplit(server.address).port is None:  # a socket file, which no browser opens
        return ""
    address = html.escape(f"{address_by(server.address)}/run/{quote(run.id)}")
    return f' <a href="{address}" target="_blank" rel="noopener">Open the page</a>'


def _verdict(overview: Overview) -> str:
    verdict = overview.verdict
    tone = _TONES.get(verdict.severity, "plain")
    advice = f" Try: {', '.join(verdict.tries)}." if verdict.tries else ""
    return f'<p class="verdict {tone}">{html.escape(verdict.headline + advice)}</p>'


def _tiles(overview: Overview) -> str:
    return f'<div class="tiles">{"".join(map(_tile, overview.tiles))}</div>'


def _tile(tile: Tile) -> str:
    title = html.escape(tile.title)
    texts = [f"<div>{html.escape(text)}</div>" for text in (*tile.detail, tile.state_text) if text]
    spark = line_chart([list(enumerate(tile.spark))], f"{title} over time")
    return (
        f'<div class="tile {_TILE_TONES.get(tile.state, "plain")}"><div class="soft">{title}</div>'
        f'<div class="value">{html.escape(tile.value)}</div>{"".join(texts)}{spark}</div>'
    )


def _charts(run: Run, overview: Overview) -> str:
    figures = "".join(_figure(run, chart) for chart in overview.key_charts[:MAX_CHARTS])
    return f'<div class="charts">{figures}</div>' if figures else ""


def _figure(run: Run, chart: ChartSpec) -> str:
    """One chart with the names and last values of its lines."""
    lines = {key: run.buckets(key, MAX_POINTS) for key in _keys(chart)}
    captions = "".join(
        _caption(chart.unit, place, key if len(lines) > 1 else "", buckets)
        for place, (key, buckets) in enumerate(lines.items(), 1)
    )
    title = html.escape("Step time" if chart.kind == "stack" else chart.title)
    drawn = (
        line_chart([_points(buckets) for buckets in lines.values()], title)
        or '<div class="soft">no finite values</div>'
    )
    return f"<figure><figcaption><b>{title}</b>{captions}</figcaption>{drawn}</figure>"


def _keys(chart: ChartSpec) -> list[str]:
    """The keys that fit on one axis; of the step time by phase, the whole."""
    if chart.kind == "stack":
        return [STEP_SECONDS]
    return [key for key in chart.keys if key not in chart.second_axis]


def _points(buckets: Buckets) -> list[Point]:
    """The mean of each bucket of steps."""
    return list(zip(buckets.starts.tolist(), buckets.mean.tolist(), strict=True))


def _caption(unit: str, place: int, name: str, buckets: Buckets) -> str:
    """The last value of a line, with its name where the chart has several lines."""
    last = quantity(float(buckets.last[-1]), unit) if len(buckets) else "no value"
    text = f"{name}: {last}" if name else last
    return f' <span class="line-{place}">{html.escape(text)}</span>'


def line_chart(lines: Sequence[Sequence[Point]], label: str) -> str:
    """An SVG of some lines on common axes; empty without a finite value. The label must be escaped."""
    finite = [[(x, y) for x, y in line if is_finite(y)] for line in lines]
    points = [point for line in finite for point in line]
    if not points:
        return ""
    across = _Scale((x for x, _ in points), EDGE, WIDTH - EDGE)
    upwards = _Scale((y for _, y in points if y is not None), HEIGHT - EDGE, EDGE)
    shapes = "".join(
        shape
        for place, line in enumerate(lines)
        for shape in _shapes(line, across, upwards, place % COLOURS + 1)
    )
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" preserveAspectRatio="none" role="img" '
        f'aria-label="{label}">{shapes}</svg>'
    )


def is_finite(value: float | None) -> bool:
    """Whether a value can be drawn."""
    return value is not None and math.isfinite(value)


class _Scale:
    """Places values between two ends of a chart; where all are the same, in the middle."""

    def __init__(self, values: Iterable[float], low_end: float, high_end: float) -> None:
        # Halves: the difference of two large numbers would be infinite.
        halves = [value / 2 for value in values]
        self._low, self._size = min(halves), max(halves) - min(halves)
        self._low_end, self._length = low_end, high_end - low_end

    def __call__(self, value: float) -> float:
        share = (value / 2 - self._low) / self._size if self._size else 0.5
        return round(self._low_end + share * self._length, 1)


def _shapes(line: Sequence[Point], across: _Scale, upwards: _Scale, colour: int) -> Iterator[str]:
    """A line for each part without a gap; a point alone is a dot."""
    for can_be_drawn, part in itertools.groupby(line, key=lambda point: is_finite(point[1])):
        if not can_be_drawn:
            continue
        places = [f"{across(x)},{upwards(y)}" for x, y in part if y is not None]
        # A line of no length with round ends is a dot.
        places = places * 2 if len(places) == 1 else places
        yield f'<polyline class="line-{colour}" points="{" ".join(places)}"/>'
