"""The webhook channel against a real server."""

from __future__ import annotations

import json
import socket
import threading
import time

import pytest

from stepscope.alerts.delivery import message
from stepscope.channels.base import DeliveryError
from stepscope.channels.webhook import WebhookChannel, signature
from stepscope.errors import ConfigError
from tests.channels.loopback import receiver, status
from tests.channels.notices import INJECTIONS, notice

SECRET = "canary-webhook-secret"


def test_a_notice_arrives_as_json_with_a_signature_that_holds(web):
    channel = WebhookChannel(url=f"{web.url}/hook?team=a", secret=SECRET, headers={"X-Team": "vision"})
    channel.send(notice())
    [request] = web.requests
    assert request.path == "/hook?team=a"
    assert json.loads(request.body) == message.fields(notice())
    assert request.headers["Content-Type"] == "application/json"
    assert request.headers["Host"] == f"127.0.0.1:{web.port}"
    assert request.headers["X-Team"] == "vision"
    assert request.headers["X-Stepscope-Id"] == "notice-7"
    stamp = request.headers["X-Stepscope-Timestamp"]
    assert abs(int(stamp) - time.time()) < 60
    assert request.headers["X-Stepscope-Signature"] == signature(SECRET, stamp, "notice-7", request.body)


def test_the_signature_covers_time_id_and_body():
    first = signature("a", "1", "notice", b"body")
    assert first.startswith("v1=")
    others = [("b", "1", "notice", b"body"), ("a", "2", "notice", b"body"), ("a", "1", "n", b"body")]
    assert first not in {signature(*other) for other in [*others, ("a", "1", "notice", b"Body")]}


def test_without_a_secret_nothing_is_signed(web):
    WebhookChannel(url=web.url).send(notice())
    assert "X-Stepscope-Signature" not in web.requests[0].headers
    assert web.requests[0].path == "/"


def test_any_run_name_arrives_in_one_request(web):
    channel = WebhookChannel(url=web.url)
    for text in INJECTIONS:
        channel.send(notice(run=text, message=text, rule=text))
    assert len(web.requests) == len(INJECTIONS)
    assert all(json.loads(request.body)["version"] == 1 for request in web.requests)


def test_a_server_that_fails_twice_gets_the_same_id_and_body_at_the_third_attempt(web):
    web.answers = [status(500), status(503), status(200)]
    channel = WebhookChannel(url=web.url, secret=SECRET)
    for code in (500, 503):
        with pytest.raises(DeliveryError, match=f"answered {code}") as raised:
            channel.send(notice())
        assert not raised.value.is_final
    channel.send(notice())
    assert {request.headers["X-Stepscope-Id"] for request in web.requests} == {"notice-7"}
    assert len({request.body for request in web.requests}) == 1


@pytest.mark.parametrize("code", [400, 401, 403, 404, 410, 422])
def test_a_permanent_error_is_final(web, code):
    web.answers = [status(code, b"canary-body")]
    with pytest.raises(DeliveryError, match=f"answered {code}") as raised:
        WebhookChannel(url=web.url).send(notice())
    assert raised.value.is_final
    assert "canary" not in str(raised.value)


@pytest.mark.parametrize("code", [408, 425, 429, 500, 502, 504])
def test_a_temporary_error_is_retried(web, code):
    web.answers = [status(code)]
    with pytest.raises(DeliveryError) as raised:
        WebhookChannel(url=web.url).send(notice())
    assert not raised.value.is_final


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
def test_a_redirect_is_not_followed(web, code):
    with receiver() as elsewhere:
        web.answers = [status(code, Location=f"{elsewhere.url}/inside")]
        with pytest.raises(DeliveryError, match="a redirect") as raised:
            WebhookChannel(url=web.url).send(notice())
    assert raised.value.is_final
    assert elsewhere.requests == []
    assert len(web.requests) == 1


