"""What is logged appears by itself, and a server that goes away takes nothing along that was shown."""

from __future__ import annotations

import pytest

from tests.browser.example_store import LIVE, NS, STEP_S, STEPS, ExampleStore
from tests.browser.looking import is_drawn, lines


@pytest.fixture
def store(tmp_path):
    made = ExampleStore(tmp_path / "live").fill()
    yield made
    made.close()


def go_on(store: ExampleStore, loss: float) -> None:
    """One more step, as the agent would store it."""
    store.log_live(STEPS, loss=loss, step_seconds=0.2)
    begun_ns = store.now_ns - int(STEPS * STEP_S) * NS
    store.processes(LIVE, begun_ns, store.now_ns + NS, "running")


def test_a_new_point_is_drawn_without_a_reload(store, serve, open_page):
    page = open_page(serve(store.folder), f"/run/{LIVE}")
    is_drawn(page, "chart-loss")
    page.wait_for_selector("[data-testid=live-state][data-state=live]")
    page.evaluate("window.stayed = true")
    go_on(store, loss=7.25)
    page.wait_for_function("() => window.__stepscope.charts.get('chart-loss').series()[0].max.includes(7.25)")
    page.wait_for_function("() => document.querySelector('[data-testid=run-step]').textContent === '3,000'")
    assert page.evaluate("window.stayed")


def test_paused_means_that_nothing_moves_until_it_is_resumed(store, serve, open_page):
    page = open_page(serve(store.folder), f"/run/{LIVE}")
    is_drawn(page, "chart-loss")
    page.wait_for_selector("[data-testid=live-state][data-state=live]")
    page.locator("body").press(" ")
    page.wait_for_selector("[data-testid=live-state][data-state=paused]")
    assert page.get_by_test_id("run-header").get_by_text("Paused").is_visible()
    go_on(store, loss=7.25)
    page.evaluate("fetch('api/v1/health')")
    assert 7.25 not in lines(page, "chart-loss")[0]["max"]
    page.locator("body").press(" ")
    page.wait_for_function("() => window.__stepscope.charts.get('chart-loss').series()[0].max.includes(7.25)")


def test_a_server_that_is_gone_is_announced_and_the_page_stays(store, serve, open_page):
    server = serve(store.folder)
    page = open_page(server, f"/run/{LIVE}", allowed="Failed to load resource")
    is_drawn(page, "chart-loss")
    page.wait_for_selector("[data-testid=live-state][data-state=live]")
    before = lines(page, "chart-loss")[0]["value"]
    server.kill()
    page.get_by_test_id("server-gone").wait_for()
    assert lines(page, "chart-loss")[0]["value"] == before
    assert page.get_by_test_id("verdict").is_visible()
    go_on(store, loss=7.25)
    server.start()
    page.get_by_role("button", name="Try now").click()
    page.get_by_test_id("server-gone").wait_for(state="detached")
    page.wait_for_function("() => window.__stepscope.charts.get('chart-loss').series()[0].max.includes(7.25)")


def test_a_new_run_appears_in_the_list(store, serve, open_page):
    page = open_page(serve(store.folder), "/runs")
    page.get_by_role("link", name=LIVE).wait_for()
    page.wait_for_selector("[data-testid=live-state][data-state=live]")
    store.training("just-begun", store.now_ns, "running")
    page.get_by_role("link", name="just-begun").wait_for()
