"""Every response has security headers, and shows nothing of the server's internals."""

from __future__ import annotations

import re

import pytest

from stepscope.web.api import routes_page, routes_runs
from tests.web.asking import API, BEARER, RUN, app_of, ask, error_of, get

CASES = [
    ("a page", "/", BEARER, 200),
    ("an asset that is not there", "/assets/x.js", BEARER, 404),
    ("an answer", f"{API}/meta", BEARER, 200),
    ("columns", f"{API}/runs/{RUN}/series?keys=loss", BEARER, 200),
    ("health", f"{API}/health", {}, 200),
    ("no token", f"{API}/meta", {}, 401),
    ("no token for a page", "/runs", {}, 401),
    ("another host", f"{API}/meta", {**BEARER, "Host": "evil.test"}, 403),
    ("nothing there", f"{API}/nope", BEARER, 404),
    ("no such run", f"{API}/runs/nope", BEARER, 404),
    ("a wrong parameter", f"{API}/runs?limit=0", BEARER, 400),
    ("login", "/login?token=wrong", {}, 401),
]


@pytest.mark.parametrize(
    ("path", "headers", "status"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_every_answer_carries_the_headers_that_keep_it_safe(shared, path: str, headers, status: int) -> None:
    response = ask(shared, path, headers=headers)
    assert response.status_code == status
    policy = response.headers["content-security-policy"]
    for part in ("default-src 'none'", "script-src 'self'", "style-src 'self'", "frame-ancestors 'none'"):
        assert part in policy
    assert "unsafe" not in policy
    assert "http" not in policy
    assert response.headers["x-content-type-options"] == "nosniff"
    assert response.headers["referrer-policy"] == "no-referrer"
    assert response.headers["cache-control"] == "no-store"
    assert response.headers["x-frame-options"] == "DENY"
    assert "access-control-allow-origin" not in response.headers
    assert "server" not in response.headers
    assert "x-powered-by" not in response.headers


def test_what_people_name_things_is_never_part_of_a_page_of_ours(app, folder) -> None:
    nasty = "<script>alert(1)</script>"
    ask(app, f"{API}/runs/{RUN}/marks", "PUT", json={"name": nasty, "tags": [nasty]})
    assert get(app, f"/runs/{RUN}")["row"]["name"] == nasty
    for path in ("/", f"/run/{RUN}", f"/{nasty}", f"/login?token={nasty}"):
        for headers in (BEARER, {}):
            assert "<script>alert" not in ask(app, path, headers=headers).text
    response = ask(app, f"{API}/runs/{nasty}")
    assert response.headers["content-type"] == "application/json"


def test_nothing_is_served_as_html_or_svg_but_what_was_built(shared) -> None:
    for path in ("/meta", "/runs", f"/runs/{RUN}/logs", f"/runs/{RUN}/config"):
        assert ask(shared, API + path).headers["content-type"] == "application/json"
    assert {"html", "svg"} <= routes_page.MEDIA_TYPES.keys()
    assert "htm" not in routes_page.MEDIA_TYPES


LEAKS = re.compile(
    r"Traceback|File \"|site-packages|sqlite|SELECT |/tmp/|/home/|uvicorn|starlette|python", re.IGNORECASE
)


@pytest.mark.parametrize(
    "path",
    [
        "/runs/nope", "/runs/%00", "/runs?limit=x", "/runs?sort=x", f"/runs/{RUN}/series", "/nope",
        f"/runs/{RUN}/series?keys=loss&buckets=99999", f"/runs/{RUN}/series?keys=loss&from=1e9",
        "/layouts/..", "/compare", "/compare?runs=nope", "/stream?run=nope", "/channels/x/test",
    ],
)  # fmt: skip
def test_an_error_says_what_is_wrong_and_nothing_internal(shared, path: str) -> None:
    response = ask(shared, API + path)
    assert 400 <= response.status_code < 500
    assert not LEAKS.search(error_of(response))


def test_an_invalid_parameter_is_reported_with_its_value_and_what_is_allowed(shared) -> None:
    text = error_of(ask(shared, f"{API}/runs/{RUN}/series?keys=loss&buckets=4001"))
    assert text == "The parameter 'buckets' is '4001': input should be less than or equal to 4000."
    assert error_of(ask(shared, f"{API}/runs/{RUN}/series")) == "The parameter 'keys' is missing."


def test_an_internal_error_shows_only_an_id_and_the_log_has_the_rest(app, monkeypatch, caplog) -> None:
    def fail(*_given):
        raise RuntimeError("secret insides")

    monkeypatch.setattr(routes_runs, "server_info", fail)
    response = ask(app, f"{API}/meta")
    assert response.status_code == 500
    assert "secret" not in response.text
    assert "content-security-policy" in response.headers
    assert f"error {response.json()['error']['id']}" in caplog.text
    assert "secret insides" in caplog.text


def test_health_says_ok_and_nothing_else(folder) -> None:
    response = ask(app_of(folder), f"{API}/health", headers={})
    assert response.json() == {"status": "ok"}
