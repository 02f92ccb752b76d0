"""What is shown when there is nothing to show, nothing yet, or nothing may be changed."""

from __future__ import annotations

import numpy as np
import pytest

from stepscope.alerts.silences import Silences
from stepscope.schema.series import Source
from stepscope.store.base import OpenAlert
from tests.browser.example_store import BEGUN, HOST, LIVE, NS, ExampleStore

pytestmark = pytest.mark.xdist_group("browser")


@pytest.mark.slow
def test_a_new_store_shows_how_to_make_a_first_run(tmp_path, serve, open_page):
    store = ExampleStore(tmp_path / "new")
    page = open_page(serve(store.folder))
    page.get_by_test_id("no-runs").wait_for()
    assert str(store.folder) in page.get_by_test_id("no-runs").inner_text()
    assert "monitor.batches(loader)" in page.locator("pre").first.inner_text()
    page.get_by_role("button", name="Lightning").click()
    assert "integrations.lightning import StepscopeCallback" in page.locator("pre").first.inner_text()
    page.get_by_role("button", name="Hugging Face").click()
    assert "integrations.transformers import StepscopeCallback" in page.locator("pre").first.inner_text()
    assert page.get_by_role("button", name="Start a demo run").is_enabled()
    store.close()


def test_a_run_without_steps_says_that_it_waits(look):
    page = look(f"/run/{BEGUN}")
    page.get_by_role("heading", name="Connected, waiting for the first step").wait_for()


@pytest.mark.slow
def test_alerts_with_the_same_words_are_each_listed(tmp_path, serve, open_page):
    store = ExampleStore(tmp_path / "twins")
    store.processes("twins", store.now_ns - 60 * NS, store.now_ns, "running", ranks=2)
    with store.store.transaction():
        for rank in range(2):
            alert = OpenAlert("twins", "hot", "warning", "It is too hot.", store.now_ns, {"rank": rank})
            store.store.alert_book.fire(alert)
    page = open_page(serve(store.folder), "/alerts")
    page.get_by_text("It is too hot.").nth(1).wait_for()
    assert page.get_by_text("It is too hot.").count() == 2
    store.close()


@pytest.mark.slow
def test_what_is_there_twice_is_shown_twice_and_breaks_no_page(tmp_path, serve, open_page):
    store = ExampleStore(tmp_path / "doubled")
    store.light_runs(2)
    begun_ns = store.now_ns - 60 * NS
    store.processes("doubled", begun_ns, store.now_ns, "running", ranks=1)
    times = begun_ns + np.arange(1, 31) * NS
    store.append(Source("doubled", "s1", 0, HOST), {"loss": np.ones(30)}, np.arange(30), times)
    for gpu in ("GPU-0001", "GPU-0002"):
        device = Source("doubled", "s1", None, HOST, gpu, "seconds")
        figures = {"gpu/throttled_hardware_thermal": np.ones(30), "gpu/utilization_ratio": np.ones(30)}
        store.append(device, figures, np.zeros(30), times)
    silences = Silences(store.folder)
    for _ in range(2):
        silences.silence("stalled", "*", now_ns=store.now_ns, until_ns=store.now_ns + 3_600 * NS, reason="")
    server = serve(store.folder)
    page = open_page(server, "/alerts")
    page.get_by_role("button", name="End").nth(1).wait_for()
    page.goto(f"{server.base}/run/doubled")
    lane = page.get_by_test_id("events")
    lane.get_by_role("button", name="throttled").nth(1).wait_for()
    page.goto(f"{server.base}/runs?columns=name,name,step")
    page.get_by_role("columnheader").get_by_text("Name", exact=True).first.wait_for()
    assert page.get_by_role("columnheader").all_inner_texts().count("Name") == 1
    page.goto(f"{server.base}/compare?runs=sweep-0000,sweep-0001,sweep-0000")
    page.get_by_test_id("figures").wait_for()
    store.close()


@pytest.mark.slow
def test_the_time_a_run_has_stalled_is_counted_once(tmp_path, serve, open_page):
    store = ExampleStore(tmp_path / "stalled")
    store.processes("stalled", store.now_ns - 1_800 * NS, store.now_ns - 1_200 * NS, "stalled", ranks=1)
    page = open_page(serve(store.folder), "/run/stalled")
    header = page.get_by_test_id("run-header")
    header.get_by_text("Stalled 20 min").wait_for()
    assert "elapsed 30 min" in " ".join(header.inner_text().split())
    store.close()


