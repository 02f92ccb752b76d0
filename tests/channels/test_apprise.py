"""The apprise channel, with the real package and a real server."""

from __future__ import annotations

import json
import sys

import pytest

from stepscope.alerts.delivery import message
from stepscope.channels.apprise import AppriseChannel
from stepscope.channels.base import DeliveryError
from stepscope.errors import ConfigError, MissingExtra
from tests.channels.loopback import receiver, status
from tests.channels.notices import notice

# One of the services that apprise loads asks for a module that Python means to drop.
pytestmark = pytest.mark.filterwarnings("ignore:'imghdr':DeprecationWarning")


def address(web, path="canary-path"):
    return web.url.replace("http:", "json:") + f"/{path}"


@pytest.mark.parametrize(
    ("kind", "severity", "expected"),
    [
        ("firing", "critical", "failure"),
        ("firing", "warning", "warning"),
        ("reminder", "info", "info"),
        ("resolved", "critical", "success"),
    ],
)
def test_a_notice_arrives_with_its_severity(web, kind, severity, expected):
    channel = AppriseChannel(urls=[address(web)])
    sent = notice(kind=kind, severity=severity)
    channel.send(sent)
    body = json.loads(web.requests[0].body)
    assert web.requests[0].path == "/canary-path"
    assert body["title"] == message.subject(sent)
    assert body["message"].strip() == message.text(sent).strip()
    assert body["type"] == expected
    assert channel.target == "JSON"


def test_an_address_may_be_read_from_the_environment(web, monkeypatch):
    monkeypatch.setenv("PUSH_URL", address(web, "from-environment"))
    AppriseChannel(urls=[{"env": "PUSH_URL"}]).send(notice())
    assert web.requests[0].path == "/from-environment"


def test_only_the_failed_service_is_named_and_retried(web, caplog, capsys):
    with receiver() as failing:
        failing.answers = [status(500), status(200)]
        channel = AppriseChannel(urls=[address(web), address(failing)])
        with pytest.raises(DeliveryError, match=r"could not deliver to urls\[1\] \(JSON\)\.") as raised:
            channel.send(notice())
        assert not raised.value.is_final
        channel.send(notice())
    assert (len(web.requests), len(failing.requests)) == (1, 2)
    assert caplog.text == ""
    assert capsys.readouterr() == ("", "")


def test_a_redirect_is_not_followed(web):
    with receiver() as elsewhere:
        web.answers = [status(307, Location=elsewhere.url)]
        with pytest.raises(DeliveryError):
            AppriseChannel(urls=[address(web)]).send(notice())
    assert elsewhere.requests == []


@pytest.mark.parametrize(
    ("urls", "said"),
    [
        (["canary://canary"], r"urls\[0\] is not an address that apprise knows"),
        (["canary"], "is not an address"),
        ("json://canary", "must be a list"),
        ([""], r"urls\[0\] is not set"),
    ],
)
def test_an_address_apprise_does_not_know_is_refused_without_repeating_it(urls, said, caplog):
    with pytest.raises(ConfigError, match=said) as raised:
        AppriseChannel(urls=urls)
    assert "canary" not in str(raised.value)
    assert caplog.text == ""


def test_without_the_package_the_error_has_the_install_command(monkeypatch):
    monkeypatch.setitem(sys.modules, "apprise", None)
    with pytest.raises(MissingExtra, match=r"pip install 'stepscope\[notify\]'"):
        AppriseChannel(urls=["json://127.0.0.1"])
