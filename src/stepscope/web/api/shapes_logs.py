"""Schemas of responses on what a run printed and why it failed."""

from __future__ import annotations

from pydantic import BaseModel, Field


class Failure(BaseModel):
    """Why a run failed."""

    reason: str
    exception: str | None = Field(description="The type of the exception; null where there was none.")
    message: str
    traceback: str | None
    hint: str | None = Field(description="Why there is no traceback, and how to record it next time.")


class ConsoleLine(BaseModel):
    """A line of the console."""

    number: int
    text: str
    time: float | None
    step: int | None
    stream: str
    level: str


class HowTo(BaseModel):
    """An instruction and its code."""

    text: str
    code: str


class Console(BaseModel):
    """The last lines a run printed."""

    lines: list[ConsoleLine]
    total: int
    captured: bool
    why_not: str | None
    how: list[HowTo] = Field(description="How to record the output of the next run.")
    file: str | None
    failure: Failure | None = Field(description="Why the run failed; null where it did not.")
