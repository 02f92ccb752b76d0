"""The shapes of answers on what a run printed and why it failed, as the API's own description has them."""

from __future__ import annotations

from pydantic import BaseModel, Field


class Failure(BaseModel):
    """Why a run went wrong."""

    reason: str
    exception: str | None = Field(description="The type of the exception; null where it was none.")
    message: str
    traceback: str | None
    hint: str | None = Field(description="Why there is no traceback, and how to have it the next time.")


class ConsoleLine(BaseModel):
    """A line of the console."""

    number: int
    text: str
    time: float | None
    step: int | None
    stream: str
    level: str


class HowTo(BaseModel):
    """A way to have something, and what to type for it."""

    text: str
    code: str


class Console(BaseModel):
    """The end of what a run printed."""

    lines: list[ConsoleLine]
    total: int
    captured: bool
    why_not: str | None
    how: list[HowTo] = Field(description="How to have the output of the next run.")
    file: str | None
    failure: Failure | None = Field(description="Why the run went wrong; null where it did not.")
