"""Whatever a run, a metric, a tag or a console says stays text: it is shown, never obeyed."""

from __future__ import annotations

import json
import re
import urllib.request
from pathlib import Path

import numpy as np
import pytest

from stepscope.schema.record import Event
from stepscope.schema.run import Process
from stepscope.schema.series import Source
from stepscope.store.base import OpenAlert
from tests.browser.example_store import HOST, NS, ExampleStore, waiting_for_data
from tests.browser.looking import is_settled
from tests.browser.serving import Served

pytestmark = pytest.mark.xdist_group("browser")

MARKUP = [
    "<script>{0}</script>",
    "<img src=x onerror={0}>",
    "<svg onload={0}>",
    "<svg><script>{0}</script></svg>",
    "<iframe srcdoc='<script>parent.{0}</script>'>",
    "<a href=javascript:{0}>x</a>",
    "<body onload={0}>",
    "<details open ontoggle={0}>",
    "<video><source onerror={0}>",
    "<input autofocus onfocus={0}>",
    "<style>@import 'javascript:{0}'</style>",
    "<math><mtext></table><img src=x onerror={0}>",
    "</title><script>{0}</script>",
    "</textarea><script>{0}</script>",
    "'\"><script>{0}</script>",
    "`${{{0}}}`",
    "{{@html '<script>{0}</script>'}}",
    "{{{{constructor.constructor('{0}')()}}}}",
    "javascript:{0}",
    "data:text/html,<script>{0}</script>",
    "<!--<img src=x onerror={0}>-->",
    "<template><script>{0}</script></template>",
    "<object data=javascript:{0}>",
    "<marquee onstart={0}>",
    "&lt;script&gt;{0}&lt;/script&gt;",
]
AROUND = ["{}", "a{}b", "\u202e{}", "{}\x00", " {} ", "{}%00", "\ufeff{}", "x" * 120 + "{}"]
PAYLOADS = [around.format(text.format("window.owned=1")) for text in MARKUP for around in AROUND]


RUN_PAGES = ("", "/metrics", "/steps", "/diagnose", "/logs", "/config")
PLACES = ["/", "/runs", *(f"/run/run-0{page}" for page in RUN_PAGES), "/compare?runs=run-0,run-20", "/alerts"]
ELEMENTS = "main :is(script, iframe, object, img, video, [onerror], [onload])"


@pytest.fixture
def hostile(tmp_path, serve):
    """A store in which every text is one of two hundred attempts, and a server of it."""
    store = ExampleStore(tmp_path / "hostile")
    begun_ns = store.now_ns - 60 * NS
    with store.store.transaction():
        for number in range(0, len(PAYLOADS), 20):
            name = PAYLOADS[number]
            facts = {
                "command": PAYLOADS[:5],
                "python": PAYLOADS[1],
                "config": dict(zip(PAYLOADS, PAYLOADS[::-1], strict=True)),
            }
            _process(store, f"run-{number}", name, begun_ns, facts)
        _words(store, begun_ns)
    keys = [payload[:100] for payload in PAYLOADS[:40]]
    values = np.ones((3, len(keys)))
    times = begun_ns + np.arange(3) * NS
    store.append(
        Source("run-0", "s1", 0, HOST),
        {"loss": values[:, 0], **dict(zip(keys, values.T, strict=True))},
        [0, 1, 2],
        times,
    )
    rules = [
        {
            "name": payload[:100],
            "when": f"`{payload.replace('`', '')}` > 1",
            "advice": payload,
            "run": payload,
            "channels": [payload],
        }
        for payload in PAYLOADS[::4]
    ]
    (store.folder / "rules.json").write_text(json.dumps({"rules": rules}))
    server = serve(store.folder)
    yield server
    store.close()


def _process(store: ExampleStore, run_id: str, name: str, begun_ns: int, facts: dict) -> None:
    state = {
        "status": "failed",
        "reason": PAYLOADS[7],
        "ended_ns": begun_ns + NS,
        "last_ns": begun_ns,
        "facts": facts,
    }
    store.store.put_process(Process(run_id, name, PAYLOADS[3], "s1", 0, HOST, 1, "rank", begun_ns, **state))


