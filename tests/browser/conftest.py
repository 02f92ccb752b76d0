"""A real server over a real store, and a real browser in front of it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from importlib import resources
from pathlib import Path

import pytest

from tests.browser.example_store import LIVE, ExampleStore
from tests.browser.looking import is_drawn
from tests.browser.serving import Served
from tests.packaging.page_builder import ROOT, page_builder

playwright = pytest.importorskip("playwright.sync_api", reason="pip install playwright")

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
WIDE, PHONE = {"width": 1440, "height": 900}, {"width": 390, "height": 844}

TRY_AGAIN_AFTER_TIMEOUT = pytest.mark.flaky(reruns=1, only_rerun=["TimeoutError"])
"""A browser that has shared two cores for an hour is sometimes too late; a wrong page fails at once."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Lets a browser test that timed out run once more; the summary lists those that did."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(TRY_AGAIN_AFTER_TIMEOUT)


@pytest.fixture(scope="package")
def browser() -> Iterator:
    """One browser for all tests here; each test has a profile of its own.

    It brings an event loop that runs until it is closed. Tests elsewhere have loops of their own, so all of
    these are a group that one worker runs by itself.
    """
    if CHROMIUM is None:
        pytest.skip("there is no chromium; apt install chromium")
    if not (resources.files("stepscope.web") / "page" / "index.html").is_file():
        pytest.skip("the page is not built; npm ci && npm run build in ui/")
    builder = page_builder()
    try:
        builder.build_page(ROOT / "ui", ROOT / "ui" / "dist" / "test_page", "build-for-tests")
    except builder.PageError as error:
        pytest.skip(str(error))
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="package")
def example(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ExampleStore]:
    """A store that all tests look at and none changes for good."""
    store = ExampleStore(tmp_path_factory.mktemp("example") / "store").fill()
    yield store
    store.close()


@pytest.fixture(scope="package")
def served(example: ExampleStore) -> Iterator[Served]:
    """A server of that store."""
    server = Served(example.folder)
    yield server
    server.kill()


@pytest.fixture
def serve() -> Iterator[Callable[..., Served]]:
    """Serves a store of the test's own."""
    started: list[Served] = []

    def start(folder: Path, *flags: str, shipped: bool = False) -> Served:
        started.append(Served(folder, *flags, shipped=shipped))
        return started[-1]

    yield start
    for server in started:
        server.kill()


class Visitor:
    """A profile of the browser that has been let in, and what the browser complained of in it."""

    def __init__(self, browser, server: Served, *, phone: bool = False, theme: str = "light") -> None:
        options = {"has_touch": phone, "is_mobile": phone, "color_scheme": theme, "reduced_motion": "reduce"}
        self.server = server
        self.context = browser.new_context(viewport=PHONE if phone else WIDE, **options)
        self.context.set_default_timeout(60_000)
        self.context.request.get(server.link)  # the token becomes a cookie
        self.complaints: list[str] = []
        self.page = self.context.new_page()
        self.page.on("pageerror", lambda error: self.complaints.append(f"script failed: {error}"))
        self.page.on("console", self._hear)

    def _hear(self, said) -> None:
        if said.type in ("error", "warning"):
            self.complaints.append(said.text)

    def go(self, path: str):
        """Loads a page; gives it."""
        self.page.goto(self.server.base + path)
        return self.page

    def expect(self, *allowed: str) -> None:
        """Fails where the browser complained of anything else; forgets it."""
        heard, self.complaints = self.complaints, []
        assert [text for text in heard if not any(pattern in text for pattern in allowed)] == []


@pytest.fixture
def open_page(browser) -> Iterator[Callable]:
    """Opens a page of a server in a fresh profile; whatever the browser complains of fails the test."""
    visitors: list[tuple[Visitor, str]] = []

    def open_at(server: Served, path: str = "/", *, allowed: tuple[str, ...] = (), **options):
        visitors.append((Visitor(browser, server, **options), allowed))
        return visitors[-1][0].go(path)

    yield open_at
    for visitor, allowed in visitors:
        visitor.context.close()
        visitor.expect(*allowed)


@pytest.fixture(scope="package")
def visitors(browser, served) -> Iterator[Callable]:
    """Profiles that tests share, by theme and size: for tests that look and change nothing."""
    known: dict[tuple[str, bool], Visitor] = {}

    def visitor(theme: str = "light", *, phone: bool = False) -> Visitor:
        if (theme, phone) not in known:
            known[theme, phone] = Visitor(browser, served, theme=theme, phone=phone)
        return known[theme, phone]

    yield visitor
    for shared in known.values():
        shared.context.close()


@pytest.fixture
def look(visitors) -> Iterator[Callable]:
    """Loads a page in a shared profile; whatever the browser complains of fails the test."""
    used: list[Visitor] = []

    def look_at(path: str, theme: str = "light", *, phone: bool = False):
        used.append(visitors(theme, phone=phone))
        return used[-1].go(path)

    yield look_at
    for visitor in used:
        visitor.expect()


@pytest.fixture
def metrics(served, open_page):
    """The metrics of a run that goes on, in a fresh profile."""
    page = open_page(served, f"/run/{LIVE}/metrics")
    is_drawn(page, "chart-loss")
    return page
