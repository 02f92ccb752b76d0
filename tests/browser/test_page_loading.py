"""How the code of pages is loaded: little on the first page, the rest in advance, a message when it fails."""

from __future__ import annotations

import gzip
import re

import pytest

from tests.browser.example_store import LIVE, ExampleStore
from tests.browser.looking import is_settled
from tests.browser.serving import Served

pytestmark = pytest.mark.xdist_group("browser")

FIRST_BYTES = 120_000
FETCHED = (
    "pattern => performance.getEntriesByType('resource').some(one => new RegExp(pattern).test(one.name))"
)
# Other pages are fetched three seconds after loading; a busy machine has not settled by then.
SCRIPTS_BEFORE_PREFETCH = """() => {
    const loaded = performance.getEntriesByType("navigation")[0].loadEventStart;
    const early = performance.getEntriesByType("resource").filter(entry => entry.startTime < loaded + 2900);
    return early.map(entry => entry.name).filter(name => name.endsWith(".js"));
}"""


@pytest.fixture(scope="module")
def shipped(tmp_path_factory):
    """A server of the page as users get it; of a store of its own, because a store has one server."""
    store = ExampleStore(tmp_path_factory.mktemp("shipped") / "store").fill()
    server = Served(store.folder, shipped=True)
    yield server
    server.kill()
    store.close()


@pytest.mark.slow
@pytest.mark.parametrize("path", ["/", f"/run/{LIVE}"], ids=["home", "overview"])
def test_the_first_page_needs_few_scripts(browser, shipped, path):
    context = browser.new_context(service_workers="block")
    context.request.get(shipped.link)
    page = context.new_page()
    page.goto(shipped.base + path)
    is_settled(page)
    page.wait_for_timeout(500)
    urls = page.evaluate(SCRIPTS_BEFORE_PREFETCH)
    scripts = {url: len(gzip.compress(context.request.get(url).body(), 9)) for url in urls}
    context.close()
    assert any("/assets/shell-" in url for url in scripts), scripts
    assert sum(scripts.values()) <= FIRST_BYTES, scripts


@pytest.mark.slow
def test_the_shipped_page_shows_its_charts_to_people_only(open_page, shipped):
    page = open_page(shipped, f"/run/{LIVE}")
    page.get_by_test_id("chart-loss").locator("canvas").first.wait_for()
    assert page.evaluate("window.__stepscope") is None


def test_pointing_at_a_link_fetches_its_page(open_page, shipped):
    page = open_page(shipped, "/help")
    is_settled(page)
    assert not page.evaluate(FETCHED, "ComparePage")
    page.get_by_role("navigation", name="Main").get_by_role("link", name="Compare").hover()
    page.wait_for_function(FETCHED, arg="ComparePage")


def test_a_page_that_cannot_be_fetched_says_so_and_reloading_shows_it(open_page, shipped):
    page = open_page(shipped, "/help", allowed=("net::ERR_FAILED",))
    reloads: list[str] = []
    page.on("request", lambda asked: reloads.append(asked.url) if asked.is_navigation_request() else None)
    # Until it is reloaded: the page also fetches others ahead, and would show this one by itself.
    page.route(
        re.compile("/assets/ComparePage"), lambda route: route.continue_() if reloads else route.abort()
    )
    page.get_by_role("navigation", name="Main").get_by_role("link", name="Compare").click()
    page.get_by_role("heading", name="This page could not be loaded").wait_for()
    page.get_by_role("button", name="Reload").click()
    page.get_by_role("heading", name="Compare", level=1).wait_for()


@pytest.mark.slow
def test_an_open_page_reaches_all_others_after_its_server_has_gone(tmp_path, serve, browser):
    store = ExampleStore(tmp_path / "store")
    store.light_runs(1)
    server = serve(store.folder, shipped=True)
    context = browser.new_context(service_workers="block")
    context.request.get(server.link)
    page = context.new_page()
    page.goto(f"{server.base}/help")
    page.wait_for_function(FETCHED, arg="RuleEditor", timeout=30_000)
    page.wait_for_load_state("networkidle")
    server.kill()
    for name, heading in (("Settings", "Settings"), ("Alerts", "Alerts"), ("Compare", "Compare")):
        page.get_by_role("navigation", name="Main").get_by_role("link", name=name).click()
        page.get_by_role("heading", name=heading, level=1).wait_for()
    context.close()
    store.close()
