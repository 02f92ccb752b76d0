"""A run as a notebook shows it: the figures of the page, as HTML that runs nothing and asks nobody."""

from __future__ import annotations

import contextlib
import html
import math
import re
import shutil
import time
from importlib import resources
from pathlib import Path

import pytest

from stepscope import TrainingMonitor, open_store
from stepscope.notebook.run_picture import line_chart
from stepscope.store.open import open_marks
from stepscope.views.overview.overview import overview_of
from stepscope.web.server.server_lock import ServerLock

HOSTILE = "<img src=x onerror=alert(1)> \"quoted\" 'name' & ünïcode \u202e"

pytestmark = pytest.mark.usefixtures("without_agent")


def recorded(folder: Path, run: str = "first", steps: int = 40, **more: float) -> TrainingMonitor:
    """A monitor that has recorded a short training, and is still recording."""
    monitor = TrainingMonitor(run=run, directory=folder)
    for step in range(steps):
        monitor.log_training_step(loss=1 / (step + 1), **more)
    return monitor


def test_a_run_of_a_store_is_shown_with_the_verdict_and_the_tiles_of_its_page(folder: Path) -> None:
    recorded(folder).stop_monitoring()
    run = open_store(folder).run("first")
    shown = run._repr_html_()
    with contextlib.closing(open_marks(folder)) as marks:
        overview = overview_of(run, marks, time.time_ns())
    figures = [overview.verdict.headline, run.status]
    for tile in overview.tiles:
        figures += [tile.title, tile.value, *tile.detail, tile.state_text]
    assert [text for text in figures if html.escape(text) not in shown] == []
    assert shown.count("<figure>") == len(overview.key_charts)
    assert "0.025" in shown  # the last loss


def test_a_chart_of_one_line_does_not_repeat_its_name(folder: Path) -> None:
    monitor = TrainingMonitor(run="first", directory=folder)
    for step in range(4):
        monitor.log_training_step(loss=1 / (step + 1), learning_rate=0.1)
    monitor.stop_monitoring()
    assert '<b>Loss</b> <span class="line-1">0.25</span>' in monitor._repr_html_()


def test_a_monitor_is_shown_while_it_records_and_after_its_end(folder: Path) -> None:
    monitor = recorded(folder)
    assert repr(monitor) == "<TrainingMonitor 'first' (recording)>"
    assert '<span class="status">running</span>' in monitor._repr_html_()
    monitor.stop_monitoring("failed", "a reason")
    assert repr(monitor) == "<TrainingMonitor 'first' (stopped)>"
    shown = monitor._repr_html_()
    assert '<span class="status">failed</span>' in shown
    assert "a reason" in shown


def test_a_monitor_that_has_not_started_is_shown_as_text_and_is_not_started_by_it(folder: Path) -> None:
    monitor = TrainingMonitor(run="first", directory=folder)
    assert monitor._repr_html_() is None
    assert repr(monitor) == "<TrainingMonitor 'first' (unstarted)>"
    assert not folder.exists()


def test_hostile_names_are_text_and_nothing_in_the_picture_runs_or_loads(folder: Path) -> None:
    monitor = recorded(folder, HOSTILE)
    monitor.log({f"accuracy/{HOSTILE}/accuracy": 0.5, "b/accuracy": 0.5}, 3)
    monitor.stop_monitoring("failed", HOSTILE)
    shown = monitor._repr_html_()
    assert "<img" not in shown
    assert html.escape("<img src=x onerror=alert(1)>") in shown
    tags = set(re.findall(r"<(\w+)", shown))
    assert tags <= {"div", "style", "p", "b", "span", "svg", "polyline", "figure", "figcaption"}
    assert "http" not in shown
    assert "url(" not in shown


def test_values_that_are_not_finite_or_huge_leave_a_chart_of_the_others(folder: Path) -> None:
    monitor = TrainingMonitor(run="odd", directory=folder)
    for loss in (1e308, -1e308, math.nan, math.inf, 3.0):
        monitor.log_training_step(loss=loss)
    monitor.log({"gradient_norm": math.nan}, 4)
    monitor.stop_monitoring()
    shown = monitor._repr_html_()
    points = re.findall(r'points="([^"]+)"', shown)
    assert points
    assert all(0 <= float(part) <= 240 for line in points for part in re.split("[ ,]", line))
    assert "no finite values" in shown


def test_the_picture_links_to_the_page_without_its_token(folder: Path) -> None:
    monitor = recorded(folder)
    monitor.stop_monitoring()
    assert "<a " not in monitor._repr_html_()
    lock = ServerLock(folder)
    assert lock.acquire()
    token = folder / "server.token"
    token.write_text("a-token-that-must-not-be-saved")
    lock.write_address("http://127.0.0.1:8787", token)
    shown = monitor._repr_html_()
    lock.write_address("http://localhost", token)
    assert "<a " not in monitor._repr_html_(), "a socket file has no address for a browser"
    lock.release()
    assert f'href="http://localhost:8787/run/{monitor.run_id}"' in shown
    assert "must-not-be-saved" not in shown


def test_a_run_without_steps_is_shown(folder: Path) -> None:
    with TrainingMonitor(run="empty", directory=folder) as monitor:
        pass
    assert '<span class="status">finished</span>' in monitor._repr_html_()


def test_a_store_that_is_gone_is_a_sentence_and_no_exception(folder: Path) -> None:
    monitor = recorded(folder)
    monitor.stop_monitoring()
    run = open_store(folder).run("first")
    shutil.rmtree(folder)
    folder.write_text("no folder")
    assert monitor._repr_html_().startswith("<p>The run cannot be shown: ")
    assert isinstance(run._repr_html_(), str)


def test_a_closed_store_is_a_sentence_and_no_exception(folder: Path) -> None:
    recorded(folder).stop_monitoring()
    runs = open_store(folder)
    run = runs.run("first")
    runs.close()
    assert run._repr_html_().startswith("<p>The run cannot be shown: ")
    assert repr(run) == "<Run 'first' (finished)>"


def luminance(colour: str) -> float:
    """The relative luminance of `#rrggbb`, as WCAG defines it."""
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_a_picture_can_be_read_on_any_page_because_it_has_its_own_background() -> None:
    style = resources.files("stepscope.notebook").joinpath("run_picture.css").read_text(encoding="utf-8")
    assert "background: var(--back);" in style
    assert "--jp-" not in style, "a page may define some of these colours, or none"
    palettes = [block for block in re.findall(r"\{([^{}]*)\}", style) if "--back:" in block]
    assert len(palettes) == 4
    for palette in palettes:
        colours = dict(re.findall(r"--([\w-]+): (#\w{6});", palette))
        back = luminance(colours.pop("back"))
        colours.pop("edge")
        for name, colour in colours.items():
            lighter, darker = sorted((luminance(colour), back), reverse=True)
            assert (lighter + 0.05) / (darker + 0.05) >= (3 if name.startswith("line") else 4.5), name


def test_a_chart_breaks_its_line_at_a_gap_and_draws_a_point_alone_as_a_dot() -> None:
    drawn = line_chart([[(0, 1.0), (1, 2.0), (2, None), (3, math.nan), (4, 1.5)]], "a")
    whole, dot = re.findall(r'points="([^"]+)"', drawn)
    assert len(whole.split()) == 2
    assert len(set(dot.split())) == 1
    assert line_chart([[(0, math.nan)], []], "a") == ""
