"""No route or method of the API works without the token."""

from __future__ import annotations

import re

import pytest

from tests.web.asking import API, BEARER, COOKIE, FROM_THE_PAGE, PLACE, RUN, app_of, ask, error_of

METHODS = ("GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE")
OPEN = f"{API}/health"


@pytest.fixture(scope="module")
def every(tmp_path_factory) -> list[tuple[str, str]]:
    """Path and method of each route there is, the page's own included."""
    app = app_of(tmp_path_factory.mktemp("empty"))
    described = ask(app, f"{API}/openapi.json").json()
    routes = [
        (re.sub(r"\{[^}]*\}", "1", path), method.upper())
        for path, methods in described["paths"].items()
        for method in methods
    ]
    assert len(routes) > 25
    return [*routes, ("/", "GET"), ("/runs", "GET"), ("/assets/a.js", "GET"), (f"{API}/openapi.json", "GET")]


def test_without_a_token_every_route_and_every_method_is_401(app, every) -> None:
    for path in {path for path, _ in every} - {OPEN}:
        for method in METHODS:
            response = ask(app, path, method, headers={})
            assert response.status_code == 401, (method, path)


@pytest.mark.slow
@pytest.mark.parametrize(
    "headers",
    [
        {"Authorization": "Bearer wrong"},
        {"Authorization": "Bearer "},
        {"Authorization": "Basic correct"},
        {"Cookie": "stepscope=1; session=2"},
        {"Cookie": COOKIE["Cookie"][:-1] + "0"},
        {"Cookie": '"=;;='},
    ],
    ids=["wrong", "empty", "basic", "other cookies", "forged cookie", "no cookie"],
)
def test_what_is_not_the_token_does_not_open_any_route(app, every, headers) -> None:
    for path, method in every:
        if path != OPEN:
            assert ask(app, path, method, headers=headers).status_code == 401, (method, path)


def test_a_change_by_cookie_from_another_origin_is_403_on_every_route(app, every) -> None:
    changes = [(path, method) for path, method in every if method not in ("GET", "HEAD", "OPTIONS")]
    assert len(changes) >= 8
    foreign = [
        {**FROM_THE_PAGE, "Origin": "http://evil.test"},
        {**FROM_THE_PAGE, "Origin": "http://127.0.0.1:1"},
        {**FROM_THE_PAGE, "Origin": "null"},
        {**FROM_THE_PAGE, "Sec-Fetch-Site": "cross-site"},
        {**FROM_THE_PAGE, "Sec-Fetch-Site": "same-site"},
        COOKIE,
        {**COOKIE, "Origin": PLACE},
        {**COOKIE, "X-Stepscope": "1"},
        {**BEARER, "Origin": "http://evil.test"},
    ]
    for path, method in changes:
        for headers in foreign:
            assert ask(app, path, method, headers=headers).status_code == 403, (method, path, headers)


def test_an_unknown_method_counts_as_a_change(app) -> None:
    for method in ("DELETE", "PATCH", "TRACE", "PROPFIND", "MADEUP"):
        response = ask(
            app, f"{API}/runs/{RUN}/marks", method, headers={**COOKIE, "Origin": "http://evil.test"}
        )
        assert response.status_code == 403


def test_the_page_itself_may_change_things_and_so_may_a_program(app) -> None:
    path, body = f"{API}/runs/{RUN}/marks", {"tags": ["a"]}
    assert ask(app, path, "PUT", headers=FROM_THE_PAGE, json=body).status_code == 200
    assert ask(app, path, "PUT", headers=BEARER, json=body).json()["tags"] == ["a"]


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""]
)
def test_a_body_that_is_not_json_is_refused(app, kind: str) -> None:
    headers = {**BEARER, "Content-Type": kind}
    response = ask(app, f"{API}/runs/{RUN}/marks", "PUT", headers=headers, content=b'{"tags": []}')
    assert response.status_code == 400
    assert "application/json" in error_of(response)


def test_no_get_changes_anything(app, state, every, folder) -> None:
    for path, method in every:
        if method == "GET" and "/stream" not in path:
            ask(app, path, params={"keys": "loss", "runs": RUN, "wait": 0})
    assert state.marks.changes == 0
    assert not (folder / "page.sqlite").exists()


def test_without_a_token_a_change_needs_the_header_that_only_our_page_sends(folder, store) -> None:
    app = app_of(folder, token=None)
    path, body = f"{API}/runs/{RUN}/marks", {"tags": ["a"]}
    assert ask(app, f"{API}/meta", headers={}).json()["has_token"] is False
    assert ask(app, path, "PUT", headers={}, json=body).status_code == 403
    assert (
        ask(
            app, path, "PUT", headers={"X-Stepscope": "1", "Origin": "http://evil.test"}, json=body
        ).status_code
        == 403
    )
    assert ask(app, path, "PUT", headers={"X-Stepscope": "1"}, json=body).status_code == 200


def test_a_read_only_server_refuses_every_change(folder, store, every) -> None:
    app = app_of(folder, read_only=True)
    for path, method in every:
        if method not in ("GET", "HEAD"):
            response = ask(app, path, method)
            assert response.status_code == 405
            assert "--read-only" in error_of(response)
    assert ask(app, f"{API}/meta").json()["read_only"] is True
