"""How fast the web page is, in a real Chromium on a real server.

    PYTHONPATH=src python -m benchmarks.page [--points 1000000] [--keys 40] [--runs 1000]

Printed beside its bound: the size of the scripts that a page needs; the time from asking for an address to
the first drawn chart; a page of charts over long series until all in sight are drawn and the page answers;
what a frame takes while the pointer moves over a chart; from the end of a zoom to finer data on the screen; a
long list of runs; and how much a tab grows in eight hours of a live run, whose events are handed to it one
after another by a stand-in for the browser's EventSource. Needs playwright, a Chromium, and Node for the page
that shows what its charts draw. How far many tabs are behind is measured by `benchmarks.page_stream`.
"""

import argparse
import gzip
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from benchmarks.bounds import Bound
from benchmarks.page_stores import LONG, long_run, many_runs

TEST_PAGE = Path(__file__).resolve().parents[1] / "ui" / "serve_test_page.py"
WIDE = {"width": 1440, "height": 900}
HOURS, MESSAGES_PER_SECOND = 8, 2

DRAWN = """() => {
  const shown = window.__stepscope;
  return shown && [...shown.charts.values()].some(one => one.series().some(line => line.x.length > 1));
}"""

SETTLED = """() => {
  const figures = [...document.querySelectorAll("figure[data-testid^=chart-]")].filter(one => {
    const box = one.getBoundingClientRect();
    return box.bottom > 0 && box.top < innerHeight && one.querySelector("canvas");
  });
  const charts = window.__stepscope?.charts;
  return figures.length > 3 && figures.every(one =>
    charts.get(one.dataset.testid)?.series().some(line => line.x.length > 1));
}"""

LOADED = "() => document.querySelector('h1') && !document.querySelector('[aria-busy=true]')"

STAND_IN = """
window.EventSource = class extends EventTarget {
  constructor(url) { super(); this.url = url; this.readyState = 1; window.stream = this;
    setTimeout(() => window.tell("hello", {now: Date.now() / 1000, cursor: "c", heartbeat_s: 15}, "c")); }
  close() { this.readyState = 2; }
};
window.tell = (name, data, id) =>
  window.stream.dispatchEvent(new MessageEvent(name, {data: JSON.stringify(data), lastEventId: id}));
"""

FOLLOW = """async ({run, keys, first, messages, perMessage, begun}) => {
  for (let number = 0; number < messages; number++) {
    const steps = Array.from({length: perMessage}, (_, place) => first + number * perMessage + place);
    const times = steps.map(step => begun + (step - first) * 0.1);
    const series = keys.map(key => ({key, rank: 0, host: "here", device: "", axis: "step", steps, times,
      values: steps.map(() => Math.random())}));
    window.tell("points", {run, series}, `c${number}`);
    if (number % 20 === 0) await new Promise(requestAnimationFrame);
  }
}"""

HOVER = """async () => {
  const spent = [];
  const plot = [...document.querySelectorAll(".u-over")].find(one => one.getBoundingClientRect().top > 0);
  const box = plot.getBoundingClientRect();
  for (let number = 0; number < 120; number++) {
    const at = {bubbles: true, clientX: box.left + box.width * number / 120, clientY: box.top + 50};
    let frame = 0;
    requestAnimationFrame(() => { frame = performance.now(); });  // the first of this frame
    const began = performance.now();
    plot.dispatchEvent(new MouseEvent("mousemove", at));
    plot.dispatchEvent(new PointerEvent("pointermove", at));
    const handled = performance.now() - began;
    await new Promise(done => requestAnimationFrame(() => { const channel = new MessageChannel();
      channel.port1.onmessage = () => done(); channel.port2.postMessage(0); }));
    spent.push(handled + performance.now() - frame);
    await new Promise(requestAnimationFrame);
  }
  return spent;
}"""


class Served:
    """A server of a store in a process of its own, with the page that shows what its charts draw."""

    def __init__(self, folder: Path) -> None:
        command = [sys.executable, str(TEST_PAGE), "serve", "--store", str(folder), "--port", "0"]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.link = self._process.stdout.readline().split(maxsplit=1)[1].strip()
        parts = urlsplit(self.link)
        self.address = f"{parts.scheme}://{parts.netloc}"

    def stop(self) -> None:
        """Ends it."""
        self._process.terminate()
        self._process.wait()


def main() -> int:
    """Measures everything and prints it beside the bounds."""
    parser = argparse.ArgumentParser(description="How fast the web page is.")
    parser.add_argument("--points", type=int, default=1_000_000)
    parser.add_argument("--keys", type=int, default=40)
    parser.add_argument("--runs", type=int, default=1_000)
    options = parser.parse_args()
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as place, sync_playwright() as playwright:
        long_run(Path(place) / "long", options.keys, options.points)
        many_runs(Path(place) / "many", options.runs)
        long, many = Served(Path(place) / "long"), Served(Path(place) / "many")
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--enable-precise-memory-info"]
        )
        try:
            bounds = [
                Bound("scripts of Home, gzip", scripts_kb(browser, long, "/"), 120, "kB"),
                Bound(
                    "scripts of a run's overview, gzip", scripts_kb(browser, long, f"/run/{LONG}"), 120, "kB"
                ),
                Bound("first chart", first_chart_s(browser, long), 1, "s"),
                *charts(browser, long, options.keys),
                Bound(f"{options.runs:,} runs listed, first request", first_listed_s(browser, many), 1, "s"),
                Bound(f"{options.runs:,} runs listed", listed_s(browser, many), 1, "s"),
                Bound("growth of a tab in 8 h", growth_mb(browser, long, options.points), 30, "MB"),
            ]
        finally:
            browser.close()
            long.stop()
            many.stop()
    for bound in bounds:
        print(bound)
    return 0


