"""The bodies of requests, with their limits."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from stepscope.alerts.silences import MAX_SILENCE_S
from stepscope.store.mark_store import Opinion  # noqa: TC001 - pydantic reads it

Text = Annotated[str, Field(max_length=300)]
Time = Annotated[str, Field(max_length=50, description="A duration such as `60s`, `2m` or `1h`.")]

Layout = dict[str, Any]
"""The layout of a page: any JSON object."""


class RequestBody(BaseModel):
    """The body of a request; unknown fields are an error, so that typing mistakes are noticed."""

    model_config = ConfigDict(extra="forbid")


class NewMarks(RequestBody):
    """Changes to the marks of a run; omitted fields stay as they are."""

    name: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    tags: Annotated[list[Annotated[str, Field(min_length=1, max_length=64)]], Field(max_length=50)] = []
    archived: bool = False
    colour: Annotated[str, Field(pattern=r"^(#[0-9a-fA-F]{6}|[a-z][a-z0-9-]{0,23})$")] | None = None
    muted: Annotated[list[Text], Field(max_length=500)] = []


class NewFeedback(RequestBody):
    """A person's opinion on a finding, which is muted in all runs of the project."""

    opinion: Opinion
    note: Annotated[str, Field(max_length=2000)] = ""


class NewNote(RequestBody):
    """A note at a step, at a time, or on the whole run."""

    step: Annotated[int, Field(ge=-(2**53), le=2**53)] | None = None
    time: Annotated[float, Field(ge=0, le=1e11, allow_inf_nan=False)] | None = None
    text: Annotated[str, Field(min_length=1, max_length=10_000)]


class NewSilence(RequestBody):
    """The rule and the runs to mute, and for how long."""

    rule: Annotated[str, Field(min_length=1, max_length=300, description="A rule name or a pattern.")]
    run: Annotated[str, Field(min_length=1, max_length=300)] = "*"
    minutes: Annotated[float, Field(gt=0, le=MAX_SILENCE_S // 60, allow_inf_nan=False)]
    reason: Annotated[str, Field(max_length=1000)] = ""


class EndedSilence(RequestBody):
    """The silence to end."""

    rule: Annotated[str, Field(min_length=1, max_length=300)]
    run: Annotated[str, Field(min_length=1, max_length=300)] = "*"


class NewRule(RequestBody):
    """A rule; empty fields count as omitted. Without `when`, only `enabled` is allowed and switches it."""

    when: Annotated[str, Field(min_length=1, max_length=2000)] | None = None
    for_: Annotated[
        str, Field(alias="for", max_length=50, description="A duration, or a number such as `100 steps`.")
    ] = ""
    clear: Annotated[str, Field(max_length=2000, description="The condition that ends the alert.")] = ""
    severity: Literal["critical", "warning", "info"] = "warning"
    message: Annotated[str, Field(max_length=2000)] = ""
    advice: Annotated[str, Field(max_length=2000)] = ""
    cooldown: Time = ""
    remind: Time = ""
    channels: Annotated[list[Annotated[str, Field(max_length=100)]], Field(max_length=50)] | None = None
    resolve: bool = True
    enabled: bool = True
    run: Annotated[str, Field(max_length=300, description="A run or a pattern; empty for all.")] = ""
    project: Annotated[str, Field(max_length=300, description="A project or a pattern; empty for all.")] = ""


class CheckedCondition(RequestBody):
    """A condition to check, and the run to evaluate it in."""

    when: Annotated[str, Field(max_length=4000)]
    run: Annotated[str, Field(min_length=1, max_length=300)] | None = None
