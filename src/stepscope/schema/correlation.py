"""Correlates the log lines of a run: one span id for each process, one trace id for all of them."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stepscope.schema.identity import Identity

TRACE_VARIABLE = "TRACEPARENT"
"""The environment variable in which other tools pass a trace to the processes they start."""

_TRACE_PARENT = re.compile(
    r"(?P<version>[0-9a-f]{2})-(?P<trace>[0-9a-f]{32})-(?P<span>[0-9a-f]{16})-(?P<flags>[0-9a-f]{2})(?P<more>-.*)?",
    re.ASCII,
)
_MAX_LENGTH = 512


@dataclass(frozen=True)
class TraceParent:
    """A trace that began outside stepscope, from a W3C `traceparent`."""

    trace_id: str
    span_id: str
    flags: str = "00"

    @classmethod
    def parse(cls, text: str | None) -> TraceParent | None:
        """Parses a `traceparent`; None for no text, or one that the standard calls invalid."""
        match = None if text is None or len(text) > _MAX_LENGTH else _TRACE_PARENT.fullmatch(text.strip())
        if match is None or match["version"] == "ff":
            return None
        if match["more"] is not None and match["version"] == "00":
            return None
        if not match["trace"].strip("0") or not match["span"].strip("0"):
            return None
        return cls(match["trace"], match["span"], match["flags"])

    def __str__(self) -> str:
        return f"00-{self.trace_id}-{self.span_id}-{self.flags}"


@dataclass(frozen=True)
class Correlation:
    """The ids in every log line of one process."""

    run_id: str
    segment: str
    rank: int
    trace_id: str
    """Shared by all processes of a segment, or by all that an outer trace covers."""
    span_id: str
    """The id of this process."""
    parent: TraceParent | None = None
    """The outer trace; None where there was none."""

    @property
    def id(self) -> str:
        """Run, segment and rank as one text."""
        return f"{self.run_id}/{self.segment}/{self.rank}"


def correlate(identity: Identity, pid: int, environment: Mapping[str, str]) -> Correlation:
    """Computes the ids of a process without communication.

    A valid `TRACEPARENT` gives the trace id. Otherwise it is a hash of run and segment, which are the same on
    all ranks and hosts. The span id is a hash of trace, segment, rank, host and process id.
    """
    parent = TraceParent.parse(environment.get(TRACE_VARIABLE))
    trace_id = parent.trace_id if parent else _digest(32, "trace", identity.run_id, identity.segment)
    span_parts = (trace_id, identity.segment, str(identity.rank), identity.host, str(pid))
    return Correlation(
        run_id=identity.run_id,
        segment=identity.segment,
        rank=identity.rank,
        trace_id=trace_id,
        span_id=_digest(16, "span", *span_parts),
        parent=parent,
    )


def hand_over(identity: Identity, correlation: Correlation) -> dict[str, str]:
    """The environment variables with which a process started elsewhere joins run, segment and trace.

    A child on this host inherits the outer trace anyway; one started by ssh or a scheduler does not. The span
    id stays the outer one: ours is only in log files, where no other tool could find it.
    """
    variables = {
        "STEPSCOPE_RUN": identity.name,
        "STEPSCOPE_PROJECT": identity.project,
        "STEPSCOPE_SEGMENT": identity.segment,
    }
    if identity.joined_id:
        variables["STEPSCOPE_RUN_ID"] = identity.joined_id
    if correlation.parent is not None:
        variables[TRACE_VARIABLE] = str(correlation.parent)
    return variables


def _digest(length: int, *parts: str) -> str:
    text = "\0".join(parts).encode("utf-8", "surrogatepass")
    return hashlib.sha256(text).hexdigest()[:length]
