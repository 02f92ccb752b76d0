"""What is logged appears by itself, and a server that goes away takes nothing along that was shown."""

from __future__ import annotations

import shutil

import pytest

from tests.browser.example_store import LIVE, ExampleStore
from tests.browser.looking import is_drawn, lines
from tests.browser.serving import Served

pytestmark = pytest.mark.xdist_group("browser")


@pytest.fixture(scope="module")
def training(tmp_path_factory, browser):
    """A store that is written to while it is looked at, and its server."""
    store = ExampleStore(tmp_path_factory.mktemp("live")).fill()
    server = Served(store.folder)
    yield store, server
    server.kill()
    store.close()


@pytest.fixture
def watched(training, open_page):
    """The training that runs, in a page that is live."""
    # While the server is away its worker cannot be fetched either, if the browser happens to look for it.
    away = ("Failed to load resource", "error occurred when fetching the script")
    page = open_page(training[1], f"/run/{LIVE}", allowed=away)
    is_drawn(page, "chart-loss")
    is_live(page)
    return page


def is_live(page) -> None:
    """Waits until live updates arrive."""
    page.wait_for_selector("[data-testid=live-state][data-state=live]")


def has_drawn(page, loss: float) -> None:
    """Waits until a loss is among what is drawn."""
    page.wait_for_function(
        "loss => window.__stepscope.charts.get('chart-loss').series()[0].max.includes(loss)", arg=loss
    )


def test_a_new_point_is_drawn_without_a_reload(training, watched):
    watched.evaluate("window.stayed = true")
    step = training[0].go_on(loss=7.25)
    has_drawn(watched, 7.25)
    watched.wait_for_function(
        "step => document.querySelector('[data-testid=run-step]').textContent === step", arg=f"{step:,}"
    )
    assert watched.evaluate("window.stayed")


@pytest.mark.slow
def test_paused_means_that_nothing_moves_until_it_is_resumed(training, watched):
    watched.locator("body").press(" ")
    watched.wait_for_selector("[data-testid=live-state][data-state=paused]")
    assert watched.get_by_test_id("run-header").get_by_text("Paused").is_visible()
    training[0].go_on(loss=8.25)
    watched.evaluate("fetch('api/v1/health')")
    assert 8.25 not in lines(watched, "chart-loss")[0]["max"]
    watched.locator("body").press(" ")
    has_drawn(watched, 8.25)


@pytest.mark.slow
def test_a_server_that_is_gone_is_announced_and_the_page_stays(training, watched):
    store, server = training
    before = lines(watched, "chart-loss")[0]["value"]
    server.kill()
    watched.get_by_test_id("server-gone").wait_for()
    assert lines(watched, "chart-loss")[0]["value"] == before
    assert watched.get_by_test_id("verdict").is_visible()
    store.go_on(loss=9.25)
    server.start()
    watched.get_by_role("button", name="Try now").click()
    watched.get_by_test_id("server-gone").wait_for(state="detached")
    has_drawn(watched, 9.25)


@pytest.mark.slow
def test_a_run_that_is_deleted_while_it_is_shown_is_reported(tmp_path, serve, open_page):
    store = ExampleStore(tmp_path / "store")
    store.light_runs(1)
    page = open_page(serve(store.folder), "/runs", allowed=("404",))
    with page.expect_response(lambda answer: "stream?" in answer.url and "keys=loss" in answer.url):
        page.get_by_role("link", name="sweep-0000").click()
    is_live(page)
    store.close()
    shutil.rmtree(store.folder)
    page.get_by_text("No longer in the store").first.wait_for()
    page.get_by_test_id("run-header").get_by_text("Deleted").wait_for()


@pytest.mark.slow
def test_a_new_run_appears_in_the_list(training, open_page):
    store, server = training
    page = open_page(server, "/runs")
    page.get_by_role("link", name=LIVE).wait_for()
    is_live(page)
    store.training("newcomer", store.now_ns, "running")
    page.get_by_role("link", name="newcomer").wait_for()
