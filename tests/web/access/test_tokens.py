"""The token is long, private, compared in constant time, and removed from the address at once."""

from __future__ import annotations

import asyncio
import base64
import os
import stat

import httpx
import pytest

from stepscope.errors import ConfigError
from stepscope.web.access import tokens
from tests.web.asking import (
    API,
    BEARER,
    COOKIE,
    FROM_THE_PAGE,
    PLACE,
    TOKEN,
    app_of,
    ask,
    error_of,
    state_and_app,
)


def test_a_token_is_created_once_has_256_bits_and_only_its_owner_can_read_it(tmp_path) -> None:
    before = os.umask(0)
    try:
        token = tokens.token_of(tmp_path / "server.token")
    finally:
        os.umask(before)
    assert len(base64.urlsafe_b64decode(token + "=")) == 32
    assert stat.S_IMODE((tmp_path / "server.token").stat().st_mode) == 0o600
    assert tokens.token_of(tmp_path / "server.token") == token
    assert os.listdir(tmp_path) == ["server.token"]


def test_a_token_that_others_can_read_is_refused_with_a_remedy(tmp_path) -> None:
    path = tmp_path / "token"
    path.write_text("a" * 40)
    path.chmod(0o644)
    with pytest.raises(ConfigError, match=r"can be read by others \(mode 644\).*chmod 600"):
        tokens.token_of(path)


@pytest.mark.parametrize("text", ["", "\n", "short"])
def test_a_file_without_a_token_is_refused(tmp_path, text: str) -> None:
    path = tmp_path / "token"
    path.write_text(text)
    path.chmod(0o600)
    with pytest.raises(ConfigError, match="has no valid token"):
        tokens.token_of(path)


def test_a_planted_link_is_not_written_through(tmp_path) -> None:
    (tmp_path / "server.token").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ConfigError):
        tokens.token_of(tmp_path / "server.token")
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize(
    ("asked", "target"),
    [
        (f"/login?token={TOKEN}", "/"),
        (f"/?token={TOKEN}", "/"),
        (f"/run/a-1/steps?x=epoch&token={TOKEN}&smooth=0.5", "/run/a-1/steps?x=epoch&smooth=0.5"),
        (f"/run/%C3%A9%20b?token={TOKEN}", "/run/%C3%A9%20b"),
        (f"//evil.test/?token={TOKEN}", "/evil.test/"),
        (f"/%5Cevil.test/?token={TOKEN}", "/evil.test/"),
        (f"/%2F%2Fevil.test?token={TOKEN}", "/evil.test"),
    ],
)
def test_a_token_in_the_address_becomes_a_cookie_and_leads_to_the_same_address_without_it(
    app, asked: str, target: str
) -> None:
    response = ask(app, f"{PLACE}{asked}", headers={})
    assert response.status_code == 303
    assert response.headers["location"] == target
    assert TOKEN not in str(response.headers)
    cookie = response.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "samesite=strict" in cookie.lower()
    assert ask(app, f"{API}/meta", headers={"Cookie": cookie.partition(";")[0]}).status_code == 200


@pytest.mark.parametrize("asked", ["/login?token=wrong", "/login?token=", "/?token=wrong", "/login"])
def test_a_wrong_token_in_the_address_gets_a_page_that_says_how_to_get_the_right_one(app, asked: str) -> None:
    response = ask(app, asked, headers={})
    assert response.status_code == 401
    assert "set-cookie" not in response.headers
    assert "stepscope serve" in response.text


def test_the_api_takes_no_token_from_the_address(app) -> None:
    assert ask(app, f"{API}/meta?token={TOKEN}", headers={}).status_code == 401


def test_behind_tls_the_cookie_is_sent_encrypted_alone_and_under_a_base_path_only_there(
    folder, store
) -> None:
    app = app_of(folder, tls_certificate=folder, base_path="/stepscope")
    response = ask(app, f"/stepscope/runs?token={TOKEN}", headers={})
    assert response.headers["location"] == "/stepscope/runs"
    assert "Secure" in response.headers["set-cookie"]
    assert "Path=/stepscope" in response.headers["set-cookie"]


def test_the_token_is_in_no_log_line_also_when_it_is_in_the_address_or_wrong(app, caplog) -> None:
    caplog.set_level("INFO", "stepscope.web")
    ask(app, f"/runs?token={TOKEN}", headers={})
    ask(app, "/runs?token=mistyped-secret", headers={})
    ask(app, f"{API}/runs?filter=secret-word")
    assert "'/runs' 303" in caplog.text
    for secret in (TOKEN, "mistyped-secret", "secret-word", COOKIE["Cookie"].partition("=")[2]):
        assert secret not in caplog.text


