"""Bodies, nesting, rates, sizes and queues are limited."""

from __future__ import annotations

import asyncio
import json

import httpx
import pytest

from stepscope.web.access.middleware import BURST_S, RateLimit
from stepscope.web.access.request_body import is_nested_too_deep
from stepscope.web.live.subscriber import MAX_BYTES, MAX_QUEUED, Message, Subscriber
from stepscope.web.server.options import Limits
from tests.web.asking import API, BEARER, PLACE, RUN, app_of, ask, error_of

MARKS = f"{API}/runs/{RUN}/marks"
JSON = {**BEARER, "Content-Type": "application/json"}


def test_a_body_above_the_limit_is_refused_by_its_content_length(app) -> None:
    response = ask(app, MARKS, "PUT", headers=JSON, content=b"x" * (8 * 1024 * 1024 + 1))
    assert response.status_code == 413
    assert "8388608" in error_of(response)


def test_a_body_above_the_limit_without_a_length_is_refused_while_it_arrives(folder, store) -> None:
    app = app_of(folder, limits=Limits(body_bytes=1000))
    sent = []

    async def chunks():
        for _ in range(100):
            sent.append(1)
            yield b" " * 100

    async def send():
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=PLACE) as client:
            return await client.put(MARKS, headers=JSON, content=chunks())

    assert asyncio.run(send()).status_code == 413
    assert len(sent) <= 12


def test_a_body_that_does_not_come_is_not_waited_for(folder, store) -> None:
    app = app_of(folder, limits=Limits(body_seconds=0.01))
    messages = []

    async def send():
        async def receive():
            await asyncio.sleep(60)

        async def tell(message):
            messages.append(message)

        scope = {
            "type": "http", "method": "PUT", "path": MARKS, "raw_path": MARKS.encode(), "query_string": b"",
            "headers": [(b"host", b"127.0.0.1"), (b"authorization", BEARER["Authorization"].encode())],
        }  # fmt: skip
        await app(scope, receive, tell)

    asyncio.run(send())
    assert messages[0]["status"] == 408


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "zstd"])
def test_a_compressed_body_is_refused(app, encoding: str) -> None:
    response = ask(app, MARKS, "PUT", headers={**JSON, "Content-Encoding": encoding}, content=b"x")
    assert response.status_code == 400


@pytest.mark.parametrize(
    ("body", "deep"),
    [
        ("[" * 33 + "]" * 33, True),
        ("[" * 32 + "]" * 32, False),
        ('{"a":' * 33 + "1" + "}" * 33, True),
        ("[" * 1_000_000, True),
        ('"' + "[" * 100 + '"', False),
        ('"\\"' + "[" * 100 + '"', False),
        ("[]" * 100_000, False),
    ],
)
def test_depth_is_counted_outside_of_texts(body: str, deep: bool) -> None:
    assert is_nested_too_deep(body.encode()) is deep


def test_a_deep_body_is_refused_before_anybody_parses_it(app) -> None:
    response = ask(app, f"{API}/layouts/home", "PUT", headers=JSON, content=b'{"a":' + b"[" * 100_000)
    assert response.status_code == 400
    assert "32 levels" in error_of(response)


def test_a_layout_has_64_kilobytes_at_most(app) -> None:
    assert ask(app, f"{API}/layouts/home", "PUT", json={"a": "x" * 60_000}).status_code == 200
    assert ask(app, f"{API}/layouts/home", "PUT", json={"a": "x" * 66_000}).status_code == 413


def test_a_rate_lets_a_burst_through_and_then_so_many_a_second() -> None:
    now = [0.0]
    rate = RateLimit(2.0, lambda: now[0])
    assert [rate.allows("a") for _ in range(12)] == [True] * int(2 * BURST_S) + [False] * 2
    assert rate.allows("b")
    now[0] = 1.0
    assert [rate.allows("a") for _ in range(3)] == [True, True, False]


def test_names_that_ask_once_and_never_again_are_forgotten() -> None:
    rate = RateLimit(2.0, lambda: 0.0)
    for number in range(10_000):
        rate.allows(str(number))
    assert len(rate._buckets) <= 4096


def test_too_many_requests_of_a_token_are_answered_with_wait(folder, store) -> None:
    app = app_of(folder, limits=Limits(requests_per_second=1, changes_per_second=0.2))
    responses = [ask(app, f"{API}/health") for _ in range(3)] + [
        ask(app, f"{API}/layouts/a") for _ in range(7)
    ]
    assert [response.status_code for response in responses] == [200] * 8 + [429] * 2
    assert responses[-1].headers["retry-after"] == "1"
    changes = [ask(app, f"{API}/layouts/a", "PUT", json={}).status_code for _ in range(3)]
    assert changes == [200, 429, 429]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (MARKS, {"tags": ["x"] * 51}),
        (MARKS, {"tags": ["x" * 65]}),
        (MARKS, {"name": "x" * 201}),
        (MARKS, {"name": ""}),
        (MARKS, {"colour": "red; background: url(//evil.test)"}),
        (MARKS, {"muted": ["x"] * 501}),
        (MARKS, {"tagz": []}),
    ],
)
def test_what_people_add_has_bounds(app, path: str, body) -> None:
    assert ask(app, path, "PUT", json=body).status_code == 400


def test_keys_and_buckets_of_one_answer_have_bounds(app) -> None:
    assert ask(app, f"{API}/runs/{RUN}/series?" + "keys=loss&" * 201).status_code == 400
    assert ask(app, f"{API}/runs/{RUN}/series?keys=loss&buckets=4000").status_code == 200


def test_the_queue_of_a_slow_client_becomes_one_resync() -> None:
    async def fill():
        subscriber = Subscriber("r", frozenset())
        for number in range(10 * MAX_QUEUED):
            subscriber.put(Message("points", json.dumps(number), f"c{number}"))
        return subscriber.drain()

    waiting = asyncio.run(fill())
    assert len(waiting) <= MAX_QUEUED
    assert waiting[0].event == "resync"


def test_large_messages_count_by_their_size() -> None:
    async def fill():
        subscriber = Subscriber("r", frozenset())
        for _ in range(20):
            subscriber.put(Message("points", "x" * (MAX_BYTES // 4)))
        return subscriber.drain()

    waiting = asyncio.run(fill())
    assert sum(len(response.text) for response in waiting) <= MAX_BYTES
    assert waiting[0].event == "resync"


def test_streams_beyond_the_limit_are_refused_with_a_hint_to_wait(folder, store) -> None:
    app = app_of(folder, limits=Limits(streams=0))
    assert ask(app, f"{API}/stream?run={RUN}").status_code == 429


def test_clients_that_ask_for_the_feed_at_the_same_moment_are_counted_too(folder, store) -> None:
    app = app_of(folder, limits=Limits(streams=1))

    async def ask_together():
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=PLACE) as client:
            asked = (client.get(f"{API}/delta?run={RUN}", headers=BEARER) for _ in range(5))
            return await asyncio.gather(*asked)

    assert sorted(response.status_code for response in asyncio.run(ask_together())) == [
        200,
        429,
        429,
        429,
        429,
    ]
