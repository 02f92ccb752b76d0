"""What the menus of a chart do: alerts, pins, ranges, names, pictures, heatmaps, merging."""

from __future__ import annotations

from itertools import pairwise
from xml.etree import ElementTree

import numpy as np
import pytest

from stepscope.alerts.conditions.expression import parse
from stepscope.schema.record import Event
from stepscope.schema.series import Source
from tests.browser.example_store import FINISHED, HOST, LIVE, NS, ExampleStore
from tests.browser.looking import choose, is_drawn, lines, point_at

pytestmark = [pytest.mark.xdist_group("browser"), pytest.mark.slow]


def test_a_line_that_is_dragged_to_a_value_asks_for_an_alert_there(metrics):
    choose(metrics, "chart-loss", "Alert at this value…")
    chart = metrics.get_by_test_id("chart-loss")
    handle = chart.get_by_role("slider", name="Value of the alert")
    middle = float(handle.get_attribute("aria-valuenow"))
    box = handle.bounding_box()
    metrics.mouse.move(box["x"] + 10, box["y"] + box["height"] / 2)
    metrics.mouse.down()
    metrics.mouse.move(box["x"] + 10, box["y"] - 30)
    metrics.mouse.up()
    dragged = float(handle.get_attribute("aria-valuenow"))
    assert dragged > middle
    handle.press("Shift+ArrowUp")
    value = float(handle.get_attribute("aria-valuenow"))
    assert value > dragged
    condition = chart.locator("code").inner_text()
    assert condition == f"loss > {value:g}"
    parse(condition)
    chart.get_by_role("button", name="Create alert").click()
    chart.get_by_text(f"Alert when {condition}").wait_for()
    assert handle.count() == 0


def test_a_line_below_the_last_value_asks_for_an_alert_that_is_below(metrics):
    choose(metrics, "chart-loss", "Alert at this value…")
    chart = metrics.get_by_test_id("chart-loss")
    chart.get_by_role("slider").press("Home")
    assert chart.locator("code").inner_text().startswith("loss < ")
    chart.get_by_role("slider").press("Escape")
    assert chart.get_by_role("slider").count() == 0


@pytest.mark.parametrize("key", ["gpu/temperature_celsius", "gpu/memory_used_bytes", "gpu/utilization_ratio"])
def test_a_condition_made_in_a_chart_can_be_read_back(look, key):
    page = look(f"/run/{LIVE}/system")
    is_drawn(page, f"chart-{key}")
    choose(page, f"chart-{key}", "Alert at this value…")
    condition = page.get_by_test_id(f"chart-{key}").locator("code").inner_text()
    assert condition.startswith(f"{key} ")
    parse(condition)


def test_a_pinned_chart_is_on_the_overview_of_each_run_of_the_project_until_unpinned(served, open_page):
    page = open_page(served, f"/run/{LIVE}/metrics")
    is_drawn(page, "chart-accuracy")
    choose(page, "chart-accuracy", "Pin to Overview")
    page.get_by_text("Pinned to the Overview: accuracy").wait_for()
    page = open_page(served, f"/run/{FINISHED}")
    is_drawn(page, "pinned-accuracy")
    page.get_by_role("heading", name="Pinned").wait_for()
    choose(page, "pinned-accuracy", "Unpin from Overview")
    page.get_by_test_id("pinned").wait_for(state="detached")
    page.reload()
    is_drawn(page, "chart-loss")
    assert page.get_by_test_id("pinned").count() == 0


def test_a_chart_of_the_machine_is_pinned_with_a_line_for_each_device(served, open_page):
    page = open_page(served, f"/run/{LIVE}/system")
    is_drawn(page, "chart-gpu/power_watts")
    choose(page, "chart-gpu/power_watts", "Pin to Overview")
    page.get_by_text("Pinned to the Overview: GPU · Power").wait_for()
    page = open_page(served, f"/run/{LIVE}")
    is_drawn(page, "pinned-gpu/power_watts")
    assert len(lines(page, "pinned-gpu/power_watts")) == 8
    choose(page, "pinned-gpu/power_watts", "Unpin from Overview")
    page.get_by_test_id("pinned").wait_for(state="detached")


