"""The header of a run: a link to what is shown, and what else can be done."""

from __future__ import annotations

import pytest

from tests.browser.conftest import Visitor
from tests.browser.example_store import LIVE
from tests.browser.looking import drag, is_drawn, window_of

pytestmark = [pytest.mark.xdist_group("browser"), pytest.mark.slow]


def copied(page) -> str:
    """What lies on the clipboard."""
    return page.evaluate("() => navigator.clipboard.readText()")


@pytest.fixture
def page(served, open_page):
    page = open_page(served, f"/run/{LIVE}")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    is_drawn(page, "chart-loss")
    return page


def test_a_shared_link_shows_the_same_with_other_preferences(page, served, browser):
    drag(page, "chart-loss", 0.2, 0.6)
    page.get_by_test_id("range").wait_for()
    page.get_by_test_id("run-menu").click()
    page.get_by_label("Logarithmic y axis").check()
    page.keyboard.press("Escape")
    shown = window_of(page, "chart-loss")
    page.get_by_role("button", name="Copy link to this view").click()
    page.get_by_text("Link copied").wait_for()
    link = copied(page)
    other = Visitor(browser, served)
    other.go("/settings").get_by_label("Default x axis").select_option("wall")
    other.page.goto(link)
    is_drawn(other.page, "chart-loss")
    assert window_of(other.page, "chart-loss") == pytest.approx(shown)
    assert other.page.get_by_test_id("x-axis").input_value() == "step"
    other.page.get_by_test_id("run-menu").click()
    assert other.page.get_by_label("Logarithmic y axis").is_checked()
    other.expect()
    other.context.close()


def test_the_menu_copies_and_leads_to_a_comparison(page):
    menu = page.get_by_test_id("run-menu")
    menu.click()
    page.get_by_role("button", name="Copy id").click()
    page.get_by_text("Id copied").wait_for()
    assert copied(page) == LIVE
    menu.click()
    page.get_by_role("button", name="Compare with other runs").click()
    page.wait_for_url(f"**/compare?runs={LIVE}")


def test_a_phone_has_the_link_in_the_menu_and_the_switches_among_the_charts(look):
    page = look(f"/run/{LIVE}", phone=True)
    page.get_by_test_id("run-menu").click()
    page.get_by_role("button", name="Copy link to this view").wait_for()
    assert page.get_by_label("Logarithmic y axis").count() == 0
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Charts").click()
    page.get_by_label("Logarithmic y axis").wait_for()
    page.get_by_label("Smooth by").wait_for()
    page.keyboard.press("Escape")


def test_a_narrow_header_shows_a_figure_whole_or_not_at_all(served, open_page):
    page = open_page(served, f"/run/{LIVE}")
    page.set_viewport_size({"width": 720, "height": 450})
    header = page.get_by_test_id("run-header")
    header.locator(".controls").get_by_role("button", name="Charts").wait_for()
    cut = header.locator(".figures").evaluate(
        """box => {
            const outer = box.getBoundingClientRect();
            return [...box.querySelectorAll(".fact, .progress")].filter(node => {
                const inner = node.getBoundingClientRect();
                return inner.top < outer.bottom && inner.right > outer.right + 1;
            }).map(node => node.textContent);
        }"""
    )
    assert cut == []


def test_the_step_has_its_word_on_a_phone(look):
    page = look(f"/run/{LIVE}", phone=True)
    page.get_by_test_id("run-header").get_by_text("step", exact=True).wait_for()