def test_a_proxy_in_the_environment_is_not_used(web, monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    WebhookChannel(url=web.url).send(notice())
    assert len(web.requests) == 1


def test_the_body_of_an_answer_is_not_waited_for(web):
    gone = threading.Event()

    def endless(handler):
        handler.send_response(200)
        handler.end_headers()
        try:
            while True:
                handler.wfile.write(b"x" * 65_536)
        except OSError:
            gone.set()

    web.answers = [endless]
    WebhookChannel(url=web.url).send(notice())
    assert gone.wait(30), "The connection was kept open."


def test_an_answer_whose_headers_have_no_end_is_cut(web):
    def endless(handler):
        handler.wfile.write(b"HTTP/1.1 200 OK\r\n")
        while True:
            handler.wfile.write(b"X-More: " + b"x" * 30_000 + b"\r\n")

    web.answers = [endless]
    with pytest.raises(DeliveryError, match="did not send a valid HTTP response") as raised:
        WebhookChannel(url=web.url).send(notice())
    assert not raised.value.is_final


def test_an_answer_that_comes_byte_by_byte_is_cut_at_the_time_limit(web):
    def slow(handler):
        for byte in b"HTTP/1.1 200 OK" * 100:
            handler.wfile.write(bytes([byte]))
            time.sleep(0.02)

    web.answers = [slow]
    began = time.monotonic()
    with pytest.raises(DeliveryError, match="did not answer within 0.2 s") as raised:
        WebhookChannel(url=web.url, timeout_s=0.2).send(notice())
    assert time.monotonic() - began < 15  # all of it takes 30 s
    assert not raised.value.is_final


def test_an_invalid_response_is_not_quoted(web):
    web.answers = [lambda handler: handler.wfile.write(b"SSH-2.0-canary\r\n\r\n")]
    with pytest.raises(DeliveryError, match="did not send a valid HTTP response") as raised:
        WebhookChannel(url=web.url).send(notice())
    assert raised.value.__cause__ is None


def test_a_closed_port_is_a_delivery_error():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(DeliveryError, match="cannot be reached: Connection refused") as raised:
        WebhookChannel(url=f"http://127.0.0.1:{port}/x").send(notice())
    assert not raised.value.is_final


def test_the_address_and_headers_may_be_read_from_the_environment_and_files(web, monkeypatch, tmp_path):
    monkeypatch.setenv("HOOK", f"{web.url}/from-environment")
    (tmp_path / "token").write_text("Bearer abc\n")
    channel = WebhookChannel(
        url={"env": "HOOK"}, headers={"Authorization": {"file": str(tmp_path / "token")}}
    )
    channel.send(notice())
    assert web.requests[0].path == "/from-environment"
    assert web.requests[0].headers["Authorization"] == "Bearer abc"


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"url": "ftp://example.com/x"}, "must begin with https:// or http://"),
        ({"url": "http:///x"}, "no host"),
        ({"url": "http://a..b/x"}, "no host"),
        ({"url": "http://[nonsense/x"}, "is not a web address"),
        ({"url": "http://example.com:99999/x"}, "is not a web address"),
        ({"url": "http://example.com:0/x"}, "port 0"),
        ({"url": "http://user:canary@example.com/x"}, "user or password"),
        ({"url": "http://exam ple.com/canary"}, "a space"),
        ({"url": "http://example.com/\r\nX-Evil: canary"}, "control character"),
        ({"url": {"env": "NOT_SET"}}, r"alerts\.channels\.webhook\.url: .*NOT_SET, which is not set"),
        ({"headers": {"Host": "canary"}}, "Host, which is set by stepscope"),
        ({"headers": {"X-Stepscope-Id": "canary"}}, "set by stepscope"),
        ({"headers": {"X Y": "canary"}}, "invalid header name"),
        ({"headers": {"X-Y": "canary\r\nX-Z: 1"}}, "control character"),
        ({"headers": {"X-Y": "canaré"}}, "not ASCII"),
        ({"headers": ["X-Y"]}, "section of names and values"),
        ({"timeout_s": 0}, "from 0.1 to 60"),
        ({"timeout_s": "canary"}, "from 0.1 to 60"),
        ({"strict": "yes"}, "true or false"),
    ],
)
def test_an_error_in_an_option_does_not_repeat_its_value(wrong, said):
    with pytest.raises(ConfigError, match=said) as raised:
        WebhookChannel(**{"url": "http://example.com/x", **wrong})
    assert "canar" not in str(raised.value)
