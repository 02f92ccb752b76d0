"""The parameters of routes, with their limits and descriptions; each is declared once."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import Depends, Header, Path, Query, Request

from stepscope.web.app_state import AppState

MAX_KEYS = 200
MAX_STEP = 2**53
"""Larger integers are not exact in a browser."""


Responses = dict[int | str, dict[str, Any]]
"""How OpenAPI describes responses."""

DONE: Responses = {204: {"description": "Done."}}


def state_of(request: Request) -> AppState:
    """The state of the server that got the request."""
    state: AppState = request.app.state.stepscope
    return state


StateOf = Annotated[AppState, Depends(state_of)]

RunId = Annotated[str, Path(min_length=1, max_length=300, description="The run's id, or its name.")]
AlertId = Annotated[int, Path(ge=1, le=2**62, description="The alert's number.")]
NoteId = Annotated[int, Path(ge=1, le=2**62, description="The note's number.")]
FindingId = Annotated[str, Path(min_length=1, max_length=100, description="The id of the finding.")]
ChannelName = Annotated[str, Path(min_length=1, max_length=100, description="The channel's name.")]
RuleName = Annotated[str, Path(min_length=1, max_length=100, description="The rule's name.")]
PageName = Annotated[
    str, Path(pattern=r"^[A-Za-z0-9_.:@-]{1,100}$", description="The page whose layout is saved.")
]

Text = Annotated[str, Query(max_length=1000)]
Keys = Annotated[
    list[Annotated[str, Query(max_length=20_000)]],
    Query(max_length=MAX_KEYS, description="Keys, separated by commas, or one parameter for each."),
]
Low = Annotated[
    int | None,
    Query(alias="from", ge=-MAX_STEP, le=MAX_STEP, description="The first step (or second)."),
]
High = Annotated[
    int | None,
    Query(alias="to", ge=-MAX_STEP, le=MAX_STEP, description="The last step (or second)."),
]
Rank = Annotated[int | None, Query(ge=0, le=1_000_000, description="Only this rank.")]
Host = Annotated[str | None, Query(max_length=300, description="Only this host.")]
Device = Annotated[str | None, Query(max_length=300, description="Only this device; empty for no device.")]
Buckets = Annotated[int, Query(ge=1, le=4000, description="Maximum number of buckets for each series.")]
Axis = Annotated[Literal["step", "seconds"], Query(description="Unit of `start`.")]
Format = Annotated[Literal["binary", "json"], Query(description="Columns as bytes, or as JSON.")]
Since = Annotated[str | None, Query(max_length=16_000, description="The cursor of what the client has.")]
LastEventId = Annotated[
    str | None, Header(max_length=16_000, description="The same cursor, as browsers send it.")
]
KnownTag = Annotated[
    str | None, Header(alias="If-None-Match", max_length=2000, description="The ETag of what the client has.")
]


def split_keys(texts: list[str], known: set[str] | None = None) -> list[str]:
    """Splits at commas and removes repetitions; a text that is itself a `known` key is not split."""
    keys: list[str] = []
    for text in texts:
        keys += [text] if known and text in known else [key for key in text.split(",") if key]
    return list(dict.fromkeys(keys))
