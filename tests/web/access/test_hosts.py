"""Requests with a foreign Host are refused (DNS rebinding)."""

from __future__ import annotations

import pytest

from stepscope.web.access.hosts import is_same_origin
from tests.web.asking import API, BEARER, app_of, ask, error_of

META = f"{API}/meta"

ANSWERED = [
    "127.0.0.1", "127.0.0.1:8787", "127.0.0.2:1", "localhost", "localhost:9", "LOCALHOST:80",
    "[::1]", "[::1]:8787", "[0:0:0:0:0:0:0:1]:80",
]  # fmt: skip
REFUSED = [
    "evil.test", "evil.test:8787", "127.0.0.1.evil.test", "127.0.0.1.evil.test:8787", "localhost.evil.test",
    "", ":8787", "0.0.0.0", "0.0.0.0:8787", "[::]", "[::]:8787", "10.0.0.1", "169.254.169.254", "[fe80::1]",
    "127.0.0.1:8787:1", "127.0.0.1:x", "[::1", "[::1]x", "2130706433", "0x7f000001", "localhost.",
    "evil@127.0.0.1",
]  # fmt: skip


@pytest.mark.parametrize("host", ANSWERED)
def test_names_of_this_machine_are_answered_with_and_without_a_port(shared, host: str) -> None:
    assert ask(shared, META, headers={**BEARER, "Host": host}).status_code == 200


@pytest.mark.parametrize("host", REFUSED)
def test_any_other_name_is_refused_on_every_route_and_the_flag_is_named(shared, host: str) -> None:
    for path in (META, f"{API}/health", "/", "/assets/a.js", f"{API}/stream"):
        response = ask(shared, path, headers={**BEARER, "Host": host})
        assert response.status_code == 403
        assert "--allow-host" in error_of(response)


def test_two_hosts_are_refused_even_where_one_is_right(shared) -> None:
    headers = [("Host", "127.0.0.1"), ("Host", "evil.test"), *BEARER.items()]
    assert ask(shared, META, headers=headers).status_code == 403


def test_a_configured_name_is_answered_whatever_its_letters_and_port(folder, store) -> None:
    app = app_of(folder, allowed_hosts=("Runs.Example.com",))
    assert ask(app, META, headers={**BEARER, "Host": "runs.example.com:443"}).status_code == 200
    assert ask(app, META, headers={**BEARER, "Host": "a.runs.example.com"}).status_code == 403


def test_the_address_one_listens_on_is_a_name_and_any_address_is_none(folder, store) -> None:
    app = app_of(folder, host="192.168.7.8")
    assert ask(app, META, headers={**BEARER, "Host": "192.168.7.8:8787"}).status_code == 200
    app = app_of(folder, host="0.0.0.0", allowed_hosts=("0.0.0.0", "::"))
    for host in ("0.0.0.0:8787", "[::]:8787"):
        assert ask(app, META, headers={**BEARER, "Host": host}).status_code == 403


@pytest.mark.parametrize(
    ("origin", "host", "same"),
    [
        ("http://localhost:8787", "localhost:8787", True),
        ("https://runs.example.com", "runs.example.com", True),
        ("https://runs.example.com:443", "runs.example.com", True),
        ("http://[::1]:8787", "[::1]:8787", True),
        ("http://localhost:8788", "localhost:8787", False),
        ("http://127.0.0.1:8787", "localhost:8787", False),
        ("null", "localhost:8787", False),
        ("", "localhost:8787", False),
        ("file://localhost:8787", "localhost:8787", False),
        ("http://localhost:8787.evil.test", "localhost:8787", False),
        ("http://localhost:x", "localhost:8787", False),
    ],
)
def test_an_origin_is_ours_when_host_and_port_are(origin: str, host: str, same: bool) -> None:
    assert is_same_origin(origin, host) is same
