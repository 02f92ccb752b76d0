"""Every channel names its required options and reveals no secrets."""

from __future__ import annotations

import inspect
import socket
import traceback

import pytest

from stepscope import plugins
from stepscope.channels.base import Channel, DeliveryError
from stepscope.errors import ConfigError
from tests.channels.notices import notice

NAMES = ["apprise", "console", "log_file", "mail", "slack", "webhook"]
NEEDED = {"apprise": "urls", "log_file": "path", "mail": "host", "slack": "url", "webhook": "url"}
CANARY = "canary-5ecret"

# One of the services that apprise loads asks for a module that Python means to drop.
pytestmark = pytest.mark.filterwarnings("ignore:'imghdr':DeprecationWarning")


@pytest.fixture
def nowhere():
    """A port of this machine where nobody listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        yield free.getsockname()[1]


def test_all_channels_are_known():
    assert set(NAMES) <= set(plugins.names("channels"))


@pytest.mark.parametrize("name", NEEDED)
def test_a_channel_without_its_options_says_which_is_missing_and_shows_an_example(name):
    with pytest.raises(ConfigError) as raised:
        plugins.make("channels", name, Channel, {})
    said = str(raised.value)
    assert f"alerts.channels.{name}.{NEEDED[name]} is not set" in said
    assert f"{name}: {{" in said


@pytest.mark.parametrize("name", NEEDED)
def test_a_null_option_counts_as_not_set(name):
    with pytest.raises(ConfigError, match="is not set"):
        plugins.make("channels", name, Channel, {NEEDED[name]: None})


@pytest.mark.parametrize("name", NAMES)
def test_a_channel_documents_every_option_in_its_docstring(name):
    kind = plugins.load("channels", name, Channel)
    for option in inspect.signature(kind).parameters:
        assert option.startswith("_") or f"`{option}`" in (kind.__doc__ or "")


def options_with_secrets(name, port):
    login = {"user": "ann", "password": CANARY, "sender": "a@example.com", "recipients": ["b@example.com"]}
    return {
        "apprise": {"urls": [f"json://user:{CANARY}@127.0.0.1:{port}/{CANARY}?x={CANARY}"]},
        "mail": {"host": "127.0.0.1", "port": port, **login},
        "slack": {"url": f"http://127.0.0.1:{port}/services/{CANARY}"},
        "webhook": {
            "url": f"http://127.0.0.1:{port}/{CANARY}?token={CANARY}",
            "secret": CANARY,
            "headers": {"Authorization": f"Bearer {CANARY}"},
        },
    }[name]


@pytest.mark.parametrize("name", ["apprise", "mail", "slack", "webhook"])
def test_a_dead_network_is_a_delivery_error_without_secrets(name, nowhere, caplog, capsys):
    caplog.set_level(0)
    channel = plugins.make("channels", name, Channel, options_with_secrets(name, nowhere))
    with pytest.raises(DeliveryError) as raised:
        channel.send(notice())
    assert not raised.value.is_final
    trace = "".join(traceback.format_exception(raised.value))
    shown = [trace, repr(raised.value), repr(channel), str(channel), channel.target, caplog.text]
    assert CANARY not in "".join([*shown, *capsys.readouterr()])


def test_an_error_for_an_unreadable_secret_names_its_source(tmp_path):
    with pytest.raises(ConfigError, match=r"slack\.url: .*/gone, which cannot be read: No such file"):
        plugins.make("channels", "slack", Channel, {"url": {"file": str(tmp_path / "gone")}})


def test_an_empty_secret_is_refused(monkeypatch):
    monkeypatch.setenv("EMPTY", "")
    with pytest.raises(ConfigError, match="a variable or file that is empty"):
        plugins.make("channels", "slack", Channel, {"url": {"env": "EMPTY"}})
