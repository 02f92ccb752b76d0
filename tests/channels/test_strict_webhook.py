"""A strict webhook reaches public machines only, whatever the address looks like."""

from __future__ import annotations

import socket
import threading

import pytest

from stepscope.alerts.delivery.pinned_http import Network
from stepscope.alerts.delivery.web_address import is_public
from stepscope.channels.base import DeliveryError
from stepscope.channels.webhook import WebhookChannel
from stepscope.errors import ConfigError
from tests.channels.loopback import receiver, status
from tests.channels.notices import notice

PUBLIC, PUBLIC_V6 = "93.184.216.34", "2606:2800:220:1::1"


class ScriptedNetwork:
    """A resolver that gives one answer after the other; every connection ends at a server of ours."""

    def __init__(self, *answers: list[str], port: int = 0) -> None:
        self._answers, self._port = list(answers), port
        self.asked: list[str] = []
        self.connected: list[str] = []

    def resolve(self, host: str, _port: int) -> list[str]:
        self.asked.append(host)
        return self._answers.pop(0)

    def connect(self, address: tuple[str, int], timeout_s: float) -> socket.socket:
        self.connected.append(address[0])
        return socket.create_connection(("127.0.0.1", self._port), timeout_s)


@pytest.fixture
def secure_web(certificate):
    with receiver(tls=certificate.server) as started:
        yield started


def strict(script, certificate=None, url="https://hooks.example/x", **options):
    tls = certificate.trusting if certificate else pytest.fail
    return WebhookChannel(
        url=url, strict=True, _network=Network(script.resolve, script.connect, tls), **options
    )


def test_the_connection_goes_to_the_address_that_was_checked_under_the_name_of_the_host(
    secure_web, certificate
):
    script = ScriptedNetwork([PUBLIC, PUBLIC_V6], port=secure_web.port)
    strict(script, certificate).send(notice())
    assert script.asked == ["hooks.example"]
    assert script.connected == [PUBLIC]
    assert secure_web.requests[0].headers["Host"] == "hooks.example"


def test_a_name_that_changes_its_address_is_resolved_once_and_checked_each_time(secure_web, certificate):
    script = ScriptedNetwork([PUBLIC], ["127.0.0.1"], port=secure_web.port)
    channel = strict(script, certificate)
    channel.send(notice())
    assert script.connected == [PUBLIC]
    with pytest.raises(DeliveryError, match="not public") as raised:
        channel.send(notice())
    assert raised.value.is_final
    assert script.connected == [PUBLIC]
    assert len(secure_web.requests) == 1


def test_one_private_address_among_public_ones_is_enough_to_refuse():
    script = ScriptedNetwork([PUBLIC, "10.0.0.1"])
    with pytest.raises(DeliveryError, match="not public"):
        strict(script).send(notice())
    assert script.connected == []


@pytest.mark.parametrize(
    "host",
    [
        "0xA9FEA9FE",
        "2852039166",
        "0251.0376.0251.0376",
        "169.254.169.254",
        "[::ffff:169.254.169.254]",
        "[::ffff:a9fe:a9fe]",
        "localhost",
        "127.1",
        "0",
        "[::1]",
        "[::]",
        "[fe80::1]",
    ],
)
def test_unusual_notations_of_private_addresses_are_refused(host):
    """By the real resolver, which needs no network for these."""
    script = ScriptedNetwork()
    network = Network(connect=script.connect)
    channel = WebhookChannel(url=f"https://{host}/latest/meta-data", strict=True, _network=network)
    with pytest.raises(DeliveryError, match="not public"):
        channel.send(notice())
    assert script.connected == []


def test_a_dot_after_a_name_does_not_hide_its_address():
    script = ScriptedNetwork(["127.0.0.1"])
    with pytest.raises(DeliveryError, match="not public"):
        strict(script, url="https://localhost./x").send(notice())
    assert script.asked == ["localhost."]
    assert script.connected == []


