"""Every page passes axe in both themes, has landmarks, and can be read without seeing it."""

from __future__ import annotations

import pytest

from tests.browser.example_store import LIVE
from tests.browser.looking import ROUTES, is_drawn, is_settled

pytestmark = pytest.mark.xdist_group("browser")

playwright = pytest.importorskip("playwright.sync_api", reason="pip install playwright")
axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="pip install axe-playwright-python")

GRAVE = ("serious", "critical")
ALWAYS = ("home", "runs", "overview", "steps", "diagnose", "compare", "alerts")
"""Looked at in every run of the tests; the others in the long ones."""

SWEEP = [pytest.param(route, marks=() if route in ALWAYS else pytest.mark.slow) for route in ROUTES]


def faults(page, *rules: str) -> list[str]:
    """What axe finds that is serious, with the element it is about; by some of its rules, or by all."""
    options = {"runOnly": {"type": "rule", "values": list(rules)}} if rules else {}
    violations = (
        axe.Axe().run(page, options={"resultTypes": ["violations"], **options}).response["violations"]
    )
    return [
        f"{violation['id']}: {violation['nodes'][0]['html'][:160]}"
        for violation in violations
        if violation["impact"] in GRAVE
    ]


@pytest.mark.slow
@pytest.mark.parametrize("route", SWEEP)
def test_axe_finds_nothing_serious(look, route):
    page = look(ROUTES[route])
    is_settled(page)
    assert faults(page) == []
    # What the theme changes are colours: the rest was looked at already.
    page.keyboard.press(".")
    page.wait_for_selector("html[data-theme=dark]")
    assert faults(page, "color-contrast", "link-in-text-block") == []
    page.keyboard.press(".")
    page.wait_for_selector("html[data-theme=light]")


@pytest.mark.slow
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing_serious_in_what_opens(look, theme):
    page = look(f"/run/{LIVE}", theme)
    is_drawn(page, "chart-loss")
    page.get_by_test_id("run-menu").click()
    assert faults(page) == []
    page.keyboard.press("Escape")
    page.keyboard.press("Control+k")
    page.get_by_role("option", name="Home").wait_for()
    assert faults(page) == []


@pytest.mark.slow
def test_axe_finds_nothing_serious_on_a_phone(look):
    page = look(f"/run/{LIVE}", phone=True)
    is_drawn(page, "chart-loss")
    assert faults(page) == []


@pytest.mark.slow
def test_a_page_has_landmarks_and_the_way_past_the_navigation(look):
    page = look("/")
    page.get_by_role("heading", name="Home").wait_for()
    assert page.get_by_role("main").count() == 1
    assert page.get_by_role("navigation", name="Main").count() == 1
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to content"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.tagName") == "MAIN"


@pytest.mark.slow
def test_a_chart_says_in_words_what_it_shows(look):
    page = look(f"/run/{LIVE}")
    is_drawn(page, "chart-loss")
    page.wait_for_function(
        "() => document.querySelector('[data-testid=chart-loss]').textContent.match(/loss fell/i)"
    )


def test_a_status_is_a_word_and_an_icon(look):
    page = look("/runs")
    page.get_by_role("link", name=LIVE).wait_for()
    for status in page.locator("[data-status]").all():
        assert status.inner_text().strip().lower() == status.get_attribute("data-status")
        assert status.locator("svg").count() == 1


@pytest.mark.slow
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing_serious_in_what_opens_in_a_chart(served, open_page, theme):
    page = open_page(served, f"/run/{LIVE}/system", theme=theme)
    page.set_default_timeout(20_000)
    chart = page.get_by_test_id("chart-gpu/power_watts")

    def button(name: str):
        return chart.get_by_role("button", name=name)

    def choose(menu: str, entry: str) -> None:
        button(menu).click()
        chart.get_by_role("menuitem", name=entry).click()

    def examine(opened, open_it, *arguments: str) -> None:
        """Opens something on a page loaded afresh, and again if it was closed: a chart far away is freed.

        Escape would not do instead: where nothing is open any more, it leaves the page.
        """
        for _ in range(6):
            page.reload()
            try:
                is_drawn(page, "chart-gpu/power_watts")
                open_it(*arguments)
                opened.wait_for()
                break
            except playwright.TimeoutError:
                continue
        else:
            pytest.fail(f"{arguments} did not open: {chart.inner_text()!r}")
        assert faults(page) == []

    examine(chart.get_by_role("menu"), lambda: button("Chart menu").click())
    for entry in ("Set y range…", "Merge with another chart…", "Alert at this value…"):
        examine(button("Cancel"), choose, "Chart menu", entry)
    examine(chart.get_by_role("menu"), lambda: button("Line menu: gpu 1").click())
    examine(chart.get_by_role("textbox", name="Name of gpu 1"), choose, "Line menu: gpu 1", "Rename…")
    examine(chart.get_by_role("dialog"), lambda: chart.locator(".u-over").click(button="right"))
