"""Settings: units that hold everywhere, and the token: what it is for, and another one."""

from __future__ import annotations

import pytest

from tests.browser.conftest import Visitor
from tests.browser.example_store import LIVE, ExampleStore
from tests.browser.looking import is_settled

pytestmark = [pytest.mark.xdist_group("browser"), pytest.mark.slow]


def test_units_hold_on_every_page_and_are_remembered(served, open_page):
    page = open_page(served, "/settings")
    page.get_by_role("group", name="Memory").get_by_role("button", name="GB (10⁹)").click()
    page.get_by_role("group", name="Temperature").get_by_role("button", name="°F").click()
    page.get_by_role("group", name="Durations").get_by_role("button", name="1:12:00").click()
    page.goto(f"{served.base}/run/{LIVE}")
    is_settled(page)
    memory = page.get_by_test_id("tile-memory")
    memory.get_by_text("GB of").wait_for()
    assert "GiB" not in page.locator("main").inner_text()
    page.goto(f"{served.base}/run/{LIVE}/system")
    is_settled(page)
    page.get_by_text("°F").first.wait_for()
    page.goto(f"{served.base}/runs")
    is_settled(page)
    page.get_by_text("0:10:01").first.wait_for()


def test_the_command_for_programs_reads_the_token_from_its_file(served, open_page):
    token = served.link.partition("token=")[2]
    page = open_page(served, "/settings")
    access = page.get_by_test_id("access")
    access.get_by_text("$(cat").wait_for()
    assert token not in page.content()


def test_a_new_token_shuts_others_out_and_this_browser_continues(tmp_path, serve, open_page, browser):
    store = ExampleStore(tmp_path / "renewed")
    store.light_runs(1)
    server = serve(store.folder)
    other = Visitor(browser, server)
    other.go("/runs")
    page = open_page(server, "/settings")
    access = page.get_by_test_id("access")
    access.get_by_role("button", name="Create a new token").click()
    page.get_by_role("dialog").get_by_role("button", name="Create a new token").click()
    page.get_by_text("New token created").wait_for()
    page.goto(f"{server.base}/runs")
    page.get_by_text("sweep-0000").wait_for()
    assert other.context.request.get(f"{server.base}/api/v1/meta").status == 401
    assert other.context.request.get(server.link).status == 401
    other.context.close()
    store.close()


def test_a_server_without_a_token_says_so(tmp_path, serve, open_page):
    store = ExampleStore(tmp_path / "open")
    store.light_runs(1)
    page = open_page(serve(store.folder, "--no-token"), "/settings")
    access = page.get_by_test_id("access")
    access.get_by_text("--no-token").wait_for()
    assert access.get_by_role("button").count() == 0
    store.close()


def test_a_server_that_is_read_only_makes_no_token(tmp_path, serve, open_page):
    store = ExampleStore(tmp_path / "kept")
    store.light_runs(1)
    page = open_page(serve(store.folder, "--read-only"), "/settings")
    button = page.get_by_test_id("access").get_by_role("button", name="Create a new token")
    button.wait_for()
    assert button.is_disabled()
    store.close()
