"""Rules are made, tried, changed, switched off and deleted on the page, by mouse, keyboard and finger."""

from __future__ import annotations

import re

import pytest

from stepscope.alerts.page_rules import PageRules
from tests.browser.example_store import LIVE, ExampleStore
from tests.browser.looking import choose, is_drawn
from tests.browser.test_accessibility import faults

HEIGHTS = "nodes => nodes.map(node => node.getBoundingClientRect().height)"

pytestmark = pytest.mark.xdist_group("browser")


@pytest.fixture
def folder_and_server(tmp_path, serve):
    """A store of the test's own, whose rules it may change."""
    store = ExampleStore(tmp_path / "store").fill()
    yield store.folder, serve(store.folder)
    store.close()


@pytest.fixture
def alerts(folder_and_server, open_page):
    page = open_page(folder_and_server[1], "/alerts")
    page.get_by_test_id("rules").wait_for()
    return page


@pytest.fixture
def rules(folder_and_server) -> PageRules:
    return PageRules(folder_and_server[0])


def new_rule(page):
    """The editor, opened for a new rule."""
    page.get_by_role("button", name="New rule").click()
    editor = page.get_by_test_id("rule-editor")
    editor.wait_for()
    return editor


def listed(page, name: str):
    """A rule in the list."""
    return page.locator(f"[data-rule='{name}']")


def said(page, words: str) -> None:
    """Waits for what the editor says a rule will do."""
    page.get_by_test_id("rule-words").get_by_text(re.compile(words)).first.wait_for()


@pytest.mark.slow
def test_an_alert_created_in_a_chart_becomes_a_rule_of_that_run(folder_and_server, open_page, rules):
    page = open_page(folder_and_server[1], f"/run/{LIVE}/metrics")
    is_drawn(page, "chart-loss")
    choose(page, "chart-loss", "Alert at this value…")
    condition = page.get_by_test_id("chart-loss").locator("code").inner_text()
    page.get_by_test_id("chart-loss").get_by_role("slider").press("Enter")
    editor = page.get_by_test_id("rule-editor")
    editor.wait_for()
    assert editor.get_by_label("Condition").input_value() == condition
    said(page, "now: ")
    editor.get_by_role("button", name="Save").click()
    editor.wait_for(state="detached")
    [made] = rules.read().rules
    assert (str(made.rule.condition), made.run) == (condition, LIVE)


@pytest.mark.slow
def test_a_rule_is_made_and_listed_with_where_it_comes_from(alerts, rules):
    editor = new_rule(alerts)
    editor.get_by_label("Name").fill("loss_high")
    editor.get_by_label("Condition").fill("loss > 2.5")
    editor.get_by_label("For", exact=True).fill("60s")
    editor.get_by_label("Severity").select_option("critical")
    editor.get_by_label("Message").fill("The loss is {value:.2f}.")
    said(alerts, r"Fires when loss > 2.5 holds for 60 s; now: 0\.\d+, not true")
    editor.get_by_role("button", name="Save").click()
    editor.wait_for(state="detached")
    listed(alerts, "loss_high").get_by_text("created here").wait_for()
    [kept] = rules.read().rules
    assert (kept.rule.for_s, kept.rule.severity, kept.rule.channels) == (60.0, "critical", None)


@pytest.mark.slow
def test_an_error_is_underlined_and_the_rule_cannot_be_saved(alerts):
    editor = new_rule(alerts)
    editor.get_by_label("Name").fill("odd")
    editor.get_by_label("Condition").fill("meen(loss, 2m) > 1")
    alerts.locator("#rule-when-fault").get_by_text("did you mean mean?").wait_for()
    assert alerts.locator(".under u").first.inner_text() == "meen"
    assert editor.get_by_label("Condition").get_attribute("aria-invalid") == "true"
    assert editor.get_by_role("button", name="Save").is_disabled()
    editor.get_by_label("Condition").fill("mean(loss, 2m) > 1")
    alerts.locator("#rule-when-fault").wait_for(state="detached")
    assert editor.get_by_role("button", name="Save").is_enabled()


@pytest.mark.slow
def test_what_the_run_does_not_have_is_doubted(alerts):
    editor = new_rule(alerts)
    editor.get_by_label("Condition").fill("los > 1")
    said(alerts, "now: unknown")
    said(alerts, "did you mean 'loss'")


@pytest.mark.slow
def test_metrics_are_completed_by_the_keyboard_and_escape_closes_the_list_first(alerts):
    editor = new_rule(alerts)
    box = editor.get_by_label("Condition")
    box.press_sequentially("gradient")
    alerts.get_by_role("option", name="gradient_norm").wait_for()
    box.press("ArrowDown")
    box.press("Enter")
    assert box.input_value() == "gradient_norm"
    box.press_sequentially(" > med")
    alerts.get_by_role("option", name="median(").wait_for()
    box.press("Escape")
    alerts.locator("#rule-when-list").wait_for(state="detached")
    assert editor.is_visible()
    box.press("Escape")
    editor.wait_for(state="detached")


