"""The parameters of tools, with their limits and descriptions; each is declared once."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from stepscope.mcp import answers

RunName = Annotated[str, Field(max_length=300, description="Name or id of a run; empty for the newest run.")]
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
Step = Annotated[int | None, Field(ge=-(2**53), le=2**53, description="A step.")]
Note = Annotated[str, Field(max_length=2000, description="Why, for the people who read it.")]
