"""On a phone everything is there, in one column, the pressing things first."""

from __future__ import annotations

import pytest

from tests.browser.example_store import LIVE
from tests.browser.looking import ROUTES, is_drawn, is_settled

pytestmark = pytest.mark.xdist_group("browser")


@pytest.mark.slow
@pytest.mark.parametrize("route", ROUTES)
def test_no_page_is_wider_than_the_phone(look, route):
    page = look(ROUTES[route], phone=True)
    is_settled(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


@pytest.mark.slow
def test_the_verdict_tiles_alerts_and_gpus_come_before_the_charts(look):
    page = look(f"/run/{LIVE}", phone=True)
    is_drawn(page, "chart-loss")
    page.get_by_test_id("gpu-cards").wait_for()
    order = ["verdict", "tile-throughput", "gpu-cards", "chart-loss"]
    tops = [page.get_by_test_id(name).evaluate("node => node.getBoundingClientRect().top") for name in order]
    assert tops == sorted(tops)
    assert page.get_by_test_id("gpu-cards").locator("li").count() == 8


@pytest.mark.slow
def test_tiles_stand_two_by_two(look):
    page = look(f"/run/{LIVE}", phone=True)
    names = ("throughput", "step_time", "gpu", "memory")
    boxes = [page.get_by_test_id(f"tile-{name}").bounding_box() for name in names]
    assert boxes[0]["y"] == boxes[1]["y"]
    assert boxes[2]["y"] == boxes[3]["y"]
    assert boxes[0]["x"] == boxes[2]["x"]


def test_runs_are_cards(look):
    page = look("/runs", phone=True)
    page.get_by_test_id("run-cards").get_by_text(LIVE).wait_for()
    assert page.locator("[role=table]").count() == 0


@pytest.mark.slow
def test_the_status_stays_in_view_while_one_scrolls(look):
    page = look(f"/run/{LIVE}", phone=True)
    is_drawn(page, "chart-loss")
    page.mouse.wheel(0, 900)
    page.wait_for_function("() => scrollY > 400")
    assert page.get_by_test_id("run-header").bounding_box()["y"] == 0


@pytest.mark.slow
def test_what_is_pressed_is_large_enough_for_a_finger(look):
    page = look(f"/run/{LIVE}", phone=True)
    page.get_by_test_id("verdict").wait_for()
    heights = page.locator(
        "nav[aria-label=Main] a:visible, nav[aria-label=Main] button:visible"
    ).evaluate_all("nodes => nodes.map(node => node.getBoundingClientRect().height)")
    assert min(heights) >= 44


@pytest.mark.slow
def test_the_events_of_a_run_are_as_wide_as_the_phone(look):
    page = look(f"/run/{LIVE}", phone=True)
    page.get_by_text("Machine, events and environment").click()
    lane = page.get_by_test_id("events")
    lane.scroll_into_view_if_needed()
    assert lane.bounding_box()["width"] > 300


@pytest.mark.slow
def test_the_note_on_evidence_is_below_it(look):
    page = look(f"/run/{LIVE}/diagnose", phone=True)
    row = page.get_by_test_id("findings").locator("table tr").first
    row.wait_for()
    label, note = row.locator("th").bounding_box(), row.locator("td").last.bounding_box()
    assert note["y"] >= label["y"] + label["height"] - 1
    assert note["x"] == label["x"]
