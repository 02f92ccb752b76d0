"""The page opens while its server is away, is never an old one, and lets people in as ever."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

import stepscope
from tests.browser.conftest import Visitor
from tests.browser.example_store import ExampleStore

pytestmark = [pytest.mark.xdist_group("browser"), pytest.mark.slow]

AWAY = ("net::ERR_",)
"""What the browser says of a server that does not answer."""


def is_kept(page) -> None:
    """Waits until the worker answers for the page."""
    page.evaluate(
        """async () => {
            const { active } = await navigator.serviceWorker.ready;
            while (active.state !== "activated")
                await new Promise((changed) =>
                    active.addEventListener("statechange", changed, { once: true }));
        }"""
    )


def is_forgotten(page, cache: str) -> None:
    """Waits until a cache has gone."""
    page.evaluate(
        """async (old) => {
            while ((await caches.keys()).includes(old)) await new Promise((again) => setTimeout(again, 20));
        }""",
        cache,
    )


def kept_addresses(page) -> list[str]:
    """All that any cache of the page's has."""
    return page.evaluate(
        """async () => {
            const addresses = [];
            for (const name of await caches.keys())
                for (const request of await (await caches.open(name)).keys()) addresses.push(request.url);
            return addresses;
        }"""
    )


@pytest.fixture
def store(tmp_path):
    made = ExampleStore(tmp_path / "store")
    made.light_runs(2)
    yield made
    made.close()


@pytest.mark.parametrize("base_path", ["", "/stepscope"])
def test_the_page_opens_without_its_server_and_says_that_it_is_gone(store, serve, open_page, base_path):
    server = serve(store.folder, *(["--base-path", base_path] if base_path else []), shipped=True)
    page = open_page(server, "/runs", allowed=AWAY)
    is_kept(page)
    server.kill()
    page.reload()
    page.get_by_test_id("server-gone").wait_for()
    page.get_by_role("heading", name="Runs", level=1).wait_for()
    page.goto(f"{server.base}/settings")
    page.get_by_role("group", name="Theme").wait_for()
    server.start()
    page.get_by_role("button", name="Try now").click()
    page.get_by_test_id("server-gone").wait_for(state="detached")


def test_no_data_of_runs_is_cached(store, serve, open_page):
    server = serve(store.folder, shipped=True)
    page = open_page(server, "/runs")
    is_kept(page)
    page.reload()
    page.get_by_text("sweep-0000").wait_for()
    kept = kept_addresses(page)
    assert f"{server.base}/" in kept
    assert any(re.search(r"/assets/index-.*\.js$", address) for address in kept)
    assert not [address for address in kept if "/api" in address or "token" in address]
    assert "sweep" not in page.evaluate("async base => (await caches.match(base)).text()", f"{server.base}/")


def test_a_new_build_is_shown_at_once_and_the_old_one_forgotten(
    store, serve, open_page, tmp_path, monkeypatch
):
    source = tmp_path / "source"
    shutil.copytree(Path(stepscope.__file__).parent, source / "stepscope")
    monkeypatch.setenv("PYTHONPATH", str(source))
    server = serve(store.folder, shipped=True)
    page = open_page(server, "/runs", allowed=AWAY)
    is_kept(page)
    page.reload()
    page.get_by_text("sweep-0000").wait_for()
    (before,) = page.evaluate("() => caches.keys()")
    server.kill()
    rebuild(source / "stepscope" / "web" / "page")
    server.start()
    page.goto(f"{server.base}/runs")
    page.wait_for_selector("html[data-build=new]")
    is_forgotten(page, before)
    assert any("index-newer.js" in address for address in kept_addresses(page))


def rebuild(page: Path) -> None:
    """Another build: a script of another name and content, and a worker that knows of it."""
    (script,) = (page / "assets").glob("index-*.js")
    text = script.read_text("utf-8")
    script.unlink()
    (page / "assets" / "index-newer.js").write_text(f"document.documentElement.dataset.build='new';{text}")
    for file in (page / "index.html", page / "sw.js"):
        file.write_text(file.read_text("utf-8").replace(script.name, "index-newer.js"))
    worker = page / "sw.js"
    worker.write_text(re.sub(r'("version":)"\w+"', r'\1"0123456789abcdef"', worker.read_text("utf-8")))


def test_a_page_without_access_says_so_and_the_token_grants_it(store, serve, browser):
    server = serve(store.folder, shipped=True)
    visitor = Visitor(browser, server)
    page = visitor.go("/runs")
    is_kept(page)
    page.reload()
    page.get_by_text("sweep-0000").wait_for()
    visitor.context.clear_cookies()
    assert page.goto(f"{server.base}/runs").status == 401
    assert "stepscope serve" in page.inner_text("body")
    page.goto(server.link)
    page.get_by_text("sweep-0000").first.wait_for()
    assert "token" not in page.url
    visitor.context.close()


def test_the_service_worker_does_not_bypass_the_token(store, serve, browser):
    server = serve(store.folder, shipped=True)
    context = browser.new_context()
    assert context.request.get(f"{server.base}/sw.js").status == 401
    context.close()
