"""Runs over each other: alignment, groups, warm-up, baseline, presets."""

from __future__ import annotations

import numpy as np
import pytest

from stepscope.schema.series import Source
from tests.browser.example_store import HOST, NS, ExampleStore
from tests.browser.looking import is_drawn, is_settled, lines

pytestmark = [pytest.mark.xdist_group("browser"), pytest.mark.slow]

STEPS = 300
RATES = (0.1, 0.1, 0.01, 0.01)
NAMES = [f"seed-{number}" for number in range(len(RATES))]
ADDRESS = f"/compare?runs={','.join(NAMES)}"


def sweep(store: ExampleStore) -> None:
    """Four short trainings, hours apart: two rates, two seeds each, batches of two sizes."""
    for number, (name, rate) in enumerate(zip(NAMES, RATES, strict=True)):
        begun_ns = store.now_ns - (number + 1) * 3_600 * NS
        at = np.arange(STEPS)
        took = np.full(STEPS, 0.1 * (1 + number % 2))
        took[:20] = 3.0
        times = begun_ns + (np.cumsum(took) * NS).astype(np.int64)
        config = {"optimizer": {"lr": rate}, "seed": number, "width": 64 if number else "64", "depth": 4}
        store.processes(name, begun_ns, int(times[-1]), "finished", facts={"config": config}, ranks=1)
        columns = {
            "loss": 2 * np.exp(-at / 100) + rate + number % 2,
            "step_seconds": took,
            "samples_total": (at + 1.0) * 32 * (1 + number % 2),
        }
        store.append(Source(name, "s1", 0, HOST), columns, at, times)


@pytest.fixture(scope="module")
def compared(tmp_path_factory, browser):
    from tests.browser.serving import Served

    store = ExampleStore(tmp_path_factory.mktemp("compared") / "store")
    sweep(store)
    server = Served(store.folder)
    yield server
    server.kill()
    store.close()


def test_runs_are_aligned_by_step_samples_or_active_time(compared, open_page):
    page = open_page(compared, ADDRESS)
    is_drawn(page, "chart-loss")
    by = page.get_by_role("group", name="Aligned by")
    assert [line["x"][-1] for line in lines(page, "chart-loss")] == [STEPS - 1] * 4
    by.get_by_role("button", name="Samples").click()
    page.wait_for_function("() => window.__stepscope.charts.get('chart-loss').series()[0].x.at(-1) > 5000")
    assert [line["x"][-1] for line in lines(page, "chart-loss")] == [9_600, 19_200] * 2
    by.get_by_role("button", name="Active time").click()
    page.wait_for_function("() => window.__stepscope.charts.get('chart-loss').series()[0].x.at(-1) < 500")
    assert [line["x"][-1] for line in lines(page, "chart-loss")] == pytest.approx([88, 116] * 2, abs=2)
    tokens = by.get_by_role("button", name="Tokens")
    assert tokens.is_disabled()
    assert tokens.get_attribute("title") == "No run logged a count of tokens."


def test_a_run_that_is_not_there_does_not_hide_the_others(compared, open_page):
    page = open_page(compared, f"/compare?runs=nobody,{NAMES[0]},{NAMES[1]}", allowed=("404",))
    is_drawn(page, "chart-loss")
    note = page.get_by_test_id("unknown-runs")
    assert "Not in this store: nobody." in note.inner_text()
    note.get_by_role("button", name="Remove it").click()
    page.wait_for_url(lambda address: "nobody" not in address)
    note.wait_for(state="detached")
    assert len(lines(page, "chart-loss")) == 2


def test_an_alignment_that_the_runs_do_not_have_is_by_step(compared, open_page):
    page = open_page(compared, f"{ADDRESS}&x=tokens")
    is_drawn(page, "chart-loss")
    assert lines(page, "chart-loss")[0]["x"][-1] == STEPS - 1


def test_runs_with_one_value_become_one_line_with_a_band(compared, open_page):
    page = open_page(compared, ADDRESS)
    is_drawn(page, "chart-loss")
    page.get_by_label("Group by").select_option("optimizer.lr")
    page.wait_for_function("() => window.__stepscope.charts.get('chart-loss')?.series().length === 2")
    low, high = lines(page, "chart-loss")
    assert [low["label"], high["label"]] == ["lr 0.01 (2 runs)", "lr 0.1 (2 runs)"]
    assert low["value"][0] == pytest.approx(2.51)
    legend = page.get_by_test_id("chart-loss").get_by_role("button", name="lr 0.1 (2 runs)", exact=True)
    legend.wait_for()
    heads = page.get_by_test_id("figures").locator("thead").inner_text()
    assert "lr 0.01" in heads
    assert heads.count("2 runs") == 2
    row = page.get_by_test_id("figures").get_by_role("row", name="Step time, p50")
    assert "100 ms – 200 ms" in row.inner_text()
    page.reload()
    is_drawn(page, "chart-loss")
    assert len(lines(page, "chart-loss")) == 2


def test_a_band_of_quantiles_is_narrower(compared, open_page):
    page = open_page(compared, f"{ADDRESS}&group=depth")
    is_drawn(page, "chart-loss")
    (whole,) = lines(page, "chart-loss")
    page.get_by_role("button", name="10 to 90%").click()
    page.wait_for_function(
        "high => window.__stepscope.charts.get('chart-loss').series()[0].max[0] < high", arg=whole["max"][0]
    )


def test_the_warm_up_counts_where_one_wants_it_to(compared, open_page):
    page = open_page(compared, ADDRESS)
    figures = page.get_by_test_id("figures")
    figures.get_by_text("The first 20 steps of each run are excluded.").wait_for()
    tail = figures.get_by_role("row", name="Step time, p95")
    assert "100 ms" in tail.inner_text()
    figures.get_by_role("button", name="All steps").click()
    figures.get_by_text("No steps are excluded.").wait_for()
    assert "3 s" in tail.inner_text()


def test_another_baseline_turns_the_differences_round(compared, open_page):
    page = open_page(compared, ADDRESS)
    row = page.get_by_test_id("figures").get_by_role("row", name="Step time, p50")
    row.get_by_text("▲ +100% worse").first.wait_for()
    page.get_by_role("list", name="Compared runs").get_by_role("button", name="Set as baseline").first.click()
    row.get_by_text("▼ -50% better").first.wait_for()


def test_a_preset_draws_what_it_is_named_after(compared, open_page):
    page = open_page(compared, ADDRESS)
    is_drawn(page, "chart-loss")
    page.get_by_role("group", name="Preset").get_by_role("button", name="Performance").click()
    page.get_by_test_id("chart-loss").wait_for(state="detached")
    is_drawn(page, "chart-step_seconds")
    page.get_by_role("group", name="Preset").get_by_role("button", name="Quality").click()
    page.get_by_test_id("chart-step_seconds").wait_for(state="detached")
    is_drawn(page, "chart-loss")


def test_the_configuration_shows_what_differs_and_where_types_do(compared, open_page):
    page = open_page(compared, ADDRESS)
    is_settled(page)
    diff = page.get_by_test_id("config-diff")
    row = diff.get_by_role("row", name="width")
    row.get_by_text("types differ").wait_for()
    assert row.get_by_role("cell").all_inner_texts()[:2] == ['"64"', "64"]
    assert diff.get_by_role("row", name="depth").count() == 0
    diff.get_by_role("button", name="All").click()
    diff.get_by_role("row", name="depth").wait_for()