def scripts_kb(browser: Any, server: Served, path: str) -> float:
    """All scripts that a browser fetches for a page until nothing is on its way, compressed."""
    context = browser.new_context(viewport=WIDE, service_workers="block")
    context.request.get(server.link)
    page = context.new_page()
    scripts: dict[str, int] = {}

    def count(response: Any) -> None:
        if response.url.endswith(".js"):
            scripts[response.url] = len(gzip.compress(response.body(), 9))

    page.on("response", count)
    page.goto(server.address + path)
    page.wait_for_function(
        "() => document.querySelector('h1') && !document.querySelector('[aria-busy=true]')"
    )
    page.wait_for_timeout(500)  # other pages are fetched after a longer pause
    context.close()
    return sum(scripts.values()) / 1000


def opened(browser: Any, server: Served, path: str, before: str = "") -> tuple[Any, float]:
    """A page at an address, and when it was asked for; the token was exchanged before."""
    page = browser.new_context(viewport=WIDE).new_page()
    page.goto(server.link)
    page.wait_for_load_state("networkidle")
    if before:
        page.add_init_script(before)
    began = time.perf_counter()
    page.goto(server.address + path, wait_until="commit")
    return page, began


def first_chart_s(browser: Any, server: Served) -> float:
    """The median of five: from asking to a drawn chart of the overview."""
    took = []
    for _ in range(5):
        page, began = opened(browser, server, f"/run/{LONG}")
        page.wait_for_function(DRAWN, polling="raf")
        took.append(time.perf_counter() - began)
        page.context.close()
    return statistics.median(took)


def charts(browser: Any, server: Served, keys: int) -> list[Bound]:
    """A page with a chart for each key: until it answers, hovering, zooming."""
    page, began = opened(browser, server, f"/run/{LONG}/metrics")
    page.wait_for_function(SETTLED, polling="raf")
    interactive_s = time.perf_counter() - began
    spent = sorted(page.evaluate(HOVER))
    name = "chart-group0/metric00"
    width = "name => window.__stepscope.charts.get(name).series()[0].width"
    before = page.evaluate(width, name)
    box = page.get_by_test_id(name).locator(".u-over").bounding_box()
    middle = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + 0.4 * box["width"], middle)
    page.mouse.down()
    page.mouse.move(box["x"] + 0.5 * box["width"], middle, steps=4)
    let_go = time.perf_counter()
    page.mouse.up()
    page.wait_for_function(
        "([name, before]) => window.__stepscope.charts.get(name).series()[0].width < before",
        arg=[name, before],
        polling="raf",
    )
    # The pause in which further zooming is waited for is part of the design, and of this figure.
    zoomed_ms = (time.perf_counter() - let_go) * 1e3
    page.context.close()
    return [
        Bound(f"page of {keys} charts over long series", interactive_s, 2, "s"),
        Bound("frame while hovering, median", statistics.median(spent), 8, "ms"),
        Bound("frame while hovering, p95", spent[int(0.95 * len(spent))], 16.7, "ms"),
        Bound("zoom to new data", zoomed_ms, 200, "ms"),
    ]


def first_listed_s(browser: Any, server: Served) -> float:
    """The same by the first request that a server gets: nothing is remembered of any run."""
    page = browser.new_context(viewport=WIDE).new_page()
    began = time.perf_counter()
    page.goto(server.link.replace("/?", "/runs?"), wait_until="commit")
    page.get_by_text("sweep-", exact=False).first.wait_for()
    took = time.perf_counter() - began
    page.context.close()
    return took


def listed_s(browser: Any, server: Served) -> float:
    """The median of three: from asking to rows of the list."""
    took = []
    for _ in range(3):
        page, began = opened(browser, server, "/runs")
        page.get_by_text("sweep-", exact=False).first.wait_for()
        took.append(time.perf_counter() - began)
        page.context.close()
    return statistics.median(took)


def growth_mb(browser: Any, server: Served, points: int) -> float:
    """What a tab has more in memory after the events of eight hours than after those of the first minutes."""
    page, _ = opened(browser, server, f"/run/{LONG}/metrics", STAND_IN)
    page.wait_for_function(SETTLED, polling="raf")
    page.wait_for_function("() => window.__stepscope.stream?.state === 'live'")
    page.wait_for_timeout(1_000)  # while charts come into sight their keys are asked for, by a stream anew
    argument: dict[str, Any] = {
        "run": LONG,
        "keys": [f"group0/metric{number:02d}" for number in range(8)],
        "first": points,
        "perMessage": 5,
        "begun": time.time(),
    }
    session = page.context.new_cdp_session(page)
    page.evaluate(FOLLOW, argument | {"messages": 600})
    before = _heap_mb(session)
    messages = HOURS * 3600 * MESSAGES_PER_SECOND
    page.evaluate(FOLLOW, argument | {"messages": messages, "first": points + 600 * argument["perMessage"]})
    grown = _heap_mb(session) - before
    newest = page.evaluate(
        "() => window.__stepscope.charts.get('chart-group0/metric00').series()[0].x.at(-1)"
    )
    if newest < points + messages:
        raise SystemExit(f"The charts did not follow: the newest step drawn is {newest:,.0f}.")
    page.context.close()
    return grown


def _heap_mb(session: Any) -> float:
    session.send("HeapProfiler.collectGarbage")
    usage = session.send("Runtime.getHeapUsage")
    return float(usage["usedSize"]) / 1e6


if __name__ == "__main__":
    sys.exit(main())
