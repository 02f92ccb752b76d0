"""Writes the TypeScript types of what the API answers, by its OpenAPI document; `--check` compares them."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from page_build import PageError, run_script

from stepscope.web.api.openapi import ERRORS, openapi_document
from stepscope.web.app import ROUTERS

UI = Path(__file__).resolve().parent
TYPES = UI / "src" / "data" / "api_types.ts"


def schemas_document() -> dict[str, Any]:
    """The OpenAPI document without its routes, and without titles, which repeat the names of fields."""
    app = FastAPI()
    for router in ROUTERS:
        app.include_router(router, responses=ERRORS)
    document = openapi_document(app)
    schemas = {name: _without_titles(schema) for name, schema in document["components"]["schemas"].items()}
    return {"openapi": document["openapi"], "info": document["info"], "components": {"schemas": schemas}}


def _without_titles(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_without_titles(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    # A field may be called title too; its schema is then an object.
    return {
        name: _without_titles(part)
        for name, part in schema.items()
        if name != "title" or isinstance(part, dict)
    }


def generate() -> str:
    """The types as openapi-typescript writes them."""
    with tempfile.TemporaryDirectory() as folder:
        document, types = Path(folder, "openapi.json"), Path(folder, "api_types.ts")
        document.write_text(json.dumps(schemas_document()), encoding="utf-8")
        run_script(UI, "types", "--output", str(types), str(document))
        return types.read_text(encoding="utf-8")


def main(arguments: list[str]) -> int:
    """Writes the types, or says that they are not those of the API."""
    try:
        text = generate()
    except PageError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    if arguments != ["--check"]:
        TYPES.write_text(text, encoding="utf-8")
    elif text != TYPES.read_text(encoding="utf-8"):
        sys.stderr.write(f"{TYPES.relative_to(UI.parent)} differs from the API. Run: make api-types\n")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
