"""Pages of other sites show the page in a frame only if the settings name them, and let in by a ticket."""

from __future__ import annotations

import time

import pytest

from stepscope.config.load import load
from stepscope.config.sections import Dashboard, Settings
from stepscope.errors import ConfigError
from stepscope.web.access import tokens
from tests.web.asking import API, BEARER, COOKIE, TOKEN, app_of, ask, error_of

ORIGINS = ["http://localhost:*", "https://lab.example:8443"]


def framed_by(folder, *origins: str):
    return app_of(folder, settings=Settings(dashboard=Dashboard(frame_origins=list(origins))))


def test_only_the_origins_of_the_settings_may_show_the_page_in_a_frame(folder, store) -> None:
    for path, headers in (("/", BEARER), (f"{API}/health", {}), ("/", {})):
        answer = ask(framed_by(folder, *ORIGINS), path, headers=headers)
        policy = answer.headers["content-security-policy"]
        assert policy.endswith(f"frame-ancestors {' '.join(ORIGINS)}")
        assert "default-src 'none'; script-src 'self'" in policy
        assert "x-frame-options" not in answer.headers


def test_a_page_in_a_frame_has_the_rules_of_any_page(folder, store) -> None:
    app = framed_by(folder, *ORIGINS)
    assert ask(app, "/", headers={}).status_code == 401
    asked = {**COOKIE, "Origin": "http://localhost:8888", "X-Stepscope": "1"}
    response = ask(app, f"{API}/runs/mnist-0badcafe/marks", "PUT", headers=asked, json={"tags": ["a"]})
    assert error_of(response) == "A page of another origin asked for this change."


@pytest.mark.parametrize(
    "origin",
    [
        "*",
        "http://*",
        "localhost:8888",
        "http://a b",
        "http://a; script-src *",
        "http://a/path",
        "http://a\n",
    ],
)
def test_what_is_no_origin_is_refused_with_an_example(origin: str) -> None:
    with pytest.raises(ConfigError, match=r"dashboard.frame_origins\[0\].*http://localhost:8888"):
        load({"dashboard": {"frame_origins": [origin]}})


@pytest.mark.parametrize("origin", ["http://localhost:8888", "http://[::1]:*", "https://lab.example"])
def test_an_origin_is_taken_with_or_without_port(origin: str) -> None:
    assert load({"dashboard": {"frame_origins": [origin]}}).settings.dashboard.frame_origins == [origin]


def test_a_ticket_in_the_address_becomes_the_cookie_and_is_removed_like_the_token(app) -> None:
    ticket = tokens.new_ticket(TOKEN)
    assert TOKEN not in ticket
    response = ask(app, f"/run/a-1?token={ticket}", headers={})
    assert (response.status_code, response.headers["location"]) == (303, "/run/a-1")
    cookie = response.headers["set-cookie"].partition(";")[0]
    assert ask(app, f"{API}/meta", headers={"Cookie": cookie}).status_code == 200


def test_a_ticket_is_valid_for_a_minute() -> None:
    ticket = tokens.new_ticket(TOKEN, 1000.5)
    assert tokens.is_valid_ticket(ticket, TOKEN, 1000.5)
    assert tokens.is_valid_ticket(ticket, TOKEN, 1060.0)
    assert not tokens.is_valid_ticket(ticket, TOKEN, 1060.1)
    assert not tokens.is_valid_ticket(ticket, TOKEN, 999.0), "no ticket may be valid for longer"


def test_an_expired_ticket_lets_nobody_in_but_a_client_that_has_the_cookie(app) -> None:
    expired = tokens.new_ticket(TOKEN, time.time() - 61)
    refused = ask(app, f"/runs?token={expired}", headers={})
    assert refused.status_code == 401
    assert "set-cookie" not in refused.headers
    again = ask(app, f"/runs?token={expired}", headers=COOKIE)
    assert (again.status_code, again.headers["location"]) == (303, "/runs")


@pytest.mark.parametrize(
    "change",
    [
        lambda ticket: ticket[:-1],
        lambda ticket: ticket.replace("-", "-9", 1),
        lambda ticket: tokens.new_ticket(TOKEN + "x"),
        lambda ticket: "ticket-",
        lambda ticket: "ticket-é-0",
        lambda ticket: f"ticket-{'9' * 5000}-0",
        lambda ticket: "ticket-²-0",
    ],
)
def test_a_forged_ticket_is_refused(app, change) -> None:
    forged = change(tokens.new_ticket(TOKEN))
    assert ask(app, f"/?token={forged}", headers={}).status_code == 401


def test_a_ticket_is_no_token_of_the_api(app) -> None:
    ticket = tokens.new_ticket(TOKEN)
    assert ask(app, f"{API}/meta", headers={"Authorization": f"Bearer {ticket}"}).status_code == 401
    assert ask(app, f"{API}/meta?token={ticket}", headers={}).status_code == 401


def test_tickets_of_a_replaced_token_are_refused(app, folder) -> None:
    ticket = tokens.new_ticket(TOKEN)
    headers = {**BEARER, "X-Stepscope": "1"}
    assert ask(app, f"{API}/token", "POST", headers=headers, json={}).is_success
    assert ask(app, f"/?token={ticket}", headers={}).status_code == 401