def test_nothing_is_pinned_where_the_server_is_read_only(tmp_path, serve, open_page):
    store = ExampleStore(tmp_path / "store")
    store.light_runs(1)
    page = open_page(serve(store.folder, "--read-only"), "/run/sweep-0000/metrics")
    is_drawn(page, "chart-loss")
    page.get_by_test_id("chart-loss").get_by_role("button", name="Chart menu").click()
    entry = page.get_by_role("menuitem", name="Pin to Overview")
    assert "read-only" in entry.inner_text()
    assert entry.get_attribute("aria-disabled") == "true"
    store.close()


def test_a_y_range_is_entered_validated_saved_and_reset(metrics):
    chart = metrics.get_by_test_id("chart-loss")
    choose(metrics, "chart-loss", "Set y range…")
    form = chart.get_by_role("form", name="y range")
    form.get_by_label("Minimum").fill("3")
    form.get_by_label("Maximum").fill("two")
    form.get_by_role("button", name="Set").click()
    assert "“two” is not a number" in form.get_by_role("alert").inner_text()
    form.get_by_label("Maximum").fill("2")
    form.get_by_role("button", name="Set").click()
    form.get_by_text("must be below the maximum").wait_for()
    form.get_by_label("Minimum").fill("")
    form.get_by_label("Maximum").press("Enter")
    chip = chart.get_by_role("button", name="y ≤ 2 ×")
    chip.wait_for()
    metrics.get_by_role("link", name="System", exact=True).click()
    metrics.get_by_role("link", name="Metrics", exact=True).click()
    is_drawn(metrics, "chart-loss")
    choose(metrics, "chart-loss", "Alert at this value…")
    slider = chart.get_by_role("slider")
    assert float(slider.get_attribute("aria-valuemax")) == 2
    chart.get_by_role("button", name="Cancel").click()
    chip.click()
    chip.wait_for(state="detached")
    choose(metrics, "chart-loss", "Alert at this value…")
    assert float(slider.get_attribute("aria-valuemax")) > 3


@pytest.fixture
def temperatures(served, open_page):
    page = open_page(served, f"/run/{LIVE}/system")
    is_drawn(page, "chart-gpu/temperature_celsius")
    return page


def test_a_line_gets_another_name_in_legend_and_tooltip_and_its_own_back(temperatures):
    chart = temperatures.get_by_test_id("chart-gpu/temperature_celsius")
    opener = chart.get_by_role("button", name="Line menu: gpu 3")
    opener.focus()
    opener.press("Enter")
    chart.get_by_role("menuitem", name="Rename…").press("Enter")
    box = chart.get_by_role("textbox", name="Name of gpu 3")
    box.fill("the hot one")
    box.press("Enter")
    chart.get_by_role("button", name="the hot one", exact=True).wait_for()
    point_at(temperatures, "chart-gpu/temperature_celsius")
    chart.get_by_role("rowheader", name="the hot one").wait_for()
    other = "chart-gpu/power_watts"
    is_drawn(temperatures, other)
    assert "the hot one" in [line["label"] for line in lines(temperatures, other)]
    chart.get_by_role("button", name="Line menu: the hot one").click()
    chart.get_by_role("menuitem", name="Rename…").click()
    box.fill("")
    box.press("Enter")
    chart.get_by_role("button", name="gpu 3", exact=True).wait_for()


@pytest.mark.slow
def test_a_name_that_is_being_typed_is_kept_while_the_page_is_scrolled_away(temperatures):
    chart = temperatures.get_by_test_id("chart-gpu/temperature_celsius")
    chart.get_by_role("button", name="Line menu: gpu 3").click()
    chart.get_by_role("menuitem", name="Rename…").click()
    box = chart.get_by_role("textbox", name="Name of gpu 3")
    box.fill("half a na")
    temperatures.set_viewport_size({"width": 1280, "height": 120})
    temperatures.mouse.move(640, 100)
    temperatures.mouse.wheel(0, 100_000)
    bottom = "document.querySelector(`[data-testid='${name}']`).getBoundingClientRect().bottom"
    temperatures.wait_for_function(
        f"name => {bottom} < -4 * innerHeight", arg="chart-gpu/temperature_celsius"
    )
    # The distance of a chart is measured in a later frame.
    temperatures.evaluate(
        "() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
    )
    is_drawn(temperatures, "chart-gpu/temperature_celsius")
    assert box.input_value() == "half a na"
    box.press("Enter")
    chart.get_by_role("button", name="half a na", exact=True).wait_for()


