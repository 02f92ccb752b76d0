"""A wrong argument is an error in plain words, never an answer about something else."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

pytest.importorskip("mcp")

import jsonschema_rs

from tests.golden.fixed_store import fill
from tests.mcp.asking import client_of, error_of


@pytest.fixture(scope="module")
def fixed(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("fixed") / "store"
    fill(folder)
    return folder


def tools_of(folder: Path):
    async def ask():
        async with client_of(folder, allows_writes=True) as client:
            return (await client.list_tools()).tools

    return asyncio.run(ask())


def test_an_argument_that_a_tool_does_not_have_is_an_error_that_names_it_and_the_others(fixed: Path) -> None:
    message = error_of(fixed, "explain_run", run_id="failed")
    assert message == "There is no argument 'run_id'. Allowed: 'run', 'finding', 'detail'."
    assert "'run_id'" in error_of(fixed, "tag_run", allows_writes=True, run_id="failed", add=["best"])


def test_an_error_of_a_call_with_very_many_mistakes_is_short(fixed: Path) -> None:
    unknown = error_of(fixed, "explain_run", **{f"argument_{number}": 1 for number in range(2_000)})
    assert "and 1995 more" in unknown
    tags = error_of(fixed, "tag_run", allows_writes=True, run="failed", add=list(range(50)))
    assert "There are 45 more." in tags
    assert max(len(unknown), len(tags)) < 2_000


def test_the_schemas_of_all_tools_allow_no_other_arguments(fixed: Path) -> None:
    for tool in tools_of(fixed):
        assert tool.input_schema["additionalProperties"] is False, tool.name
        assert not jsonschema_rs.is_valid(tool.input_schema, {"no such": 1})


def test_schemas_say_which_run_an_empty_name_stands_for(fixed: Path) -> None:
    described = {
        (tool.name, name): schema.get("description", "")
        for tool in tools_of(fixed)
        for name, schema in tool.input_schema["properties"].items()
    }
    assert "newest" in described["explain_run", "run"]
    assert "the first" in described["compare_runs", "baseline"]
    assert "all runs" in described["list_alerts", "run"]


@pytest.mark.parametrize(
    ("tool", "arguments", "message"),
    [
        (
            "list_runs",
            {"limit": "many"},
            "The argument 'limit' is 'many'; it must be a whole number.",
        ),
        ("list_runs", {"limit": 0}, "The argument 'limit' is 0; it must be 1 or more."),
        ("list_runs", {"filter": 7}, "The argument 'filter' is 7; it must be a text."),
        (
            "read_series",
            {"keys": {"loss": [1]}},
            "The argument 'keys' is {\"loss\": [1]}; it must be a list.",
        ),
        ("read_series", {}, "The argument 'keys' is missing."),
        ("read_series", {"keys": ["loss", None]}, "The argument 'keys.1' is null; it must be a text."),
        (
            "read_series",
            {"keys": []},
            "The argument 'keys' is []; it must be a list of 1 or more entries.",
        ),
        (
            "explain_run",
            {"detail": "long\n"},
            "The argument 'detail' is 'long '; it must be 'short' or 'full'.",
        ),
    ],
)
def test_a_wrong_value_is_an_error_that_says_what_is_allowed(
    tool: str, arguments: dict, message: str, fixed: Path
) -> None:
    assert error_of(fixed, tool, **arguments) == message


def test_a_long_wrong_value_is_shortened(fixed: Path) -> None:
    message = error_of(fixed, "explain_run", run="x" * 10_000, detail=["y" * 10_000])
    assert len(message) < 400
    assert "at most 300 characters" in message
    assert "pydantic" not in message
