"""Routes of the live feed: a stream of server-sent events, and the same events by long polling."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Query, Response
from fastapi.exceptions import HTTPException

from stepscope.web.api.openapi import answer
from stepscope.web.api.parameters import LastEventId, Responses, Since, StateOf, split_keys
from stepscope.web.api.responses import json_response
from stepscope.web.live.event_stream import EventStream
from stepscope.web.live.events import Delta, LiveEvent

if TYPE_CHECKING:
    from stepscope.web.app_state import AppState
    from stepscope.web.live.subscriber import Subscriber

router = APIRouter(tags=["live"])

Followed = Annotated[
    str | None, Query(max_length=300, description="The run to follow; without one, the list of runs.")
]
FollowedKeys = Annotated[
    list[Annotated[str, Query(max_length=20_000)]],
    Query(max_length=200, description="Keys whose points are sent, separated by commas."),
]
WaitSeconds = Annotated[float, Query(ge=0, le=20, description="How many seconds to wait for an event.")]

EVENTS: Responses = {
    200: {
        "description": (
            "Events `hello`, `run`, `points`, `alert`, `finding`, `mark`; without a run `hello` and `runs`. "
            "`resync` asks the client to read everything again. The id of an event is a cursor, its data is "
            "what `StreamEvents` has under its name."
        ),
        "content": {"text/event-stream": {"schema": {"type": "string"}}},
    }
}


@router.get("/stream", response_class=Response, responses=EVENTS)
async def stream(
    state: StateOf,
    run: Followed = None,
    keys: FollowedKeys = [],  # noqa: B006 - FastAPI copies it
    since: Since = None,
    last_event_id: LastEventId = None,
) -> Response:
    """Live events of a run, or of the list of runs, since a cursor."""
    # A browser that reconnects sends the newer cursor in its header.
    subscriber = await _subscribe(state, run, keys, last_event_id or since)
    return EventStream(state.feed, subscriber)


@router.get("/delta", response_model=answer(Delta))
async def delta(
    state: StateOf,
    run: Followed = None,
    keys: FollowedKeys = [],  # noqa: B006 - FastAPI copies it
    since: Since = None,
    wait: WaitSeconds = 20.0,
) -> Response:
    """The same events since a cursor; waits up to `wait` seconds where there are none yet."""
    subscriber = await _subscribe(state, run, keys, since)
    try:
        hello, *messages = subscriber.drain()
        if since and not messages and (first := await subscriber.get(wait)) is not None:
            messages = [first, *subscriber.drain()]
    finally:
        state.feed.leave(subscriber)
    events = [hello, *messages] if not since else messages
    newest = next((message.cursor for message in reversed(messages) if message.cursor), subscriber.cursor)
    return json_response(
        Delta(newest, [LiveEvent(message.event, json.loads(message.text)) for message in events])
    )


async def _subscribe(state: AppState, run: str | None, keys: list[str], since: str | None) -> Subscriber:
    max_streams = state.options.limits.streams
    if state.feed.client_count >= max_streams:
        raise HTTPException(429, f"{max_streams} clients follow this server already. Close some, or wait.")
    return await state.feed.join(run or None, frozenset(split_keys(keys)), since)