def test_a_pinned_line_comes_first_in_legend_and_tooltip(temperatures):
    chart = temperatures.get_by_test_id("chart-gpu/temperature_celsius")
    assert "gpu 0" in chart.get_by_role("listitem").first.inner_text()
    chart.get_by_role("button", name="Line menu: gpu 0").click()
    chart.get_by_role("menuitemcheckbox", name="Pin (first, never faded)").click()
    chart.get_by_role("button", name="Line menu: gpu 2").click()
    chart.get_by_role("menuitemcheckbox", name="Pin (first, never faded)").click()
    chart.get_by_role("button", name="Line menu: gpu 0").click()
    chart.get_by_role("menuitemcheckbox", name="Pin (first, never faded)").click()
    chart.get_by_role("listitem").first.get_by_text("gpu 2").wait_for()
    point_at(temperatures, "chart-gpu/temperature_celsius")
    first = chart.get_by_role("status").get_by_role("rowheader").first
    assert first.inner_text() == "gpu 2"


def test_many_epochs_share_marks_in_the_event_lane(tmp_path, serve, open_page):
    store = ExampleStore(tmp_path / "store")
    store.light_runs(1)
    begun_ns = store.now_ns - 2 * 3_600 * NS
    with store.store.transaction():
        for epoch in range(400):
            event = Event("epoch", begun_ns + epoch * NS // 100, epoch // 100, 0, "s1", {"epoch": epoch})
            store.store.put_event("sweep-0000", event)
    page = open_page(serve(store.folder), "/run/sweep-0000")
    lane = page.get_by_test_id("events")
    lane.locator(".mark").first.wait_for()
    boxes = [mark.bounding_box() for mark in lane.locator(".mark").all()]
    assert all(
        left["x"] + 23 <= other["x"] for left, other in pairwise(sorted(boxes, key=lambda box: box["x"]))
    )
    assert ", and " in lane.locator(".mark").first.get_attribute("aria-label")
    store.close()


def test_the_picture_of_a_chart_is_copied_as_vectors_and_saved_where_the_clipboard_refuses(metrics):
    metrics.context.grant_permissions(["clipboard-read", "clipboard-write"])
    choose(metrics, "chart-loss", "Copy picture (SVG)")
    metrics.get_by_text("Picture copied").wait_for()
    picture = ElementTree.fromstring(metrics.evaluate("navigator.clipboard.readText()"))
    words = [text.text for text in picture.iter("{http://www.w3.org/2000/svg}text")]
    assert {"loss", "1,000", "2,000"} <= set(words)
    longest = max(len(path.get("d")) for path in picture.iter("{http://www.w3.org/2000/svg}path"))
    assert longest > 1_000
    metrics.evaluate("() => { navigator.clipboard.writeText = () => Promise.reject(new Error('no')); }")
    with metrics.expect_download() as saved:
        choose(metrics, "chart-loss", "Copy picture (SVG)")
    assert saved.value.suggested_filename == "loss.svg"
    metrics.get_by_text("Picture saved").wait_for()


@pytest.fixture
def sixteen_devices(tmp_path, serve, open_page):
    store = ExampleStore(tmp_path / "store")
    store.light_runs(1)
    begun_ns, seconds = store.now_ns - 2 * 3_600 * NS, 60
    times = begun_ns + np.arange(seconds) * NS
    for gpu in range(16):
        source = Source("sweep-0000", "s1", None, HOST, f"GPU-{gpu:04x}", "seconds")
        columns = {"gpu/temperature_celsius": 50 + gpu + np.zeros(seconds)}
        store.append(source, columns, np.zeros(seconds), times)
    page = open_page(serve(store.folder), "/run/sweep-0000/system?x=wall")
    is_drawn(page, "chart-gpu/temperature_celsius")
    yield page
    store.close()


def test_many_devices_are_shown_as_a_heatmap_with_a_row_each(sixteen_devices):
    chart = sixteen_devices.get_by_test_id("chart-gpu/temperature_celsius")
    assert len(lines(sixteen_devices, "chart-gpu/temperature_celsius")) == 2
    chart.get_by_role("button", name="heatmap", exact=True).click()
    field = chart.locator("figure canvas")
    field.wait_for()
    box = field.bounding_box()
    sixteen_devices.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] - 3)
    chart.get_by_text("GPU-000f, ").get_by_text("65 °C").wait_for()
    chart.get_by_text("Show as table").click()
    row = chart.get_by_role("row", name="GPU-000f")
    assert row.inner_text().split("\t")[1:] == ["65 °C", "65 °C"]
    chart.get_by_role("button", name="Chart menu").click()
    picture = chart.get_by_role("menuitem", name="Copy picture (SVG)")
    assert picture.get_attribute("aria-disabled") == "true"
    sixteen_devices.keyboard.press("Escape")
    chart.get_by_role("button", name="expand", exact=True).click()
    sixteen_devices.wait_for_function(
        "() => window.__stepscope.charts.get('chart-gpu/temperature_celsius').series().length === 16"
    )
    assert chart.get_by_role("button", name="heatmap", exact=True).get_attribute("aria-pressed") == "false"


