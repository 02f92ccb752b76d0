"""The parameters of tools, with their limits and descriptions; each is declared once."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from stepscope.mcp import answers
from stepscope.mcp.answers import MAX_NAMED, listed, quoted

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pydantic import ValidationError

RunName = Annotated[str, Field(max_length=300, description="Name or id of a run; empty for the newest run.")]
ChangedRun = Annotated[str, Field(min_length=1, max_length=300, description="Name or id of the run.")]
BaselineName = Annotated[
    str, Field(max_length=300, description="Name or id of one of the runs; empty for the first of them.")
]
AlertsOfRun = Annotated[str, Field(max_length=300, description="Name or id of a run; empty for all runs.")]
FindingId = Annotated[str, Field(max_length=100, description="Id of a finding, such as input.exposed_wait.")]
RuleName = Annotated[
    str, Field(max_length=300, description="Name of an alert rule, or a pattern such as gpu_*.")
]
RunPattern = Annotated[str, Field(max_length=300, description="Name of a run, or a pattern; * for all runs.")]
Search = Annotated[str, Field(max_length=1000, description="Only entries that contain this text.")]
Detail = Annotated[answers.Detail, Field(description="short: at most 2 kB; full: at most 40 kB.")]
Limit = Annotated[
    int | None,
    Field(ge=1, le=1000, description="Maximum number of entries; a number allows answers of up to 40 kB."),
]
Offset = Annotated[
    int, Field(ge=0, le=2**53, description="How many entries to leave out at the start; see `next_offset`.")
]
Step = Annotated[int | None, Field(ge=-(2**53), le=2**53, description="A step.")]
Note = Annotated[str, Field(max_length=2000, description="Why, for the people who read it.")]

_ALLOWED = {
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_parsing_size": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "finite_number": "a finite number",
    "string_type": "a text",
    "list_type": "a list",
    "literal_error": "{expected}",
    "greater_than": "more than {gt}",
    "greater_than_equal": "{ge} or more",
    "less_than_equal": "{le} or less",
    "string_too_long": "a text of at most {max_length} characters",
    "string_too_short": "a text of {min_length} or more characters",
    "too_long": "a list of at most {max_length} entries",
    "too_short": "a list of {min_length} or more entries",
}
"""What is allowed where pydantic reports a problem of this type."""


def argument_errors(error: ValidationError) -> str:
    """Returns what is wrong with the arguments of a call, in a sentence for each of the first few."""
    problems = error.errors(include_url=False)
    more = len(problems) - MAX_NAMED
    sentences = [_argument_error(problem) for problem in problems[:MAX_NAMED]]
    return " ".join([*sentences, f"There are {more} more."] if more > 0 else sentences)


def unknown_arguments(arguments: Iterable[str], schema: Mapping[str, Any] | None) -> str:
    """Returns which arguments a tool has and which not; empty if it has all of them, or there is no tool."""
    if schema is None:
        return ""
    known = list(schema["properties"])
    unknown = [quoted(name) for name in arguments if name not in known]
    allowed = ", ".join(map(repr, known))
    return f"There is no argument {listed(unknown)}. Allowed: {allowed}." if unknown else ""


def _argument_error(problem: Mapping[str, Any]) -> str:
    name = quoted(".".join(map(str, problem["loc"])))
    if problem["type"] == "missing":
        return f"The argument {name} is missing."
    value = problem["input"]
    shown = quoted(value) if isinstance(value, str) else quoted(json.dumps(value, default=str))[1:-1]
    allowed = _ALLOWED.get(problem["type"])
    if allowed is None:
        return f"The argument {name} is {shown}: {problem['msg']}."
    return f"The argument {name} is {shown}; it must be {allowed.format(**problem.get('ctx', {}))}."
