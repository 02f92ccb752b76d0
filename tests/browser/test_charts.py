"""Charts zoom together, show the values under the pointer, and mark what is not a number."""

from __future__ import annotations

import pytest

from stepscope.schema.series import Selection
from tests.browser.example_store import LIVE, STEPS
from tests.browser.looking import drag, is_drawn, lines, plot_box, window_of

pytestmark = pytest.mark.xdist_group("browser")


@pytest.fixture
def metrics(look):
    page = look(f"/run/{LIVE}/metrics")
    is_drawn(page, "chart-loss")
    return page


def test_a_drag_zooms_all_charts_and_the_address_keeps_it(metrics):
    drag(metrics, "chart-loss", 0.25, 0.5)
    metrics.get_by_test_id("range").wait_for()
    assert "from=" in metrics.url
    loss, accuracy = window_of(metrics, "chart-loss"), window_of(metrics, "chart-accuracy")
    assert loss == accuracy
    assert 0.2 * STEPS < loss["from"] < 0.3 * STEPS
    assert 0.45 * STEPS < loss["to"] < 0.55 * STEPS


def test_zero_shows_everything_again(metrics):
    drag(metrics, "chart-loss", 0.25, 0.5)
    metrics.get_by_test_id("range").wait_for()
    metrics.locator("body").press("0")
    metrics.get_by_test_id("range").wait_for(state="detached")
    assert "from=" not in metrics.url


def test_a_link_with_a_window_opens_with_every_point_of_that_window(example, look):
    page = look(f"/run/{LIVE}/metrics?from=500&to=600")
    is_drawn(page, "chart-loss")
    drawn = "window.__stepscope.charts.get('chart-loss').series()[0].x"
    page.wait_for_function(f"() => {drawn}.filter(x => x >= 500 && x <= 600).length > 100")
    line = lines(page, "chart-loss")[0]
    inside = [value for x, value in zip(line["x"], line["value"], strict=True) if 500 <= x <= 600]
    logged = example.store.points(Selection(LIVE, "loss", rank=0)).values[500:601]
    assert inside == logged.tolist()


def test_what_is_under_the_pointer_is_read_out(metrics):
    box = plot_box(metrics, "chart-loss")
    metrics.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    chart = metrics.get_by_test_id("chart-loss")
    chart.get_by_text("1,5").first.wait_for()
    assert metrics.evaluate("window.__stepscope.sync.crosshair") == pytest.approx(STEPS / 2, abs=STEPS / 50)


def test_values_that_are_not_numbers_are_marked_and_counted(look):
    page = look(f"/run/{LIVE}/metrics?q=val/loss")
    is_drawn(page, "chart-val/loss")
    assert sum(lines(page, "chart-val/loss")[0]["nonfinite"]) == 2
    page.get_by_text("2 values are NaN or infinite").wait_for()


def test_no_extreme_is_hidden_when_everything_is_shown(metrics):
    is_drawn(metrics, "chart-gradient_norm")
    line = lines(metrics, "chart-gradient_norm")[0]
    assert max(line["max"]) > 4.0


@pytest.mark.slow
def test_smoothing_is_in_the_url_and_keeps_the_raw_line(served, open_page):
    metrics = open_page(served, f"/run/{LIVE}/metrics")
    is_drawn(metrics, "chart-loss")
    metrics.get_by_label("Smoothing as a number").fill("0.9")
    metrics.get_by_label("Smoothing as a number").press("Enter")
    metrics.wait_for_function(
        "() => window.__stepscope.charts.get('chart-loss').series()[0].smoothed !== null"
    )
    assert "smooth=0.9" in metrics.url
    assert lines(metrics, "chart-learning_rate")[0]["smoothed"] is None


def test_another_x_axis_is_chosen_and_one_that_is_not_there_says_why(metrics):
    axis = metrics.get_by_test_id("x-axis")
    assert axis.locator("option[value=tokens]").is_disabled()
    assert "(" in axis.locator("option[value=tokens]").inner_text()
    axis.select_option("wall")
    metrics.wait_for_function("() => window.__stepscope.charts.get('chart-loss').series()[0].x[0] > 1e9")
    assert "x=wall" in metrics.url


def test_metrics_are_filtered_while_one_types(metrics):
    metrics.get_by_test_id("metric-filter").fill("val")
    metrics.get_by_text("2 of").wait_for()
    assert metrics.get_by_test_id("chart-loss").count() == 0
    assert metrics.get_by_test_id("chart-val/accuracy").count() == 1


def test_steps_are_shown_one_by_one_and_ranks_side_by_side(look):
    page = look(f"/run/{LIVE}/steps")
    page.get_by_test_id("step-bars").wait_for()
    page.get_by_test_id("rank-heatmap").wait_for()
    first = page.locator("table").first.locator("tbody tr").first
    assert "5" in first.inner_text()
    first.get_by_role("button").click()
    page.get_by_test_id("range").wait_for()
    assert "step=" in page.url
