"""What can be done at a place in a chart: compare with it, link to it, note something there."""

from __future__ import annotations

import pytest

from tests.browser.example_store import LIVE, STEPS
from tests.browser.looking import is_drawn, lines, plot_box, point_at

pytestmark = [pytest.mark.xdist_group("browser"), pytest.mark.slow]


def value_at(page, chart: str, x: float) -> float:
    """The value of the first line of a chart that is nearest to x."""
    line = lines(page, chart)[0]
    return min(zip(line["x"], line["value"], strict=True), key=lambda point: abs(point[0] - x))[1]


def test_a_right_click_makes_a_place_the_baseline_of_all_charts(metrics):
    box = plot_box(metrics, "chart-loss")
    metrics.mouse.click(box["x"] + box["width"] / 6, box["y"] + box["height"] / 2, button="right")
    chart = metrics.get_by_test_id("chart-loss")
    place = chart.get_by_role("dialog", name="Values at this point")
    for action in ("Open this step", "Add note", "Copy link to here", "Alert at this value…"):
        place.get_by_role("button", name=action).wait_for()
    place.get_by_role("button", name="Set as baseline").click()
    chart.get_by_role("button", name="vs step").wait_for()
    accuracy = metrics.get_by_test_id("chart-accuracy")
    point_at(metrics, "chart-accuracy", 0.9)
    accuracy.get_by_role("columnheader", name="vs step").wait_for()
    difference = accuracy.get_by_role("status").locator("td", has_text="(+").inner_text()
    first, last = (
        value_at(metrics, "chart-accuracy", STEPS / 6),
        value_at(metrics, "chart-accuracy", STEPS * 0.9),
    )
    share = float(difference.split("(+")[1].split("%")[0])
    assert share == pytest.approx((last / first - 1) * 100, abs=2)
    accuracy.get_by_role("button", name="vs step").click()
    chart.get_by_role("button", name="vs step").wait_for(state="detached")


def test_the_menu_of_a_point_is_reached_by_keyboard_and_left_by_escape(metrics):
    chart = metrics.get_by_test_id("chart-loss")
    chart.focus()
    chart.press("ArrowRight")
    chart.press("Shift+F10")
    chart.get_by_role("button", name="Open this step").wait_for()
    metrics.wait_for_function("() => document.activeElement.textContent.includes('Open this step')")
    metrics.keyboard.press("Escape")
    chart.get_by_role("dialog").wait_for(state="detached")
    assert chart.evaluate("figure => figure === document.activeElement")


def test_a_long_press_opens_what_can_be_done_at_a_place(served, open_page):
    page = open_page(served, f"/run/{LIVE}/metrics", phone=True)
    is_drawn(page, "chart-loss")
    chart, box = page.get_by_test_id("chart-loss"), plot_box(page, "chart-loss")
    place = {"clientX": box["x"] + box["width"] / 2, "clientY": box["y"] + box["height"] / 2}
    finger = {"pointerType": "touch", "pointerId": 7, "bubbles": True, **place}
    chart.locator(".u-over").dispatch_event("pointerdown", finger)
    chart.get_by_role("button", name="Set as baseline").wait_for()
    chart.locator(".u-over").dispatch_event("pointerup", finger)
    chart.get_by_role("button", name="Set as baseline").click()
    chart.get_by_role("button", name="vs step").wait_for()


def test_a_link_to_a_place_opens_with_the_crosshair_there(metrics):
    metrics.context.grant_permissions(["clipboard-read", "clipboard-write"])
    box = plot_box(metrics, "chart-loss")
    metrics.mouse.click(box["x"] + box["width"] / 3, box["y"] + box["height"] / 2, button="right")
    metrics.get_by_role("button", name="Copy link to here").click()
    metrics.get_by_text("Link copied").wait_for()
    link = metrics.evaluate("navigator.clipboard.readText()")
    metrics.mouse.move(5, 5)
    metrics.goto("about:blank")
    metrics.goto(link)
    is_drawn(metrics, "chart-loss")
    assert metrics.evaluate("window.__stepscope.sync.crosshair") == pytest.approx(STEPS / 3, abs=STEPS / 50)


def test_a_note_is_written_where_a_person_has_pointed(metrics):
    box = plot_box(metrics, "chart-loss")
    metrics.mouse.click(box["x"] + box["width"] / 3, box["y"] + box["height"] / 2, button="right")
    metrics.get_by_role("button", name="Add note").click()
    title = metrics.get_by_role("dialog", name="Note at step").get_attribute("aria-label")
    assert int(title.removeprefix("Note at step ").replace(",", "")) == pytest.approx(
        STEPS / 3, abs=STEPS / 50
    )
