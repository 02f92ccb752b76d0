"""The Slack channel against a real server."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from stepscope.channels.base import DeliveryError
from stepscope.channels.slack import SlackChannel, payload
from tests.channels.loopback import status
from tests.channels.notices import DETAIL, INJECTIONS, notice


def test_a_notice_arrives_with_a_line_of_text_and_a_coloured_attachment(web):
    channel = SlackChannel(url=f"{web.url}/services/T0/B0/canary")
    channel.send(notice())
    [request] = web.requests
    assert request.path == "/services/T0/B0/canary"
    body = json.loads(request.body)
    assert body["text"].startswith("[CRITICAL] mnist-baseline: Loss is NaN.\n")
    assert body["text"].endswith("http://127.0.0.1:8765/run/run-1")
    [attachment] = body["attachments"]
    assert attachment["color"] == "#d32f2f"
    assert attachment["fallback"] == "CRITICAL: Loss is NaN."
    assert "recent: ▁▂▅█×" in attachment["text"]
    assert channel.target == web.url


@pytest.mark.parametrize(
    ("kind", "severity", "colour"),
    [("firing", "warning", "#f9a825"), ("reminder", "info", "#1976d2"), ("resolved", "critical", "#2e7d32")],
)
def test_the_colour_depends_on_the_severity(kind, severity, colour):
    assert payload(notice(kind=kind, severity=severity))["attachments"][0]["color"] == colour


def test_names_become_neither_links_nor_mentions():
    name = "<!channel> <https://evil.example|click> a&b @everyone @Here"
    shown = json.dumps(payload(notice(run=name, message=name, advice=name)))
    assert "<" not in shown
    assert ">" not in shown
    assert "&lt;!channel&gt; &lt;https://evil.example|click&gt; a&amp;b" in shown
    assert "@everyone" not in shown
    assert "@Here" not in shown


def test_many_long_alerts_fit_and_the_rest_is_counted():
    long = replace(DETAIL, message="m" * 900, advice="a" * 900)
    body = payload(notice(alerts=(long,) * 30))
    assert 1 <= len(body["attachments"]) <= 10
    assert sum(len(attachment["text"]) for attachment in body["attachments"]) <= 5_000
    assert f"and {30 - len(body['attachments'])} more" in body["text"]


@pytest.mark.parametrize("text", INJECTIONS)
def test_any_run_name_can_be_sent(web, text):
    SlackChannel(url=web.url).send(notice(run=text, rule=text, message=text))
    assert len(json.loads(web.requests[0].body)["text"]) < 2_000


@pytest.mark.parametrize(("code", "is_final"), [(403, True), (404, True), (429, False), (500, False)])
def test_an_answer_other_than_success_is_a_delivery_error(web, code, is_final):
    web.answers = [status(code, b"invalid_token")]
    with pytest.raises(DeliveryError, match=f"answered {code}") as raised:
        SlackChannel(url=f"{web.url}/canary").send(notice())
    assert raised.value.is_final == is_final
    assert "canary" not in str(raised.value)
