"""What the menu of a chart does: alerts, pins, ranges, names, pictures, baselines, heatmaps, merged charts."""

from __future__ import annotations

import pytest

from stepscope.alerts.expression import parse
from tests.browser.example_store import LIVE
from tests.browser.looking import is_drawn

pytestmark = pytest.mark.xdist_group("browser")


def choose(page, chart: str, entry: str) -> None:
    """Opens the menu of a chart and takes an entry of it."""
    figure = page.get_by_test_id(chart)
    figure.get_by_role("button", name="What to do with").click()
    figure.get_by_role("menu").get_by_text(entry, exact=True).click()


@pytest.fixture
def metrics(served, open_page):
    page = open_page(served, f"/run/{LIVE}/metrics")
    is_drawn(page, "chart-loss")
    return page


def test_a_line_that_is_dragged_to_a_value_asks_for_an_alert_there(metrics):
    choose(metrics, "chart-loss", "Alert at this value…")
    chart = metrics.get_by_test_id("chart-loss")
    handle = chart.get_by_role("slider", name="Value of the alert")
    middle = float(handle.get_attribute("aria-valuenow"))
    box = handle.bounding_box()
    metrics.mouse.move(box["x"] + 10, box["y"] + box["height"] / 2)
    metrics.mouse.down()
    metrics.mouse.move(box["x"] + 10, box["y"] - 30)
    metrics.mouse.up()
    dragged = float(handle.get_attribute("aria-valuenow"))
    assert dragged > middle
    handle.press("Shift+ArrowUp")
    value = float(handle.get_attribute("aria-valuenow"))
    assert value > dragged
    condition = chart.locator("code").inner_text()
    assert condition == f"loss > {value:g}"
    parse(condition)
    chart.get_by_role("button", name="Create alert").click()
    chart.get_by_text(f"Alert when {condition}").wait_for()
    assert handle.count() == 0


def test_a_line_below_the_last_value_asks_for_an_alert_that_is_below(metrics):
    choose(metrics, "chart-loss", "Alert at this value…")
    chart = metrics.get_by_test_id("chart-loss")
    chart.get_by_role("slider").press("Home")
    assert chart.locator("code").inner_text().startswith("loss < ")
    chart.get_by_role("slider").press("Escape")
    assert chart.get_by_role("slider").count() == 0


def test_odd_names_are_written_so_that_the_condition_can_be_read(look):
    page = look(f"/run/{LIVE}/system")
    is_drawn(page, "chart-gpu/temperature_celsius")
    choose(page, "chart-gpu/temperature_celsius", "Alert at this value…")
    condition = page.get_by_test_id("chart-gpu/temperature_celsius").locator("code").inner_text()
    assert condition.startswith("gpu/temperature_celsius ")
    parse(condition)
