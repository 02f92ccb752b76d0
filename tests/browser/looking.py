"""What tests ask of a page: numbers of charts rather than pixels."""

from __future__ import annotations

from tests.browser.example_store import CRASHED, FINISHED, LIVE

ROUTES = {
    "home": "/",
    "runs": "/runs",
    "overview": f"/run/{LIVE}",
    "metrics": f"/run/{LIVE}/metrics",
    "system": f"/run/{LIVE}/system",
    "steps": f"/run/{LIVE}/steps",
    "diagnose": f"/run/{LIVE}/diagnose",
    "logs": f"/run/{LIVE}/logs",
    "config": f"/run/{LIVE}/config",
    "crashed": f"/run/{CRASHED}",
    "finished": f"/run/{FINISHED}",
    "compare": f"/compare?runs={FINISHED},{LIVE}",
    "alerts": "/alerts",
    "settings": "/settings",
    "help": "/help",
}


def is_settled(page) -> None:
    """Waits until nothing is on its way from the server any more."""
    page.wait_for_function(
        "() => document.querySelector('h1') && !document.querySelector('[aria-busy=true]')"
    )


def is_drawn(page, chart: str) -> None:
    """Waits until a chart has lines."""
    page.get_by_test_id(chart).scroll_into_view_if_needed()
    page.wait_for_function(
        "name => window.__stepscope?.charts.get(name)?.series().some(line => line.x.length > 1)", arg=chart
    )


def lines(page, chart: str) -> list[dict]:
    """The lines of a chart, as drawn."""
    return page.evaluate("name => window.__stepscope.charts.get(name).series()", chart)


def window_of(page, chart: str) -> dict | None:
    """The window of a chart in x."""
    return page.evaluate("name => window.__stepscope.charts.get(name).window()", chart)


def plot_box(page, chart: str) -> dict:
    """Where the plot of a chart lies on the screen."""
    return page.get_by_test_id(chart).locator(".u-over").bounding_box()


def drag(page, chart: str, begin: float, end: float) -> None:
    """Drags over a chart between two shares of its width."""
    box = plot_box(page, chart)
    middle = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + begin * box["width"], middle)
    page.mouse.down()
    page.mouse.move(box["x"] + (begin + end) / 2 * box["width"], middle)
    page.mouse.move(box["x"] + end * box["width"], middle)
    page.mouse.up()


def choose(page, chart: str, entry: str) -> None:
    """Opens the menu of a chart and takes an entry of it."""
    figure = page.get_by_test_id(chart)
    figure.get_by_role("button", name="Chart menu").click()
    figure.get_by_role("menu").get_by_text(entry, exact=True).click()


def point_at(page, chart: str, share: float = 0.5) -> None:
    """Points into the middle of a chart, at a share of its width."""
    box = plot_box(page, chart)
    page.mouse.move(box["x"] + share * box["width"], box["y"] + box["height"] / 2)