@pytest.mark.slow
def test_a_server_that_is_read_only_offers_no_changes(tmp_path, serve, open_page):
    store = ExampleStore(tmp_path / "kept")
    store.light_runs(1)
    page = open_page(serve(store.folder, "--read-only"), "/run/sweep-0000")
    page.get_by_text("read-only").wait_for()
    assert page.get_by_test_id("run-name").is_disabled()
    store.close()


@pytest.mark.slow
def test_the_theme_follows_the_system_until_one_chooses(served, open_page):
    page = open_page(served, "/settings", theme="dark")
    page.wait_for_selector("html[data-theme=dark]")
    page.get_by_role("group", name="Theme").get_by_role("button", name="Light").click()
    page.wait_for_selector("html[data-theme=light]")
    page.reload()
    page.wait_for_selector("html[data-theme=light]")


@pytest.mark.slow
def test_a_finding_can_be_muted_and_comes_back(served, open_page):
    page = open_page(served, f"/run/{LIVE}/diagnose")
    finding = page.get_by_test_id("finding-input.exposed_wait")
    for choice in ("Mute in this run", "Wrong: mute in this project"):
        finding.get_by_role("button", name="Mute", exact=True).click()
        finding.get_by_role("button", name=choice).click()
        finding.get_by_role("button", name="Unmute").wait_for()
        is_wrong = choice.startswith("Wrong")
        assert finding.get_by_text("marked as wrong in this project").count() == int(is_wrong)
        finding.get_by_role("button", name="Unmute").click()
        finding.get_by_role("button", name="Mute", exact=True).wait_for()
    finding.get_by_text("What to change").wait_for()


@pytest.mark.slow
def test_a_rule_can_be_silenced_and_the_silence_ended(served, open_page):
    page = open_page(served, "/alerts")
    page.get_by_test_id("open-alerts").get_by_role("button", name="Silence").first.click()
    page.get_by_label("Reason").fill("known")
    page.get_by_role("dialog").get_by_role("button", name="Silence").click()
    page.get_by_text("· known").wait_for()
    page.get_by_role("button", name="End").click()
    page.get_by_text("No rule is silenced.").wait_for()


def test_the_card_of_a_run_without_steps_says_that_it_waits(look):
    page = look("/")
    card = page.get_by_role("article").filter(has_text=BEGUN)
    card.get_by_text("Waiting for its first step.").wait_for()
    assert "–" not in card.inner_text()


@pytest.mark.slow
@pytest.mark.parametrize("width", [1440, 1024, 700])
def test_the_charts_of_the_machine_leave_no_blank(tmp_path, serve, open_page, width):
    """A host without GPUs has five of them or fewer."""
    store = ExampleStore(tmp_path / "host")
    times = store.now_ns - np.arange(60, 0, -1) * NS
    store.processes("cpu-only", int(times[0]), int(times[-1]), "finished", ranks=1)
    store.append(Source("cpu-only", "s1", 0, HOST), {"step_seconds": np.full(60, 1.0)}, np.arange(60), times)
    keys = ("cpu/utilization_ratio", "memory/used_bytes", "disk/read_bytes_per_second")
    more = ("network/sent_bytes_per_second", "gpu/utilization_ratio")
    columns = dict.fromkeys((*keys, *more), np.linspace(0.1, 0.9, 60))
    store.append(Source("cpu-only", "s1", None, HOST, "", "seconds"), columns, np.zeros(60), times)
    page = open_page(serve(store.folder), "/run/cpu-only")
    page.set_viewport_size({"width": width, "height": 900})
    strip = page.locator(".machine")
    strip.wait_for()
    boxes = [element.bounding_box() for element in strip.locator("> *").all()]
    assert len(boxes) == 5
    whole = strip.bounding_box()
    for top in {box["y"] for box in boxes}:
        last = max((box for box in boxes if box["y"] == top), key=lambda box: box["x"])
        assert last["x"] + last["width"] == pytest.approx(whole["x"] + whole["width"], abs=1)
    store.close()
