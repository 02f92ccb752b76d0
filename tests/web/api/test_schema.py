"""No request, valid or not by the OpenAPI schema, causes a server error."""

from __future__ import annotations

import asyncio
from urllib.parse import quote

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.web.asking import API, BEARER, PLACE, RUN, ask, rich_store, state_and_app

FINE = {200, 204, 304, 400, 404, 405, 413, 429}
"""409 is not among them: the store is sound, so that nothing may be said to be damaged."""


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """A server whose streams end at once, so that every request does."""
    folder = tmp_path_factory.mktemp("schema")
    store = rich_store(folder)
    state, app = state_and_app(folder)
    state.feed.close()
    state.demo.play = lambda: "demo-1"
    state.keyring.renew = lambda *_: None  # all further requests would be refused
    loop = asyncio.new_event_loop()
    client = httpx.AsyncClient(transport=httpx.ASGITransport(app, raise_app_exceptions=False), base_url=PLACE)

    def send(method: str, path: str, **content) -> httpx.Response:
        return loop.run_until_complete(client.request(method, path, **content))

    import schemathesis  # takes seconds, which every run of any test would pay

    described = ask(app, f"{API}/openapi.json").json()
    yield schemathesis.openapi.from_dict(described), send
    loop.run_until_complete(client.aclose())
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()
    state.close()
    store.close()


def cases(schema, mode: str):
    """One case of any operation."""
    from schemathesis import GenerationMode

    operations = [result.ok() for result in schema.get_all_operations()]
    assert len(operations) > 25
    return st.one_of(
        [operation.as_strategy(generation_mode=GenerationMode(mode)) for operation in operations]
    )


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["positive", "negative"], ids=["allowed", "not allowed"])
def test_no_generated_request_causes_a_server_error(served, mode: str) -> None:
    schema, send = served
    statuses: set[int] = set()

    @settings(max_examples=80, suppress_health_check=list(HealthCheck), database=None)
    @given(st.data())
    def check(data) -> None:
        case = data.draw(cases(schema, mode))
        parameters = dict(case.path_parameters or {})
        if "run_id" in parameters and data.draw(st.integers(0, 3)):
            parameters["run_id"] = RUN
        path = case.path
        for name, value in parameters.items():
            path = path.replace(
                f"{{{name}}}", quote(str(value).encode("utf-8", "replace").decode(), safe="") or "x"
            )
        headers = {str(name): _ascii(value) for name, value in dict(case.headers or {}).items()}
        content = {}
        if case.method.upper() not in ("GET", "HEAD") and isinstance(
            case.body, dict | list | str | int | float
        ):
            content["json"] = case.body
        try:
            response = send(
                case.method, path, params=_flat(case.query), headers={**headers, **BEARER}, **content
            )
        except (httpx.InvalidURL, ValueError, UnicodeError):  # what no client can send
            return
        statuses.add(response.status_code)
        assert response.status_code in FINE, (case.method, path, case.query, content, response.text)

    check()
    assert 200 in statuses
    assert 400 in statuses or mode == "positive"


def _ascii(value: object) -> str:
    return (
        str(value)
        .encode("ascii", "ignore")
        .decode()
        .replace("\n", "")
        .replace("\r", "")
        .replace("\0", "")
        .strip()
    )


def _flat(query) -> list[tuple[str, str]]:
    """Parameters as an address has them."""
    pairs = []
    for name, value in dict(query or {}).items():
        for element in value if isinstance(value, list) else [value]:
            text = str(element).lower() if isinstance(element, bool) else str(element)
            pairs.append(
                (str(name).encode("utf-8", "replace").decode(), text.encode("utf-8", "replace").decode())
            )
    return pairs
