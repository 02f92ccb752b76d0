"""A run in trouble says so first: on its own page, at home, in the list and beside others."""

from __future__ import annotations

import pytest

from tests.browser.looking import is_settled
from tests.browser.serving import Served
from tests.browser.troubled_store import FAILED, KILLED, LONG, NAN, REASON, SILENT, TroubledStore

pytestmark = pytest.mark.xdist_group("browser")


@pytest.fixture(scope="module")
def troubled(tmp_path_factory):
    """A server of a store full of trouble."""
    store = TroubledStore(tmp_path_factory.mktemp("troubled") / "store").fill()
    server = Served(store.folder)
    yield server
    server.kill()
    store.close()


def tops(page, *names: str) -> list[float]:
    return [page.get_by_test_id(name).bounding_box()["y"] for name in names]


@pytest.mark.slow
@pytest.mark.parametrize("phone", [False, True])
def test_a_failed_run_leads_with_exception_traceback_and_last_lines(troubled, open_page, phone):
    page = open_page(troubled, f"/run/{FAILED}", phone=phone)
    failure = page.get_by_test_id("failure")
    failure.wait_for()
    assert failure.locator(".raised").inner_text() == REASON
    trace = page.get_by_role("region", name="Traceback")
    assert trace.inner_text().endswith("KeyError: 'mixup'")
    printed = page.get_by_role("region", name="Last lines of the console").inner_text()
    assert printed.endswith("epoch 29 loss 0.067")
    first, second = tops(page, "ended", "tile-throughput")
    assert first < second
    assert page.get_by_test_id("verdict").count() == 0, "the failure is shown once"
    assert page.evaluate("document.documentElement.scrollWidth") <= page.viewport_size["width"]


@pytest.mark.slow
def test_a_killed_run_leads_with_what_became_of_its_process(troubled, open_page):
    page = open_page(troubled, f"/run/{KILLED}")
    page.get_by_test_id("failure").get_by_text("process 4000 was killed (no error message)").wait_for()
    page.get_by_text("A killed process leaves no traceback.").wait_for()


@pytest.mark.slow
@pytest.mark.parametrize("phone", [False, True])
def test_home_has_failures_and_nan_losses_under_needs_attention(troubled, open_page, phone):
    page = open_page(troubled, "/", phone=phone)
    attention = page.get_by_role("region", name="Needs attention")
    attention.get_by_text(REASON).first.wait_for()
    attention.get_by_text("Loss became NaN").first.wait_for()


@pytest.mark.slow
@pytest.mark.parametrize("phone", [False, True])
def test_the_list_has_those_that_need_attention_with_exception_and_nan(troubled, open_page, phone):
    page = open_page(troubled, "/runs", phone=phone)
    page.get_by_test_id("needs-attention").click()
    page.wait_for_url("**attention**")
    page.wait_for_function("() => document.querySelector('[data-testid=run-count]')?.textContent === '5'")
    table = page.get_by_test_id("run-table")
    assert table.get_by_text(LONG).count() == 0
    assert table.get_by_text(REASON).count() == 2
    losses = table.locator(".bad:not(.verdict)", has_text="NaN")
    assert losses.count() == 2
    page.get_by_test_id("needs-attention").click()
    table.get_by_text(LONG).wait_for()


@pytest.mark.slow
def test_the_failure_in_the_list_links_to_its_details(troubled, open_page):
    page = open_page(troubled, "/runs")
    page.get_by_test_id("run-table").get_by_text(REASON).first.click()
    page.get_by_test_id("failure").get_by_text(REASON).wait_for()


@pytest.mark.slow
def test_a_comparison_has_nan_for_a_loss_that_ended_so(troubled, open_page):
    page = open_page(troubled, f"/compare?runs={LONG},{NAN}")
    row = page.get_by_role("row", name="Loss, median of the last 10%")
    row.wait_for()
    assert row.get_by_role("cell").nth(1).inner_text() == "NaN"


def test_the_page_of_a_nan_run_says_that_its_last_loss_is_nan(troubled, open_page):
    page = open_page(troubled, f"/run/{NAN}")
    ended = page.get_by_test_id("ended")
    ended.wait_for()
    assert ended.locator("dl > div", has_text="Last loss").locator("dd").inner_text() == "NaN"


def test_the_why_link_leads_to_the_same_verdict(troubled, open_page):
    page = open_page(troubled, f"/run/{NAN}")
    banner = page.get_by_test_id("verdict")
    said = banner.locator(".headline").inner_text()
    banner.get_by_role("link", name="Why").click()
    page.wait_for_url("**/diagnose")
    page.get_by_test_id("findings").wait_for()
    assert page.get_by_test_id("verdict").locator(".headline").inner_text() == said


def test_a_failed_run_is_not_called_healthy_where_it_is_diagnosed(troubled, open_page):
    page = open_page(troubled, f"/run/{FAILED}/diagnose")
    findings = page.get_by_test_id("findings")
    findings.wait_for()
    assert findings.get_by_test_id("failure").locator(".raised").inner_text() == REASON
    assert "Healthy" not in findings.inner_text()


@pytest.mark.slow
@pytest.mark.parametrize("phone", [False, True])
def test_logs_that_were_not_recorded_say_why_the_run_failed_and_how_to_record_them(
    troubled, open_page, phone
):
    page = open_page(troubled, f"/run/{SILENT}/logs", phone=phone)
    page.get_by_test_id("failure").get_by_text(REASON).wait_for()
    missing = page.get_by_test_id("not-captured").inner_text()
    assert "stepscope run -- python train.py" in missing
    assert "STEPSCOPE_LOGGING__DIRECTORY=logs python train.py" in missing
    assert page.evaluate("document.documentElement.scrollWidth") <= page.viewport_size["width"]


@pytest.mark.slow
def test_recorded_logs_end_with_the_traceback(troubled, open_page):
    page = open_page(troubled, f"/run/{FAILED}/logs")
    is_settled(page)
    page.get_by_test_id("failure").get_by_text(REASON).wait_for()
    assert page.get_by_test_id("console").locator(".text").last.inner_text() == REASON
