"""Every key does what the overlay says, unless one is typing or has turned keys off."""

from __future__ import annotations

import pytest

from tests.browser.example_store import LIVE, PLAIN
from tests.browser.looking import is_drawn

pytestmark = pytest.mark.xdist_group("browser")


@pytest.fixture
def overview(look):
    page = look(f"/run/{LIVE}")
    is_drawn(page, "chart-loss")
    return page


@pytest.mark.slow
def test_the_question_mark_shows_the_keys_and_escape_hides_them(overview):
    overview.locator("body").press("?")
    dialog = overview.get_by_role("dialog", name="Keyboard shortcuts")
    dialog.get_by_text("Follow the newest data").wait_for()
    overview.keyboard.press("Escape")
    dialog.wait_for(state="detached")


@pytest.mark.slow
def test_g_and_a_letter_go_to_a_page(overview):
    overview.locator("body").press("g")
    overview.locator("body").press("r")
    overview.wait_for_url("**/runs")
    overview.locator("body").press("g")
    overview.locator("body").press("h")
    overview.get_by_text("Running now").wait_for()


@pytest.mark.slow
def test_numbers_go_to_the_pages_of_a_run_and_escape_back(overview):
    overview.locator("body").press("4")
    overview.wait_for_url("**/steps")
    overview.locator("body").press("2")
    overview.wait_for_url("**/metrics")
    overview.locator("body").press("Escape")
    overview.wait_for_url(f"**/run/{LIVE}")


@pytest.mark.slow
def test_letters_change_the_charts_and_the_address_of_this_page_alone(served, open_page):
    overview = open_page(served, f"/run/{LIVE}")
    is_drawn(overview, "chart-loss")
    body = overview.locator("body")
    body.press("y")
    overview.wait_for_function("() => window.__stepscope.sync.state.logY")
    body.press("b")
    overview.wait_for_function("() => !window.__stepscope.sync.state.band")
    body.press("]")
    overview.wait_for_function("() => window.__stepscope.sync.state.smoothing.amount > 0")
    body.press("x")
    overview.wait_for_function("() => window.__stepscope.sync.state.axis !== 'step'")
    assert "log=true" in overview.url
    body.press("g")
    body.press("r")
    overview.get_by_test_id("run-table").wait_for()
    assert overview.url.endswith("/runs")


@pytest.mark.slow
def test_plus_zooms_and_f_follows_again(overview):
    overview.locator("body").press("+")
    overview.get_by_test_id("range").wait_for()
    overview.locator("body").press("f")
    overview.get_by_test_id("range").wait_for(state="detached")


@pytest.mark.slow
def test_j_and_k_go_from_chart_to_chart(overview):
    overview.locator("body").press("j")
    first = overview.evaluate("document.activeElement.dataset.testid")
    overview.keyboard.press("j")
    second = overview.evaluate("document.activeElement.dataset.testid")
    overview.keyboard.press("k")
    assert first.startswith("chart-")
    assert second != first
    assert overview.evaluate("document.activeElement.dataset.testid") == first


@pytest.mark.slow
def test_a_dot_makes_it_dark_and_is_remembered(served, open_page):
    overview = open_page(served, "/")
    overview.get_by_role("heading", name="Home").wait_for()
    assert overview.locator("html").get_attribute("data-theme") == "light"
    overview.locator("body").press(".")
    overview.wait_for_selector("html[data-theme=dark]")
    overview.reload()
    overview.wait_for_selector("html[data-theme=dark]")


def test_the_slash_leads_to_the_filter_where_letters_are_letters(look):
    page = look("/runs")
    page.get_by_role("link", name=LIVE).wait_for()
    page.locator("body").press("/")
    page.keyboard.type("g.h?")
    assert page.get_by_test_id("run-filter").input_value() == "g.h?"
    assert "/runs" in page.url
    assert page.locator("html").get_attribute("data-theme") == "light"


@pytest.mark.slow
def test_the_palette_finds_runs_metrics_and_pages(overview):
    overview.keyboard.press("Control+k")
    overview.get_by_test_id("palette-input").fill("gradient_norm")
    overview.keyboard.press("Enter")
    overview.wait_for_url("**/metrics?q=gradient_norm")
    overview.keyboard.press("Control+k")
    overview.get_by_test_id("palette-input").fill("baseline")
    overview.get_by_role("option", name="resnet50-baseline").wait_for()
    overview.keyboard.press("Enter")
    overview.wait_for_url("**/run/resnet50-baseline")


@pytest.mark.slow
def test_keys_that_were_turned_off_do_nothing(served, open_page):
    page = open_page(served, "/settings")
    page.get_by_label("Keyboard shortcuts").uncheck()
    page.locator("body").press(".")
    page.locator("body").press("?")
    assert page.locator("html").get_attribute("data-theme") == "light"
    assert page.get_by_role("dialog").count() == 0


def test_a_note_is_written_with_n(look):
    page = look(f"/run/{PLAIN}")
    page.get_by_test_id("run-header").wait_for()
    page.locator("body").press("n")
    page.get_by_label("Text of the note").fill("lowered the learning rate")
    page.get_by_role("button", name="Save").click()
    page.get_by_text("Note saved").wait_for()
    page.get_by_role("heading", name="Notes").wait_for()
    page.get_by_role("button", name="Delete this note").click()
    page.get_by_role("heading", name="Notes").wait_for(state="detached")
