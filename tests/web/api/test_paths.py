"""Input is looked up or bound as a parameter, and never becomes a path or a part of a query."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest

from stepscope.web.api import routes_page
from tests.web.asking import API, BEARER, PLACE, RUN, app_of, ask, error_of, get

SLY = [
    "..", "../..", "../../etc/passwd", "%2e%2e%2f%2e%2e%2fetc%2fpasswd", "%252e%252e%252fetc%252fpasswd",
    "..\\..\\etc\\passwd", "..%5c..%5cetc%5cpasswd", "/etc/passwd", "//etc/passwd", "file:///etc/passwd",
    "store.sqlite", "../store.sqlite", "server.token", "a\x00b", "%00", "a" * 5000, "C:\\windows", "~", "*",
    "....//....//etc/passwd", "..;/etc/passwd", "index.html/..", "é", "'", '"', "' OR 1=1 --", "?",
    "1; DROP TABLE run",
]  # fmt: skip


def raw(app, path: str, method: str = "GET"):
    """A request whose path reaches the server as it is written here."""
    return ask(app, f"{PLACE}{path}", method)


@pytest.fixture
def built(tmp_path: Path, monkeypatch) -> Path:
    """A built page, a secret beside it, and ways that lead out of it."""
    page = tmp_path / "page"
    (page / "assets").mkdir(parents=True)
    (page / "index.html").write_text('<head><base href="/"></head>THE PAGE')
    (page / "assets" / "app-1a2b.js").write_text("script")
    (page / "favicon.svg").write_text("<svg/>")
    (tmp_path / "secret.txt").write_text("SECRET")
    (tmp_path / "secret.js").write_text("SECRET")
    monkeypatch.setattr(routes_page, "PAGE_FOLDER", page)
    return page


@pytest.mark.parametrize("name", [*SLY, "../../secret.txt", "%2e%2e%2f%2e%2e%2fsecret.js", "../secret.js"])
def test_no_address_of_the_page_leads_out_of_it(shared, built, name: str) -> None:
    for path in (f"/assets/{quote(name)}", f"/assets/{name}", f"/{quote(name)}", f"/{name}"):
        try:
            response = raw(shared, path)
        except httpx.InvalidURL:  # the client itself refuses to send it
            continue
        assert "SECRET" not in response.text
        assert "root:" not in response.text
        assert response.status_code in (200, 403, 404)
        if response.status_code == 200:
            assert "THE PAGE" in response.text


@pytest.mark.parametrize("name", SLY)
def test_a_run_that_is_named_like_a_path_or_a_query_is_simply_not_there(shared, name: str) -> None:
    for page in ("", "/overview", "/series?keys=loss", "/config", "/logs"):
        response = raw(shared, f"{API}/runs/{quote(name, safe='')}{page}")
        assert response.status_code in (200, 400, 404), response.text
        assert "root:" not in response.text
        # Two dots are taken out of an address by whoever sends it: then it is the list.
        if response.status_code == 200:
            assert "/runs/.." not in str(response.url)


@pytest.mark.parametrize("name", SLY)
def test_keys_hosts_filters_and_searches_are_values_and_nothing_else(shared, name: str) -> None:
    for path in (
        f"/runs/{RUN}/series?keys={quote(name)}&format=json",
        f"/runs/{RUN}/series?keys=loss&host={quote(name)}&device={quote(name)}&format=json",
        f"/runs/{RUN}/heatmap?key={quote(name)}",
        f"/runs/{RUN}/logs?search={quote(name)}",
        f"/runs?filter={quote(name)}",
        f"/compare?runs={quote(name)}",
        f"/delta?run={RUN}&keys={quote(name)}&since={quote(name)}&wait=0",
    ):
        assert raw(shared, API + path).status_code in (200, 400, 404)


@pytest.mark.parametrize("sort", ["started; DROP TABLE run", "(SELECT 1)", "__class__", "id", "spark", ""])
def test_a_list_is_sorted_by_columns_of_a_list_alone(shared, sort: str) -> None:
    response = ask(shared, f"{API}/runs", params={"sort": sort})
    assert response.status_code == 400
    assert "'sort'" in error_of(response)
    assert "started" in error_of(response)


def test_after_all_that_the_store_is_whole_and_nothing_was_written_beside_it(app, folder, tmp_path) -> None:
    canary = tmp_path / "canary"
    canary.mkdir()
    before = sorted(path.name for path in folder.iterdir())
    for name in SLY:
        sly = quote(name, safe="")
        raw(app, f"{API}/runs/{RUN}/notes/{sly}", "DELETE")
        raw(app, f"{API}/runs/{sly}/notes/1", "DELETE")
        raw(app, f"{API}/layouts/{sly}")
        raw(app, f"{API}/channels/{sly}/test", "POST")
    assert canary.exists()
    assert sorted(
        path.name for path in folder.iterdir() if "-wal" not in path.name and "-shm" not in path.name
    ) == [name for name in before if "-wal" not in name and "-shm" not in name]
    assert sqlite3.connect(folder / "store.sqlite").execute("PRAGMA quick_check").fetchone() == ("ok",)
    assert get(app, "/runs")["total"] == 1


def test_a_link_inside_the_store_folder_is_not_followed_for_what_people_add(folder, store, tmp_path) -> None:
    target = tmp_path / "target"
    (folder / "page.sqlite").symlink_to(target)
    app = app_of(folder)
    response = ask(app, f"{API}/runs/{RUN}/marks", "PUT", headers=BEARER, json={"tags": ["a"]})
    assert response.status_code == 409
    assert not target.exists()


def test_built_files_are_served_by_their_names(app, built) -> None:
    script = raw(app, "/assets/app-1a2b.js")
    assert (script.text, script.headers["content-type"]) == ("script", "text/javascript; charset=utf-8")
    assert "immutable" in script.headers["cache-control"]
    icon = raw(app, "/favicon.svg")
    assert (icon.text, icon.headers["cache-control"]) == ("<svg/>", "no-store")
    for path in ("/", "/runs", f"/run/{RUN}/steps", "/anything/at/all"):
        response = raw(app, path)
        assert "THE PAGE" in response.text
        assert response.headers["cache-control"] == "no-store"
    assert raw(app, "/assets/other.js").status_code == 404
    assert raw(app, f"{API}/nothing").status_code == 404
    assert raw(app, "/runs", "POST").status_code == 405


def test_under_a_base_path_the_page_says_so_and_both_kinds_of_proxies_are_understood(
    folder, store, built
) -> None:
    app = app_of(folder, base_path="/stepscope/")
    for path in ("/stepscope/runs", "/runs", "/stepscope"):
        assert '<base href="/stepscope/">' in raw(app, path).text
    for path in (f"/stepscope{API}/meta", f"{API}/meta"):
        assert raw(app, path).status_code == 200
    assert raw(app, "/stepscope/assets/app-1a2b.js").text == "script"


def test_without_a_built_page_the_api_is_pointed_to(app, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(routes_page, "PAGE_FOLDER", tmp_path / "not there")
    response = raw(app, "/")
    assert "The page is not built" in response.text
    assert f"{API}/openapi.json" in response.text
