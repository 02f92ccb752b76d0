"""The page on channels: every option is on it, its examples load, its code runs."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest
import yaml

from stepscope import plugins
from stepscope.alerts.delivery import message
from stepscope.channels.base import Channel
from stepscope.channels.webhook import WebhookChannel
from tests.channels.notices import notice

PAGE = (Path(__file__).parents[2] / "docs" / "alert-channels.md").read_text(encoding="utf-8")
EXAMPLES = [yaml.safe_load(text) for text in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)]
SHOWN = [
    (place, name, options)
    for place, example in enumerate(EXAMPLES)
    for name, options in example["alerts"]["channels"].items()
]
NAMES = ["apprise", "console", "log_file", "mail", "slack", "webhook"]

# One of the services that apprise loads asks for a module that Python means to drop.
pytestmark = pytest.mark.filterwarnings("ignore:'imghdr':DeprecationWarning")


@pytest.mark.parametrize("name", NAMES)
def test_every_option_of_a_channel_is_in_its_part_of_the_page(name):
    part = PAGE.split(f"\n## {name}\n")[1].split("\n## ")[0]
    for option in inspect.signature(plugins.load("channels", name, Channel)).parameters:
        assert option.startswith("_") or f"`{option}`" in part


@pytest.mark.parametrize(("place", "name", "options"), SHOWN)
def test_every_example_makes_a_channel(place, name, options, monkeypatch, tmp_path):
    def filled(value):
        if isinstance(value, dict) and set(value) == {"env"}:
            monkeypatch.setenv(
                value["env"], "json://127.0.0.1" if name == "apprise" else "https://example.com/x"
            )
        if isinstance(value, dict) and set(value) == {"file"}:
            (tmp_path / "secret").write_text("json://127.0.0.1")
            return {"file": str(tmp_path / "secret")}
        if isinstance(value, dict):
            return {key: filled(part) for key, part in value.items()}
        return [filled(part) for part in value] if isinstance(value, list) else value

    assert plugins.make("channels", name, Channel, filled(options)).target


def test_the_shown_text_is_the_real_one():
    assert message.text(notice()) in PAGE


def test_the_shown_fields_are_the_real_ones():
    fields = message.fields(notice())
    table = PAGE.split("### Fields of a notice")[1].split("###")[0]
    assert set(re.findall(r"`(\w+)`", table)) >= {*fields, *fields["alerts"][0]}


def test_the_shown_code_rejects_forged_and_repeated_requests(web):
    [code] = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    shown: dict[str, object] = {}
    exec(code, shown)
    is_genuine = shown["is_genuine"]
    for number in range(3):
        WebhookChannel(url=web.url, secret="key", _now=lambda: 1_000_000).send(notice(id=f"notice-{number}"))
    first, second, third = web.requests

    def at(seconds):
        return lambda: 1_000_000 + seconds

    assert not is_genuine(first.headers, first.body, "another key", at(0))
    assert not is_genuine(first.headers, first.body + b" ", "key", at(0))
    assert not is_genuine({**first.headers, "X-Stepscope-Id": "notice-9"}, first.body, "key", at(0))
    assert not is_genuine({**first.headers, "X-Stepscope-Timestamp": "1000001"}, first.body, "key", at(0))
    assert is_genuine(first.headers, first.body, "key", at(10))
    assert not is_genuine(first.headers, first.body, "key", at(20))
    assert not is_genuine(second.headers, second.body, "key", at(301))
    assert not is_genuine(second.headers, second.body, "key", at(-301))
    assert is_genuine(third.headers, third.body, "key", at(-290))
