"""What is shown when there is nothing to show, nothing yet, or nothing may be changed."""

from __future__ import annotations

import pytest

from tests.browser.example_store import BEGUN, LIVE, ExampleStore

pytestmark = pytest.mark.xdist_group("browser")


def test_a_new_store_shows_how_to_make_a_first_run(tmp_path, serve, open_page):
    store = ExampleStore(tmp_path / "new")
    page = open_page(serve(store.folder))
    page.get_by_test_id("no-runs").wait_for()
    assert str(store.folder) in page.get_by_test_id("no-runs").inner_text()
    assert "monitor.batches(loader)" in page.locator("pre").first.inner_text()
    page.get_by_role("button", name="Lightning").click()
    assert "lightning.Callback" in page.locator("pre").first.inner_text()
    page.get_by_role("button", name="Hugging Face").click()
    assert "transformers.Trainer" in page.locator("pre").first.inner_text()
    assert page.get_by_role("button", name="Play a demo run").is_enabled()
    store.close()


def test_a_run_without_steps_says_that_it_waits(look):
    page = look(f"/run/{BEGUN}")
    page.get_by_role("heading", name="Connected, waiting for the first step").wait_for()


def test_a_server_that_is_read_only_offers_no_changes(tmp_path, serve, open_page):
    store = ExampleStore(tmp_path / "kept")
    store.light_runs(1)
    page = open_page(serve(store.folder, "--read-only"), "/run/sweep-0000")
    page.get_by_text("read only").wait_for()
    assert page.get_by_test_id("run-name").is_disabled()
    store.close()


def test_the_theme_follows_the_system_until_one_chooses(served, open_page):
    page = open_page(served, "/settings", theme="dark")
    page.wait_for_selector("html[data-theme=dark]")
    page.get_by_role("group", name="Theme").get_by_role("button", name="Light").click()
    page.wait_for_selector("html[data-theme=light]")
    page.reload()
    page.wait_for_selector("html[data-theme=light]")


def test_a_finding_can_be_muted_and_comes_back(served, open_page):
    page = open_page(served, f"/run/{LIVE}/diagnose")
    finding = page.get_by_test_id("finding-input.exposed_wait")
    finding.get_by_role("button", name="Mute").click()
    finding.get_by_role("button", name="Unmute").click()
    finding.get_by_role("button", name="Mute", exact=True).wait_for()
    finding.get_by_text("What to change").wait_for()


def test_a_rule_can_be_silenced_and_the_silence_ended(served, open_page):
    page = open_page(served, "/alerts")
    page.get_by_test_id("open-alerts").get_by_role("button", name="Silence").first.click()
    page.get_by_label("Reason").fill("known")
    page.get_by_role("dialog").get_by_role("button", name="Silence").click()
    page.get_by_text("· known").wait_for()
    page.get_by_role("button", name="End").click()
    page.get_by_text("No rule is silenced.").wait_for()
