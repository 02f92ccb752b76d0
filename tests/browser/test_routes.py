"""Every address shows its page, without the browser complaining of anything."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from stepscope.alerts.delivery.routing import Routing
from stepscope.alerts.silences import Silences
from stepscope.schema.alert import AlertDetail
from stepscope.schema.series import Source
from tests.browser.example_store import CRASHED, FINISHED, LIVE, NS, ExampleStore
from tests.browser.looking import ROUTES, is_drawn
from tests.cases import few

pytestmark = pytest.mark.xdist_group("browser")

SAID = {
    "home": "Running now",
    "runs": LIVE,
    "overview": "41% of step time waits for data",
    "metrics": "gradient_norm",
    "system": "GPU 5",
    "steps": "Slowest steps",
    "diagnose": "What to change",
    "logs": "step 2999 loss",
    "config": "weight_decay",
    "crashed": "CUDA out of memory",
    "finished": "Finished",
    "compare": "Configuration",
    "alerts": "input_bound",
    "settings": "This page, in this browser",
    "help": "Data wait",
}


@pytest.mark.parametrize("route", few(ROUTES, 4))
def test_an_address_shows_its_page(look, route):
    page = look(ROUTES[route])
    page.get_by_text(SAID[route]).first.wait_for()
    assert page.locator("h1").count() == 1


def test_the_page_is_titled_after_the_run(look):
    page = look(f"/run/{LIVE}/steps")
    page.wait_for_function("name => document.title === `${name} · Steps`", arg=LIVE)


def test_an_unknown_run_says_that_there_is_none(served, open_page):
    page = open_page(served, "/run/nobody", allowed=("404",))
    alert = page.get_by_role("alert")
    alert.get_by_text("Run 'nobody' is not in this store.").wait_for()
    assert alert.get_by_role("button").count() == 0
    alert.get_by_role("link", name="All runs").click()
    page.get_by_test_id("run-filter").wait_for()


def test_an_unknown_page_has_a_message_and_a_link_home(look):
    page = look("/nowhere")
    page.get_by_role("heading", name="There is no such page").wait_for()
    page.get_by_role("navigation", name="Other pages").get_by_role("link", name="All runs").click()
    page.get_by_test_id("run-filter").wait_for()


def test_an_unknown_page_of_a_run_leads_to_those_it_has(look):
    page = look(f"/run/{LIVE}/nowhere")
    page.get_by_role("link", name="Overview of this run").click()
    page.get_by_test_id("verdict").wait_for()


def test_the_address_in_an_alert_leads_to_the_charts_of_its_metric(look):
    routing = Routing((), Silences(Path()), link="http://page")
    for key, step, charts in (("val/loss", 5, "Metrics"), ("gpu/temperature_celsius", None, "System")):
        detail = AlertDetail("rule", "info", "", 0, key=key, step=step)
        page = look(routing.link_to(LIVE, (detail,)).removeprefix("http://page"))
        page.get_by_test_id(f"chart-{key}").first.wait_for()
        page.wait_for_function("words => document.title.endsWith(words)", arg=charts)
        assert page.get_by_test_id("chart-accuracy").count() == 0


def test_the_address_in_an_older_alert_leads_to_the_run(look):
    page = look(f"/runs/{LIVE}")
    page.get_by_test_id("verdict").wait_for()


@pytest.mark.slow
def test_links_do_not_reload_the_page_and_back_works(served, open_page):
    page = open_page(served, "/")
    page.evaluate("window.stayed = true")
    page.get_by_role("link", name=LIVE).first.click()
    page.get_by_test_id("verdict").wait_for()
    page.get_by_role("link", name="Steps", exact=True).click()
    page.get_by_text("Slowest steps").wait_for()
    page.go_back()
    page.get_by_test_id("verdict").wait_for()
    page.go_back()
    page.get_by_text("Running now").wait_for()
    assert page.evaluate("window.stayed")


@pytest.mark.slow
def test_a_page_below_a_base_path_finds_everything(tmp_path, serve, open_page):
    ExampleStore(tmp_path).fill().close()
    page = open_page(serve(tmp_path, "--base-path", "/tools/stepscope"), f"/run/{LIVE}")
    is_drawn(page, "chart-loss")
    page.get_by_role("link", name="Metrics", exact=True).click()
    page.wait_for_url(f"**/tools/stepscope/run/{LIVE}/metrics")


def test_a_crashed_run_shows_its_last_words(look):
    page = look(f"/run/{CRASHED}")
    ended = page.get_by_test_id("ended")
    ended.get_by_text("step 2999 loss").wait_for()
    assert "CUDA out of memory" in ended.inner_text()


def test_a_finished_run_is_summed_up(look):
    page = look(f"/run/{FINISHED}")
    text = page.get_by_test_id("ended").inner_text()
    assert "Duration" in text
    assert "Best" in text


@pytest.mark.slow
def test_the_hosts_of_a_run_are_shown_side_by_side(tmp_path, serve, open_page):
    store = ExampleStore(tmp_path / "nodes")
    begun_ns = store.now_ns - 60 * NS
    store.processes("two-nodes", begun_ns, store.now_ns, "running")
    for host, busy in (("node-a", 0.25), ("node-b", 0.75)):
        columns = {"cpu/utilization_ratio": np.full(60, busy), "memory/total_bytes": np.full(60, 2.0**38)}
        source = Source("two-nodes", "s1", None, host, "", "seconds")
        store.append(source, columns, np.zeros(60), begun_ns + np.arange(60) * NS)
    page = open_page(serve(store.folder))
    for host in ("node-a", "node-b"):
        page.get_by_role("heading", name=host).wait_for()
    page.get_by_role("link", name="two-nodes").first.click()
    page.get_by_role("link", name="System").click()
    page.wait_for_function(
        """() => [...(window.__stepscope?.charts.values() ?? [])].some(chart => {
             const hosts = chart.series().map(line => line.label).join(" ");
             return hosts.includes("node-a") && hosts.includes("node-b");
           })"""
    )
    store.close()