@pytest.mark.slow
def test_an_edited_default_rule_replaces_it_until_deleted_and_deletion_can_be_undone(alerts, rules):
    listed(alerts, "gpu_hot").locator("summary").click()
    alerts.get_by_role("button", name="Edit gpu_hot").click()
    editor = alerts.get_by_test_id("rule-editor")
    box = editor.get_by_label("Condition")
    assert box.input_value() == "median(gpu/temperature_celsius, 1m) >= 85"
    assert editor.get_by_label("For", exact=True).input_value() == "1m"
    assert editor.get_by_label("Resolved when").input_value() == "median(gpu/temperature_celsius, 1m) < 80"
    box.fill("median(gpu/temperature_celsius, 1m) >= 70")
    editor.get_by_role("button", name="Save").click()
    listed(alerts, "gpu_hot").get_by_text("created here").wait_for()
    assert rules.read().rules[0].rule.advice.startswith("Check its fans")
    listed(alerts, "gpu_hot").locator("summary").click()
    alerts.get_by_role("button", name="Delete gpu_hot").click()
    listed(alerts, "gpu_hot").get_by_text("default").wait_for()
    alerts.get_by_role("button", name="Undo").click()
    listed(alerts, "gpu_hot").get_by_text("created here").wait_for()
    assert str(rules.read().rules[0].rule.condition).endswith(">= 70")


@pytest.mark.slow
def test_a_default_rule_is_switched_off_and_on_again(alerts, rules):
    listed(alerts, "input_bound").locator("summary").click()
    alerts.get_by_role("button", name="Switch input_bound off").click()
    listed(alerts, "input_bound").get_by_text("Off · default").wait_for()
    assert dict(rules.read().switches) == {"input_bound": False}
    alerts.get_by_role("button", name="Switch input_bound on").click()
    listed(alerts, "input_bound").get_by_text("Warning · default").wait_for()
    assert dict(rules.read().switches) == {}


@pytest.mark.slow
def test_errors_of_the_server_are_shown_in_the_editor(folder_and_server, open_page):
    alerts = open_page(folder_and_server[1], "/alerts", allowed=("400 (Bad Request)",))
    editor = new_rule(alerts)
    editor.get_by_label("Name").fill("odd")
    editor.get_by_label("Condition").fill("loss > 1")
    editor.get_by_label("For", exact=True).fill("soon")
    said(alerts, "now: ")
    editor.get_by_role("button", name="Save").click()
    editor.get_by_role("alert").get_by_text("it must be a number of seconds").wait_for()


@pytest.mark.slow
def test_channels_and_scope_of_a_rule_are_chosen(alerts, rules):
    editor = new_rule(alerts)
    editor.get_by_label("Name").fill("quiet")
    editor.get_by_label("Condition").fill("loss > 1")
    editor.get_by_label("console").uncheck()
    said(alerts, "Not sent")
    editor.get_by_label("Applies to").select_option(label=LIVE)
    said(alerts, "in this run; now: 0")
    editor.get_by_role("button", name="Save").click()
    listed(alerts, "quiet").wait_for()
    [kept] = rules.read().rules
    assert (kept.rule.channels, kept.run) == ((), LIVE)


def test_the_editor_opens_on_any_page(look):
    page = look(f"/run/{LIVE}")
    page.get_by_role("heading", name=LIVE).wait_for()
    page.keyboard.press("Control+k")
    page.keyboard.type("new alert rule")
    page.keyboard.press("Enter")
    page.get_by_test_id("rule-editor").wait_for()
    page.keyboard.type("typed_at_once")
    assert page.get_by_label("Name", exact=True).input_value() == "typed_at_once"
    page.keyboard.press("Escape")
    page.get_by_test_id("rule-editor").wait_for(state="detached")


@pytest.mark.slow
def test_the_rules_of_a_server_that_is_read_only_can_be_read_alone(tmp_path, serve, open_page):
    store = ExampleStore(tmp_path / "store").fill()
    page = open_page(serve(store.folder, "--read-only"), "/alerts")
    page.get_by_test_id("rules").wait_for()
    assert page.get_by_role("button", name="New rule").is_disabled()
    store.close()


@pytest.mark.slow
def test_quiet_hours_are_explained(alerts):
    assert "alerts.quiet_hours" in alerts.get_by_test_id("quiet-hours").inner_text()


@pytest.mark.slow
@pytest.mark.parametrize(("theme", "phone"), [("light", False), ("dark", False), ("dark", True)])
def test_the_editor_can_be_used_by_everybody(look, theme: str, phone: bool):
    page = look("/alerts", theme, phone=phone)
    listed(page, "gpu_hot").locator("summary").click()
    pressed = page.get_by_test_id("rules").locator("button:visible, summary")
    assert not phone or min(pressed.evaluate_all(HEIGHTS)) >= 44
    editor = new_rule(page)
    editor.get_by_text("Advanced").click()
    editor.get_by_label("Condition").fill("meen(loss, 2m) > 1")
    page.locator("#rule-when-fault").wait_for()
    assert faults(page) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= page.viewport_size["width"]
    if phone:
        typed_into = editor.locator("button:visible, input:not([type=checkbox]), select, textarea")
        assert min(typed_into.evaluate_all(HEIGHTS)) >= 44
