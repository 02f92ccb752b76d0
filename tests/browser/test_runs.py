"""The list of runs: filter, completion, columns, sorting, many rows, archive and compare."""

from __future__ import annotations

import pytest

from tests.browser.example_store import BEGUN, CRASHED, FINISHED, LIVE, PLAIN, ExampleStore

pytestmark = [pytest.mark.xdist_group("browser"), pytest.mark.slow]

ROWS = "[role=row] a.name"


@pytest.fixture
def runs(served, open_page):
    page = open_page(served, "/runs")
    page.get_by_role("link", name=LIVE).wait_for()
    return page


def names(page) -> list[str]:
    """The runs in the table, from the top."""
    return page.locator(ROWS).all_inner_texts()


def test_a_filter_narrows_the_list_and_is_in_the_url(runs):
    runs.get_by_test_id("run-filter").fill("status:running")
    runs.get_by_role("link", name=CRASHED).wait_for(state="detached")
    assert set(names(runs)) == {LIVE, BEGUN}
    assert "filter=status" in runs.url


def test_a_mistake_is_underlined_and_the_table_stays(runs):
    runs.get_by_test_id("run-filter").fill("loss<abc")
    runs.locator("#filter-fault").wait_for()
    assert runs.locator(".under u").inner_text() == "loss<abc"
    assert LIVE in names(runs)


def test_keys_and_values_are_completed(runs):
    box = runs.get_by_test_id("run-filter")
    box.press_sequentially("stat")
    runs.get_by_role("option", name="status:").wait_for()
    box.press("Tab")
    assert box.input_value() == "status:"
    box.press_sequentially("fin")
    runs.get_by_role("option", name="status:finished").wait_for()
    box.press("Tab")
    # What was typed on the way there has been a filter too, and some of it finds nothing.
    runs.get_by_role("link", name=CRASHED).wait_for(state="detached")
    runs.get_by_role("link", name=FINISHED).wait_for()
    assert names(runs) == [FINISHED]


def test_a_column_of_the_configuration_can_be_added_and_is_remembered(runs):
    runs.get_by_test_id("columns").click()
    runs.get_by_label("data.batch_size").check()
    runs.locator("[role=columnheader]", has_text="data.batch_size").wait_for()
    row = runs.locator("[role=row]", has_text=CRASHED)
    assert "512" in row.inner_text()
    runs.goto(runs.url.split("?")[0])
    runs.locator("[role=columnheader]", has_text="data.batch_size").wait_for()


def test_a_click_on_a_heading_sorts(runs):
    assert names(runs) != sorted(names(runs))
    runs.get_by_role("button", name="Name").click()
    runs.wait_for_url("**sort=name**")
    runs.wait_for_selector("[role=columnheader][aria-sort=ascending]")
    runs.wait_for_function(
        "rows => { const all = [...document.querySelectorAll(rows)].map(row => row.innerText);"
        " return all.length > 3 && all.join() === [...all].sort().join(); }",
        arg=ROWS,
    )


def test_ticked_runs_are_compared(runs):
    runs.get_by_label(f"Select {LIVE}").check()
    runs.get_by_label(f"Select {CRASHED}").check()
    runs.get_by_role("region", name="Selected runs").get_by_role("button", name="Compare").click()
    runs.get_by_test_id("figures").get_by_text("Peak memory").wait_for()
    diff = runs.get_by_test_id("config-diff")
    assert "data.batch_size" in diff.inner_text()
    assert "seed" not in diff.inner_text()
    diff.get_by_role("button", name="All").click()
    diff.get_by_text("seed").wait_for()


def test_archived_runs_leave_the_list_and_can_be_brought_back(tmp_path, serve, open_page):
    store = ExampleStore(tmp_path / "few")
    store.light_runs(3)
    page = open_page(serve(store.folder), "/runs")
    archived, other = (page.get_by_role("link", name=f"sweep-000{number}") for number in (1, 2))
    page.get_by_label("Select sweep-0001").check()
    page.get_by_role("region", name="Selected runs").get_by_role("button", name="Archive").click()
    archived.wait_for(state="detached")
    page.get_by_role("button", name="Include archived").click()
    archived.wait_for()
    other.wait_for()
    page.get_by_role("button", name="Include archived").click()
    archived.wait_for(state="detached")
    page.get_by_role("button", name="Undo").click()
    archived.wait_for()
    store.close()


def test_of_a_thousand_runs_only_those_in_view_are_drawn(tmp_path, serve, open_page):
    store = ExampleStore(tmp_path / "many")
    store.light_runs(1_100)
    page = open_page(serve(store.folder), "/runs")
    page.get_by_role("link", name="sweep-0000").wait_for()
    assert page.get_by_test_id("run-count").inner_text() == "1,100"
    assert page.locator("[role=row]").count() < 80
    page.locator("[role=table]").evaluate("table => table.scrollTo(0, table.scrollHeight)")
    page.get_by_role("link", name="sweep-1099").wait_for()
    assert page.locator("[role=row]").count() < 80
    store.close()


def test_a_run_is_renamed_in_its_header(look):
    page = look(f"/run/{PLAIN}")
    page.get_by_test_id("run-name").click()
    page.get_by_label("Name of the run").fill("a better name")
    page.get_by_label("Name of the run").press("Enter")
    page.get_by_role("heading", name="a better name").wait_for()
    page.reload()
    page.get_by_role("heading", name="a better name").wait_for()
