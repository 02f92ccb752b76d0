"""The OpenAPI document: the shapes of responses come from the dataclasses that views return."""

from __future__ import annotations

import dataclasses
import re
import typing
from typing import TYPE_CHECKING, Any, TypeVar

from fastapi.openapi.utils import get_openapi
from pydantic import ConfigDict, TypeAdapter, with_config

from stepscope.config.reference import field_sentences
from stepscope.web.access.error_responses import ErrorBody
from stepscope.web.access.incoming_request import API
from stepscope.web.api.responses import json_name
from stepscope.web.live.events import StreamEvents

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from fastapi import FastAPI

    from stepscope.web.api.parameters import Responses

_T = TypeVar("_T")
_answers: list[type] = []


def answer(view: type[_T]) -> type[_T]:
    """Makes a dataclass a response model. Routes return a `Response`, which FastAPI sends as it is.

    The model is built when the document is asked for: importing the routes takes 0.3 s less that way.
    """
    _answers.append(view)
    return with_config(ConfigDict(defer_build=True))(view)


_ERROR = answer(ErrorBody)

ERRORS: Responses = {
    400: {"model": _ERROR, "description": "A parameter is wrong; the message says what is allowed."},
    401: {"model": _ERROR, "description": "The token is missing or wrong."},
    403: {"model": _ERROR, "description": "The host or the origin is not allowed."},
    404: {"model": _ERROR, "description": "Not found."},
    409: {"model": _ERROR, "description": "The store cannot be read."},
    429: {"model": _ERROR, "description": "Too many requests."},
}
CHANGE_ERRORS: Responses = {
    405: {"model": _ERROR, "description": "The server is read-only."},
    413: {"model": _ERROR, "description": "The body is too large."},
}

_SCHEMAS = "#/components/schemas/"


def openapi_document(app: FastAPI) -> dict[str, Any]:
    """The document of an application, with 400 instead of 422 and with the token as security scheme."""
    document = get_openapi(
        title=app.title, version=app.version, description=app.description, routes=app.routes
    )
    changes = {str(status): _error_schema(response) for status, response in CHANGE_ERRORS.items()}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            operation["responses"].pop("422", None)
            if method != "get":
                operation["responses"].update(changes)
            if path == f"{API}/health":
                operation["security"] = []
    schemas = document["components"]["schemas"]
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    schemas.update(_event_schemas())
    for kind in _dataclasses_in(_answers):
        _complete(schemas[kind.__name__], kind)
    document["components"]["schemas"] = dict(sorted(schemas.items()))
    document["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    document["security"] = [{"token": []}]
    return document


def _event_schemas() -> dict[str, Any]:
    """The schemas of what the live feed sends, which is not JSON as a whole."""
    events = TypeAdapter(answer(StreamEvents)).json_schema(
        mode="serialization", ref_template=f"{_SCHEMAS}{{model}}"
    )
    return {**events.pop("$defs"), StreamEvents.__name__: events}


def _dataclasses_in(types: Iterable[Any]) -> Iterator[type]:
    """The dataclasses among types and their parts, each once."""
    waiting, known = list(types), set()
    while waiting:
        kind = waiting.pop()
        if dataclasses.is_dataclass(kind) and isinstance(kind, type) and kind not in known:
            known.add(kind)
            yield kind
            waiting += typing.get_type_hints(kind).values()
        waiting += typing.get_args(kind)


def _complete(schema: dict[str, Any], kind: type) -> None:
    """Describes a response by its docstrings; it has every field, whatever defaults its dataclass has."""
    schema["description"] = _in_json(kind.__doc__ or "")
    for name, sentence in field_sentences(kind).items():
        schema["properties"][name]["description"] = _in_json(sentence)
    for field in schema["properties"].values():
        field.pop("default", None)
        if "title" in field:
            field["title"] = field["title"].strip()
    schema["properties"] = {json_name(name): field for name, field in schema["properties"].items()}
    schema["required"] = list(schema["properties"])


def _in_json(text: str) -> str:
    return re.sub(r"\bNone\b", "null", text)


def _error_schema(response: dict[str, Any]) -> dict[str, Any]:
    body = {"$ref": f"{_SCHEMAS}{ErrorBody.__name__}"}
    return {"description": response["description"], "content": {"application/json": {"schema": body}}}
