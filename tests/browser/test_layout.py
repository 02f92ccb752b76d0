"""Nothing leaves its place: tiles, event lanes, alerts, axes, tabs and full screens."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from stepscope.schema.run import Process
from stepscope.schema.series import Source
from tests.browser.example_store import FINISHED, HOST, LIVE, NS
from tests.browser.looking import choose, is_drawn, is_settled
from tests.browser.serving import Served
from tests.browser.troubled_store import EXPLODED, FAST, LONG, NAN, WORDY, TroubledStore

pytestmark = [pytest.mark.xdist_group("browser"), pytest.mark.slow]

TILES = ("throughput", "step_time", "gpu", "memory")
LABEL_HEIGHT = 11
"""Of a label in a small chart; its box is as high as a line of text."""

LEAVING = """(box, within) => {
  const outer = box.getBoundingClientRect();
  return [...box.querySelectorAll(within)].map(node => {
    const range = document.createRange();
    range.selectNodeContents(node);
    return [node.textContent.trim(), range.getBoundingClientRect()];
  }).filter(([, inner]) => inner.width > 0 && (inner.left < outer.left - 1 || inner.right > outer.right + 1
    || inner.top < outer.top - 1 || inner.bottom > outer.bottom + 1)).map(([text]) => text);
}"""
"""The texts in a box that are drawn outside it."""

INK_AT_THE_LEFT = """name => {
  const canvas = document.querySelector(`[data-testid="${name}"] canvas`);
  const over = document.querySelector(`[data-testid="${name}"] .u-over`).getBoundingClientRect();
  const left = over.left - canvas.getBoundingClientRect().left - 3;
  const scale = canvas.width / canvas.getBoundingClientRect().width;
  const { data } = canvas.getContext("2d").getImageData(0, 0, left * scale, (over.height - 12) * scale);
  return data.filter((value, at) => at % 4 === 3 && value > 0).length;
}"""
"""How much is drawn beside the left edge of a plot, above its lowest label."""


@pytest.fixture(scope="module")
def troubled(tmp_path_factory):
    store = TroubledStore(tmp_path_factory.mktemp("layout") / "store").fill()
    store.alarms()
    server = Served(store.folder)
    yield server
    server.kill()
    store.close()


def overlapping(boxes: list[dict]) -> list[tuple[dict, dict]]:
    ordered = sorted(boxes, key=lambda box: box["x"])
    return [(a, b) for a, b in itertools.pairwise(ordered) if a["x"] + a["width"] > b["x"] + 1]


@pytest.mark.parametrize("width", [1440, 1024, 390])
def test_no_text_leaves_a_tile(troubled, open_page, width):
    page = open_page(troubled, f"/run/{LONG}", phone=width == 390)
    page.set_viewport_size({"width": width, "height": 900})
    for name in TILES:
        tile = page.get_by_test_id(f"tile-{name}")
        tile.wait_for()
        assert tile.evaluate(LEAVING, "h2, .state, .value, .detail li") == [], name


@pytest.mark.parametrize("width", [1440, 1024, 390])
def test_a_long_name_leaves_room_for_the_figures_beside_it(troubled, open_page, width):
    page = open_page(troubled, f"/run/{WORDY}", phone=width == 390)
    page.set_viewport_size({"width": width, "height": 900})
    figures = page.get_by_test_id("run-header").locator(".figures")
    figures.wait_for()
    assert figures.evaluate("box => box.scrollWidth <= box.clientWidth")
    controls = page.get_by_test_id("run-header").locator("> .controls").bounding_box()
    box = figures.bounding_box()
    assert box["x"] + box["width"] <= controls["x"] + 1


@pytest.mark.parametrize("width", [1440, 1024, 390])
def test_a_long_key_stays_inside_the_card_of_the_configuration(troubled, open_page, width):
    page = open_page(troubled, f"/run/{WORDY}/config", phone=width == 390)
    page.set_viewport_size({"width": width, "height": 900})
    card = page.get_by_role("region", name="Configuration")
    card.get_by_text("last", exact=True).wait_for()
    assert card.evaluate(LEAVING, ":scope > ul > li > .leaf > *, summary") == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert card.bounding_box()["height"] < 700
    card.get_by_text("text", exact=True).click()
    card.locator("details > code").wait_for()


def test_a_long_name_leaves_room_in_a_comparison_on_a_phone(troubled, open_page):
    page = open_page(troubled, f"/compare?runs={WORDY},{LONG},{FAST}", phone=True)
    table = page.get_by_test_id("figures").locator(".table-wrap")
    table.wait_for()
    assert table.evaluate("box => box.scrollWidth <= box.clientWidth")
    assert table.evaluate(LEAVING, "td b, td .delta") == []
    run = page.get_by_role("list", name="Compared runs").get_by_role("listitem").first
    assert overlapping([part.bounding_box() for part in run.locator("> *").all()]) == []


def test_a_long_name_and_a_long_key_leave_room_in_the_tables_of_a_comparison(troubled, open_page):
    page = open_page(troubled, f"/compare?runs={WORDY},{LONG},{FAST}")
    is_settled(page)
    for name in ("figures", "config-diff"):
        table = page.get_by_test_id(name).locator(".table-wrap")
        table.wait_for()
        assert table.evaluate("box => box.scrollWidth <= box.clientWidth"), name
        assert table.evaluate(LEAVING, "td, tbody th") == [], name


def test_the_labels_of_percentiles_do_not_overlap(troubled, open_page):
    page = open_page(troubled, f"/run/{LONG}/steps")
    labels = page.get_by_test_id("step-histogram").locator("text.name")
    labels.nth(2).wait_for()
    boxes = [label.bounding_box() for label in labels.all()]
    for a, b in itertools.combinations(boxes, 2):
        is_apart = (
            a["x"] + a["width"] <= b["x"] + 1
            or b["x"] + b["width"] <= a["x"] + 1
            or abs(a["y"] - b["y"]) >= LABEL_HEIGHT
        )
        assert is_apart, (a, b)


def test_a_throughput_has_no_exponent(troubled, open_page):
    page = open_page(troubled, f"/run/{FAST}")
    tile = page.get_by_test_id("tile-throughput")
    tile.wait_for()
    assert tile.locator(".value").inner_text() == "134,000 steps/s"
    assert tile.evaluate(LEAVING, ".value, .detail li") == []


@pytest.mark.parametrize("width", [1440, 390])
def test_targets_are_shown_only_of_runs_that_have_them(served, open_page, width):
    page = open_page(served, f"/run/{FINISHED}", phone=width == 390)
    page.set_viewport_size({"width": width, "height": 900})
    targets = page.get_by_test_id("targets")
    targets.wait_for()
    texts = [" ".join(text.split()) for text in targets.locator("li").all_inner_texts()]
    assert texts[0].endswith("steps/s target at least 4 steps/s met")
    assert "below the target" in texts[1]
    assert targets.evaluate(LEAVING, "p, span") == []
    other = open_page(served, f"/run/{LIVE}", phone=width == 390)
    other.get_by_test_id("tile-throughput").wait_for()
    assert other.get_by_test_id("targets").count() == 0


def test_the_marks_of_a_long_run_do_not_overlap_in_their_lane(troubled, open_page):
    page = open_page(troubled, f"/run/{LONG}")
    lane = page.get_by_test_id("events")
    lane.scroll_into_view_if_needed()
    lane.locator(".mark").nth(10).wait_for()
    outer = lane.locator(".lane").bounding_box()
    boxes = [mark.bounding_box() for mark in lane.locator(".mark").all()]
    assert all(box["x"] >= outer["x"] - 1 for box in boxes)
    assert all(box["x"] + box["width"] <= outer["x"] + outer["width"] + 1 for box in boxes)
    assert overlapping(boxes) == []
    assert "checkpoint × 60" in lane.inner_text()


@pytest.mark.parametrize("run", [NAN, EXPLODED])
def test_a_chart_with_nan_has_its_left_axis(troubled, open_page, run):
    page = open_page(troubled, f"/run/{run}/metrics")
    is_drawn(page, "chart-loss")
    page.wait_for_function(f"name => ({INK_AT_THE_LEFT})(name) > 40", arg="chart-loss")


@pytest.mark.parametrize("width", [1440, 1024, 390])
def test_the_parts_of_an_alert_are_side_by_side(troubled, open_page, width):
    page = open_page(troubled, "/alerts", phone=width == 390)
    page.set_viewport_size({"width": width, "height": 900})
    row = page.locator("[data-testid^=alert-]").first
    row.wait_for()
    assert row.evaluate(LEAVING, "p, .small, button") == []
    boxes = [part.bounding_box() for part in row.locator("> *").all()]
    assert len(boxes) >= 3
    for a in boxes:
        for b in boxes:
            is_apart = (
                a is b
                or a["x"] + a["width"] <= b["x"] + 1 or b["x"] + b["width"] <= a["x"] + 1
                or a["y"] + a["height"] <= b["y"] + 1 or b["y"] + b["height"] <= a["y"] + 1
            )  # fmt: skip
            assert is_apart, (a, b)


def test_the_figures_of_alerts_stand_below_each_other(troubled, open_page):
    page = open_page(troubled, "/alerts")
    page.locator("[data-testid^=alert-] .course").nth(1).wait_for()
    for part in (".said", ".course", ".row"):
        boxes = [element.bounding_box() for element in page.locator(f"[data-testid^=alert-] {part}").all()]
        assert len({round(box["x"]) for box in boxes}) == 1, part


@pytest.mark.parametrize("tab", ["diagnose", "logs", "config"])
def test_the_open_tab_is_in_view_on_a_phone(troubled, open_page, tab):
    page = open_page(troubled, f"/run/{LONG}/{tab}", phone=True)
    current = page.get_by_role("navigation", name="Pages of this run").locator("[aria-current]")
    current.wait_for()
    box = current.bounding_box()
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= 390


def test_a_full_screen_has_a_way_out_that_can_be_seen(troubled, open_page):
    page = open_page(troubled, f"/run/{LONG}/metrics")
    is_drawn(page, "chart-loss")
    choose(page, "chart-loss", "Full screen")
    page.wait_for_function("() => document.fullscreenElement !== null")
    leave = page.get_by_role("button", name="Exit full screen")
    leave.wait_for()
    box, size = leave.bounding_box(), page.evaluate("[innerWidth, innerHeight]")
    assert 0 <= box["x"] <= box["x"] + box["width"] <= size[0]
    assert 0 <= box["y"] <= box["y"] + box["height"] <= size[1]
    leave.click()
    page.wait_for_function("() => document.fullscreenElement === null")
    leave.wait_for(state="detached")


def test_a_long_name_and_project_leave_room_for_the_status_in_the_list_on_a_phone(tmp_path, serve, open_page):
    store = TroubledStore(tmp_path / "store")
    begun_ns = store.now_ns - NS
    ended = {"status": "finished", "ended_ns": store.now_ns, "last_ns": store.now_ns, "facts": {}}
    with store.store.transaction():
        store.store.put_process(
            Process("wordy", WORDY, "project" * 30, "s1", 0, HOST, 1, "rank", begun_ns, **ended)
        )
    page = open_page(serve(store.folder), "/runs", phone=True)
    store.close()
    card = page.get_by_role("link", name=WORDY)
    card.wait_for()
    assert card.evaluate(LEAVING, ".head > :last-child, .figures > span") == []
    assert card.bounding_box()["width"] <= 390


def test_the_words_of_the_table_of_events_begin_at_the_left(troubled, open_page):
    page = open_page(troubled, f"/run/{LONG}")
    lane = page.get_by_test_id("events")
    lane.get_by_text("Show as table").click()
    aligned = lane.locator("tbody tr").first.evaluate(
        "row => [...row.children].map(cell => getComputedStyle(cell).textAlign)"
    )
    assert aligned == ["right", "right", "left", "left"]


def test_a_range_and_a_step_that_the_run_does_not_have_are_named(troubled, open_page):
    page = open_page(troubled, f"/run/{LONG}/metrics?from=900000&to=900100")
    chart = page.get_by_test_id("chart-loss")
    chart.get_by_text("No data in this range.").wait_for()
    page.locator("body").press("0")
    chart.get_by_text("No data in this range.").wait_for(state="detached")
    chart.locator("canvas").wait_for()
    page.goto(f"{troubled.base}/run/{LONG}/steps?step=999999")
    page.get_by_text("This run has no step 999,999. Its last step is 14,999.").wait_for()


def test_a_legend_names_the_phases_that_steps_had(tmp_path, serve, open_page):
    store = TroubledStore(tmp_path / "store")
    store.small("phased", "finished", np.linspace(2, 1, 300))
    times = store.now_ns - 3_600 * NS + np.arange(1, 301) * NS // 500
    took = {"data": 0.0005, "forward": 0.001, "transfer": 0.0}
    phases = {f"phase/{name}_seconds": np.full(300, seconds) for name, seconds in took.items()}
    store.append(Source("phased", "s1", 0, HOST), phases, np.arange(300), times)
    page = open_page(serve(store.folder), "/run/phased")
    store.close()
    legend = page.locator("figure", has_text="Step time by phase").locator(".legend")
    legend.get_by_text("forward").wait_for()
    assert legend.get_by_text("data").is_visible()
    assert legend.get_by_text("transfer").count() == 0


def test_the_last_label_below_a_chart_is_whole(troubled, open_page):
    page = open_page(troubled, f"/run/{LONG}/metrics?from=14000&to=14100")
    is_drawn(page, "chart-loss")
    room = page.get_by_test_id("chart-loss").evaluate(
        """figure => figure.querySelector("canvas").getBoundingClientRect().right
            - figure.querySelector(".u-over").getBoundingClientRect().right"""
    )
    assert room > 15, "half of 14,100 stands right of the plot"