def merge(page, chart: str, other: str) -> None:
    """Merges another chart into a chart."""
    choose(page, chart, "Merge with another chart…")
    form = page.get_by_test_id(chart).get_by_role("form", name="Merge with another chart")
    form.get_by_role("combobox").select_option(label=other)
    form.get_by_role("button", name="Merge").click()


def keys_of(page, chart: str) -> set[str]:
    return {line["key"] for line in lines(page, chart)}


def test_another_chart_joins_this_one_until_they_are_separated(metrics):
    merge(metrics, "chart-loss", "step_seconds")
    chart = metrics.get_by_test_id("chart-loss")
    is_drawn(metrics, "chart-loss")
    assert keys_of(metrics, "chart-loss") == {"loss", "step_seconds"}
    point_at(metrics, "chart-loss")
    row = chart.get_by_role("status").get_by_role("row", name="step seconds")
    assert " ms" in row.inner_text()
    merge(metrics, "chart-loss", "val/loss")
    is_drawn(metrics, "chart-loss")
    assert keys_of(metrics, "chart-loss") == {"loss", "step_seconds", "val/loss"}
    chart.get_by_role("button", name="merged with step_seconds ✕").click()
    chart.get_by_role("button", name="merged with val/loss ✕").click()
    is_drawn(metrics, "chart-loss")
    assert keys_of(metrics, "chart-loss") == {"loss"}


def test_merged_charts_are_pinned_together_each_in_its_unit(metrics):
    merge(metrics, "chart-loss", "accuracy")
    is_drawn(metrics, "chart-loss")
    choose(metrics, "chart-loss", "Pin to Overview")
    metrics.get_by_text("Pinned to the Overview: loss + accuracy").wait_for()
    metrics.get_by_role("link", name="Overview", exact=True).click()
    is_drawn(metrics, "pinned-loss")
    assert keys_of(metrics, "pinned-loss") == {"loss", "accuracy"}
    point_at(metrics, "pinned-loss", 0.3)
    row = metrics.get_by_test_id("pinned-loss").get_by_role("status").get_by_role("row", name="accuracy")
    assert "%" in row.inner_text()
    choose(metrics, "pinned-loss", "Unpin from Overview")
    metrics.get_by_test_id("pinned").wait_for(state="detached")


def test_a_third_unit_is_not_merged_and_charts_out_of_sight_are_offered(metrics):
    merge(metrics, "chart-loss", "step_seconds")
    is_drawn(metrics, "chart-loss")
    choose(metrics, "chart-loss", "Merge with another chart…")
    form = metrics.get_by_test_id("chart-loss").get_by_role("form", name="Merge with another chart")
    form.get_by_role("button", name="Merge").click()
    form.get_by_text("Choose a chart first.").wait_for()
    options = {option.inner_text(): option.is_disabled() for option in form.locator("option").all()}
    assert options["accuracy (would be a third unit)"] is True
    assert options["phase/optimizer_seconds"] is False
    assert "loss" not in options
