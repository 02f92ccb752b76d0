"""The page in the frame of a notebook: a page of another port shows it, and a foreign site does not."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from stepscope.notebook.page_frame import page_frame
from tests.browser.example_store import FINISHED, ExampleStore
from tests.browser.serving import Served

pytestmark = [pytest.mark.xdist_group("browser"), pytest.mark.slow]


@pytest.fixture
def show() -> Iterator[Callable[[str], int]]:
    """Serves HTML as a notebook does, on a port of its own; gives the port."""
    servers: list[http.server.ThreadingHTTPServer] = []

    def serve_html(shown: str) -> int:
        class Notebook(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                self.send_header("content-type", "text/html; charset=utf-8")
                self.end_headers()
                self.wfile.write(f"<!doctype html><body>{shown}</body>".encode())

            def log_message(self, *_: object) -> None:
                pass

        servers.append(http.server.ThreadingHTTPServer(("127.0.0.1", 0), Notebook))
        threading.Thread(target=servers[-1].serve_forever, daemon=True).start()
        return servers[-1].server_port

    yield serve_html
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture
def framed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A store whose server allows frames of pages at localhost."""
    (tmp_path / "stepscope.yaml").write_text("dashboard: {frame_origins: ['http://localhost:*']}\n")
    store = ExampleStore(tmp_path / "store").fill()
    server = Served(store.folder)
    yield store.folder
    server.kill()
    store.close()


def test_the_frame_of_a_notebook_shows_the_run_without_the_token(browser, framed: Path, show) -> None:
    frame = page_frame(framed, f"/run/{FINISHED}", 600, "localhost")
    context = browser.new_context()
    page = context.new_page()
    page.set_default_timeout(60_000)
    page.goto(f"http://localhost:{show(frame._repr_html_())}/")
    page.frame_locator("iframe").locator("h1").first.wait_for()
    (inner,) = page.frames[1:]
    assert inner.url.endswith(f"/run/{FINISHED}")
    assert "token" not in inner.url
    context.close()


def test_a_page_of_another_site_cannot_show_it(browser, framed: Path, show) -> None:
    frame = page_frame(framed, "/", 600, "localhost")
    context = browser.new_context()
    page = context.new_page()
    page.set_default_timeout(60_000)
    with page.expect_console_message(lambda said: "frame-ancestors" in said.text):
        page.goto(f"http://127.0.0.1:{show(frame._repr_html_())}/")
    context.close()