def _words(store: ExampleStore, begun_ns: int) -> None:
    for number, payload in enumerate(PAYLOADS):
        fields = {"detail": payload, "note": payload}
        store.store.put_event("run-0", Event(payload[:60], begun_ns + number, number, 0, "s1", fields))
    text = "\n".join(PAYLOADS)
    store.store.put_event("run-0", Event("console", begun_ns, None, 0, "s1", {"text": text}))
    for number in range(0, 200, 10):
        fields = {"advice": PAYLOADS[number], "device": PAYLOADS[number + 1], "key": PAYLOADS[number + 2]}
        store.store.alert_book.fire(
            OpenAlert("run-0", PAYLOADS[number], "warning", PAYLOADS[number + 3], begun_ns, fields)
        )
    finding = waiting_for_data(begun_ns / NS, begun_ns / NS).as_dict()
    texts = {
        "title": PAYLOADS[0],
        "headline": PAYLOADS[9],
        "detail": PAYLOADS[17],
        "how": PAYLOADS[25],
        "device": PAYLOADS[33],
    }
    lists = {"ruled_out": PAYLOADS[:20], "tries": PAYLOADS[20:24], "refs": PAYLOADS[24:40]}
    remedies = [{"text": payload, "code": payload, "framework": None} for payload in PAYLOADS[40:60]]
    evidence = [{"label": payload, "value": payload, "note": payload} for payload in PAYLOADS[60:80]]
    store.store.put_finding(
        "run-0", {**finding, **texts, **lists, "remedies": remedies, "evidence": evidence}, begun_ns
    )


def mark(server: Served, payloads: list[str]) -> None:
    """Tags and notes, as a person would add them."""
    token = server.link.split("token=")[1]
    for path, method, body in (
        (
            "runs/run-0/marks",
            "PUT",
            {"tags": [payload[:40].replace("\x00", "") for payload in payloads[:10]]},
        ),
        ("runs/run-0/notes", "POST", {"step": 1, "text": payloads[0]}),
    ):
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        data = json.dumps(body).encode()
        urllib.request.urlopen(
            urllib.request.Request(f"{server.base}/api/v1/{path}", data, headers, method=method)
        )


def test_there_are_two_hundred_attempts():
    assert len(set(PAYLOADS)) == 200


@pytest.mark.slow
def test_hostile_text_stays_text_on_every_page(hostile, open_page):
    mark(hostile, PAYLOADS)
    page = open_page(hostile)
    for path in PLACES:
        page.goto(hostile.base + path)
        is_settled(page)
        assert page.evaluate("window.owned") is None, path
        assert page.locator(ELEMENTS).count() == 0, path


@pytest.mark.slow
def test_what_was_tried_is_shown_as_it_was_written(hostile, open_page):
    page = open_page(hostile, "/run/run-0/logs")
    page.get_by_test_id("console").get_by_text("<svg onload=window.owned=1>", exact=True).first.wait_for()
    page.goto(f"{hostile.base}/run/run-0")
    page.get_by_role("heading", name="<script>window.owned=1</script>").wait_for()


@pytest.mark.slow
def test_hostile_text_in_the_address_stays_text(hostile, open_page):
    page = open_page(
        hostile,
        "/runs?filter=%3Cimg+src%3Dx+onerror%3Dwindow.owned%3D1%3E&sort=%3Cscript%3E",
        allowed=("400",),
    )
    page.get_by_test_id("run-filter").wait_for()
    page.goto(f"{hostile.base}/run/run-0?x=%22%3E%3Cscript%3Ewindow.owned=1%3C/script%3E&from=a&to=%3Csvg%3E")
    page.get_by_test_id("overview").wait_for()
    assert page.evaluate("window.owned") is None


def test_no_source_of_the_page_draws_markup_from_text():
    sources = Path(__file__).parents[2] / "ui" / "src"
    written = re.compile(
        r"\{@html|innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function\("
    )
    names = [path.name for path in sources.rglob("*.*") if written.search(path.read_text(encoding="utf-8"))]
    assert names == []