def test_the_cookie_does_not_hold_the_token_and_other_tokens_have_other_cookies() -> None:
    assert TOKEN not in tokens.cookie_value(TOKEN)
    assert tokens.cookie_name(TOKEN) != tokens.cookie_name(TOKEN + "x")
    assert tokens.cookie_value(TOKEN) != tokens.cookie_value(TOKEN + "x")


def test_many_wrong_tokens_are_answered_with_wait_and_the_right_one_still_works(folder, store) -> None:
    from stepscope.web.server.options import Limits

    app = app_of(folder, limits=Limits(strangers_per_second=2))
    statuses = [ask(app, f"{API}/meta", headers={"Authorization": "Bearer x"}).status_code for _ in range(15)]
    assert statuses[:10] == [401] * 10
    assert statuses[-1] == 429
    assert ask(app, f"{API}/meta").status_code == 200


def test_a_new_token_ends_the_old_ones_cookies_addresses_and_programs(app, folder) -> None:
    response = ask(app, f"{API}/token", "POST", headers=FROM_THE_PAGE)
    assert response.status_code == 204
    token = tokens.token_of(folder / "server.token")
    assert token != TOKEN
    for headers in (COOKIE, BEARER):
        assert ask(app, f"{API}/meta", headers=headers).status_code == 401
    assert ask(app, f"/?token={TOKEN}", headers={}).status_code == 401
    assert ask(app, f"{API}/meta", headers={"Authorization": f"Bearer {token}"}).status_code == 200
    assert ask(app, f"/?token={token}", headers={}).status_code == 303


def test_a_client_that_makes_a_new_token_continues_with_the_cookie_in_the_answer(app, folder) -> None:
    response = ask(app, f"{API}/token", "POST", headers=FROM_THE_PAGE)
    old, new = response.headers.get_list("set-cookie")
    assert old.startswith(COOKIE["Cookie"].partition("=")[0])
    assert "Max-Age=0" in old
    assert "HttpOnly" in new
    assert "samesite=strict" in new.lower()
    token = tokens.token_of(folder / "server.token")
    assert token not in str(response.headers) + response.text
    assert ask(app, f"{API}/meta", headers={"Cookie": new.partition(";")[0]}).status_code == 200


def test_a_new_token_replaces_the_old_file_and_only_its_owner_can_read_it(app, folder) -> None:
    path = folder / "server.token"
    path.write_text("an-older-one-of-some-length")
    path.chmod(0o600)
    before = os.umask(0)
    try:
        ask(app, f"{API}/token", "POST", headers=FROM_THE_PAGE)
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert len(base64.urlsafe_b64decode(path.read_text().strip() + "=")) == 32
    assert [name for name in os.listdir(folder) if "token" in name] == ["server.token"]


@pytest.mark.slow
def test_a_new_token_ends_the_streams_that_are_open(folder, store) -> None:
    state, app = state_and_app(folder)

    async def follow() -> bool:
        subscriber = await state.feed.join(None, frozenset(), None)
        subscriber.drain()
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=PLACE) as client:
            await client.post(f"{API}/token", headers=FROM_THE_PAGE)
        await asyncio.wait_for(subscriber.get(60), 5)
        return subscriber.is_closed

    assert asyncio.run(follow())
    assert not state.feed.is_closing
    state.close()


def test_a_page_of_another_origin_makes_no_token(app, folder) -> None:
    for headers in ({**FROM_THE_PAGE, "Origin": "http://evil.test"}, COOKIE, {}):
        assert ask(app, f"{API}/token", "POST", headers=headers).status_code in (401, 403)
    assert ask(app, f"{API}/meta").status_code == 200


def test_a_server_that_changes_nothing_makes_no_token(folder, store) -> None:
    app = app_of(folder, read_only=True)
    assert ask(app, f"{API}/token", "POST").status_code == 405
    assert not (folder / "server.token").exists()


def test_a_server_without_a_token_makes_none(folder, store) -> None:
    app = app_of(folder, token=None)
    headers = {"Origin": PLACE, "X-Stepscope": "1"}
    response = ask(app, f"{API}/token", "POST", headers=headers)
    assert response.status_code == 400
    assert "--no-token" in error_of(response)
    assert ask(app, f"{API}/settings", headers={}).json()["token_file"] is None


def test_where_no_token_can_be_written_the_old_one_stays(app, folder) -> None:
    (folder / "server.token").mkdir()
    assert ask(app, f"{API}/token", "POST", headers=FROM_THE_PAGE).status_code == 409
    assert ask(app, f"{API}/meta").status_code == 200
    assert [name for name in os.listdir(folder) if "token" in name] == ["server.token"]


def test_the_settings_show_the_token_file_and_no_route_returns_the_token(app, folder) -> None:
    assert ask(app, f"{API}/settings").json()["token_file"] == str(folder / "server.token")
    assert TOKEN not in ask(app, f"{API}/settings").text
    assert ask(app, f"{API}/token", headers=COOKIE).status_code in (404, 405)