def test_a_dot_after_a_name_does_not_affect_its_certificate(secure_web, certificate):
    script = ScriptedNetwork([PUBLIC], port=secure_web.port)
    strict(script, certificate, url="https://hooks.example./x").send(notice())
    assert secure_web.requests[0].headers["Host"] == "hooks.example"


def test_a_redirect_to_this_machine_is_not_followed(secure_web, web, certificate):
    for code in (301, 302, 307, 308):
        secure_web.answers = [status(code, Location=f"{web.url}/inside")]
        with pytest.raises(DeliveryError, match="redirect"):
            strict(ScriptedNetwork([PUBLIC], port=secure_web.port), certificate).send(notice())
    assert web.requests == []


def test_a_certificate_for_another_name_is_refused(secure_web, certificate):
    script = ScriptedNetwork([PUBLIC], port=secure_web.port)
    with pytest.raises(DeliveryError, match="no trusted certificate"):
        strict(script, certificate, url="https://elsewhere.example/x").send(notice())
    assert secure_web.requests == []


def test_an_untrusted_certificate_is_refused(secure_web):
    script = ScriptedNetwork([PUBLIC], port=secure_web.port)
    network = Network(script.resolve, script.connect)
    with pytest.raises(DeliveryError, match="no trusted certificate"):
        WebhookChannel(url="https://hooks.example/x", strict=True, _network=network).send(notice())


def test_the_next_address_is_tried_if_one_does_not_answer(secure_web, certificate):
    script = ScriptedNetwork([PUBLIC_V6, PUBLIC], port=secure_web.port)
    reach = script.connect

    def only_v4(address, timeout_s):
        if ":" in address[0]:
            raise OSError(101, "Network is unreachable")
        return reach(address, timeout_s)

    script.connect = only_v4
    strict(script, certificate).send(notice())
    assert script.connected == [PUBLIC]


def test_a_resolver_that_hangs_times_out():
    answered = threading.Event()
    network = Network(resolve=lambda *_: [PUBLIC] if answered.wait(10) else [])
    channel = WebhookChannel(url="https://hooks.example/x", strict=True, timeout_s=0.1, _network=network)
    with pytest.raises(DeliveryError, match="did not answer within 0.1 s"):
        channel.send(notice())
    answered.set()


def test_an_unknown_host_name_is_retried():
    def nobody(*_):
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    with pytest.raises(DeliveryError, match="Name or service not known") as raised:
        WebhookChannel(url="https://hooks.example/x", _network=Network(resolve=nobody)).send(notice())
    assert not raised.value.is_final


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"url": "http://hooks.example/x"}, "must begin with https://"),
        ({"url": "https://user:canary@hooks.example/x"}, "user or password"),
        ({"url": "https://hooks.example/x", "timeout_s": 30}, "from 0.1 to 5"),
    ],
)
def test_a_strict_webhook_refuses_settings_that_are_not_strict(options, said):
    with pytest.raises(ConfigError, match=said):
        WebhookChannel(strict=True, **options)


def test_private_addresses_can_be_refused_without_being_strict(web):
    with pytest.raises(DeliveryError, match="not public"):
        WebhookChannel(url=web.url, allow_private=False).send(notice())
    assert web.requests == []


@pytest.mark.parametrize("address", [PUBLIC, PUBLIC_V6, "8.8.8.8", "::ffff:8.8.8.8", "64:ff9b::808:808"])
def test_an_address_of_the_public_network_is_public(address):
    assert is_public(address)


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "10.1.2.3",
        "172.16.0.1",
        "192.168.0.1",
        "169.254.169.254",
        "100.64.0.1",
        "0.0.0.0",
        "192.0.0.8",
        "192.0.2.1",
        "198.18.0.1",
        "224.0.0.1",
        "240.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "fe80::1%eth0",
        "fc00::1",
        "fec0::1",
        "ff0e::1",
        "2001:db8::1",
        "::127.0.0.1",
        "::ffff:127.0.0.1",
        "64:ff9b::7f00:1",
        "64:ff9b:1::7f00:1",
        "2002:7f00:1::",
        "2001::1",
    ],
)
def test_an_address_of_any_other_network_is_not(address):
    assert not is_public(address)
